"""A spectrogram in one kernel: overlapping frames are cut out, windowed, transformed, and leave as power in decibels.

python examples/device/spectrogram.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

N, HOP = 256, 64
SOURCE = """
#include "mathfuse/device/fft.cuh"
#include "mathfuse/device/elementwise.cuh"
using F = mf::fft::real_forward<float, LENGTH>;

extern "C" __global__ void roots(mf::c64 *table)
{
    table[blockIdx.x] = F::table_entry(blockIdx.x);
}

// Frame f begins at sample f HOP; dst[f][k] is the power of bin k. The bins of a real signal: LENGTH / 2 + 1, of which bin 0
// carries the last one as its imaginary part.
extern "C" __global__ void __launch_bounds__(F::threads)
    spectrogram(const float *samples, const float *window, const mf::c64 *table, float *dst, int frames)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    mf::c64 x[F::elements];
    int frame = blockIdx.x * F::ffts + F::signal();
    bool mine = frame < frames;
    const float *start = samples + (long long)(mine ? frame : 0) * HOP;
    F::load_real(x, start);
    for (int i = 0; i < F::elements; i++) {
        int pair = F::index(i); // samples 2 pair and 2 pair + 1
        x[i].re *= window[2 * pair];
        x[i].im *= window[2 * pair + 1];
    }
    F::run(x, shared, table);
    float *power = dst + (long long)frame * (LENGTH / 2 + 1);
    for (int i = 0; i < F::elements; i++) {
        int bin = F::index(i);
        float re = x[i].re, im = bin == 0 ? 0.0f : x[i].im;
        if (mine)
            power[bin] = 10 * mf::log10(re * re + im * im + 1e-12f);
        if (mine && bin == 0)
            power[LENGTH / 2] = 10 * mf::log10(x[i].im * x[i].im + 1e-12f);
    }
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel, ...]:
    return tuple(mf.Kernel(SOURCE, k, defines={"LENGTH": N, "HOP": HOP}, arch=target) for k in ("spectrogram", "roots"))


def main(library: str = "numpy") -> float:
    np, xp = importlib.import_module("numpy"), importlib.import_module(library)
    kernel, roots = make()
    threads, ffts, shared, entries = kernel.constants("F::threads", "F::ffts", "F::shared_bytes", "F::table_size")
    table = xp.empty(entries, "complex64")
    roots[entries, 1](table)

    seconds = np.arange(4000) / 8000
    chirp = np.sin(2 * np.pi * (500 * seconds + 2000 * seconds**2)) + 0.1 * np.random.default_rng(0).standard_normal(4000)
    samples, window = xp.asarray(chirp, dtype="float32"), xp.asarray(np.hanning(N), dtype="float32")
    frames = (len(chirp) - N) // HOP + 1
    power = xp.empty((frames, N // 2 + 1), "float32")
    kernel[-(-frames // ffts), threads, shared](samples, window, table, power, frames)

    cut = xp.stack([samples[f * HOP : f * HOP + N] for f in range(frames)]).astype("float64") * window
    want = abs(xp.fft.rfft(cut))
    return float(abs(10 ** (power.astype("float64") / 20) - want).max() / want.max())


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"spectrogram: largest error of an amplitude, relative to the largest, {error:.1e}")
    sys.exit(error >= 1e-5)
