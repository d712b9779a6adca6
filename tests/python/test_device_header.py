"""Plans as device functions: called from kernels, emulated on NumPy arrays, and compiled for GPUs that are not here."""

import mathfuse as mf
import numpy as np
import pytest

pytestmark = pytest.mark.compiles

TARGETS = ["sm_80", "sm_90a", "sm_100a"]


def plan(function, *specs, target="sm_90a"):
    try:
        return mf.plan(function, *specs, target=target, providers="generated")
    except mf.errors.UnsupportedError as error:
        pytest.skip(str(error)) if "NVRTC" in str(error) else pytest.fail(str(error))


def kernel_over(header, inputs, dtypes, arch=None):
    """A kernel in which each block takes every gridDim.x-th tile of the plan's only step."""
    names = [f"x{i}" for i in range(inputs)] + ["y"]
    types = [f"const {t} *" for t in dtypes[:-1]] + [f"{dtypes[-1]} *"]
    parameters = ", ".join(t + n for t, n in zip(types, names, strict=True))
    source = f"""
    #include "p.cuh"
    extern "C" __global__ void __launch_bounds__(p::block_size) tiles({parameters}, unsigned char *work)
    {{
        __shared__ __align__(16) unsigned char shared[p::shared_bytes > 0 ? p::shared_bytes : 1];
        const p::args a = {{{", ".join(names)}, work}};
        for (int tile = blockIdx.x; tile < p::tiles; tile += gridDim.x)
            p::run_tile(a, tile, shared);
    }}
    """
    return mf.Kernel(source, "tiles", headers={"p.cuh": header}, arch=arch, check=True)


