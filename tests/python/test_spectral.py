"""Layers in the spectrum: transform, keep low terms, multiply over the channels, pad, transform back."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec


def layer(modes):
    def f(x, w):
        low = mf.fft.rfft(x)[..., :modes]
        return mf.fft.irfft(mf.einsum("bik,iok->bok", low, w), x.shape[-1])

    return f


def layer2(rows, columns):
    def f(x, w):
        low = mf.fft.rfft2(x)[..., :rows, :columns]
        product = mf.einsum("bihw,iohw->bohw", low, w)
        return mf.fft.irfft2(product, s=x.shape[-2:])

    return f


def expected(x, w, axes, modes):
    low = np.fft.rfftn(x.astype(np.float64), axes=axes)[(..., *(slice(m) for m in modes))]
    letters = "hw"[: len(axes)]
    product = np.einsum(f"bi{letters},io{letters}->bo{letters}", low, w)
    return np.fft.irfftn(product, s=[x.shape[a] for a in axes], axes=axes)


def signals(rng, batch, channels, out, extents, modes):
    x = rng.standard_normal((batch, channels, *extents)).astype(np.float32)
    w = rng.standard_normal((channels, out, *modes)) + 1j * rng.standard_normal((channels, out, *modes))
    return x, w.astype(np.complex64)


CASES = [((5, 6, 7), (48,), (9,)), ((3, 4, 4), (64,), (16,)), ((2, 3, 5), (24, 32), (5, 8)), ((2, 8, 8), (16, 16), (4, 9)),
         ((1, 1, 1), (10,), (6,))]  # fmt: skip


@pytest.mark.parametrize("sizes, extents, modes", CASES, ids=str)
def test_layer_on_the_cpu(rng, sizes, extents, modes):
    x, w = signals(rng, *sizes, extents, modes)
    axes = tuple(range(-len(extents), 0))
    got = mf.fuse(layer(*modes) if len(extents) == 1 else layer2(*modes))(x, w)
    want = expected(x, w, axes, modes)
    assert got.dtype == np.float32 and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.compiles
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_layer_is_three_kernels_without_local_memory(target):
    plan = mf.plan(layer(64), S((64, 64, 1024)), S((64, 64, 64), "c64"), target=target, providers="-cublaslt")
    steps = json.loads(plan.explain("json"))["steps"]
    assert [s["provider"] for s in steps] == ["generated_fft", "generated", "generated_fft"]
    assert all(s["launches"] == 1 and s["spills"] == 0 for s in steps)
    assert "products" in steps[1]["identity"]


@pytest.mark.compiles
def test_products_side_by_side_only_where_that_is_how_they_lie():
    def identity(f, *specs):
        return json.loads(mf.plan(f, *specs, target="sm_90a", providers="generated").explain("json"))["steps"][0]["identity"]

    beside = identity(lambda a, b: mf.einsum("bik,iok->bok", a, b), S((64, 64, 64)), S((64, 64, 64)))
    assert beside.startswith("8 products")
    assert identity(lambda a, b: mf.einsum("bik,iok->bok", a, b), S((64, 64, 12)), S((64, 64, 12))).startswith("8 products")
    assert identity(mf.matmul, S((64, 64, 64)), S((64, 64, 64))).startswith("tiles")
    assert identity(lambda a, b: mf.einsum("bik,iok->bok", a, b), S((64, 64, 4)), S((64, 64, 4))).startswith("tiles")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "sizes, extents, modes", [*CASES, ((64, 64, 64), (1024,), (64,)), ((8, 32, 32), (128, 128), (16, 16))], ids=str
)
def test_layer_on_a_gpu(rng, sizes, extents, modes):
    torch = pytest.importorskip("torch")
    x, w = signals(rng, *sizes, extents, modes)
    axes = tuple(range(-len(extents), 0))
    device = [torch.from_numpy(a).cuda() for a in (x, w)]
    function = layer(*modes) if len(extents) == 1 else layer2(*modes)
    want = expected(x, w, axes, modes)
    got = mf.plan(function, *device).run(*device).cpu().numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("sizes", [(64, 64, 64, 64), (33, 17, 9, 40), (1, 5, 1, 100), (256, 3, 200, 9)], ids=str)
def test_products_side_by_side_on_a_gpu(rng, sizes, dtype):
    torch = pytest.importorskip("torch")
    b, i, o, k = sizes
    x = rng.standard_normal((b, i, k)) + (1j * rng.standard_normal((b, i, k)) if np.dtype(dtype).kind == "c" else 0)
    w = rng.standard_normal((i, o, k)) + (1j * rng.standard_normal((i, o, k)) if np.dtype(dtype).kind == "c" else 0)
    x, w = x.astype(dtype), w.astype(dtype)
    device = [torch.from_numpy(a).cuda() for a in (x, w)]
    plan = mf.plan(lambda a, b: mf.einsum("bik,iok->bok", a, b) * 0.5 + 1, *device, providers="generated")
    assert " products" in plan.explain("json")
    want = np.einsum("bik,iok->bok", x.astype(np.complex128), w.astype(np.complex128)) * 0.5 + 1
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-11
    np.testing.assert_allclose(plan.run(*device).cpu().numpy(), want, rtol=0, atol=tolerance * np.abs(want).max())


ACROSS = {
    "fft": lambda x, h: mf.fft.fft(x, axis=1),
    "filter": lambda x, h: mf.fft.ifft(mf.fft.fft(x, axis=1) * h[:, None], axis=1),
    "padded": lambda x, h: mf.abs(mf.fft.fft(x, n=2 * x.shape[1], axis=1)) ** 2,
}


@pytest.mark.compiles
@pytest.mark.parametrize("name", ACROSS)
def test_transforms_across_are_one_kernel(name):
    plan = mf.plan(ACROSS[name], S((8, 256, 40), "c64"), S((256,), "c64"), target="sm_90a")
    (step,) = json.loads(plan.explain("json"))["steps"]
    assert step["provider"] == "generated_fft" and step["launches"] == 1 and step["spills"] == 0


@pytest.mark.gpu
@pytest.mark.parametrize("name", ACROSS)
@pytest.mark.parametrize("shape", [(8, 256, 40), (3, 1000, 5), (1, 4096, 33), (2, 97, 64), (5, 16, 1000)], ids=str)
def test_transforms_across_on_a_gpu(rng, name, shape):
    torch = pytest.importorskip("torch")
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)
    h = (rng.standard_normal(shape[1]) + 1j * rng.standard_normal(shape[1])).astype(np.complex64)
    device = [torch.from_numpy(a).cuda() for a in (x, h)]
    got = mf.plan(ACROSS[name], *device).run(*device).cpu().numpy()
    spectrum = np.fft.fft(x.astype(np.complex128), axis=1)
    want = {"fft": lambda: spectrum, "filter": lambda: np.fft.ifft(spectrum * h[:, None], axis=1),
            "padded": lambda: np.abs(np.fft.fft(x, n=2 * shape[1], axis=1)) ** 2}[name]()  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())


PLANES = {
    "complex": lambda x, h: mf.fft.ifft2(mf.fft.fft2(x) * h),
    "real": lambda x, h: mf.fft.irfft2(mf.fft.rfft2(x) * h),
    "three axes": lambda x, h: mf.fft.ifftn(mf.fft.fftn(x) * h),
}


@pytest.mark.compiles
def test_filters_of_planes_are_three_passes():
    def steps(f, *specs):
        return [s["anchor"] for s in json.loads(mf.plan(f, *specs, target="sm_90a").explain("json"))["steps"]]

    assert len(steps(PLANES["complex"], S((64, 512, 512), "c64"), S((512, 512), "c64"))) == 3
    assert len(steps(PLANES["real"], S((64, 512, 512)), S((512, 257), "c64"))) == 3
    assert len(steps(PLANES["three axes"], S((128, 128, 128), "c64"), S((128, 128, 128), "c64"))) == 5
    assert len(steps(lambda x: mf.fft.fft2(x), S((64, 512, 512), "c64"))) == 1  # the library's, in its own two passes


@pytest.mark.gpu
@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("shape", [(3, 64, 96), (2, 30, 128), (1, 256, 256)], ids=str)
def test_filters_of_planes_on_a_gpu(rng, name, shape):
    torch = pytest.importorskip("torch")
    real = name == "real"
    x = rng.standard_normal(shape) + (0 if real else 1j * rng.standard_normal(shape))
    bins = (*shape[:-1], shape[-1] // 2 + 1) if real else shape
    h = (
        np.fft.rfftn(rng.standard_normal(shape), axes=(1, 2))
        if real
        else rng.standard_normal(bins) + 1j * rng.standard_normal(bins)
    )
    x, h = x.astype(np.float32 if real else np.complex64), h.astype(np.complex64)
    device = [torch.from_numpy(a).cuda() for a in (x, h)]
    got = mf.plan(PLANES[name], *device).run(*device).cpu().numpy()
    axes = (0, 1, 2) if name == "three axes" else (1, 2)
    wide = x.astype(np.float64 if real else np.complex128)
    want = np.fft.irfft2(np.fft.rfft2(wide) * h) if real else np.fft.ifftn(np.fft.fftn(wide, axes=axes) * h, axes=axes)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())


LONG = 65536  # beyond two blocks: the library's transforms, which do not scale


@pytest.mark.compiles
def test_the_filter_scales_for_the_librarys_inverse():
    filtered = mf.plan(lambda x, h: mf.fft.ifft(mf.fft.fft(x) * h), S((64, LONG), "c64"), S((LONG,), "c64"), target="sm_90a")
    steps = json.loads(filtered.explain("json"))["steps"]
    assert [s["launches"] for s in steps] == [2, 1, 2] and "scale" not in steps[2]["kernel"]
    alone = json.loads(mf.plan(mf.fft.ifft, S((64, LONG), "c64"), target="sm_90a").explain("json"))["steps"]
    assert "scale" in alone[0]["kernel"]

    def twice(x, h):
        y = mf.fft.fft(x) * h
        return mf.fft.ifft(y), y

    shared = json.loads(mf.plan(twice, S((64, LONG), "c64"), S((LONG,), "c64"), target="sm_90a").explain("json"))["steps"]
    assert "scale" in shared[-1]["kernel"]  # what others read stays as it is


@pytest.mark.compiles
def test_two_blocks_share_a_long_filter():
    filtered = lambda x, h: mf.fft.ifft(mf.fft.fft(x) * h)  # noqa: E731
    (step,) = json.loads(mf.plan(filtered, S((64, 32768), "c64"), S((32768,), "c64"), target="sm_90a").explain("json"))["steps"]
    assert step["provider"] == "generated_fft" and step["launches"] == 1 and step["spills"] == 0
    older = json.loads(mf.plan(filtered, S((64, 32768), "c64"), S((32768,), "c64"), target="sm_80").explain("json"))["steps"]
    assert all(s["provider"] != "generated_fft" for s in older)  # which has no clusters


@pytest.mark.compiles
def test_parts_of_numbers_change_hands_apart_only_where_shared_memory_is_short():
    filtered = lambda x, h: mf.fft.ifft(mf.fft.fft(x) * h)  # noqa: E731
    for n, target, split in ((8192, "sm_90a", "false"), (16384, "sm_90a", "false"), (16384, "sm_86", "true")):
        plan = mf.plan(filtered, S((64, n), "c64"), S((n,), "c64"), target=target)
        (source,) = plan.sources().values()
        (step,) = json.loads(plan.explain("json"))["steps"]
        assert f"config<32, 1, {split}>" in source and step["spills"] == 0, (n, target)


@pytest.mark.compiles
@pytest.mark.parametrize("n", [500, 768, 1000, 1280, 1536, 3000])
def test_lengths_of_several_primes_keep_to_registers(n):
    """Places in shared memory that are not a base and a constant each would take a register each."""
    filtered = lambda x, h: mf.fft.ifft(mf.fft.fft(x) * h)  # noqa: E731
    (step,) = json.loads(mf.plan(filtered, S((999, n), "c64"), S((n,), "c64"), target="sm_90a").explain("json"))["steps"]
    assert step["provider"] == "generated_fft" and step["spills"] <= 8


@pytest.mark.compiles
def test_the_first_terms_alone_are_stored():
    part = lambda x: mf.fft.rfft(x)[..., :64]  # noqa: E731
    power = lambda x, h: mf.abs(mf.fft.rfft(x)[..., :64] * h) ** 2  # noqa: E731
    for f, specs in ((part, [S((4096, 1024))]), (power, [S((4096, 1024)), S((64,), "c64")])):
        plan = mf.plan(f, *specs, target="sm_90a", providers="generated_fft")
        (step,) = json.loads(plan.explain("json"))["steps"]
        assert step["launches"] == 1 and step["bytes"] < 20e6


@pytest.mark.compiles
def test_the_product_stores_terms_where_the_inverse_reads_them():
    plan = mf.plan(layer(64), S((64, 64, 1024)), S((64, 64, 64), "c64"), target="sm_90a")
    product, inverse = list(plan.sources().values())[1:]
    assert "put_strided" in product and "no_chain, last_chain::chain<2>, 2, true, 64, 0, true>" in inverse


@pytest.mark.gpu
@pytest.mark.parametrize("n", [LONG // 8, LONG // 4, LONG // 2, LONG, 768, 1000, 1280])
def test_a_long_filter_on_a_gpu(rng, n):
    torch = pytest.importorskip("torch")
    signals = 300 if n < LONG else 5
    x = (rng.standard_normal((signals, n)) + 1j * rng.standard_normal((signals, n))).astype(np.complex64)
    h = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(np.complex64)
    device = [torch.from_numpy(a).cuda() for a in (x, h)]
    got = mf.plan(lambda x, h: mf.fft.ifft(mf.fft.fft(x) * h), *device).run(*device).cpu().numpy()
    want = np.fft.ifft(np.fft.fft(x.astype(np.complex128)) * h)
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())


@pytest.mark.gpu
def test_first_terms_on_a_gpu(rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((300, 1024)).astype(np.float32)
    h = (rng.standard_normal(100) + 1j * rng.standard_normal(100)).astype(np.complex64)
    device = [torch.from_numpy(a).cuda() for a in (x, h)]
    plan = mf.plan(lambda x, h: mf.abs(mf.fft.rfft(x)[..., :100] * h), *device, providers="generated_fft")
    want = np.abs(np.fft.rfft(x.astype(np.float64))[:, :100] * h)
    np.testing.assert_allclose(plan.run(*device).cpu().numpy(), want, rtol=0, atol=4e-6 * want.max())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, n", [(np.complex64, 32768), (np.complex128, 16384)], ids=str)
def test_two_blocks_transform_on_a_gpu(rng, dtype, n):
    torch = pytest.importorskip("torch")
    x = (rng.standard_normal((70, n)) + 1j * rng.standard_normal((70, n))).astype(dtype)
    device = torch.from_numpy(x).cuda()
    for function, reference in ((mf.fft.fft, np.fft.fft), (mf.fft.ifft, np.fft.ifft)):
        want = reference(x.astype(np.complex128))
        got = mf.plan(function, device, providers="generated_fft").run(device).cpu().numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=8 * np.finfo(dtype).eps * np.abs(want).max())


@pytest.mark.compiles
def test_decompositions_read_whole_transforms():
    x = S((40, 16, 16), "c64")
    readers = {"svd": mf.linalg.svdvals, "eigh": mf.linalg.eigvalsh, "qr": lambda y: mf.linalg.qr(y)[1], "inv": mf.linalg.inv}
    for name, reader in readers.items():
        for transform in (mf.fft.fft, lambda x: mf.fft.fft(x, axis=1)):
            plan = mf.plan(lambda x, f=reader, t=transform: f(t(x)), x, target="sm_90a")
            first = json.loads(plan.explain("json"))["steps"][0]["problem"]
            assert first.startswith("fft") and first.endswith("x16"), (name, first)
