"""Every elementwise operation against NumPy in float64, in every dtype; promotion, casts, where, clip."""

import math

import mathfuse as mf
import numpy as np
import pytest
from mathfuse import _core
from tools import BF16, E4M3, E5M2, assert_close, values, wide


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def gelu_grad(x):
    x = np.clip(x, -30, 30)
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


SPECIAL = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fma": lambda x, y, z: x * y + z,
    "erf": erf,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_grad": gelu_grad,
    "gelu_erf": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
    "softplus": lambda x: np.logaddexp(x, 0),
}
DOMAIN = {
    "sqrt": (0, 4), "rsqrt": (0.1, 4), "log": (0.1, 4), "log2": (0.1, 4), "log10": (0.1, 4), "log1p": (-0.9, 4),
    "arcsin": (-1, 1), "arccos": (-1, 1), "arctanh": (-0.9, 0.9), "arccosh": (1, 4), "power": (0.1, 2),
    "reciprocal": (0.5, 2), "divide": (0.5, 2), "floor_divide": (1, 9), "remainder": (1, 9), "tan": (-1.2, 1.2),
}  # fmt: skip
OPS = {name: arity for name, arity, _ in _core.ops()}
REAL = [name for name in OPS if not name.startswith("bitwise") and name not in ("where", "clip", "philox")]
STEPS = {"floor_divide", "remainder", "floor", "ceil", "trunc", "rint", "sign"}  # jump where the argument rounds


def reference(name):
    return SPECIAL.get(name) or getattr(np, name)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32, np.float64], ids=str)
@pytest.mark.parametrize("name", REAL)
def test_real(name, dtype, rng):
    low, high = DOMAIN.get(name, (-2, 2))
    args = [values(rng, (5, 7), dtype, low, high) for _ in range(OPS[name])]
    got = getattr(mf, name)(*args)
    want = reference(name)(*map(wide, args))
    assert got.dtype == (want.dtype if want.dtype == bool else dtype)
    assert_close(got, want, scale=4 if got.dtype != bool else 1)


@pytest.mark.parametrize("name", [n for n in REAL if n not in STEPS])
def test_special_values(name):
    """NaN, infinities, zeros of both signs, tiny and large numbers give what NumPy gives."""
    line = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 1.0, -1.0, 0.5, 100.0, -100.0])
    grids = np.meshgrid(*[line] * OPS[name], indexing="ij")
    with np.errstate(all="ignore"):
        want = reference(name)(*grids)
        if name in ("gelu", "gelu_erf"):  # x**3 overflows in the formula
            want = np.where(np.abs(grids[0]) == 1e30, np.maximum(grids[0], 0), want)
    got = getattr(mf, name)(*grids)
    if got.dtype == bool:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15 if name == "fma" else 1e-300)  # fma rounds once


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("name", ["negative", "absolute", "sign", "square", "add", "subtract", "multiply", "floor_divide",
                                  "remainder", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "equal",
                                  "less", "logical_not", "logical_and", "logical_xor"])  # fmt: skip
def test_integers(name, dtype, rng):
    args = [values(rng, (50,), dtype, -9, 9) for _ in range(OPS[name])]
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*args)
    got = getattr(mf, name)(*args)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["negative", "absolute", "square", "reciprocal", "sqrt", "add", "subtract", "multiply",
                                  "divide", "exp", "log", "isnan", "equal", "not_equal", "conjugate", "real", "imag",
                                  "logical_not"])  # fmt: skip
def test_complex(name, dtype, rng):
    args = [values(rng, (6, 5), dtype) for _ in range(OPS[name])]
    got = getattr(mf, name)(*args)
    want = getattr(np, name)(*args)
    assert got.dtype == want.dtype
    assert_close(got, getattr(np, name)(*map(wide, args)), scale=4)


DTYPES = [np.bool_, np.int32, np.int64, np.float16, np.float32, np.float64, np.complex64, np.complex128]


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_is_numpys(a, b, rng):
    x, y = values(rng, (4,), a), values(rng, (4,), b)
    assert mf.multiply(x, y).dtype == np.multiply(x, y).dtype
    assert mf.add(x, y[0]).dtype == np.add(x, y[0]).dtype  # NumPy scalars are strong


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 2.5, 1 + 2j, True])
def test_python_numbers_are_weak(dtype, number, rng):
    x = values(rng, (4,), dtype)
    got, want = mf.multiply(x, number), np.multiply(x, number)
    assert got.dtype == want.dtype
    assert_close(got, want, scale=4)


