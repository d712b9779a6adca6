"""mathfuse's device functions in numba-cuda's kernels, linked as LTO-IR: a block FFT and an elementwise function.

Needs a GPU, numba-cuda, cffi and CuPy:
    python examples/device/numba_ltoir.py
"""

import importlib
import sys

import mathfuse as mf

REQUIRES = ("numba.cuda", "cffi", "cupy")
N = 512


def make(target: str) -> tuple[mf.Ltoir, mf.Ltoir]:
    return mf.get_ltoir("fft", size=N, arch=target), mf.get_ltoir("log1p", arch=target)


def kernels(fft: mf.Ltoir, log1p: mf.Ltoir):
    """The function that is the kernel, its signature, and the one that fills the table."""
    cuda, types = importlib.import_module("numba.cuda"), importlib.import_module("numba").types
    numpy, ffi = importlib.import_module("numpy"), importlib.import_module("cffi").FFI()
    complexes, floats = types.CPointer(types.complex64), types.complex64[:, ::1]
    transform = cuda.declare_device(
        fft.name, types.int32(complexes, complexes, types.int32, types.CPointer(types.uint8), complexes), abi="c",
        link=cuda.LTOIR(bytes(fft)),
    )  # fmt: skip
    entry = cuda.declare_device(f"{fft.name}_table", types.int32(types.int32, complexes), abi="c", link=cuda.LTOIR(bytes(fft)))
    log = cuda.declare_device(log1p.name, types.float32(types.float32), abi="c", link=cuda.LTOIR(bytes(log1p)))
    shared_bytes, ffts = fft.traits["shared_bytes"], fft.traits["ffts"]

    def spectra(src, spectrum, magnitude, table):
        """Blocks take `ffts` signals each; magnitude = log1p |spectrum|."""
        shared = cuda.shared.array(shared_bytes, types.uint8, alignment=16)
        first = cuda.blockIdx.x * ffts
        transform(ffi.from_buffer(src[first:]), ffi.from_buffer(spectrum[first:]), numpy.int32(ffts), ffi.from_buffer(shared),
                  ffi.from_buffer(table))  # fmt: skip
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, ffts * N, cuda.blockDim.x):
            z = spectrum[first + i // N, i % N]
            magnitude[first + i // N, i % N] = log(types.float32((z.real * z.real + z.imag * z.imag) ** types.float32(0.5)))

    def roots(table):
        entry(numpy.int32(cuda.blockIdx.x), ffi.from_buffer(table[cuda.blockIdx.x :]))

    signature = types.void(floats, floats, types.float32[:, ::1], types.complex64[::1])
    return (spectra, signature), (roots, types.void(types.complex64[::1]))


def main(library: str = "cupy") -> float:
    xp, cuda = importlib.import_module(library), importlib.import_module("numba.cuda")
    major, minor = cuda.get_current_device().compute_capability
    fft, log1p = make(f"sm_{major}{minor}")
    (spectra, signature), (roots, table_signature) = kernels(fft, log1p)
    x = xp.random.default_rng(0).standard_normal((4 * fft.traits["ffts"], N, 2), dtype="float32").view("complex64")[..., 0]
    x, table = xp.ascontiguousarray(x), xp.empty(fft.traits["table_size"], "complex64")
    spectrum, magnitude = xp.empty_like(x), xp.empty(x.shape, "float32")
    cuda.jit(table_signature, lto=True)(roots)[len(table), 1](table)
    cuda.jit(signature, lto=True)(spectra)[4, fft.traits["threads"]](x, spectrum, magnitude, table)
    cuda.synchronize()
    want = xp.fft.fft(x.astype("complex128"))
    return float(max(abs(spectrum - want).max() / N**0.5, abs(magnitude - xp.log1p(abs(want))).max()))


if __name__ == "__main__":
    error = main(*sys.argv[1:2])
    print(f"numba-cuda with mathfuse's block FFT: largest error {error:.1e}")
    sys.exit(error >= 1e-5)
