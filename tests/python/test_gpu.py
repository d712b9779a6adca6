"""Arrays on a CUDA device: CuPy, PyTorch and JAX in and out, streams, mixed libraries, every provider against ref's answers."""

import mathfuse as mf
import numpy as np
import pytest
from tools import assert_close

pytestmark = pytest.mark.gpu


def library(name):
    return pytest.importorskip(name)


class Torch:
    """Host arrays to and from PyTorch."""

    def __init__(self):
        self.torch = library("torch")
        self.array = self.torch.Tensor

    def put(self, x):
        if x.dtype.name == "bfloat16":
            return self.torch.from_numpy(x.astype(np.float32)).cuda().bfloat16()
        return self.torch.from_numpy(np.ascontiguousarray(x)).cuda()

    def get(self, x):
        return (x.float() if x.dtype in (self.torch.bfloat16, self.torch.float16) else x).cpu().numpy()

    def empty(self, shape, dtype):
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device="cuda")


class CuPy:
    """Host arrays to and from CuPy."""

    def __init__(self):
        self.cupy = library("cupy")
        self.array = self.cupy.ndarray

    def put(self, x):
        return self.cupy.asarray(x)

    def get(self, x):
        return x.get()

    def empty(self, shape, dtype):
        return self.cupy.empty(shape, dtype)


@pytest.fixture(params=[Torch, CuPy], ids=["torch", "cupy"])
def lib(request):
    return request.param()


def normal(rng, shape, dtype=np.float32):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def test_type_comes_back(lib, rng):
    x, w, b = (normal(rng, s) for s in ((64, 32), (32, 48), (48,)))
    y = mf.matmul(lib.put(x), lib.put(w), bias=lib.put(b), activation="gelu")
    assert isinstance(y, lib.array)
    assert_close(lib.get(y), mf.gelu(x.astype(float) @ w + b), tolerance=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
def test_matmul_dtypes(lib, dtype, rng):
    a, b = normal(rng, (33, 65), dtype), normal(rng, (65, 17), dtype)
    y = lib.get(mf.matmul(lib.put(a), lib.put(b)))
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    assert_close(
        y, a.astype(wide) @ b.astype(wide), tolerance=2e-2 if dtype == np.float16 else 1e-4 if y.itemsize in (4, 8) else None
    )


def test_bfloat16(rng):
    lib = Torch()
    torch = lib.torch
    x, w, b = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((256, 512), (512, 128), (128,)))
    y = mf.matmul(x, w, bias=b, activation="gelu")
    assert y.dtype == torch.bfloat16
    want = torch.nn.functional.gelu(x.float() @ w.float() + b.float(), approximate="tanh")
    assert torch.allclose(y.float(), want, rtol=2e-2, atol=2e-1)
    assert mf.plan(lambda x, w, b: mf.matmul(x, w, bias=b, activation="gelu"), x, w, b).launches == 1


def test_fused_chain(lib, rng):
    arrays = [normal(rng, s) for s in ((128, 64), (64, 96), (96,), (128, 96))]
    layer = mf.fuse(lambda x, w, b, r: np.tanh(x @ w + b) + r)
    on_gpu = [lib.put(a) for a in arrays]
    x, w, b, r = (a.astype(float) for a in arrays)
    assert_close(lib.get(layer(*on_gpu)), np.tanh(x @ w + b) + r, tolerance=1e-4)
    assert mf.plan(layer, *on_gpu).launches <= 2
    out = lib.empty((128, 96), "float32")
    assert layer(*on_gpu, out=out) is out


@pytest.mark.parametrize("n", [16, 256, 1000, 1013, 1024, 4096, 8192, 16384])
def test_filter_in_one_kernel(lib, n, rng):
    x, h, w = normal(rng, (6, 3, n), np.complex64), normal(rng, (3, n), np.complex64), normal(rng, (n,))

    def filtered(x, h, w):
        return mf.fft.ifft(mf.fft.fft(x * w) * h)

    plan = mf.plan(filtered, lib.put(x), lib.put(h), lib.put(w))
    assert plan.launches == 1, plan.explain()
    want = np.fft.ifft(np.fft.fft(x.astype(np.complex128) * w) * h)
    assert_close(lib.get(plan.run(lib.put(x), lib.put(h), lib.put(w))), want, scale=50)


