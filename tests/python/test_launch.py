"""Arguments of kernel launches: what reaches the kernel, byte by byte, and what is refused."""

import struct

import mathfuse as mf
import numpy as np
import pytest
from mathfuse import _core, _kernel
from mathfuse._parameters import parameters


def launcher(declared):
    """A launcher of a kernel with these parameters, and the list of what it was asked to run on the CPU."""
    ran = []
    source = f'extern "C" __global__ void k({declared}) {{}}'
    compiled = []

    def compile_for(index):
        compiled.append(index)
        return _core.Kernel(_core.Context("sm_90a"), source, "k")

    made = _core.Launcher("k", tuple(p.described() for p in parameters(source, "k")), compile_for,
                          lambda *given: ran.append(given), _kernel._locate)  # fmt: skip
    return made, ran, compiled


@pytest.mark.parametrize(
    ("declared", "value", "code"),
    [("bool", True, "?"), ("char", -128, "b"), ("unsigned char", 255, "B"), ("short", -32768, "h"), ("uint16_t", 65535, "H"),
     ("int", -(2**31), "i"), ("unsigned", 2**32 - 1, "I"), ("long long", -(2**63), "q"), ("size_t", 2**64 - 1, "Q"),
     ("float", 0.1, "f"), ("double", 0.1, "d"), ("float", 3, "f"), ("mf::i64", 7, "q")],
)  # fmt: skip
def test_scalars(declared, value, code):
    made, ran, _ = launcher(f"{declared} x, const {declared} y")
    made[1, 1](value, value)
    assert ran[0][3] == (struct.pack(code, value),) * 2


@pytest.mark.parametrize(
    ("declared", "value"),
    [("char", 128), ("unsigned char", -1), ("short", 32768), ("int", 2**31), ("unsigned", -1), ("long long", 2**63),
     ("size_t", -1), ("size_t", 2**64), ("int", 1.5), ("int", "1"), ("float", "1"), ("float", None), ("double", 1j)],
)  # fmt: skip
def test_what_is_no_such_scalar(declared, value):
    made, _, _ = launcher(f"{declared} x")
    with pytest.raises(TypeError, match=rf"argument 0 \(x\) of k is a {declared}; .* is not one"):
        made[1, 1](value)


def test_numpy_scalars_and_bytes():
    made, ran, _ = launcher("float a, int b, struct pair c, half d")
    made[1, 1](np.float64(1.5), np.int64(-3), b"12345678", np.float16(2))
    assert ran[0][3] == (struct.pack("f", 1.5), struct.pack("i", -3), b"12345678", struct.pack("e", 2))
    with pytest.raises(TypeError, match=r"argument 2 \(c\) of k has the type pair, which is not known"):
        made[1, 1](1.5, -3, 2.5, np.float16(2))


def test_arrays():
    made, ran, _ = launcher("const float *a, unsigned char *b, mf::c64 *c")
    a, b, c = np.zeros(3, np.float32), np.zeros(3, np.uint8), np.zeros(3, np.complex64)
    made[1, 1](a, b, c)
    assert ran[0][3] == tuple(struct.pack("P", x.ctypes.data) for x in (a, b, c))
    a.flags.writeable = b.flags.writeable = False
    with pytest.raises(ValueError, match=r"argument 1 \(b\) of k is no pointer to const, and the array is read-only"):
        made[1, 1](a, b, c)
    with pytest.raises(TypeError, match=r"argument 2 \(c\) of k points to mf::c64 and takes complex64; the array is float32"):
        made[1, 1](a, np.zeros(3, np.uint8), a)
    for no_array in (np.float32(1), memoryview(a), 4096, None, np.ma.masked_array(a)):
        with pytest.raises(TypeError, match="is a pointer: pass an array"):
            made[1, 1](no_array, b, c)


@pytest.mark.parametrize(
    "item", [("a",), ("a", "int", "i", False, []), ("a", "int", "!", False, ("float32",)), (1, 2, 3, 4, 5)]
)
def test_parameters_that_are_none(item):
    with pytest.raises((TypeError, ValueError)):
        _core.Launcher("k", (("x", "int", "i", False, ()), item), int, int, int)
    with pytest.raises(ValueError, match="at most 64 parameters"):
        _core.Launcher("k", (("x", "int", "i", False, ()),) * 65, int, int, int)


