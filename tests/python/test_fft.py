"""mathfuse.fft against numpy.fft: every function, lengths, axes, norms, dtypes, edges."""

import mathfuse as mf
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tools import BF16, LAYOUTS, assert_close, strided, values, wide

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
REAL_INPUT = {"rfft", "ihfft", "rfftn", "rfft2"}


def sample(rng, shape, name, dtype):
    return values(rng, shape, np.zeros(0, dtype).real.dtype if name in REAL_INPUT else dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 30, 31, 97, 128, 131, 210, 251, 256, 1000, 1009, 4096])
@pytest.mark.parametrize("name", ONE)
def test_lengths(name, n, rng):
    x = sample(rng, (3, n), name, np.complex128)
    want = getattr(np.fft, name)(x, n=n)
    assert_close(getattr(mf.fft, name)(x, n=n), want, scale=20)


@given(
    st.sampled_from(ONE), st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(-3, 2), st.none() | st.integers(1, 12),
    st.sampled_from([None, "backward", "ortho", "forward"]),
    st.sampled_from([np.complex64, np.complex128]), st.sampled_from(LAYOUTS), st.integers(0, 2**31),
)  # fmt: skip
def test_one_axis(name, shape, axis, n, norm, dtype, layout, seed):
    x = strided(sample(np.random.default_rng(seed), shape, name, dtype), layout)
    call = lambda module, v: getattr(module, name)(v, n, axis, norm)  # noqa: E731
    try:
        want = call(np.fft, wide(x))
    except (ValueError, IndexError) as error:
        with pytest.raises(IndexError if isinstance(error, IndexError) else ValueError):
            call(mf.fft, x)
        return
    got = call(mf.fft, x)
    assert got.dtype == call(np.fft, x).dtype
    assert_close(got, want, scale=20)


@given(
    st.sampled_from(MANY), st.lists(st.integers(1, 6), min_size=2, max_size=4), st.data(),
    st.sampled_from([None, "ortho", "forward"]), st.sampled_from([np.complex64, np.complex128]), st.integers(0, 2**31),
)  # fmt: skip
def test_several_axes(name, shape, data, norm, dtype, seed):
    x = sample(np.random.default_rng(seed), shape, name, dtype)
    count = 2 if name.endswith("2") else data.draw(st.integers(1, len(shape)))
    axes = tuple(data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=count, max_size=count)))
    s = data.draw(st.none() | st.tuples(*[st.integers(1, 7)] * count))
    kwargs = {"s": s, "axes": axes, "norm": norm}
    try:
        want = getattr(np.fft, name)(wide(x), **kwargs)
    except ValueError:
        with pytest.raises(ValueError):
            getattr(mf.fft, name)(x, **kwargs)
        return
    assert_close(getattr(mf.fft, name)(x, **kwargs), want, scale=30)


@pytest.mark.parametrize("name", MANY)
def test_defaults(name, rng):
    x = sample(rng, (3, 4, 5), name, np.complex128)
    assert_close(getattr(mf.fft, name)(x), getattr(np.fft, name)(x), scale=20)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64, np.uint8, np.float16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "fftn", "rfft2", "hfft"])
def test_result_dtypes(name, dtype, rng):
    x = values(rng, (4, 6), dtype, 0, 2)
    if name in REAL_INPUT and np.dtype(dtype).kind == "c":
        with pytest.raises(TypeError, match="real input"):
            getattr(mf.fft, name)(x)
        return
    want = getattr(np.fft, name)(x)
    got = getattr(mf.fft, name)(x)
    if dtype != np.float16:  # which NumPy's inverses keep; here it computes in float32 and says so
        assert got.dtype == want.dtype
    assert_close(got, want, scale=20, tolerance=1e-3 if want.dtype == np.float16 else None)


def test_bfloat16_becomes_complex64(rng):
    x = values(rng, (8,), BF16)
    assert mf.fft.fft(x).dtype == np.complex64
    assert_close(mf.fft.rfft(x), np.fft.rfft(wide(x)), scale=8)


@pytest.mark.parametrize("n", [65537, 2**17, 3**10, 99991])
def test_long_and_prime(n, rng):
    x = values(rng, (n,), np.complex128)
    assert_close(mf.fft.fft(x), np.fft.fft(x), scale=50)


def test_lengths_below_one():
    for call in (lambda: mf.fft.fft(np.ones(4), n=0), lambda: mf.fft.irfft(np.ones(1)), lambda: mf.fft.fft(np.ones((3, 0))),
                 lambda: mf.fft.rfftn(np.ones((2, 2)), s=(2, 0), axes=(0, 1))):  # fmt: skip
        with pytest.raises(ValueError, match="length"):
            call()


