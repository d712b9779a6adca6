"""The device headers under NVRTC, for each architecture that kernels are made for: they compile without the standard library,
and transforms use no local memory."""

import ctypes
import ctypes.util
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

SOURCE = """
#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/tile.cuh"
#include "mathfuse/device/mma.cuh"
#include "mathfuse/device/reduce.cuh"
using namespace mf;

template <class T, int N>
__global__ void __launch_bounds__(fft::block<T, N, fft::forward>::threads)
    filter(const cplx<T> *src, const cplx<T> *h, cplx<T> *dst, const cplx<T> *table)
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
#define FILTER(T, N) template __global__ void filter<T, N>(const cplx<T> *, const cplx<T> *, cplx<T> *, const cplx<T> *);
LENGTHS

__global__ void real(const f16 *src, cplx<f16> *bins, const c64 *table)
{
    typedef fft::real_forward<float, 1024> R;
    MF_DYNAMIC_SHARED(unsigned char, shared);
    c64 x[R::elements];
    R::load_real(x, src + R::signal() * 1024);
    R::run(x, shared, table);
    R::store_bins(x, bins + R::signal() * 513);
}

__global__ void roots(c64 *table) { table[threadIdx.x] = fft::block<float, 1013, fft::forward>::table_entry(threadIdx.x); }

__global__ void tiles(const float *src, float *dst)
{
    typedef tile<float, 16, 32, 128, 36> t;
    MF_DYNAMIC_SHARED(float, shared);
    matrix_view<const float> from = {src, 100, 200, 200, 1};
    matrix_view<float> to = {dst, 100, 200, 200, 1};
    t::load_async<4>(shared, from, 96, 192);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    t::store(shared, to, 96, 192);
}

__global__ void products(const u32 *a, const u32 *b, float *d)
{
    u32 x[4], y[2];
    float c[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++)
        x[i] = a[i * 32 + threadIdx.x];
    for (int i = 0; i < 2; i++)
        y[i] = b[i * 32 + threadIdx.x];
    mma<f16>(c, x, y);
    mma<bf16>(c, x, y);
    mma_tf32(c, x, y);
    for (int i = 0; i < 4; i++)
        d[i * 32 + threadIdx.x] = c[i];
}
"""


def nvrtc():
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", ctypes.util.find_library("nvrtc")):
        try:
            return ctypes.CDLL(name) if name else None
        except OSError:
            continue
    return None


LIBRARY = nvrtc()


def compile_for(arch, source):
    """The log, with ptxas's report of each kernel."""
    program = ctypes.c_void_p()
    assert LIBRARY.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"test.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={arch}", "-std=c++17", f"-I{ROOT / 'include'}", "--ptxas-options=-v"]
    status = LIBRARY.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    )
    size = ctypes.c_size_t()
    LIBRARY.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    LIBRARY.nvrtcGetProgramLog(program, log)
    LIBRARY.nvrtcDestroyProgram(ctypes.byref(program))
    text = log.value.decode(errors="replace")
    assert status == 0, text
    return text


@pytest.mark.skipif(LIBRARY is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_headers_compile_and_transforms_stay_in_registers(arch):
    lengths = "FILTER(float, 64) FILTER(float, 1000) FILTER(float, 4096) FILTER(float, 1013) FILTER(double, 512)"
    if arch == "sm_90a":
        lengths += " FILTER(float, 256) FILTER(float, 1024) FILTER(float, 8192) FILTER(float, 16384)"
    log = compile_for(arch, SOURCE.replace("LENGTHS", lengths))
    kernels = re.findall(r"entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores", log, re.DOTALL)
    assert len(kernels) >= 9, log
    spilling = [k for k in kernels if "filter" in k[0] and int(k[2]) > 0]
    assert not spilling


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_example_compiles_with_nvcc(tmp_path):
    subprocess.run(
        ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-Werror", "all-warnings", "-I", "include", "-cubin",
         "-o", str(tmp_path / "example.cubin"), "examples/device/block_fft.cu"],
        cwd=ROOT, check=True,
    )  # fmt: skip