@pytest.mark.parametrize(
    ("given", "becomes"),
    [("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint16", "int32"), ("uint32", "int64"), ("uint64", "int64")],
)
def test_other_integers_are_widened(given, becomes):
    x = np.arange(5, dtype=given)
    got = mf.add(x, 1)
    assert got.dtype == becomes
    np.testing.assert_array_equal(got, np.arange(5) + 1)


def test_byte_order_and_alignment():
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(mf.negative(x.astype(">f4")), -x)
    odd = np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1)
    np.testing.assert_array_equal(mf.negative(odd), -x)
    record = np.zeros(4, dtype=[("a", "f4"), ("b", "i2")])
    record["a"] = [1, 2, 3, 4]
    np.testing.assert_array_equal(mf.negative(record["a"]), [-1, -2, -3, -4])


def test_numpy_integers_are_arguments_and_operands():
    x = np.ones((2, 6), np.float32)
    assert mf.fft.rfft(x, n=np.int64(4), axis=np.int32(-1)).shape == (2, 3)
    assert mf.sum(x, axis=np.int64(1), keepdims=np.bool_(True)).shape == (2, 1)
    for scalar in (np.int64(3), np.int32(3), np.int8(3), np.uint16(3), np.bool_(True)):
        assert mf.add(x, scalar).dtype == np.result_type(x, np.zeros(1, mf.add(scalar, scalar).dtype))
    assert mf.add(np.int64(2**62), np.int64(1)) == 2**62 + 1
    assert mf.add(np.uint8(200), np.uint8(100)) == 300  # widened first
    with pytest.raises(OverflowError):
        mf.add(np.uint64(2**63), 1)


def test_lists_buffers_and_numbers():
    import array

    np.testing.assert_array_equal(mf.add([1, 2, 3], 1), [2, 3, 4])
    np.testing.assert_array_equal(mf.negative(array.array("d", [1, 2])), [-1, -2])
    np.testing.assert_array_equal(mf.negative(memoryview(np.ones(3, np.float32))), [-1, -1, -1])
    assert mf.add(2, 3) == 5
    assert mf.exp(0.0).dtype == np.float64


@pytest.mark.parametrize("target", [np.float16, BF16, E4M3, E5M2], ids=str)
@pytest.mark.parametrize("saturate", [False, True])
def test_cast_rounds_to_nearest_even(target, saturate, rng):
    import ml_dtypes

    x = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-8, 6, 500), [0.0, -0.0, np.nan, 448, 464, 465, 61440]])
    x = x.astype(np.float32)
    got = mf.cast(x, target, saturate=saturate)
    assert got.dtype == target
    with np.errstate(all="ignore"):
        want = x.astype(target)
    if saturate:
        top = float(ml_dtypes.finfo(target).max)
        beyond = np.isnan(wide(want)) & ~np.isnan(x) | np.isinf(wide(want))
        want = np.where(beyond, np.copysign(top, x), wide(want))
    np.testing.assert_array_equal(wide(got), wide(want))


def test_cast_names():
    x = np.ones(3)
    for name in ("f32", "float32", np.float32, np.dtype("f4"), "<f4"):
        assert mf.cast(x, name).dtype == np.float32
    assert mf.cast(x, float).dtype == np.float64
    assert mf.cast(x, int).dtype == np.int64
    assert mf.cast(x, bool).dtype == bool
    assert mf.cast(x, "int8").dtype == np.int8
    with pytest.raises(TypeError, match="int16"):
        mf.cast(x, "int16x")


