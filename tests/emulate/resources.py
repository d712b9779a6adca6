"""Registers, shared and local memory of typical kernels over the device headers, as NVRTC's ptxas reports them.

python tests/emulate/resources.py [sm_90a ...]
"""

import ctypes
import ctypes.util
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURES = ["sm_80", "sm_90a", "sm_100a"]

HEAD = """
#include "mathfuse/device/elementwise.cuh"
#include "mathfuse/device/reduce.cuh"
#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/gemm.cuh"
#include "mathfuse/device/eigen.cuh"
#include "mathfuse/device/svd.cuh"
using namespace mf;
"""

ELEMENTWISE = """
template <class T> __device__ void elementwise(const T *x, T *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T v = x[i];
    y[i] = mf::gelu(v) + mf::softplus(v) * mf::tanh(v) + mf::gelu_erf(v) + mf::logaddexp(v, mf::silu(v));
}
extern "C" __global__ void elementwise_f32(const float *x, float *y) { elementwise(x, y); }
extern "C" __global__ void elementwise_f64(const double *x, double *y) { elementwise(x, y); }
extern "C" __global__ void elementwise_f16(const f16 *x, f16 *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    pack<f16, 8> v, w;
    load_pack<16>(v, x + 8 * i);
    MF_UNROLL
    for (int k = 0; k < 8; k++)
        w.v[k] = narrow<f16>(mf::silu(widen(v.v[k])));
    store_pack<16>(y + 8 * i, w);
}
"""

REDUCE = """
extern "C" __global__ void __launch_bounds__(256) softmax_row(const float *x, float *y, int n)
{
    __shared__ softmax_moments<float> scratch[8];
    softmax_moments<float> s = softmax_moments<float>::identity();
    const float *row = x + (i64)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += 256)
        s.add(row[i]);
    s = block_reduce<softmax_moments<float>, 256>(s, scratch);
    for (int i = threadIdx.x; i < n; i += 256)
        y[(i64)blockIdx.x * n + i] = mf::exp(row[i] - s.maximum) / s.sum;
}
extern "C" __global__ void __launch_bounds__(256) moments(const double *x, double *y, int n)
{
    __shared__ variance_moments<double> scratch[8];
    variance_moments<double> s = variance_moments<double>::identity();
    for (int i = threadIdx.x; i < n; i += 256)
        s.add(x[i]);
    s = block_reduce<variance_moments<double>, 256>(s, scratch);
    y[0] = s.mean;
    y[1] = s.squares / s.count;
}
extern "C" __global__ void __launch_bounds__(256) sums(const c64 *x, c64 *y)
{
    __shared__ c64 scratch[8];
    y[blockIdx.x] = group_reduce<op_sum, 64, 256>(x[threadIdx.x], scratch);
}
"""

FFT = """
template <class T, int N> __device__ void filter(const cplx<T> *src, const cplx<T> *h, cplx<T> *dst, const cplx<T> *table)
{
    typedef fft::block<T, N, fft::forward> F;
    typedef fft::block<T, N, fft::inverse> G;
    MF_DYNAMIC_SHARED(unsigned char, shared);
    cplx<T> x[F::elements];
    i64 signal = (i64)blockIdx.x * F::ffts + F::signal();
    F::load(x, src + signal * N);
    F::run(x, shared, table);
    F::multiply(x, h);
    G::run(x, shared, table);
    G::store(x, dst + signal * N);
}
#define FILTER(T, N)                                                                                                    \\
    extern "C" __global__ void __launch_bounds__(fft::block<T, N, fft::forward>::threads)                               \\
        filter_##T##_##N(const cplx<T> *s, const cplx<T> *h, cplx<T> *d, const cplx<T> *t) { filter<T, N>(s, h, d, t); }
FILTER(float, 64) FILTER(float, 1000) FILTER(float, 4096) FILTER(float, 1013) FILTER(double, 512)
extern "C" __global__ void real_f16_1024(const f16 *src, cplx<f16> *bins, const c64 *table)
{
    typedef fft::real_forward<float, 1024> R;
    MF_DYNAMIC_SHARED(unsigned char, shared);
    c64 x[R::elements];
    R::load_real(x, src + R::signal() * 1024);
    R::run(x, shared, table);
    R::store_bins(x, bins + R::signal() * 513);
}
"""

GEMM = """
template <class G, class T, class S>
__device__ void product(const matrix_view<const T> &a, const matrix_view<const T> &b, const matrix_view<S> &d)
{
    MF_DYNAMIC_SHARED(T, as);
    T *bs = as + G::a_elements;
    i64 row = (i64)blockIdx.x * G::m, column = (i64)blockIdx.y * G::n;
    typename G::sum c[G::elements] = {};
    for (i64 k = 0; k < a.columns; k += G::k) {
        G::a_tile::load(as, a, row, k);
        G::b_tile::load(bs, b, k, column);
        __syncthreads();
        G::run(c, as, bs);
        __syncthreads();
    }
    G::store(c, d, row, column);
}
#define PRODUCT(NAME, T, S, ...)                                                                                        \\
    extern "C" __global__ void __launch_bounds__(128)                                                                   \\
        product_##NAME(matrix_view<const T> a, matrix_view<const T> b, matrix_view<S> d)                                \\
    { product<gemm::block<T, __VA_ARGS__>>(a, b, d); }
PRODUCT(f16, f16, f16, 64, 64, 32)
PRODUCT(bf16, bf16, float, 128, 64, 32)
PRODUCT(bf16_columns, bf16, bf16, 64, 64, 32, 128, gemm::tensor, gemm::columns, gemm::rows)
PRODUCT(bf16_ragged, bf16, bf16, 50, 36, 20)
PRODUCT(f32, float, float, 64, 64, 16)
PRODUCT(tf32, float, float, 64, 64, 16, 128, gemm::tf32)
PRODUCT(tf32x3, float, float, 64, 64, 16, 128, gemm::tf32x3)
PRODUCT(f64, double, double, 64, 64, 16)
PRODUCT(c64, c64, c64, 32, 32, 8)
PRODUCT(c64_tf32x3, c64, c64, 32, 32, 8, 128, gemm::tf32x3)
PRODUCT(c128, c128, c128, 32, 32, 8)
"""