@pytest.mark.parametrize("n", [64, 75, 600, 2048, 8192])
def test_real_filter_in_one_kernel(lib, n, rng):
    x, h, b = normal(rng, (37, n)), normal(rng, (n // 2 + 1,), np.complex64), normal(rng, (n,))

    def filtered(x, h, b):
        return mf.tanh(mf.fft.irfft(mf.fft.rfft(x) * h, n=n) + b)

    plan = mf.plan(filtered, lib.put(x), lib.put(h), lib.put(b))
    assert plan.launches == 1, plan.explain()
    want = np.tanh(np.fft.irfft(np.fft.rfft(x.astype(float)) * h, n=n) + b)
    assert_close(lib.get(plan.run(lib.put(x), lib.put(h), lib.put(b))), want, scale=100)


@pytest.mark.parametrize("batch, channels, n, modes", [(64, 64, 1024, 64), (5, 3, 75, 20), (2, 8, 4096, 128)])
def test_spectral_layer(lib, batch, channels, n, modes, rng):
    x, w = normal(rng, (batch, channels, n)), normal(rng, (channels, channels, modes), np.complex64)

    def layer(x, w):
        return mf.fft.irfft(mf.einsum("bcm,com->bom", mf.fft.rfft(x)[..., :modes], w), n=n)

    plan = mf.plan(layer, lib.put(x), lib.put(w))
    want = np.fft.irfft(np.einsum("bcm,com->bom", np.fft.rfft(x.astype(float))[..., :modes], w), n=n)
    assert_close(lib.get(plan.run(lib.put(x), lib.put(w))), want, scale=200)


@pytest.mark.parametrize("n, padded", [(400, 512), (1024, 1024), (63, 63)])
def test_spectrum_in_one_kernel(lib, n, padded, rng):
    x, w = normal(rng, (50, n)), normal(rng, (n,))

    def spectrum(x, w):
        return mf.abs(mf.fft.rfft(x * w, n=padded)) ** 2

    plan = mf.plan(spectrum, lib.put(x), lib.put(w))
    assert plan.launches == 1, plan.explain()
    want = np.abs(np.fft.rfft(x.astype(float) * w, n=padded)) ** 2
    assert_close(lib.get(plan.run(lib.put(x), lib.put(w))), want, scale=100)


@pytest.mark.parametrize("n", [1, 7, 64, 100, 1009, 4096])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft"])
def test_fft(lib, name, n, rng):
    x = normal(rng, (5, n), np.float32 if name == "rfft" else np.complex64)
    got = lib.get(getattr(mf.fft, name)(lib.put(x), n=n, norm="ortho"))
    assert_close(
        got,
        getattr(np.fft, name)(x.astype(np.complex128) if name != "rfft" else x.astype(float), n=n, norm="ortho"),
        tolerance=1e-4,
    )


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (0, 1, 2), (2, 0)])
def test_fft_axes(lib, axes, rng):
    x = normal(rng, (6, 10, 9), np.complex128)
    assert_close(lib.get(mf.fft.fftn(lib.put(x), axes=axes)), np.fft.fftn(x, axes=axes), scale=50)
    assert_close(lib.get(mf.fft.irfftn(lib.put(x), axes=axes)), np.fft.irfftn(x, axes=axes), scale=50)


def test_solvers(lib, rng):
    g = normal(rng, (3, 20, 20), np.float64)
    a, b = g @ np.swapaxes(g, -1, -2) + 20 * np.eye(20), normal(rng, (3, 20, 4), np.float64)
    assert_close(lib.get(mf.linalg.solve(lib.put(a), lib.put(b))), np.linalg.solve(a, b), tolerance=1e-9)
    assert_close(lib.get(mf.linalg.cholesky(lib.put(a))), np.linalg.cholesky(a), tolerance=1e-9)
    bad = a.copy()
    bad[1] *= -1
    with pytest.raises(mf.linalg.LinAlgError) as caught:
        mf.linalg.cholesky(lib.put(bad))
    np.testing.assert_array_equal(caught.value.info, [0, 1, 0])
    _, info = mf.linalg.cholesky(lib.put(bad), check=False)
    assert isinstance(info, lib.array)


def test_elementwise_and_reductions(lib, rng):
    x = normal(rng, (37, 65), np.float64)
    g = lib.put(x)
    for name in ("exp", "tanh", "gelu", "erf", "silu", "floor", "isnan"):
        assert_close(lib.get(getattr(mf, name)(g)), getattr(mf, name)(x), scale=20)
    for name in ("sum", "mean", "max", "min", "var"):
        for axis in (None, 0, 1):
            assert_close(lib.get(getattr(mf, name)(g, axis)), getattr(np, name)(x, axis=axis), scale=50)
    assert_close(lib.get(mf.softmax(g)), mf.softmax(x), scale=20)
    assert_close(lib.get(mf.layer_norm(g)), mf.layer_norm(x), scale=50)


def test_views(lib, rng):
    x = normal(rng, (12, 18))
    g = lib.put(x)
    assert_close(lib.get(mf.exp(g[::2, 1::3])), np.exp(x.astype(float)[::2, 1::3]), scale=4)
    assert_close(lib.get(mf.matmul(g.T, g[:, :5])), x.T.astype(float) @ x[:, :5], tolerance=1e-4)
    assert_close(lib.get(mf.fuse(lambda v: (v[::-1] + v).T)(g)), (x[::-1] + x).T, scale=4)