@pytest.mark.parametrize("given", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("saturate", [False, True])
def test_cast_to_int8(given, saturate):
    x = np.array([0, 1, -1, 127, 128, -128, -129, 255, 256, 1000, -70000], given)
    whole = np.issubdtype(given, np.integer)
    want = x.astype(np.int8) if whole and not saturate else np.clip(x, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(mf.cast(x, "int8", saturate=saturate), want)
    if not whole:
        np.testing.assert_array_equal(mf.cast(np.array([1.9, -1.9, np.nan, np.inf], given), "int8"), [1, -1, 0, 127])


def test_int8_is_storage(rng):
    x, y = (rng.integers(-128, 128, (7, 9)).astype(np.int8) for _ in range(2))
    np.testing.assert_array_equal(mf.add(x, y), x.astype(np.int32) + y)
    np.testing.assert_array_equal(mf.multiply(x, 3), x.astype(np.int32) * 3)
    assert mf.add(x, np.int64(1)).dtype == np.int64
    assert mf.sum(x).dtype == np.int64 and mf.sum(x) == x.sum(dtype=np.int64)
    assert mf.max(x).dtype == np.int8 and mf.max(x) == x.max()
    turned = mf.fuse(lambda x: x.T.reshape(-1))(x)
    assert turned.dtype == np.int8
    np.testing.assert_array_equal(turned, x.T.reshape(-1))
    assert mf.exp(x).dtype == np.float64


def test_fp8_is_storage():
    x = np.array([1.5, 2.0, -3.0], E4M3)
    y = mf.multiply(x, np.float32(2))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, [3, 4, -6])


def test_where_and_clip(rng):
    x, y = values(rng, (4, 5), np.float32), values(rng, (5,), np.float32)
    np.testing.assert_array_equal(mf.where(x > 0, x, y), np.where(x > 0, x, y))
    assert mf.where(x > 0, x, 0).dtype == np.float32
    np.testing.assert_array_equal(mf.clip(x, -1, 1), np.clip(x, -1, 1))
    np.testing.assert_array_equal(mf.clip(x, None, y), np.minimum(x, y))
    np.testing.assert_array_equal(mf.clip(x, max=0.5), np.clip(x, None, 0.5))
    assert np.isnan(mf.clip(np.float32(np.nan), 0, 1))


@pytest.mark.parametrize("name", ["relu", "maximum", "minimum"])
def test_nan_passes(name):
    x = np.array([np.nan, 1], np.float32)
    y = getattr(mf, name)(*[x, x[::-1].copy()][: OPS[name]])
    assert np.isnan(y[0])


def test_reductions(rng):
    x = values(rng, (3, 4, 5), np.float32)
    for name in ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all"):
        for axis in (None, 0, -1, (0, 2), (1, -1), ()):
            for keepdims in (False, True):
                want = getattr(np, name)(wide(x), axis=axis, keepdims=keepdims)
                got = getattr(mf, name)(x, axis, keepdims=keepdims)
                assert got.dtype == (bool if name in ("any", "all") else np.float32)
                assert_close(got, want, scale=8)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64, np.float16, np.complex64])
def test_reduction_dtypes(dtype, rng):
    x = values(rng, (6, 7), dtype)
    for name in ("sum", "prod", "mean", "any"):
        got, want = getattr(mf, name)(x, axis=0), getattr(np, name)(x, axis=0)
        assert got.dtype == want.dtype, name
        assert_close(got, want, scale=8)
    assert mf.sum(x, dtype=np.complex128).dtype == np.complex128
    if np.dtype(dtype).kind != "c":
        for name in ("sum", "prod"):
            got, want = (getattr(m, name)(x, axis=0, dtype=np.int32) for m in (mf, np))
            assert got.dtype == want.dtype == np.int32
            np.testing.assert_array_equal(got, want)


def test_empty_reductions():
    x = np.ones((0, 3), np.float32)
    np.testing.assert_array_equal(mf.sum(x, axis=0), np.zeros(3))
    np.testing.assert_array_equal(mf.prod(x, axis=0), np.ones(3))
    assert mf.all(x) and not mf.any(x)
    assert mf.sum(x, axis=1).shape == (0,)
    with pytest.raises(ValueError, match="empty"):
        mf.max(x, axis=0)


def test_sum_is_accurate_and_nan_spreads(rng):
    x = np.full(1 << 20, np.float32(0.1))
    assert abs(float(mf.sum(x)) - 0.1 * 2**20) < 1
    h = np.ones(5000, np.float16)
    assert float(mf.sum(h)) == 5000  # accumulated in f32
    x[77] = np.nan
    assert np.isnan(mf.max(x)) and np.isnan(mf.min(x)) and np.isnan(mf.sum(x))


def test_norms(rng):
    x, w, b = values(rng, (6, 32), np.float32), values(rng, (32,), np.float32), values(rng, (32,), np.float32)
    z = wide(x)
    e = np.exp(z - z.max(-1, keepdims=True))
    assert_close(mf.softmax(x), e / e.sum(-1, keepdims=True), scale=4)
    assert_close(mf.softmax(x * 1e4, axis=0).sum(0), np.ones(32), scale=8)
    assert_close(mf.rms_norm(x, w), z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-6) * w, scale=8)
    assert_close(
        mf.layer_norm(x, w, b), (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + 1e-5) * w + b, scale=8
    )