def test_empty_batch():
    assert mf.fft.rfft(np.ones((0, 2, 16), np.float32)).shape == (0, 2, 9)
    assert mf.fft.fft2(np.ones((0, 4, 4))).shape == (0, 4, 4)


def test_inverse_ignores_imaginary_ends(rng):
    x = values(rng, (9,), np.complex64)
    assert_close(mf.fft.irfft(x, n=16), np.fft.irfft(x, n=16), scale=8)
    spectrum = values(rng, (4, 3), np.complex64)
    assert_close(mf.fft.irfft2(spectrum, s=(4, 4), norm="forward"), np.fft.irfft2(spectrum, s=(4, 4), norm="forward"), scale=8)


def test_input_is_kept_and_runs_repeat(rng):
    x = values(rng, (6, 5), np.complex128)
    before = x.copy()
    first, second = mf.fft.irfft2(x), mf.fft.irfft2(x)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(first, second)


def test_out(rng):
    x = values(rng, (4, 6), np.complex128)
    buffer = np.zeros((4, 12), np.complex128)
    out = buffer[:, ::2]
    assert mf.fft.fft(x, axis=0, out=out) is out
    assert_close(out, np.fft.fft(x, axis=0), scale=8)
    assert (buffer[:, 1::2] == 0).all()


