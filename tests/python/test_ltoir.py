"""Device functions as LTO-IR: linked into kernels by nvJitLink, which needs no GPU; their source emulated against NumPy."""

import ctypes

import mathfuse as mf
import numpy as np
import pytest
from mathfuse import _core


def made(function, **options):
    try:
        return mf.get_ltoir(function, **{"arch": "sm_90", **options})
    except mf.errors.MissingError as error:
        pytest.skip(str(error))


def load_linker():
    for name in ("libnvJitLink.so.13", "libnvJitLink.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    pytest.skip("nvJitLink is not installed")


def link(arch, *inputs):
    """(status, cubin, log)"""
    linker, handle, size = load_linker(), ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 2)(b"-lto", f"-arch={arch}".encode())
    symbols = {n: getattr(linker, f"nvJitLink{n}") for n in ("Create", "AddData", "Complete", "GetLinkedCubinSize",
               "GetLinkedCubin", "GetErrorLogSize", "GetErrorLog", "Destroy")}  # fmt: skip
    assert symbols["Create"](ctypes.byref(handle), 2, options) == 0
    status = 0
    for number, data in enumerate(inputs):
        status = status or symbols["AddData"](handle, 3, bytes(data), ctypes.c_size_t(len(data)), f"input{number}".encode())
    status = status or symbols["Complete"](handle)
    symbols["GetErrorLogSize"](handle, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    symbols["GetErrorLog"](handle, log)
    cubin = b""
    if status == 0:
        symbols["GetLinkedCubinSize"](handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        symbols["GetLinkedCubin"](handle, buffer)
        cubin = buffer.raw
    symbols["Destroy"](ctypes.byref(handle))
    return status, cubin, log.value.decode()


CALLERS = {
    "gelu": """
        extern "C" __device__ float mf_gelu_f32(float x);
        extern "C" __global__ void caller(float *x) { x[threadIdx.x] = mf_gelu_f32(x[threadIdx.x]); }""",
    "sum": """
        extern "C" __device__ float mf_block_sum_f32_128(float x, float *scratch);
        extern "C" __global__ void caller(float *x)
        {
            __shared__ float scratch[4];
            x[threadIdx.x] = mf_block_sum_f32_128(x[threadIdx.x], scratch);
        }""",
    "fft": """
        extern "C" __device__ int mf_fft_c64_256(const float2 *src, float2 *dst, int count, void *shared, const float2 *table);
        extern "C" __global__ void caller(const float2 *src, float2 *dst, const float2 *table)
        {
            extern __shared__ __align__(16) unsigned char shared[];
            mf_fft_c64_256(src, dst, 1, shared, table);
        }""",
}
SIZES = {"gelu": None, "sum": 128, "fft": 256}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("function", CALLERS)
def test_links_into_a_kernel(function, arch):
    ltoir = made(function, size=SIZES[function], arch=arch)
    caller = _core.compile("ltoir", arch, "caller", CALLERS[function])
    status, cubin, log = link(arch, caller, ltoir)
    assert status == 0, log
    assert cubin[:4] == b"\x7fELF"
    assert b".text." + ltoir.name.encode() not in cubin  # it became part of the kernel
    status, _, log = link(arch, caller)
    assert status != 0
    assert ltoir.name in log


@pytest.mark.parametrize(
    ("function", "size", "dtype"),
    [("fft", 64, "c64"), ("ifft", 60, "c128"), ("fft", 101, "c64"), ("rfft", 48, "c64"), ("rfft", 15, "c128"),
     ("irfft", 48, "c128"), ("irfft", 15, "c64"), ("fft", 2, "c64")],
)  # fmt: skip
def test_transforms(function, size, dtype, rng):
    ltoir = made(function, size=size, dtype=dtype)
    t, real = ltoir.traits, "float" if dtype == "c64" else "double"
    src_type, dst_type = real if function == "rfft" else f"mf::{dtype}", real if function == "irfft" else f"mf::{dtype}"
    bins = size // 2 + 1
    source = (
        ltoir.source
        + f"""
    extern "C" __global__ void roots(mf::{dtype} *table) {{ {ltoir.name}_table(blockIdx.x, table + blockIdx.x); }}
    extern "C" __global__ void caller(const {src_type} *src, {dst_type} *dst, int signals, const mf::{dtype} *table)
    {{
        MF_DYNAMIC_SHARED(unsigned char, shared);
        int first = blockIdx.x * {t["ffts"]}, left = signals - first;
        {ltoir.name}(src + first * {bins if function == "irfft" else size}, dst + first * {bins if function == "rfft" else size},
                     left < {t["ffts"]} ? left : {t["ffts"]}, shared, table);
    }}
    """
    )
    signals = t["ffts"] + 1  # the last block has signals to spare
    kind = np.complex64 if dtype == "c64" else np.complex128
    x = rng.standard_normal((signals, size))
    x = x if function == "rfft" else x + 1j * rng.standard_normal((signals, size))
    x = np.fft.rfft(x.real) if function == "irfft" else x
    want = {"fft": np.fft.fft, "ifft": lambda v: np.fft.ifft(v) * size, "rfft": np.fft.rfft,
            "irfft": lambda v: np.fft.irfft(v, size) * size}[function](x)  # fmt: skip
    x = np.ascontiguousarray(x.astype(kind().real.dtype if function == "rfft" else kind))
    y = np.zeros(want.shape, kind().real.dtype if function == "irfft" else kind)
    table = np.zeros(max(t["table_size"], 1), kind)
    if t["table_size"]:
        mf.Kernel(source, "roots")[t["table_size"], 1](table)
    mf.Kernel(source, "caller")[2, t["threads"], t["shared_bytes"]](x, y, signals, table)
    np.testing.assert_allclose(y, want, rtol=0, atol=(3e-5 if dtype == "c64" else 1e-12) * size**0.5)


def test_threads_hold_their_elements(rng):
    ltoir = made("fft", size=128)
    t = ltoir.traits
    source = (
        ltoir.source
        + """
    extern "C" __global__ void caller(const mf::c64 *src, mf::c64 *dst, mf::c64 *table)
    {
        MF_DYNAMIC_SHARED(unsigned char, shared);
        mf::c64 x[ELEMENTS];
        for (int i = threadIdx.x; i < ENTRIES; i += blockDim.x)
            mf_fft_c64_128_table(i, table + i);
        __syncthreads();
        for (int i = 0; i < ELEMENTS; i++)
            if (mf_fft_c64_128_index(i) >= 0)
                x[i] = src[mf_fft_c64_128_index(i)];
        mf_fft_c64_128_run(x, shared, table);
        for (int i = 0; i < ELEMENTS; i++)
            if (mf_fft_c64_128_index(i) >= 0)
                dst[mf_fft_c64_128_index(i)] = x[i];
    }"""
    )
    x = (rng.standard_normal(128) + 1j * rng.standard_normal(128)).astype(np.complex64)
    y, table = np.zeros_like(x), np.zeros(t["table_size"], np.complex64)
    defines = {"ELEMENTS": t["elements"], "ENTRIES": t["table_size"]}
    mf.Kernel(source, "caller", defines=defines)[1, t["threads"], t["shared_bytes"]](x, y, table)
    np.testing.assert_allclose(y, np.fft.fft(x), atol=1e-4)


def test_every_operation_is_made():
    for name, arity, _ in _core.ops():
        dtype = "i32" if name.startswith("bitwise") or name == "philox" else "f64"
        ltoir = made(name, dtype=dtype)
        assert list(ltoir.symbols) == [f"mf_{name}_{dtype}"]
        assert ltoir.symbols[ltoir.name].count(",") == arity - 1


def test_what_is_refused():
    with pytest.raises(ValueError, match="no device function 'fftt'"):
        mf.get_ltoir("fftt", arch="sm_90")
    with pytest.raises(ValueError, match="fft needs size=, the points"):
        mf.get_ltoir("fft", arch="sm_90")
    with pytest.raises(ValueError, match="sum needs size=, the threads"):
        mf.get_ltoir("sum", size=100, arch="sm_90")
    with pytest.raises(ValueError, match="takes no size="):
        mf.get_ltoir("gelu", size=4, arch="sm_90")
    with pytest.raises(TypeError, match="fft is made for c64 and c128"):
        mf.get_ltoir("fft", size=8, dtype="f32", arch="sm_90")
    with pytest.raises(TypeError, match="gelu is made for f32, f64"):
        mf.get_ltoir("gelu", dtype="c64", arch="sm_90")
    made("gelu")
    with pytest.raises(RuntimeError, match="sm_12345"):
        mf.get_ltoir("gelu", arch="sm_12345")
