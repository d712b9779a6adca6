"""Kernels over the device headers against NumPy: emulated on NumPy arrays, and on the GPU with CuPy's."""

import importlib

import mathfuse as mf
import numpy as np
import pytest

LIBRARIES = ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)]


@pytest.fixture(params=LIBRARIES)
def xp(request):
    return pytest.importorskip(request.param) if request.param == "cupy" else importlib.import_module("numpy")


def host(x):
    return x.get() if hasattr(x, "get") else x


PRODUCT = """
#include "mathfuse/device/gemm.cuh"
using T = mf::MY_TYPE;
using G = mf::gemm::block<T, MY_TILE, 128, mf::gemm::MY_MATH, mf::gemm::MY_A, mf::gemm::MY_B>;
using S = G::sum;

// a is m x k or its transpose, b k x n or its transpose, as the layouts in shared memory are.
extern "C" __global__ void __launch_bounds__(128) product(const T *a, const T *b, S *d, int m, int n, int k)
{
    MF_DYNAMIC_SHARED(T, as);
    T *bs = as + G::a_elements;
    const mf::matrix_view<const T> av = {a, G::a_rows ? m : k, G::a_rows ? k : m, G::a_rows ? k : m, 1};
    const mf::matrix_view<const T> bv = {b, G::b_rows ? k : n, G::b_rows ? n : k, G::b_rows ? n : k, 1};
    int row = blockIdx.y * G::m, column = blockIdx.x * G::n;
    S c[G::elements] = {};
    for (int k0 = 0; k0 < k; k0 += G::k) {
        G::a_tile::load(as, av, G::a_rows ? row : k0, G::a_rows ? k0 : row);
        G::b_tile::load(bs, bv, G::b_rows ? k0 : column, G::b_rows ? column : k0);
        __syncthreads();
        G::run(c, as, bs);
        __syncthreads();
    }
    G::store(c, mf::matrix_view<S>{d, m, n, n, 1}, row, column);
}
"""
TYPES = {
    "f16": ("tensor", "float16", 2e-5), "f32": ("plain", "float32", 2e-5), "tf32": ("tf32", "float32", 5e-3),
    "tf32x3": ("tf32x3", "float32", 2e-5), "f64": ("tensor", "float64", 1e-13), "c64": ("plain", "complex64", 2e-5),
    "c64x3": ("tf32x3", "complex64", 2e-5), "c128": ("tensor", "complex128", 1e-13),
}  # fmt: skip
SUMS = {"float16": "float32"}


ON_GPU = [
    pytest.param("cupy", tile, layouts, marks=pytest.mark.gpu)
    for tile in ("64, 32, 32", "33, 20, 11")
    for layouts in ("rows rows", "rows columns", "columns rows", "columns columns")
]


