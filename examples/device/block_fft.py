"""Signals filtered by their spectrum in one kernel: FFT, product, inverse FFT, with no trip to memory in between.

NumPy arrays run emulated on the CPU, CuPy's on their GPU.
    python examples/device/block_fft.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

N = 1000
SOURCE = """
#include "mathfuse/device/fft.cuh"
using F = mf::fft::block<float, LENGTH, mf::fft::forward>;
using G = mf::fft::block<float, LENGTH, mf::fft::inverse>;

// The roots of unity that both directions share, once.
extern "C" __global__ void roots(mf::c64 *table)
{
    table[blockIdx.x] = F::table_entry(blockIdx.x);
}

// `filter` holds the factor 1 / LENGTH, as neither direction scales.
// Left to itself the compiler may spill for more blocks of a multiprocessor than these need.
extern "C" __global__ void __launch_bounds__(F::threads, 4)
    filter_signals(const mf::c64 *src, const mf::c64 *filter, const mf::c64 *table, mf::c64 *dst, int signals)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    mf::c64 x[F::elements];
    int signal = blockIdx.x * F::ffts + F::signal();
    bool mine = signal < signals; // the last block may have threads to spare; they still take part in barriers
    F::load(x, src + (long long)(mine ? signal : 0) * LENGTH);
    F::run(x, shared, table);
    F::multiply(x, filter);
    G::run(x, shared, table);
    if (mine)
        G::store(x, dst + (long long)signal * LENGTH);
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel, mf.Kernel]:
    """The kernel, and the one that fills its table."""
    return tuple(mf.Kernel(SOURCE, name, defines={"LENGTH": N}, arch=target) for name in ("filter_signals", "roots"))


def main(library: str = "numpy") -> float:
    xp, rng = importlib.import_module(library), importlib.import_module("numpy").random.default_rng(0)
    kernel, roots = make()
    threads, ffts, shared, entries = kernel.constants("F::threads", "F::ffts", "F::shared_bytes", "F::table_size")
    table = xp.empty(entries, "complex64")
    roots[entries, 1](table)

    signals = 2 * ffts + 1
    x = xp.asarray(rng.standard_normal((signals, N, 2)), dtype="float32").view("complex64")[..., 0]
    response = xp.asarray(1 / (1 + (importlib.import_module("numpy").fft.fftfreq(N) * 10) ** 4), dtype="complex64")
    y = xp.empty_like(x)
    kernel[-(-signals // ffts), threads, shared](xp.ascontiguousarray(x), response / N, table, y, signals)
    want = xp.fft.ifft(xp.fft.fft(x.astype("complex128")) * response)
    return float(abs(y - want).max())


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"filtered in one kernel: largest error against {sys.argv[1] if sys.argv[1:] else 'numpy'}.fft {error:.1e}")
    sys.exit(error >= 1e-5)
