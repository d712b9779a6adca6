"""A matched filter in one kernel: each signal is correlated with a pulse by FFTs, and only where it fits best is stored.

python examples/device/matched_filter.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

N = 2048
SOURCE = """
#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/reduce.cuh"
using F = mf::fft::block<float, LENGTH, mf::fft::forward>;
using G = mf::fft::block<float, LENGTH, mf::fft::inverse>;

extern "C" __global__ void roots(mf::c64 *table)
{
    table[blockIdx.x] = F::table_entry(blockIdx.x);
}

struct peak {
    float power;
    int at;
};
struct larger {
    static MF_DEVICE peak combine(peak a, peak b) { return b.power > a.power ? b : a; }
};

// `pulse`: its spectrum, conjugated, over LENGTH.
extern "C" __global__ void __launch_bounds__(F::threads)
    match(const mf::c64 *signals, const mf::c64 *pulse, const mf::c64 *table, int *where, float *power)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    __shared__ peak scratch[F::threads / 32];
    mf::c64 x[F::elements];
    long long signal = (long long)blockIdx.x * F::ffts + F::signal();
    F::load(x, signals + signal * LENGTH);
    F::run(x, shared, table);
    F::multiply(x, pulse);
    G::run(x, shared, table);
    peak best = {-1.0f, 0};
    for (int i = 0; i < F::elements; i++)
        best = larger::combine(best, peak{x[i].re * x[i].re + x[i].im * x[i].im, F::index(i)});
    best = mf::group_reduce<larger, F::lanes, F::threads>(best, scratch);
    if (F::lane() == 0) {
        where[signal] = best.at;
        power[signal] = best.power;
    }
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel, ...]:
    return tuple(mf.Kernel(SOURCE, k, defines={"LENGTH": N}, arch=target) for k in ("match", "roots"))


def main(library: str = "numpy") -> float:
    np, xp = importlib.import_module("numpy"), importlib.import_module(library)
    rng = np.random.default_rng(0)
    kernel, roots = make()
    threads, ffts, shared, entries = kernel.constants("F::threads", "F::ffts", "F::shared_bytes", "F::table_size")
    table = xp.empty(entries, "complex64")
    roots[entries, 1](table)

    pulse = np.exp(1j * np.pi * np.arange(200) ** 2 / 200)  # a chirp
    places = rng.integers(0, N - 200, 4 * ffts)
    signals = rng.standard_normal((len(places), N)) + 1j * rng.standard_normal((len(places), N))
    for signal, place in zip(signals, places, strict=True):
        signal[place : place + 200] += pulse
    spectrum = np.fft.fft(pulse, N).conj()
    where, power = xp.empty(len(places), "int32"), xp.empty(len(places), "float32")
    kernel[4, threads, shared](xp.asarray(signals, dtype="complex64"), xp.asarray(spectrum / N, dtype="complex64"), table, where,
                               power)  # fmt: skip
    want = abs(np.fft.ifft(np.fft.fft(signals) * spectrum)) ** 2
    assert (want.argmax(1) == places).all(), "the pulses are found"
    assert (np.asarray(where.get() if library == "cupy" else where) == places).all(), "where they are"
    return float(abs(power / xp.asarray(want.max(1)) - 1).max())


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"matched filter: every pulse found, largest relative error of its power {error:.1e}")
    sys.exit(error >= 1e-5)
