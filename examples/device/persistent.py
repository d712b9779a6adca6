"""One kernel of few blocks that does two plans at once: each block takes the next tile of either until none is left.

The plans are made for a GPU that may not be here and come in as device functions; NumPy arrays run emulated on the CPU.
    python examples/device/persistent.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

SOURCE = """
#include "normalise.cuh"
#include "gate.cuh"

extern "C" __global__ void __launch_bounds__(normalise::block_size)
    both(const float *x, const float *weight, float *y, const float *u, const float *v, float *w, int *next)
{
    static_assert(gate::block_size <= normalise::block_size && !gate::barriers, "the rest of a block may wait for the next tile");
    constexpr int bytes = normalise::shared_bytes > gate::shared_bytes ? normalise::shared_bytes : gate::shared_bytes;
    __shared__ __align__(16) unsigned char shared[bytes > 0 ? bytes : 16];
    __shared__ int taken;
    const normalise::args a = {x, weight, y, nullptr};
    const gate::args b = {u, v, w, nullptr};
    for (;;) {
        if (threadIdx.x == 0)
            taken = atomicAdd(next, 1);
        __syncthreads();
        int tile = taken;
        __syncthreads();
        if (tile >= normalise::tiles + gate::tiles)
            break;
        if (tile < normalise::tiles)
            normalise::run_tile(a, tile, shared);
        else if (threadIdx.x < gate::block_size)
            gate::run_tile(b, tile - normalise::tiles, shared);
    }
}
"""


def make(target: str = "sm_90a") -> tuple[mf.Kernel, int]:
    """The kernel, and the threads of its blocks."""
    normalise = mf.plan(lambda x, w: mf.rms_norm(x, w), mf.spec((100, 768)), mf.spec(768), target=target)
    gate = mf.plan(lambda u, v: mf.silu(u) * v, mf.spec((50, 1000)), mf.spec((50, 1000)), target=target)
    headers = {"normalise.cuh": normalise.device_header("normalise"), "gate.cuh": gate.device_header("gate")}
    return mf.Kernel(SOURCE, "both", headers=headers, arch=target), headers["normalise.cuh"].block_sizes[0]


def main(library: str = "numpy") -> float:
    xp, rng = importlib.import_module(library), importlib.import_module("numpy").random.default_rng(0)
    x, weight, u, v = (xp.asarray(rng.standard_normal(s), dtype="float32") for s in ((100, 768), 768, (50, 1000), (50, 1000)))
    y, w, taken = xp.empty_like(x), xp.empty_like(u), xp.zeros(1, "int32")
    kernel, threads = make()
    kernel[4 if library == "numpy" else 264, threads](x, weight, y, u, v, w, taken)
    x, u, v = x.astype("float64"), u.astype("float64"), v.astype("float64")
    want_y = x / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    want_w = u / (1 + xp.exp(-u)) * v
    return max(float(abs(y - want_y).max()), float(abs(w - want_w).max()))


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"two plans in one kernel: largest error {error:.1e}: {'right' if error < 1e-5 else 'wrong'}")
    sys.exit(error >= 1e-5)
