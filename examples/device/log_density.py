"""The log-densities of many Gaussians in one kernel: Cholesky, substitution, log-determinant, no matrix stored in between.

NumPy arrays run emulated on the CPU, CuPy's on their GPU.
    python examples/device/log_density.py [numpy | cupy]
"""

import importlib
import math
import sys

import mathfuse as mf

N = 12
BLOCK = 64
SOURCE = """
#include "mathfuse/device/solve.cuh"
#include "mathfuse/device/reduce.cuh"
using G = mf::solve::group<float, SIZE, 1>; // a thread for each row, one right-hand side

// out[k] = log of the normal density with covariance S[k] and mean m[k] at x[k]; NaN where S[k] is not positive definite.
extern "C" __global__ void __launch_bounds__(BLOCK)
    log_density(const float *S, const float *m, const float *x, float *out, float constant, int count)
{
    constexpr int groups = BLOCK / G::threads;
    MF_DYNAMIC_SHARED(float, memory); // groups * G::elements
    __shared__ float scratch[BLOCK / 32];
    G g(memory + threadIdx.x / G::threads * G::elements);
    int item = blockIdx.x * groups + threadIdx.x / G::threads, i = G::row();
    bool mine = item < count && i < SIZE;
    float row[G::columns] = {}, b[1] = {};
    if (mine) {
        b[0] = x[item * SIZE + i] - m[item * SIZE + i];
        MF_UNROLL
        for (int j = 0; j < SIZE; j++) // rows stay in registers, so their places have to be known to the compiler
            row[j] = j <= i ? S[(item * SIZE + i) * SIZE + j] : 0.0f;
    }
    int info = g.cholesky(row, b, SIZE); // b is now L^-1 (x - m), and line(i)[i] the diagonal of L
    float term = mine ? 0.5f * b[0] * b[0] + mf::log(g.line(i)[i]) : 0.0f;
    float sum = mf::group_reduce<mf::op_sum, G::threads, BLOCK>(term, scratch);
    if (mine && i == 0)
        out[item] = info ? mf::nan_of<float>() : constant - sum;
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel]:
    return (mf.Kernel(SOURCE, "log_density", defines={"SIZE": N, "BLOCK": BLOCK}, arch=target),)


def main(library: str = "numpy") -> float:
    xp, np = importlib.import_module(library), importlib.import_module("numpy")
    rng, count = np.random.default_rng(0), 37
    a = rng.standard_normal((count, N, N))
    covariance, mean, x = a @ a.swapaxes(1, 2) + N * np.eye(N), rng.standard_normal((count, N)), rng.standard_normal((count, N))
    (kernel,) = make()
    threads, elements = kernel.constants("G::threads", "G::elements")
    groups = BLOCK // threads
    out = xp.empty(count, "float32")
    arrays = [xp.asarray(v, dtype="float32") for v in (covariance, mean, x)]
    kernel[-(-count // groups), BLOCK, 4 * elements * groups](*arrays, out, -0.5 * N * math.log(2 * math.pi), count)
    d = x - mean
    distance = (d * np.linalg.solve(covariance, d[..., None])[..., 0]).sum(-1)
    want = -0.5 * (distance + np.linalg.slogdet(covariance).logabsdet + N * math.log(2 * math.pi))
    return float(abs(out - xp.asarray(want)).max() / abs(want).max())


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"log-densities in one kernel: largest error against {sys.argv[1] if sys.argv[1:] else 'numpy'} {error:.1e}")
    sys.exit(error >= 1e-5)