# Emulated products of every layout are in tests/emulate.
@pytest.mark.parametrize(("library", "tile", "layouts"), [("numpy", "33, 20, 11", "rows columns"), *ON_GPU])
@pytest.mark.parametrize("name", TYPES)
def test_products(library, name, tile, layouts, rng):
    xp = pytest.importorskip(library)
    math, dtype, tolerance = TYPES[name]
    a_layout, b_layout = layouts.split()
    kind = {"tf32": "f32", "tf32x3": "f32", "c64x3": "c64"}.get(name, name)
    defines = {"MY_TYPE": kind, "MY_TILE": tile, "MY_MATH": math, "MY_A": a_layout, "MY_B": b_layout}
    kernel = mf.Kernel(PRODUCT, "product", defines=defines, check=True)
    m, n, k = 70, 45, 50
    rows, columns, shared = kernel.constants("G::m", "G::n", "G::shared_bytes")
    a, b = (rng.standard_normal(s) + (1j * rng.standard_normal(s) if "complex" in dtype else 0) for s in ((m, k), (k, n)))
    a, b = a.astype(dtype), b.astype(dtype)
    d = xp.full((m, n), 7, SUMS.get(dtype, dtype))
    stored = [
        xp.asarray(np.ascontiguousarray(x.T if layout == "columns" else x)) for x, layout in ((a, a_layout), (b, b_layout))
    ]
    kernel[(-(-n // columns), -(-m // rows)), 128, shared](*stored, d, m, n, k)
    wide = "complex128" if "complex" in dtype else "float64"
    want = a.astype(wide) @ b.astype(wide)
    assert abs(host(d) - want).max() <= tolerance * abs(want).max()


def test_bulk_copies(xp, rng):
    source = """
    #include "mathfuse/device/tile.cuh"
    typedef mf::tile<float, 16, 64, 128, 68> tile;

    // dst = src, tile by tile, the next one under way while the last is stored.
    extern "C" __global__ void __launch_bounds__(128) copied(const float *src, float *dst, int rows, int columns)
    {
        __shared__ __align__(16) float s[2][16 * 68];
        __shared__ mf::u64 counters[2];
        mf::bulk<128> copies[2] = {mf::bulk<128>(counters), mf::bulk<128>(counters + 1)};
        const mf::matrix_view<const float> from = {src, rows, columns, columns, 1};
        const mf::matrix_view<float> to = {dst, rows, columns, columns, 1};
        int tiles = (rows + 15) / 16;
        tile::load_bulk(s[0], from, 0, blockIdx.x * 64, copies[0]);
    #pragma unroll 2
        for (int t = 0; t < tiles; t++) {
            if (t + 2 < tiles)
                tile::prefetch(from, (t + 2) * 16, blockIdx.x * 64);
            if (t + 1 < tiles)
                tile::load_bulk(s[(t + 1) % 2], from, (t + 1) * 16, blockIdx.x * 64, copies[(t + 1) % 2]);
            copies[t % 2].wait();
            tile::store(s[t % 2], to, t * 16, blockIdx.x * 64);
            __syncthreads();
        }
    }
    """
    x = xp.asarray(rng.standard_normal((100, 200)), dtype="float32")
    y = xp.zeros_like(x)
    mf.Kernel(source, "copied", check=True)[4, 128](x, y, 100, 200)
    assert (y == x).all()


def test_softmax_and_moments_in_one_pass(xp, rng):
    source = """
    #include "mathfuse/device/reduce.cuh"
    extern "C" __global__ void __launch_bounds__(256) row(const float *x, float *y, float *moments, int n)
    {
        __shared__ mf::softmax_moments<float> s_scratch[8];
        __shared__ mf::variance_moments<float> v_scratch[8];
        auto s = mf::softmax_moments<float>::identity();
        auto v = mf::variance_moments<float>::identity();
        const float *mine = x + (long long)blockIdx.x * n;
        for (int i = threadIdx.x; i < n; i += 256) {
            s.add(mine[i]);
            v.add(mine[i]);
        }
        s = mf::block_reduce<mf::softmax_moments<float>, 256>(s, s_scratch);
        v = mf::block_reduce<mf::variance_moments<float>, 256>(v, v_scratch);
        for (int i = threadIdx.x; i < n; i += 256)
            y[(long long)blockIdx.x * n + i] = mf::exp(mine[i] - s.maximum) / s.sum;
        if (threadIdx.x == 0) {
            moments[2 * blockIdx.x] = v.mean;
            moments[2 * blockIdx.x + 1] = v.squares / v.count;
        }
    }
    """
    x = (100 + 3 * rng.standard_normal((5, 1000))).astype(np.float32)
    y, moments = xp.empty((5, 1000), "float32"), xp.empty((5, 2), "float32")
    mf.Kernel(source, "row", check=True)[5, 256](xp.asarray(x), y, moments, 1000)
    wide = x.astype(float)
    e = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(host(y), e / e.sum(1, keepdims=True), rtol=2e-5)
    np.testing.assert_allclose(host(moments), np.stack([wide.mean(1), wide.var(1)], 1), rtol=2e-5)


@pytest.mark.gpu
def test_linked_device_functions(rng):
    """Linked by nvJitLink and loaded by CuPy: what numba-cuda does, without it."""
    cupy = pytest.importorskip("cupy")
    from mathfuse import _core
    from test_ltoir import link

    arch = "sm_" + cupy.cuda.Device().compute_capability
    fft = mf.get_ltoir("fft", size=256, arch=arch)
    source = """
    extern "C" __device__ int mf_fft_c64_256(const float2 *src, float2 *dst, int count, void *shared, const float2 *table);
    extern "C" __device__ int mf_fft_c64_256_table(int i, float2 *out);
    extern "C" __global__ void roots(float2 *table) { mf_fft_c64_256_table(blockIdx.x, table + blockIdx.x); }
    extern "C" __global__ void caller(const float2 *src, float2 *dst, const float2 *table, int ffts)
    {
        extern __shared__ __align__(16) unsigned char shared[];
        mf_fft_c64_256(src + blockIdx.x * ffts * 256, dst + blockIdx.x * ffts * 256, ffts, shared, table);
    }"""
    status, cubin, log = link(arch, _core.compile("ltoir", arch, "caller", source), fft)
    assert status == 0, log
    module = cupy.cuda.function.Module()
    module.load(cubin)
    t = fft.traits
    x = rng.standard_normal((3 * t["ffts"], 256)) + 1j * rng.standard_normal((3 * t["ffts"], 256))
    x, table = cupy.asarray(x, dtype="complex64"), cupy.zeros(t["table_size"], "complex64")
    y = cupy.zeros_like(x)
    module.get_function("roots")((t["table_size"],), (1,), (table,))
    module.get_function("caller")((3,), (t["threads"],), (x, y, table, np.int32(t["ffts"])), shared_mem=t["shared_bytes"])
    np.testing.assert_allclose(y.get(), np.fft.fft(x.get()), atol=1e-4)
