"""The spectral layer of a Fourier Neural Operator in one kernel: FFT of every channel, the lowest modes mixed over the channels
by complex weights, zeros above, inverse FFT. Only the layer's input, weights and output touch memory.

    python examples/device/fno_layer.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

BATCH, CHANNELS, N, MODES = 3, 8, 256, 16
SOURCE = """
#include "mathfuse/device/fft.cuh"
using F = mf::fft::real_forward<float, LENGTH>;
using G = mf::fft::real_inverse<float, LENGTH>;
constexpr int groups = (CHANNELS + F::ffts - 1) / F::ffts; // channels that are transformed at once, and how often

extern "C" __global__ void roots(mf::c64 *table)
{
    table[blockIdx.x] = F::table_entry(blockIdx.x);
}

// A block takes one sample of the batch. src, dst: [batch][channel][LENGTH]; weights: [mode][in][out], over LENGTH.
extern "C" __global__ void __launch_bounds__(F::threads)
    spectral_layer(const float *src, const mf::c64 *weights, const mf::c64 *table, float *dst)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    __shared__ mf::c64 kept[CHANNELS][MODES], mixed[CHANNELS][MODES];
    const float *sample = src + (long long)blockIdx.x * CHANNELS * LENGTH;
    float *result = dst + (long long)blockIdx.x * CHANNELS * LENGTH;
    for (int g = 0; g < groups; g++) {
        int channel = g * F::ffts + F::signal();
        bool mine = channel < CHANNELS;
        mf::c64 x[F::elements];
        F::load_real(x, sample + (mine ? channel : 0) * LENGTH);
        F::run(x, shared, table);
        for (int i = 0; i < F::elements; i++)
            if (mine && F::index(i) < MODES) // bin 0 carries bin LENGTH / 2 as its imaginary part
                kept[channel][F::index(i)] = mf::c64{x[i].re, F::index(i) ? x[i].im : 0.0f};
        __syncthreads();
    }
    for (int i = threadIdx.x; i < CHANNELS * MODES; i += F::threads) {
        int mode = i % MODES, out = i / MODES;
        mf::c64 sum = {0, 0};
        for (int in = 0; in < CHANNELS; in++)
            sum = sum + kept[in][mode] * weights[(mode * CHANNELS + in) * CHANNELS + out];
        mixed[out][mode] = mf::c64{sum.re, mode ? sum.im : 0.0f};
    }
    __syncthreads();
    for (int g = 0; g < groups; g++) {
        int channel = g * F::ffts + F::signal();
        bool mine = channel < CHANNELS;
        mf::c64 x[F::elements];
        for (int i = 0; i < F::elements; i++)
            x[i] = mine && F::index(i) < MODES ? mixed[channel][F::index(i)] : mf::c64{0, 0};
        G::run(x, shared, table);
        if (mine)
            G::store_real(x, result + channel * LENGTH);
        __syncthreads();
    }
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel, ...]:
    defines = {"CHANNELS": CHANNELS, "LENGTH": N, "MODES": MODES}
    return tuple(mf.Kernel(SOURCE, k, defines=defines, arch=target) for k in ("spectral_layer", "roots"))


def main(library: str = "numpy") -> float:
    xp, rng = importlib.import_module(library), importlib.import_module("numpy").random.default_rng(0)
    kernel, roots = make()
    threads, shared, entries = kernel.constants("F::threads", "F::shared_bytes", "F::table_size")
    table = xp.empty(entries, "complex64")
    roots[entries, 1](table)

    x = xp.asarray(rng.standard_normal((BATCH, CHANNELS, N)), dtype="float32")
    weights = rng.standard_normal((MODES, CHANNELS, CHANNELS)) + 1j * rng.standard_normal((MODES, CHANNELS, CHANNELS))
    w, y = xp.asarray(weights, dtype="complex64"), xp.empty_like(x)
    kernel[BATCH, threads, shared](x, w / N, table, y)

    mixed = xp.einsum("bim,mio->bom", xp.fft.rfft(x.astype("float64"))[..., :MODES], w.astype("complex128"))
    return float(abs(y - xp.fft.irfft(mixed, N)).max())


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"spectral layer in one kernel: largest error {error:.1e}")
    sys.exit(error >= 1e-5)
