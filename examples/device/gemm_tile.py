"""A matrix product with an epilogue of one's own, from tiles: gelu(a b + bias), bfloat16 or float32, ragged at the edges.

python examples/device/gemm_tile.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

M, N, K = 150, 100, 70
SOURCE = """
#include "mathfuse/device/gemm.cuh"
using G = mf::gemm::block<float, 64, 64, 16, 128, mf::gemm::tf32x3>; // tensor cores at nearly f32's precision

extern "C" __global__ void __launch_bounds__(G::threads)
    linear(const float *a, const float *b, const float *bias, float *d, int m, int n, int k)
{
    __shared__ __align__(16) float as[G::a_elements], bs[G::b_elements];
    const mf::matrix_view<const float> av = {a, m, k, k, 1}, bv = {b, k, n, n, 1};
    const mf::matrix_view<float> dv = {d, m, n, n, 1};
    int row = blockIdx.y * G::m, column = blockIdx.x * G::n;
    G::sum c[G::elements] = {};
    for (int k0 = 0; k0 < k; k0 += G::k) {
        G::a_tile::load_async(as, av, row, k0); // zeros beyond the ends
        G::b_tile::load_async(bs, bv, k0, column);
        mf::copy_commit();
        mf::copy_wait<0>();
        __syncthreads();
        G::run(c, as, bs);
        __syncthreads();
    }
    G::for_each(c, [&](int, int j, float &x) { x = mf::gelu(x + (column + j < n ? bias[column + j] : 0.0f)); });
    G::store(c, dv, row, column);
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel, ...]:
    return (mf.Kernel(SOURCE, "linear", arch=target),)


def main(library: str = "numpy") -> float:
    xp, rng = importlib.import_module(library), importlib.import_module("numpy").random.default_rng(0)
    (kernel,) = make()
    m, n, threads = kernel.constants("G::m", "G::n", "G::threads")
    a, b, bias = (xp.asarray(rng.standard_normal(s), dtype="float32") for s in ((M, K), (K, N), N))
    d = xp.empty((M, N), "float32")
    kernel[(-(-N // n), -(-M // m)), threads](a, b, bias, d, M, N, K)
    x = a.astype("float64") @ b + bias
    want = x / 2 * (1 + xp.tanh((2 / xp.pi) ** 0.5 * (x + 0.044715 * x**3)))
    return float(abs(d - want).max() / abs(want).max())


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"gelu(a b + bias): largest error, relative to the largest result, {error:.1e}")
    sys.exit(error >= 1e-5)