CASES = {
    "elementwise": (lambda x, y: mf.tanh(x) * 2 + y, [(37, 66), 66], ["float32", "float32"], "float32"),
    "odd tail": (lambda x: mf.silu(x), [1003], ["float32"], "float32"),
    "transposed": (lambda x, y: x.T + y, [(130, 70), (70, 130)], ["float32", "float32"], "float32"),
    "softmax": (lambda x: mf.softmax(x), [(10, 1000)], ["float32"], "float32"),
    "short rows": (lambda x: mf.sum(x, axis=-1), [(100, 7)], ["float32"], "float32"),
    "columns": (lambda x: mf.sum(x, axis=0), [(100, 64)], ["float32"], "float32"),
    "matmul": (lambda x, y: mf.gelu(x @ y), [(70, 40), (40, 90)], ["float32", "float32"], "float32"),
    "dropout": (lambda x: mf.dropout(x.T, 0.3, seed=7, offset=100), [(41, 30)], ["float32"], "float32"),
    "dropout in rows": (lambda x: mf.softmax(mf.dropout(x, 0.3, seed=7)), [(10, 1000)], ["float32"], "float32"),
    "dropout after matmul": (
        lambda x, y: mf.dropout(x @ y, 0.3, seed=7),
        [(70, 40), (40, 90)],
        ["float32", "float32"],
        "float32",
    ),
    "complex": (lambda x, y: x @ y, [(20, 17), (17, 9)], ["complex64", "complex64"], "complex64"),
}
CTYPES = {"float32": "float", "complex64": "mf::c64"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_against_the_plan(library, name, rng):
    xp = pytest.importorskip(library)
    function, shapes, dtypes, result = CASES[name]
    header = plan(function, *[mf.spec(s, d) for s, d in zip(shapes, dtypes, strict=True)]).device_header("p")
    arrays = [rng.standard_normal(s) + (1j * rng.standard_normal(s) if d == "complex64" else 0) for s, d in
              zip(shapes, dtypes, strict=True)]  # fmt: skip
    arrays = [a.astype(d) for a, d in zip(arrays, dtypes, strict=True)]
    want = np.asarray(mf.plan(function, *arrays).run(*arrays))
    got = xp.zeros_like(xp.asarray(want))
    kernel = kernel_over(header, len(arrays), [CTYPES[d] for d in [*dtypes, result]])
    assert len(header.block_sizes) == 1
    assert header.tiles[0] > 0
    kernel[3, header.block_sizes[0]](*map(xp.asarray, arrays), got, xp.zeros(256, "uint8"))
    np.testing.assert_allclose(got.get() if library == "cupy" else got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_compiles_without_local_memory(name, target):
    function, shapes, dtypes, result = CASES[name]
    specs = [mf.spec(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    header = plan(function, *specs, target=target).device_header("p")
    kernel = kernel_over(header, len(shapes), [CTYPES[d] for d in [*dtypes, result]], arch=target)
    assert kernel.spills == 0


def run_steps(made, kernels, arrays, want):
    """Each step as a kernel of its own, as a grid's barrier would have it."""
    header, count = made.device_header("p"), len(kernels)
    names = [f"x{i}" for i in range(len(arrays))] + ["y", "work"]
    parameters = ", ".join(f"const float *{n}" for n in names[:-2]) + ", float *y, unsigned char *work"
    source = '#include "p.cuh"\n' + "".join(
        f"""
        extern "C" __global__ void {name}({parameters})
        {{
            constexpr int bytes = p::step{i + 1}::shared_bytes;
            __shared__ __align__(16) unsigned char shared[bytes > 0 ? bytes : 1];
            p::step{i + 1}::run_tile(p::args{{{", ".join(names)}}}, blockIdx.x, shared);
        }}"""
        for i, name in enumerate(kernels)
    )
    assert len(header.tiles) == count
    got, work = np.zeros_like(want), np.zeros(made.workspace + 256, np.uint8)
    aligned = work[-work.ctypes.data % 256 :]
    for name, tiles, threads in zip(kernels, header.tiles, header.block_sizes, strict=True):
        mf.Kernel(source, name, headers={"p.cuh": header}, check=True)[tiles, threads](*arrays, got, aligned)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_row_split_among_blocks(rng):
    """The second step takes what the first left in the workspace."""
    x = rng.standard_normal((2, 200000)).astype(np.float32)
    made = plan(lambda x: mf.sum(mf.square(x), axis=-1), mf.spec(x.shape))
    run_steps(made, ["first", "second"], [x], (x.astype(float) ** 2).sum(-1).astype(np.float32))


def test_steps_with_a_result_in_between(rng):
    x, w = rng.standard_normal((30, 40)).astype(np.float32), rng.standard_normal((40, 70)).astype(np.float32)
    made = plan(lambda x, w: mf.softmax(x @ w), mf.spec(x.shape), mf.spec(w.shape))
    e = np.exp(x.astype(float) @ w - (x.astype(float) @ w).max(-1, keepdims=True))
    run_steps(made, ["product", "softmax"], [x, w], (e / e.sum(-1, keepdims=True)).astype(np.float32))


STORAGE = {"float32": "float", "float64": "double", "complex64": "mf::c64", "complex128": "mf::c128", "int32": "int"}


def step_kernels(header, inputs, outputs, arch=None):
    """Each step of a plan as a kernel of its own over dynamic shared memory, a block for every second tile."""
    types = [f"const {STORAGE[d]} *" for d in inputs] + [f"{STORAGE[d]} *" for d in outputs] + ["unsigned char *"]
    parameters = ", ".join(f"{t}x{i}" for i, t in enumerate(types))
    values = ", ".join(f"x{i}" for i in range(len(types)))
    count = len(header.tiles)
    steps = ["p"] if count == 1 else [f"p::step{i + 1}" for i in range(count)]
    source = '#include "p.cuh"\n' + "".join(
        f"""
        extern "C" __global__ void __launch_bounds__({step}::block_size) k{i}({parameters})
        {{
            MF_DYNAMIC_SHARED(unsigned char, shared);
            for (int tile = blockIdx.x; tile < {step}::tiles; tile += gridDim.x)
                {step}::run_tile(p::args{{{values}}}, tile, shared);
        }}"""
        for i, step in enumerate(steps)
    )
    return [mf.Kernel(source, f"k{i}", headers={"p.cuh": header}, arch=arch, check=True) for i in range(count)]


def filtered(x, h):
    return mf.fft.ifft(mf.fft.fft(x) * h)


def windowed(x, w):
    return mf.fft.rfft(x * w)


# function, shapes, dtype of the arrays
LIBRARIES = {
    "filter": (filtered, [(5, 256), (256,)], "complex64"),
    "filter of a row for each": (filtered, [(3, 60), (3, 60)], "complex128"),
    "long filter": (filtered, [(2, 4096), (4096,)], "complex64"),
    "prime length": (filtered, [(3, 37), (37,)], "complex64"),
    "windowed": (windowed, [(7, 100), (100,)], "float32"),
    "inverse real": (lambda x: mf.fft.irfft(x, 30), [(9, 16)], "complex64"),
    "first bins": (lambda x: mf.fft.rfft(x)[..., :5] * 2, [(4, 64)], "float64"),
    "along the first axis": (lambda x: mf.fft.fft(x, axis=0), [(32, 6)], "complex64"),
    "solve": (lambda a, b: mf.linalg.solve(a, b, check=False), [(11, 6, 6), (11, 6, 2)], "float64"),
    "solve triangular": (
        lambda a, b: mf.linalg.solve_triangular(mf.exp(a), b, check=False),
        [(5, 5, 5), (5, 5, 1)],
        "float32",
    ),
    "cholesky": (lambda a: mf.linalg.cholesky(a @ a.mT, check=False), [(6, 7, 12)], "float64"),
    "qr": (lambda a: mf.linalg.qr(a, check=False), [(9, 7, 4)], "float64"),
    "log of the spectrum": (lambda x: mf.log(1 + mf.abs(mf.fft.rfft(x))), [(6, 128)], "float32"),
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("library", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def test_transforms_and_solvers(library, name, rng):
    xp = pytest.importorskip(library)
    function, shapes, dtype = LIBRARIES[name]
    arrays = [rng.standard_normal(s) + (1j * rng.standard_normal(s) if "complex" in dtype else 0) for s in shapes]
    arrays = [a.astype(dtype) for a in arrays]
    want = mf.plan(function, *arrays).run(*arrays)
    want = [np.asarray(y) for y in (want if isinstance(want, tuple) else (want,))]
    made = mf.plan(function, *[mf.spec(s, dtype) for s in shapes], target="sm_90a")
    header = made.device_header("p")
    got = [xp.zeros(y.shape, y.dtype) for y in want]
    work = xp.zeros(header.workspace_bytes + 256, "uint8")
    start = work.ctypes.data if library == "numpy" else work.data.ptr
    kernels = step_kernels(header, [dtype] * len(arrays), [str(y.dtype) for y in want])
    shared = 100 << 10
    for kernel, tiles, threads in zip(kernels, header.tiles, header.block_sizes, strict=True):
        kernel[(tiles + 1) // 2, threads, shared](*map(xp.asarray, arrays), *got, work[-start % 256 :])
    for a, b in zip(got, want, strict=True):
        a = a.get() if library == "cupy" else a
        np.testing.assert_allclose(
            a, b, rtol=0, atol=(2e-5 if "32" in str(dtype) or dtype == "complex64" else 1e-12) * max(1, abs(b).max())
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["filter", "windowed", "solve", "qr"])
def test_transforms_and_solvers_compile(name, target):
    function, shapes, dtype = LIBRARIES[name]
    made = mf.plan(function, *[mf.spec(s, dtype) for s in shapes], target=target)
    outputs = {"filter": [dtype], "windowed": ["complex64"], "solve": [dtype, "int32"], "qr": [dtype, dtype, "int32"]}[name]
    *tables, last = step_kernels(made.device_header("p"), [dtype] * len(shapes), outputs, arch=target)
    assert last.spills == 0
    assert len(tables) == (name in ("filter", "windowed"))


@pytest.mark.parametrize("threads", [64, 128, 512])
def test_blocks_of_any_size(threads, rng):
    x = rng.standard_normal((30, 500)).astype(np.float32)
    for function in (lambda v: mf.tanh(v) + 1, lambda v: mf.softmax(v), lambda v: mf.sum(v[:, :20], axis=-1)):
        header = plan(function, mf.spec(x.shape)).device_header("p", threads=threads)
        assert header.block_sizes == (threads,)
        want = np.asarray(mf.plan(function, x).run(x))
        got = np.zeros_like(want)
        kernel_over(header, 1, ["float", "float"])[2, threads](x, got, np.zeros(256, np.uint8))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_blocks_that_a_step_cannot_have():
    product = plan(lambda a, b: a @ b, mf.spec((64, 64)), mf.spec((64, 64)))
    assert product.device_header(threads=256).block_sizes == (256,)
    with pytest.raises(NotImplementedError, match="step 1 as a device function: its blocks have 256 threads, not 128"):
        product.device_header(threads=128)
    with pytest.raises(NotImplementedError, match="its rows take 64 threads each"):
        plan(lambda v: mf.softmax(v), mf.spec((10, 1000))).device_header(threads=32)
    with pytest.raises(ValueError, match="blocks have 32, 64, 128, 256, 512 or 1024 threads, not 100"):
        product.device_header(threads=100)


def test_what_has_no_device_functions():
    with pytest.raises(NotImplementedError, match="for the CPU, which runs no kernels"):
        mf.plan(lambda x: x + 1, mf.spec(8)).device_header()
    with pytest.raises(ValueError, match='C\\+\\+ identifier, not "a-b"'):
        plan(lambda x: x + 1, mf.spec(8)).device_header("a-b")
    with pytest.raises(NotImplementedError, match="outputs have no elements"):
        plan(lambda x: x + 1, mf.spec(0)).device_header()


def test_libraries_are_replaced_or_refused(rng):
    x, w = rng.standard_normal((256, 64)).astype(np.float32), rng.standard_normal((64, 128)).astype(np.float32)
    try:
        made = mf.plan(lambda x, w: mf.relu(x @ w), mf.spec(x.shape), mf.spec(w.shape), target="sm_90a", providers="cublaslt")
    except mf.errors.UnsupportedError:
        pytest.skip("no cuBLASLt here")
    header = made.device_header("p")
    assert "// The plan itself calls cublaslt (" in header
    got = np.zeros((256, 128), np.float32)
    kernel = kernel_over(header, 2, ["float"] * 3)
    kernel[2, header.block_sizes[0]](x, w, got, np.zeros(header.workspace_bytes + 1, np.uint8))
    np.testing.assert_allclose(got, np.maximum(x.astype(float) @ w, 0), rtol=1e-4, atol=1e-4)
    try:
        solver = mf.plan(lambda a: mf.linalg.cholesky(a), mf.spec((300, 300), "float64"), target="sm_90a")
    except mf.errors.UnsupportedError:
        pytest.skip("no cuSOLVER here")
    with pytest.raises(
        NotImplementedError, match="a library that a kernel cannot call, and no generated kernel can take its place"
    ):
        solver.device_header()
