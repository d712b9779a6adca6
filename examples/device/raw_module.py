"""The device headers in CuPy's RawModule: a windowed block FFT. Without CuPy the same source runs emulated, by mf.Kernel.

python examples/device/raw_module.py [numpy | cupy]
"""

import importlib
import sys

import mathfuse as mf

N = 512
SOURCE = """
#include "mathfuse/device/fft.cuh"
using F = mf::fft::block<float, 512, mf::fft::forward>;

extern "C" __global__ void roots(mf::c64 *table)
{
    table[blockIdx.x] = F::table_entry(blockIdx.x);
}

extern "C" __global__ void __launch_bounds__(F::threads)
    windowed(const mf::c64 *src, const float *window, const mf::c64 *table, mf::c64 *dst)
{
    MF_DYNAMIC_SHARED(unsigned char, shared);
    mf::c64 x[F::elements];
    long long signal = (long long)blockIdx.x * F::ffts + F::signal();
    F::load(x, src + signal * 512);
    for (int i = 0; i < F::elements; i++) {
        x[i].re *= window[F::index(i)];
        x[i].im *= window[F::index(i)];
    }
    F::run(x, shared, table);
    F::store(x, dst + signal * 512);
}
"""


def make(target: str | None = None) -> tuple[mf.Kernel, ...]:
    return (mf.Kernel(SOURCE, "windowed", arch=target), mf.Kernel(SOURCE, "roots", arch=target))


def main(library: str = "numpy") -> float:
    xp, rng = importlib.import_module(library), importlib.import_module("numpy").random.default_rng(0)
    kernel, roots = make()
    threads, ffts, shared, entries = kernel.constants("F::threads", "F::ffts", "F::shared_bytes", "F::table_size")
    x = xp.asarray(rng.standard_normal((3 * ffts, N)) + 1j * rng.standard_normal((3 * ffts, N)), dtype="complex64")
    window, table, y = xp.hanning(N).astype("float32"), xp.empty(entries, "complex64"), xp.empty_like(x)
    if library == "cupy":
        module = xp.RawModule(code=SOURCE, options=("-std=c++17", f"-I{mf.get_include()}"))
        module.get_function("roots")((entries,), (1,), (table,))
        module.get_function("windowed")((3,), (threads,), (x, window, table, y), shared_mem=shared)
    else:
        roots[entries, 1](table)
        kernel[3, threads, shared](x, window, table, y)
    return float(abs(y - xp.fft.fft(x.astype("complex128") * window)).max() / N**0.5)


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"windowed FFT: largest error, relative to the root of the length, {error:.1e}")
    sys.exit(error >= 1e-5)