def test_zero_sizes_and_zero_dims():
    assert mf.exp(np.ones((0, 3), np.float32)).shape == (0, 3)
    assert mf.add(np.ones((2, 0)), np.ones((1, 1))).shape == (2, 0)
    got = mf.add(np.float32(1), np.ones((), np.float32))
    assert got.shape == () and got.dtype == np.float32 and got == 2


def test_integers_to_negative_powers():
    x = np.array([1, 2, -3])
    for call in (
        lambda: mf.power(x, -1),
        lambda: mf.fuse(lambda x: x**-2)(x),
        lambda: mf.fuse(lambda x: np.power(x, np.int64(-1)))(x),
    ):
        with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed") as caught:
            call()
        assert isinstance(caught.value, mf.Error)
    np.testing.assert_array_equal(mf.power(x, -1.0), x**-1.0)
    np.testing.assert_array_equal(mf.power(x.astype(np.float32), -1), np.power(x.astype(np.float32), -1))
    np.testing.assert_array_equal(mf.power(x, 3), x**3)
    np.testing.assert_array_equal(mf.power(x, np.array([-1, -1, -1])), [1, 0, 0])
    np.testing.assert_allclose(mf.power(x + 0j, -2), (x + 0j) ** -2)


@pytest.mark.parametrize("length", [1, 2, 4, 31, 32, 33, 64, 65])
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64", "complex64", "complex128"])
def test_reductions_across_short_columns(length, dtype, rng):
    """Rows that lie apart, reduced side by side: lengths around what narrow accumulators take; NaN, infinities, signs of 0."""
    x = values(rng, (3, length, 1100), dtype)
    if x.dtype.kind == "f":
        x[0, -1, :5] = np.nan, np.inf, -np.inf, 0, 0
    if x.dtype.kind in "fc":
        x[1, :, :4] = -0.0
    for name in ("sum", "prod", "any", "all", "max", "min"):
        if name in ("max", "min") and x.dtype.kind in "bc":
            continue
        with np.errstate(all="ignore"):
            got, want = getattr(mf, name)(x, 1), getattr(np, name)(x, 1)
        assert got.dtype == want.dtype
        if name in ("any", "all", "max", "min") or x.dtype.kind in "bi":
            np.testing.assert_array_equal(got, want)
        else:
            single = x.dtype in (np.float32, np.complex64)
            np.testing.assert_allclose(got, want, rtol=1e-4 if single else 1e-12, atol=1e-4 if single else 1e-12)
    if x.dtype.kind == "f":
        got = mf.fuse(lambda x: (x - x.mean(1, keepdims=True), x.max(1) + (x * x).sum(1)))(x)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got[0], x - x.mean(1, keepdims=True), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(got[1], x.max(1) + (x * x).sum(1), rtol=1e-4)


WIDE = [2**53 + 1, -(2**53 + 1), 2**62 + 1, 2**63 - 1, -(2**63), 2**31, -(2**31) - 1, 2**40, 2**63, 2**64, -(10**30)]


@pytest.mark.parametrize("value", WIDE)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "floor_divide", "bitwise_xor", "maximum", "equal", "less", "greater_equal"]
)
def test_wide_python_integers_are_exact_or_refused_as_in_numpy(name, dtype, value):
    x = np.array([0, 1, -1, 2**30, 7], dtype)
    if name == "bitwise_xor" and dtype == np.float32:
        pytest.skip("not defined")
    for numpys, ours in [
        (lambda: getattr(np, name)(x, value), lambda: getattr(mf, name)(x, value)),
        (lambda: getattr(np, name)(value, x), lambda: mf.fuse(lambda v: getattr(np, name)(value, v))(x)),
    ]:
        try:
            want = numpys()
        except OverflowError:
            with pytest.raises(mf.errors.RangeError):
                ours()
            continue
        got = ours()
        assert got.dtype == want.dtype and np.array_equal(got, want)


def test_wide_integers_as_branches_limits_and_fills():
    x, wide = np.array([0, 1, 2**62], np.int64), 2**53 + 1
    assert np.array_equal(mf.where(x > 0, x, wide), np.where(x > 0, x, wide))
    assert np.array_equal(mf.clip(x, -wide, 2**62 - 1), np.clip(x, -wide, 2**62 - 1))
    assert np.array_equal(mf.fuse(lambda v: np.full_like(v, wide))(x), np.full_like(x, wide))
    assert mf.matmul(x[None, 1:2], x[1:2, None], alpha=wide).item() == wide
