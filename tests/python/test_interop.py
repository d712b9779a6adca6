"""Arrays of other libraries on the CPU: PyTorch, ml_dtypes, anything with DLPack; mixing them; lifetimes."""

import ctypes
import gc
import sys
import weakref

import mathfuse as mf
import numpy as np
import pytest
from tools import BF16, E4M3, assert_close, values, wide


def test_numpy_scalars_live_as_long_as_the_call():
    scaled = mf.fuse(lambda a, s, t: (a * s * t, mf.max(a)))
    a = np.ones((4, 5), np.float32)
    for _ in range(20):  # results must not get the memory that a scalar was in
        product, largest = scaled(a, np.float32(2), np.float32(3))
        assert (product == 6).all() and largest == 1


def test_ml_dtypes_in_and_out(rng):
    x, w = values(rng, (4, 8), BF16), values(rng, (8, 3), BF16)
    y = mf.matmul(x, w, activation="gelu")
    assert y.dtype == BF16
    assert_close(y, mf.gelu(wide(x) @ wide(w)), scale=2)
    assert mf.cast(x, E4M3).dtype == E4M3
    np.testing.assert_array_equal(wide(mf.cast(x[:, ::-2], np.float32)), wide(x[:, ::-2]))


def test_subclasses_and_masked_arrays():
    class Mine(np.ndarray):
        pass

    assert (mf.negative(np.arange(3.0).view(Mine)) == [0, -1, -2]).all()
    with pytest.raises(TypeError, match="masked"):
        mf.exp(np.ma.ones(3))


def test_objects_with_array_methods():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3.0)

    np.testing.assert_array_equal(mf.negative(Wrapped()), [0, -1, -2])


class Producer:
    """A library of its own: a NumPy array behind DLPack, counting what it gave out."""

    alive = 0

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert max_version is None or max_version[0] == 1
        return self.array.__dlpack__(max_version=max_version)

    def __dlpack_device__(self):
        return (1, 0)


def test_dlpack_producers(rng):
    x = values(rng, (3, 4), np.float32)
    y = mf.exp(Producer(x[:, ::-1]))
    assert_close(y, np.exp(wide(x))[:, ::-1], scale=2)
    frozen = x.copy()
    frozen.flags.writeable = False
    assert_close(mf.exp(Producer(frozen)), np.exp(wide(x)), scale=2)
    with pytest.raises(TypeError, match="not supported"):
        mf.exp(Producer(x.astype(np.int16)))


def test_dlpack_before_version_one(rng):
    class Old(Producer):
        def __dlpack__(self, *, stream=None):
            return self.array.__dlpack__()

    x = values(rng, (5,), np.float64)
    np.testing.assert_array_equal(mf.negative(Old(x)), -x)


def test_libraries_are_not_mixed(rng):
    x = values(rng, (3,), np.float64)
    with pytest.raises(ValueError, match=r"argument 2.*Producer.*argument 1.*ndarray"):
        mf.add(x, Producer(x))


def test_inputs_are_released():
    x = np.ones(1000)
    before = sys.getrefcount(x)
    for _ in range(10):
        mf.add(x, x)
        mf.add(x, 1, out=np.empty(1000))
        mf.exp(Producer(x))
        with pytest.raises(ValueError):
            mf.add(x, np.ones(7))
    assert sys.getrefcount(x) == before
    y = mf.add(x, 1)
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is None


def test_large_leaf_counts():
    arrays = [np.full(2, float(i)) for i in range(40)]
    np.testing.assert_array_equal(mf.fuse(lambda xs: [xs[0] + xs[-1], xs[1]])(arrays)[0], [39, 39])


def test_streams_are_ignored_on_the_cpu():
    np.testing.assert_array_equal(mf.add(np.ones(2), 1, stream=0), [2, 2])

    class Stream:
        def __cuda_stream__(self):
            return (0, 1)

    np.testing.assert_array_equal(mf.add(np.ones(2), 1, stream=Stream()), [2, 2])
    with pytest.raises(ValueError, match="stream must be"):
        mf.add(np.ones(2), 1, stream="main")


torch = None
try:
    import torch
except ImportError:
    pass
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