@pytest.mark.parametrize("shape", [(5,), (4,), (3, 4), (5, 7), (1, 6)])
def test_shifts_and_frequencies(shape, rng):
    x = values(rng, shape, np.float32)
    for axes in (None, 0, (-1,), tuple(range(len(shape)))):
        np.testing.assert_array_equal(mf.fft.fftshift(x, axes), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(mf.fft.ifftshift(x, axes), np.fft.ifftshift(x, axes))
    np.testing.assert_array_equal(mf.fft.fftfreq(7, 0.5), np.fft.fftfreq(7, 0.5))
    np.testing.assert_array_equal(mf.fft.rfftfreq(8), np.fft.rfftfreq(8))


def test_arguments_are_checked():
    x = np.ones((3, 4))
    with pytest.raises(ValueError, match="norm"):
        mf.fft.fft(x, norm="unitary")
    with pytest.raises(IndexError):
        mf.fft.fft(x, axis=2)
    with pytest.raises(ValueError):
        mf.fft.fftn(x, s=(3,), axes=(0, 1))
    with pytest.raises(TypeError):
        mf.fft.fft(x, n=2.5)


def test_namespace_is_numpys():
    assert set(mf.fft.__all__) - {"convolve", "correlate"} == set(np.fft.__all__)


def test_filter_chain(rng):
    x, h = values(rng, (1, 32), np.float32), values(rng, (3, 32), np.float32)
    chain = mf.fuse(lambda a, b: mf.relu(np.fft.irfft(np.fft.rfft(a) * np.fft.rfft(b))))
    want = np.maximum(np.fft.irfft(np.fft.rfft(wide(x)) * np.fft.rfft(wide(h))), 0)
    assert_close(chain(x, h), want, scale=20)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("m, k", [(50, 7), (50, 8), (7, 50), (8, 50), (2, 4), (1, 1), (33, 33), (8, 8)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_convolve_and_correlate(mode, m, k, dtype, rng):
    a, v = (rng.normal(size=n) + (1j * rng.normal(size=n) if dtype == np.complex128 else 0) for n in (m, k))
    np.testing.assert_allclose(mf.fft.convolve(a, v, mode), np.convolve(a, v, mode), atol=1e-12)
    np.testing.assert_allclose(mf.fft.correlate(a, v, mode), np.correlate(a, v, mode), atol=1e-12)


def test_convolve_batches_and_axes(rng):
    a, v = rng.normal(size=(3, 4, 60)), rng.normal(size=(4, 9))
    want = np.stack([[np.convolve(a[i, j], v[j]) for j in range(4)] for i in range(3)])
    np.testing.assert_allclose(mf.fft.convolve(a, v), want, atol=1e-12)
    w = rng.normal(size=5)
    want = np.apply_along_axis(np.convolve, 1, a, w, "same")
    np.testing.assert_allclose(mf.fft.convolve(a, w, "same", axis=1), want, atol=1e-12)


@pytest.mark.parametrize("n", [8, 15, 100])
def test_circular_convolution(n, rng):
    a, v = rng.normal(size=(2, n)), rng.normal(size=n // 2)
    want = np.fft.ifft(np.fft.fft(a) * np.fft.fft(v, n)).real
    np.testing.assert_allclose(mf.fft.convolve(a, v, "wrap"), want, atol=1e-12)


def test_convolve_refusals():
    with pytest.raises(mf.errors.InvalidError, match="'full', 'same', 'valid', 'wrap'"):
        mf.fft.convolve(np.ones(3), np.ones(2), "circular")
    with pytest.raises(mf.errors.ShapeError, match="at least one"):
        mf.fft.convolve(np.ones(3), np.ones(0))
    with pytest.raises(mf.errors.ShapeError, match="no axis -3"):
        mf.fft.convolve(np.ones((3, 4, 5)), np.ones((2, 5)), axis=0)


@pytest.mark.compiles
def test_filters_are_one_launch_on_a_gpu():
    x, h, w = mf.spec((64, 4, 1024), "complex64"), mf.spec((4, 1024), "complex64"), mf.spec((1024,), "float32")

    def filtered(x, h, w):
        return np.fft.ifft(np.fft.fft(x * w) * h)

    plan = mf.plan(filtered, x, h, w, target="sm_90a")
    assert plan.launches == 1 and "generated_fft" in plan.explain()

    def spectrum(x, w):
        return np.abs(np.fft.rfft(x * w, n=2048)) ** 2

    assert mf.plan(spectrum, mf.spec((100, 1024), "float32"), w, target="sm_80").launches == 1
    convolved = mf.plan(
        mf.fft.convolve, mf.spec((64, 4096), "float32"), mf.spec((101,), "float32"), mode="wrap", target="sm_90a"
    )
    assert convolved.launches == 2  # the filter's transform, and everything else


def spectral_layer(x, w):
    """A Fourier Neural Operator's: the lowest modes of each channel mixed over the channels."""
    modes = w.shape[-1]
    if x.dtype in ("float32", "float64", "f32", "f64"):
        return mf.fft.irfft(mf.einsum("bcm,com->bom", mf.fft.rfft(x)[..., :modes], w), n=x.shape[-1])
    return mf.fft.ifft(mf.einsum("bcm,com->bom", mf.fft.fft(x)[..., :modes], w), n=x.shape[-1])


def spectral_layer_2d(x, w):
    """As spectral_layer, on the lowest modes of either axis."""
    rows, columns = w.shape[2:]
    low = mf.fft.rfft2(x)[..., :rows, :columns]
    return mf.fft.irfft2(mf.einsum("bcxy,coxy->boxy", low, w), s=x.shape[-2:])


@pytest.mark.parametrize("n, modes", [(64, 8), (75, 20), (128, 65)])
@pytest.mark.parametrize("real", [True, False])
def test_spectral_layer(n, modes, real, rng):
    modes = min(modes, n // 2 + 1)
    x = rng.normal(size=(3, 4, n)) + (0 if real else 1j * rng.normal(size=(3, 4, n)))
    w = rng.normal(size=(4, 5, modes)) + 1j * rng.normal(size=(4, 5, modes))
    there, back = (np.fft.rfft, np.fft.irfft) if real else (np.fft.fft, np.fft.ifft)
    want = back(np.einsum("bcm,com->bom", there(x)[..., :modes], w), n=n)
    np.testing.assert_allclose(mf.fuse(spectral_layer)(x, w), want, atol=1e-11)


def test_spectral_layer_2d(rng):
    x = rng.normal(size=(2, 3, 24, 20))
    w = rng.normal(size=(3, 4, 6, 5)) + 1j * rng.normal(size=(3, 4, 6, 5))
    low = np.fft.rfft2(x)[..., :6, :5]
    want = np.fft.irfft2(np.einsum("bcxy,coxy->boxy", low, w), s=(24, 20))
    np.testing.assert_allclose(mf.fuse(spectral_layer_2d)(x, w), want, atol=1e-11)


@pytest.mark.compiles
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_truncation_and_padding_join_the_transforms_on_a_gpu(dtype):
    """The kept modes lie across the batch; few against the result, they are padded in the kernel and not by a copy."""
    plan = mf.plan(spectral_layer, mf.spec((64, 64, 1024), dtype), mf.spec((64, 64, 64), "complex64"), target="sm_90a")
    _, first, _, last = plan.explain().split("\nstep ")
    assert "runs on generated_fft" in first and "over 4096x64\n" in first, first  # the other terms are not stored
    assert "runs on generated_fft" in last and "1 launch," in last, last


@pytest.mark.compiles
def test_terms_that_are_read_are_stored():
    """A second reader of all terms, or a result of the caller's, keeps a transform whole."""

    def both(x, w):
        y = mf.fft.fft(x)
        return mf.matmul(y[..., :32], w), y

    def ends(x, w):
        y = mf.fft.fft(x)
        return mf.matmul(y[..., :32], w) + mf.matmul(y[..., -32:], w)

    for function in (both, ends):
        plan = mf.plan(function, mf.spec((500, 256), "complex64"), mf.spec((32, 32), "complex64"), target="sm_90a")
        assert "fft f32 n=256 over 500x256\n" in plan.explain(), plan.explain()


@pytest.mark.parametrize("providers", ["fftw", "ref"])
@pytest.mark.parametrize("shape", [(40, 64), (3, 5, 75), (257, 100), (2, 3, 4, 33), (1, 8), (64, 4096)])
@pytest.mark.parametrize("real", [True, False])
def test_filters_stay_in_cache(providers, shape, real, rng):
    """Window, transform, filter and inverse on the CPU are one step where the batch is large enough for all threads."""
    n = shape[-1]
    x, w = rng.normal(size=shape), rng.normal(size=n)
    h = rng.normal(size=(*shape[1:-1], n // 2 + 1 if real else n)) * (1 + 0.5j)
    if not real:
        x = x + 1j * rng.normal(size=shape)
    back = {True: lambda y: np.fft.irfft(y, n=n), False: np.fft.ifft}[real]
    there = np.fft.rfft if real else np.fft.fft

    def filtered(x, w, h):
        return back(there(x * w) * h) + 1

    plan = mf.plan(filtered, x, w, h, providers=f"{providers},ref")
    np.testing.assert_allclose(plan.run(x, w, h), filtered(x, w, h), atol=1e-11)
    if x.size // n >= 64:
        assert plan.launches == 1 and "temporary" in plan.explain()
    turned = np.ascontiguousarray(x.T).T  # other strides
    np.testing.assert_allclose(mf.fuse(filtered)(turned, w, h), filtered(x, w, h), atol=1e-11)


@pytest.mark.parametrize("n", [0, -1, 1 << 48, 1 << 62, 1 << 64])
def test_impossible_lengths(n):
    for name in ("fft", "rfft", "irfft"):
        with pytest.raises(ValueError, match=f"length n={n} is not possible"):
            getattr(mf.fft, name)(np.ones(3), n)
    with pytest.raises(ValueError, match="more than 281474976710656 elements"):
        mf.plan(lambda x: mf.fft.fft2(x), mf.spec((1 << 30, 1 << 30), "c64"))


@pytest.mark.parametrize("shape", [(8,), (7,), (6, 5), (4, 6), (5, 7), (2, 4, 6), (0, 4), (1, 2)])
def test_shifts_of_even_and_odd_axes(shape, rng):
    x = rng.normal(size=shape)
    for name in ("fftshift", "ifftshift"):
        for axes in (None, *range(len(shape)), (0, -1)):
            np.testing.assert_array_equal(getattr(mf.fft, name)(x, axes), getattr(np.fft, name)(x, axes))
    roll = mf.fuse(lambda x: np.roll(x, (shape[0] // 2, 1, 3), (0, -1, 0)))
    np.testing.assert_array_equal(roll(x), np.roll(x, (shape[0] // 2, 1, 3), (0, -1, 0)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "shape", [(512, 40), (1024, 16), (420, 50), (509, 40), (4096, 9), (4096, 7), (3, 256, 70), (2, 1000, 33)]
)
def test_tall_columns(shape, dtype, rng):
    """Columns side by side, spread over more than a cache: smooth lengths, a prime, few columns, views."""
    x = values(rng, shape, dtype)
    axis = len(shape) - 2
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    for y in (x, x[..., ::-1], x[..., ::2], np.asfortranarray(x)):
        for name in ("fft", "ifft") if y.dtype.kind == "c" else ("fft", "rfft"):
            want = getattr(np.fft, name)(y.astype(wide), axis=axis)
            got = getattr(mf.fft, name)(y, axis=axis)
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())
    want = np.fft.fft2(x.astype(wide), axes=(axis, axis + 1))
    np.testing.assert_allclose(mf.fft.fft2(x, axes=(axis, axis + 1)), want, rtol=0, atol=tolerance * np.abs(want).max())
    chain = mf.fuse(lambda x: mf.fft.ifft(mf.fft.fft(x * 2, axis=axis) + 1, axis=axis))(x)
    want = np.fft.ifft(np.fft.fft(x.astype(wide) * 2, axis=axis) + 1, axis=axis)
    np.testing.assert_allclose(chain, want, rtol=0, atol=tolerance * np.abs(want).max())
