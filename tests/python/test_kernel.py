"""Custom kernels: emulated on NumPy arrays, compiled for GPUs that are not here."""

import mathfuse as mf
import numpy as np
import pytest

GATED = """
#include "mathfuse/device/elementwise.cuh"

extern "C" __global__ void gated(const float *x, const float *gate, float *__restrict__ y, float scale, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = scale * mf::silu(gate[i]) * x[i];
}
"""
ROWS = """
extern "C" __global__ void row_sums(const float *x, float *sums, int n)
{
    __shared__ float part[128];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += x[blockIdx.x * n + i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}
"""


@pytest.fixture
def operands(rng):
    return (
        rng.standard_normal(1000).astype(np.float32),
        rng.standard_normal(1000).astype(np.float32),
        np.zeros(1000, np.float32),
    )


def test_emulated_on_numpy_arrays(operands):
    x, gate, y = operands
    mf.Kernel(GATED, "gated")[8, 128](x, gate, y, 2.0, 1000)
    want = 2.0 * gate.astype(float) / (1 + np.exp(-gate.astype(float))) * x
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def test_shared_memory_and_barriers(rng):
    x, sums = rng.standard_normal((5, 777)).astype(np.float32), np.empty(5, np.float32)
    mf.Kernel(ROWS, "row_sums")[5, 128](x, sums, 777)
    np.testing.assert_allclose(sums, x.astype(float).sum(1), rtol=1e-4, atol=1e-4)


def test_defines(operands):
    x, gate, y = operands
    source = 'extern "C" __global__ void fill(float *y) { y[threadIdx.x] = VALUE; }'
    mf.Kernel(source, "fill", defines={"VALUE": "1.5f"})[1, 1000](y)
    assert (y == 1.5).all()


@pytest.mark.parametrize(
    ("arguments", "error", "part"),
    [
        (lambda x, g, y: (x, g, y, 2.0), ValueError, "takes 5 arguments"),
        (lambda x, g, y: (x.astype(np.float64), g, y, 2.0, 10), TypeError, "points to float and takes float32"),
        (lambda x, g, y: (3.0, g, y, 2.0, 10), TypeError, "is a pointer: pass an array"),
        (lambda x, g, y: (x, g, y, x, 10), TypeError, "is a float, not a pointer"),
        (lambda x, g, y: (x, g, y, 2.0, 10.5), TypeError, "is a int; 10.5 is not one"),
    ],
)
def test_arguments_are_checked(operands, arguments, error, part):
    with pytest.raises(error, match=part):
        mf.Kernel(GATED, "gated")[1, 32](*arguments(*operands))


def test_launch_shapes_are_checked():
    kernel = mf.Kernel(GATED, "gated")
    with pytest.raises(ValueError, match="at most 1024 threads"):
        kernel[1, 2048]
    with pytest.raises(ValueError, match=r"kernel\[grid, block\]"):
        kernel[1]
    with pytest.raises(ValueError, match="no __global__ function called 'other'"):
        mf.Kernel(GATED, "other")


def test_divergent_barrier_is_reported(operands):
    source = """
    extern "C" __global__ void stuck(float *y)
    {
        if (threadIdx.x < 16)
            __syncthreads();
        else
            __syncthreads_count(1);
        y[0] = 1;
    }
    """
    with pytest.raises(ValueError, match="kernel stuck: "):
        mf.Kernel(source, "stuck")[1, 32](operands[2])


def test_checked_emulation_reports_races():
    source = """
    extern "C" __global__ void turn(float *x, int barrier)
    {
        __shared__ float s[64];
        s[threadIdx.x] = x[threadIdx.x];
        if (barrier)
            __syncthreads();
        x[threadIdx.x] = s[63 - threadIdx.x];
    }
    """
    x = np.arange(64, dtype=np.float32)
    kernel = mf.Kernel(source, "turn", check=True)
    kernel[1, 64](x, 1)
    assert (x == np.arange(64)[::-1]).all()
    with pytest.raises(ValueError, match=r"kernel turn: .*race: thread \d+ .* which thread \d+ "):
        kernel[1, 64](x, 0)


def test_compile_errors_show_the_line(operands):
    kernel = mf.Kernel('extern "C" __global__ void bad(float *y)\n{\n    y[0] = nothing;\n}\n', "bad")
    with pytest.raises(RuntimeError, match=r"bad\.cu:3"):
        kernel[1, 1](operands[2])


def has_nvrtc():
    try:
        mf.Kernel(GATED, "gated").compile("sm_90a")
    except mf.errors.MissingError:
        return False
    return True


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed")
class TestCompiled:
    @pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
    def test_resources(self, arch):
        kernel = mf.Kernel(ROWS, "row_sums", arch=arch)
        assert kernel.cubin[:4] == b"\x7fELF"
        assert 0 < kernel.registers < 64
        assert kernel.shared >= 512
        assert kernel.spills == 0

    def test_two_kernels_of_one_source(self):
        source = GATED + ROWS
        assert mf.Kernel(source, "gated", arch="sm_90a").cubin != b""
        assert mf.Kernel(source, "row_sums", arch="sm_90a").shared >= 512

    def test_compile_errors_show_the_line(self):
        kernel = mf.Kernel('extern "C" __global__ void bad(float *y)\n{\n    y[0] = nothing;\n}\n', "bad")
        with pytest.raises(RuntimeError, match=r"bad\.cu\(3\)"):
            kernel.compile("sm_90a")