@needs_torch
@pytest.mark.parametrize(
    "name", ["bool", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
def test_torch_dtypes(name):
    x = (torch.arange(12).reshape(3, 4) % 3).to(getattr(torch, name))
    y = mf.multiply(x, x)
    assert isinstance(y, torch.Tensor) and y.dtype == x.dtype and y.device.type == "cpu"
    assert torch.equal(y, x & x if name == "bool" else x * x)
    assert torch.equal(mf.add(x.T, x.T), x.T | x.T if name == "bool" else x.T + x.T)


@needs_torch
def test_torch_fused_layer():
    x, w, b = torch.randn(5, 8), torch.randn(8, 3), torch.randn(3)
    y = mf.matmul(x, w, bias=b, activation="gelu")
    assert torch.allclose(y, torch.nn.functional.gelu(x @ w + b, approximate="tanh"), atol=1e-5)
    fused = mf.fuse(lambda x, w, b: np.tanh(x @ w + b))
    out = torch.empty(5, 3)
    assert fused(x, w, b, out=out) is out
    assert torch.allclose(out, torch.tanh(x @ w + b), atol=1e-5)
    assert torch.allclose(mf.fft.rfft(x), torch.fft.rfft(x), atol=1e-5)
    assert torch.allclose(mf.linalg.solve(torch.eye(3) * 2, b), b / 2)
    with pytest.raises(mf.linalg.LinAlgError):
        mf.linalg.cholesky(-torch.eye(3))


@needs_torch
def test_torch_odd_tensors():
    z = torch.randn(4, dtype=torch.complex64)
    assert torch.allclose(mf.add(z.conj(), 0), z.conj().resolve_conj())
    assert torch.allclose(mf.add(z.conj().imag, 0), z.conj().imag.resolve_neg())
    small = torch.arange(4, dtype=torch.uint8)
    assert mf.add(small, 1).dtype == torch.int32
    assert mf.negative(torch.ones(2, 3).expand(2, 3)[:, ::2]).shape == (2, 2)
    assert mf.exp(torch.tensor(0.0)).shape == ()
    assert mf.exp(torch.empty(0, 3)).shape == (0, 3)
    parameter = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert torch.equal(mf.negative(parameter), -torch.ones(3))
    f8 = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert mf.cast(f8, "float32").dtype == torch.float32
    assert mf.cast(torch.ones(2), "float8_e5m2").dtype == torch.float8_e5m2


@needs_torch
def test_torch_is_not_mixed_with_numpy():
    with pytest.raises(
        ValueError, match=r"argument 'bias' is a numpy.ndarray on the CPU, but argument 1 \('a'\) is a torch.Tensor"
    ):
        mf.matmul(torch.ones(2, 2), torch.ones(2, 2), bias=np.ones(2, np.float32))
    x = torch.ones(3)
    np.testing.assert_array_equal(mf.add(x, 1, out=torch.empty(3)).numpy(), [2, 2, 2])


@needs_torch
def test_torch_gradients_are_refused():
    with pytest.raises((ValueError, RuntimeError, BufferError, TypeError), match="grad"):
        mf.exp(torch.ones(2, requires_grad=True))


def test_a_pointer_is_never_kept():
    """The plan does not read the first call's memory in the second."""
    f = mf.fuse(lambda x: x + 1)
    first = np.ones(1 << 16)
    f(first)
    ctypes.memset(first.ctypes.data, 0x7F, first.nbytes)
    np.testing.assert_array_equal(f(np.zeros(1 << 16)), np.ones(1 << 16))


@pytest.mark.parametrize("name", ["array_api_strict", "jax.numpy"])
def test_other_libraries_get_their_type_back(name):
    library = pytest.importorskip(name)
    x = library.asarray([[1.0, 2.0], [3.0, 4.0]])
    y = mf.matmul(x, x, activation="relu")
    assert type(y) is type(x)
    np.testing.assert_array_equal(np.asarray(y), [[7, 10], [15, 22]])
    parts = mf.fuse(lambda a: {"sum": a.sum(0), "transposed": a.T})(x)
    assert type(parts["sum"]) is type(x)
    np.testing.assert_array_equal(np.asarray(parts["transposed"]), [[1, 3], [2, 4]])