def test_shapes_of_a_launch():
    made, ran, _ = launcher("int x")
    kept = made[(2, np.int64(3)), [4, 5, 6], 7]
    kept(1)
    kept(2)
    assert [r[:3] for r in ran] == [((2, 3, 1), (4, 5, 6), 7)] * 2
    for key in (3, (3,), (1, 2, 3, 4), (1.0, 1), ((1, 2, 3, 4), 1), ((), 1), ("a", 1)):
        with pytest.raises(ValueError, match="a launch is kernel|is an integer or up to three"):
            made[key]
    for key in ((0, 1), (1, 1025), (1, (32, 33)), (1, 1, -1)):
        with pytest.raises(ValueError, match="extents start at 1, a block has at most 1024 threads"):
            made[key]
    with pytest.raises(TypeError, match="and stream="):
        made[1, 1](1, steam=3)


class OnDevice:
    """Stands for an array on a GPU."""

    shape, dtype = (4,), np.dtype("float32")

    def __init__(self, device=0):
        self.device = device

    def __dlpack_device__(self):
        return 2, self.device

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": "<f4", "data": (4096, False), "version": 3}


def test_arrays_of_a_gpu_choose_it():
    made, ran, compiled = launcher("const float *a, float *b")
    with pytest.raises(ValueError, match=r"must share a device: argument 1 \(b\) of k lies on cuda:1, argument 0 on cuda:0"):
        made[1, 1](OnDevice(0), OnDevice(1))
    with pytest.raises(ValueError, match="lies on cuda:0, argument 0 on cpu:0"):
        made[1, 1](np.zeros(4, np.float32), OnDevice(0))
    try:
        _core.compile("cubin", "sm_90a", "empty", "")
    except mf.errors.MissingError:
        pytest.skip("no NVRTC here")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="compiled for sm_90a, which is not on this machine"):
            made[1, 1](OnDevice(3), OnDevice(3), stream=0)
    assert compiled == [3]
    assert ran == []


def test_figures():
    kernel = mf.Kernel(
        '#include "mathfuse/device/fft.cuh"\nusing F = mf::fft::block<float, 1024, mf::fft::forward>;\n'
        'extern "C" __global__ void k(float *x) { __shared__ float s[1024]; s[threadIdx.x] = x[0]; __syncthreads();'
        " x[threadIdx.x] = s[0]; }",
        "k",
        arch="sm_90a",
    )
    assert kernel.constants("F::threads", "F::ffts * F::size", "-3") == (128, 2048, -3)
    try:
        ptx = kernel.ptx
    except mf.errors.MissingError:
        pytest.skip("no NVRTC here")
    assert ".entry k(" in ptx
    assert ".target sm_90a" in ptx
    assert len(kernel.ltoir) > 100
    assert kernel.arch == "sm_90a"
    assert kernel.occupancy(1024) == (2, 64, 1.0, "threads")
    assert kernel.occupancy((16, 2)).limited_by == "blocks"
    assert kernel.occupancy(32, 96 << 10) == (2, 2, 2 / 64, "shared memory")
    with pytest.raises(ValueError, match="1 to 1024 threads"):
        kernel.occupancy(0)


def test_occupancy_by_registers():
    from mathfuse._occupancy import occupancy

    # 65536 / (255 → 256 registers · 256 threads) = 1 block; the programming guide's example for 128 threads of 64: 8 blocks
    assert occupancy("sm_90a", 256, 255, 0) == (1, 8, 8 / 64, "registers")
    assert occupancy("sm_80", 128, 64, 0) == (8, 32, 0.5, "registers")
    with pytest.raises(ValueError, match="limits of sm_75 are not known"):
        occupancy("sm_75", 32, 32, 0)


def test_constants_without_nvrtc():
    from mathfuse import _emulate

    source = "constexpr int n = 5;"
    assert _emulate.constants(source, "k", ("n * n", "-n")) == (25, -5)