TILES = """
extern "C" __global__ void tiles_async(matrix_view<const float> from, matrix_view<float> to)
{
    typedef tile<float, 16, 32, 128, 36> t;
    __shared__ __align__(16) float s[16 * 36];
    t::prefetch(from, 64, 192);
    t::load_async<4>(s, from, 96, 192);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    t::store(s, to, 96, 192);
}
extern "C" __global__ void tiles_bulk(matrix_view<const bf16> from, matrix_view<bf16> to)
{
    typedef tile<bf16, 32, 64, 128, 72> t;
    __shared__ __align__(16) bf16 s[2][32 * 72];
    __shared__ u64 counters[2];
    bulk<128> first(counters), second(counters + 1);
    t::load_bulk(s[0], from, 0, 0, first);
    t::load_bulk(s[1], from, 32, 0, second);
    first.wait();
    t::store(s[0], to, 0, 0);
    second.wait();
    t::store(s[1], to, 32, 0);
}
"""

EIGEN = """
template <class T, int N> __device__ void eigenvalues(const T *a, real_t<T> *w, int n)
{
    typedef solve::eigen<T, N> E;
    MF_DYNAMIC_SHARED(T, memory);
    E e(memory + threadIdx.x / E::threads * E::elements);
    i64 item = blockIdx.x * (64 / E::threads) + threadIdx.x / E::threads;
    for (int i = 0; i < n; i++)
        for (int j = E::lane(); j <= i; j += E::threads)
            e.put(i, j, a[(item * n + i) * n + j]);
    int info = e.run(n);
    for (int k = E::lane(); k < n; k += E::threads)
        w[item * n + k] = info ? real_t<T>(0) : e.value(k);
}
#define EIGENVALUES(T, N)                                                                                               \\
    extern "C" __global__ void __launch_bounds__(64) eigen_##T##_##N(const T *a, real_t<T> *w, int n)                   \\
    { eigenvalues<T, N>(a, w, n); }
EIGENVALUES(float, 7) EIGENVALUES(float, 32) EIGENVALUES(double, 24) EIGENVALUES(c64, 16) EIGENVALUES(c128, 16)
"""

SVD = """
template <class T, int M, int N, bool VECTORS> __device__ void singular(const T *a, real_t<T> *s, T *u, int m, int n)
{
    typedef solve::svd<T, M, N, VECTORS> S;
    MF_DYNAMIC_SHARED(T, memory);
    S d(memory + threadIdx.x / S::threads * S::elements);
    i64 item = blockIdx.x * (64 / S::threads) + threadIdx.x / S::threads;
    for (int i = 0; i < m; i++)
        for (int j = S::lane(); j < n; j += S::threads)
            d.put(i, j, a[(item * m + i) * n + j]);
    int info = d.run(m, n);
    for (int k = S::lane(); k < n; k += S::threads) {
        s[item * n + k] = info ? real_t<T>(0) : d.value(k);
        for (int i = 0; VECTORS && i < m; i++)
            u[(item * m + i) * n + k] = d.left(i, k);
    }
}
#define SINGULAR(NAME, T, ...)                                                                                          \\
    extern "C" __global__ void __launch_bounds__(64) svd_##NAME(const T *a, real_t<T> *s, T *u, int m, int n)            \\
    { singular<T, __VA_ARGS__>(a, s, u, m, n); }
SINGULAR(f32, float, 16, 16, true) SINGULAR(tall, float, 40, 7, true) SINGULAR(f64, double, 12, 12, true)
SINGULAR(c64, c64, 12, 12, true) SINGULAR(values, c128, 8, 8, false)
"""

SOURCES = {"elementwise": ELEMENTWISE, "reduce": REDUCE, "fft": FFT, "gemm": GEMM, "tile": TILES, "eigen": EIGEN, "svd": SVD}


def nvrtc():
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", ctypes.util.find_library("nvrtc")):
        try:
            return ctypes.CDLL(name) if name else None
        except OSError:
            continue
    return None


def compile_for(library, arch, source):
    """The log, with ptxas's report of each kernel."""
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"test.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={arch}", "-std=c++17", f"-I{ROOT / 'include'}", "--ptxas-options=-v"]
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    )
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    text = log.value.decode(errors="replace")
    assert status == 0, text
    return text


def report(log):
    """{kernel: (registers, bytes of static shared memory, bytes of local memory)}"""
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill.*?Used (\d+) registers(.*?)\n", log,
                       re.DOTALL)  # fmt: skip
    figures = {}
    for kernel, frame, spilled, registers, rest in found:
        shared = re.search(r"(\d+) bytes smem", rest)
        figures[kernel] = int(registers), int(shared.group(1)) if shared else 0, max(int(frame), int(spilled))
    return figures


if __name__ == "__main__":
    compiler = nvrtc()
    if compiler is None:
        sys.exit("NVRTC is not installed")
    for arch in sys.argv[1:] or ARCHITECTURES:
        print(f"{arch:24} registers  shared  local")
        for source in SOURCES.values():
            for kernel, (registers, shared, local) in report(compile_for(compiler, arch, HEAD + source)).items():
                print(f"  {kernel:22} {registers:9} {shared:7} {local:6}")