def test_empty_and_scalars(lib):
    assert lib.get(mf.exp(lib.put(np.ones((0, 3), np.float32)))).shape == (0, 3)
    y = lib.get(
        mf.matmul(
            lib.put(np.ones((3, 0), np.float32)), lib.put(np.ones((0, 2), np.float32)), bias=lib.put(np.ones(2, np.float32))
        )
    )
    np.testing.assert_array_equal(y, np.ones((3, 2)))
    assert lib.get(mf.sum(lib.put(np.ones(10, np.float32)))) == 10


def test_gpu_and_cpu_are_not_mixed(lib):
    with pytest.raises(ValueError, match=r"argument 2.*numpy.ndarray on the CPU.*argument 1.*on cuda:0"):
        mf.add(lib.put(np.ones(3, np.float32)), np.ones(3, np.float32))


def test_two_gpu_libraries_are_not_mixed():
    with pytest.raises(ValueError, match=r"argument 2.*cupy.*argument 1.*[Tt]ensor"):
        mf.add(Torch().put(np.ones(3, np.float32)), CuPy().put(np.ones(3, np.float32)))


def test_torch_stream_is_used(rng):
    torch = library("torch")
    side = torch.cuda.Stream()
    big = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x = big
        for _ in range(10):
            x = x @ big * 1e-2  # still running when ours is submitted
        y = mf.add(x, 1)
        want = x + 1
    side.synchronize()
    assert torch.equal(y, want)


def test_cupy_stream_is_used(rng):
    cupy = library("cupy")
    big = cupy.asarray(normal(rng, (2048, 2048)))
    cupy.cuda.Device().synchronize()
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        x = big
        for _ in range(10):
            x = x @ big * np.float32(1e-2)
        y = mf.add(x, 1)
        want = x + 1
    side.synchronize()
    assert cupy.array_equal(y, want)


def test_a_given_stream(lib):
    torch, cupy = library("torch"), library("cupy")
    x = lib.put(np.arange(1000, dtype=np.float32))
    for stream in (torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream().cuda_stream, 0):
        y = mf.multiply(x, 2, stream=stream)
        torch.cuda.synchronize()
        np.testing.assert_array_equal(lib.get(y), 2 * np.arange(1000))


def test_integers_are_widened(lib):
    y = mf.add(lib.put(np.arange(5, dtype=np.uint8)), 1)
    assert str(y.dtype).endswith("int32")
    np.testing.assert_array_equal(lib.get(y), np.arange(5) + 1)


def test_jax_arrays(rng):
    jax = library("jax")
    if not any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("JAX has no GPU")
    x = jax.numpy.asarray(normal(rng, (8, 8)))
    y = mf.exp(x)
    assert isinstance(y, jax.Array)
    assert_close(np.asarray(y), np.exp(np.asarray(x, float)), tolerance=1e-5)


def test_capture_into_a_graph(rng):
    torch = library("torch")
    x, w = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    out = torch.empty(64, 64, device="cuda")
    layer = mf.fuse(lambda x, w: np.tanh(x @ w) * 2)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer(x, w, out=out)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        layer(x, w, out=out)
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(out, torch.tanh(x @ w) * 2, atol=1e-3)


def test_every_provider_agrees_with_ref(rng):
    lib = Torch()
    x, w, b = normal(rng, (64, 48)), normal(rng, (48, 32)), normal(rng, (32,))
    layer = lambda x, w, b: mf.gelu(x @ w + b)  # noqa: E731
    want = mf.plan(layer, x, w, b, providers="ref").run(x, w, b)
    arrays = [lib.put(v) for v in (x, w, b)]
    for providers in (None, "generated", "cublaslt,generated", "-cublaslt"):
        try:
            plan = mf.plan(layer, *arrays, providers=providers)
        except NotImplementedError:
            continue
        assert_close(lib.get(plan.run(*arrays)), want, tolerance=1e-4)


def test_threads_and_streams(rng):
    from test_threads import together

    torch = library("torch")
    x, w = torch.randn(128, 128, device="cuda"), torch.randn(128, 128, device="cuda")
    layer = mf.fuse(lambda x, w: np.tanh(x @ w))
    want = torch.tanh(x @ w)
    torch.cuda.synchronize()

    def work(_):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                y = layer(x, w)
                torch.cuda.current_stream().synchronize()
                assert torch.allclose(y, want, atol=1e-3)

    together(8, work)


def test_cuda_array_interface_alone(rng):
    cupy = library("cupy")

    class Interface:
        def __init__(self, array):
            self.array = array

        @property
        def __cuda_array_interface__(self):
            return self.array.__cuda_array_interface__

    x = cupy.asarray(normal(rng, (6, 8)))
    y = mf.exp(Interface(x[::2, ::-1]))
    assert_close(np.asarray(y.get() if hasattr(y, "get") else y.cpu()), np.exp(x.get().astype(float))[::2, ::-1], scale=4)
