"""What the extension asks of array libraries: conversions, allocation, streams, dtypes."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from mathfuse import _core
from mathfuse.errors import DeviceError, DtypeError, InvalidError

# Integers that mathfuse has no type for, and the type whose values include theirs (u64: up to 2**63 - 1).
_WIDER = {"uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
_SUPPORTED = "bool, int8, int32, int64, float16, bfloat16, float32, float64, complex64, complex128, float8_e4m3fn, float8_e5m2"


@cache
def _module(name: str) -> Any:
    return import_module(name)


@cache
def numpy_dtype(name: str) -> Any:
    """NumPy's dtype object; bfloat16 and fp8 are ml_dtypes'."""
    import numpy as np

    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        try:
            ml_dtypes = _module("ml_dtypes")
        except ImportError:
            raise DtypeError(f"NumPy arrays of {name} need the package ml_dtypes: pip install ml-dtypes") from None
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def dtype_name(dtype: Any) -> str:
    """The short name ("f32") of a dtype given as a name, a NumPy or PyTorch dtype, or a Python type."""
    known = {bool: "bool", int: "i64", float: "f64", complex: "c128"}
    if isinstance(dtype, type) and dtype in known:
        return known[dtype]
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        name = dtype.__name__
    else:
        name = getattr(dtype, "name", None) or str(dtype)
    name = name.removeprefix("torch.")
    try:
        return _core.dtype(name)[0]
    except DtypeError:
        if "numpy" not in sys.modules or not isinstance(dtype, str):
            raise
    import numpy as np

    try:
        name = np.dtype(dtype).name  # "f4", "<c8", "double"
    except TypeError:
        name = dtype
    return _core.dtype(name)[0]


def integer_dtype(name: str) -> str:
    """The short name of an integer dtype, or of the one that stands in for it."""
    return _core.dtype(_WIDER.get(name, name))[0]


def _unsupported(dtype: Any) -> DtypeError:
    return DtypeError(f"arrays of dtype {dtype} are not supported; there are {_SUPPORTED}: convert with astype")


def _convert_numpy(x: Any) -> Any:
    import numpy as np

    if isinstance(x, np.ma.MaskedArray):
        raise DtypeError("masked arrays are not supported; fill them first")
    a = np.asarray(x)
    if a.dtype.name == "uint64" and a.size and int(a.max()) >= 2**63:
        raise DtypeError("a uint64 array has values beyond 2**63 - 1; there is no unsigned type: convert with astype")
    name = _WIDER.get(a.dtype.name, a.dtype.name)
    try:
        _core.dtype(name)
    except DtypeError:
        raise _unsupported(a.dtype) from None
    # A copy for foreign byte order, strides that are no multiple of the element, and odd addresses; else the array itself.
    dtype = numpy_dtype(name)
    if a.dtype != dtype or not a.flags.aligned or any(s % a.itemsize for s in a.strides):
        return np.array(a, dtype=dtype, order="C")
    return a


def _convert_torch(x: Any) -> Any:
    torch = _module("torch")
    name = str(x.dtype).removeprefix("torch.")
    if name in _WIDER:
        return x.to(getattr(torch, _WIDER[name]))
    try:
        _core.dtype(name)
    except DtypeError:
        raise _unsupported(x.dtype) from None
    plain = x.resolve_conj().resolve_neg()
    return plain.clone() if plain is x else plain


def convert(x: Any) -> Any:
    """An array that can be imported, from one that cannot: another integer width, byte order or alignment."""
    module = type(x).__module__.partition(".")[0]
    if module == "torch":
        return _convert_torch(x)
    if module == "cupy":
        if x.dtype.name in _WIDER:
            return x.astype(_WIDER[x.dtype.name])
        raise _unsupported(x.dtype)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array_struct__"):
        raise _unsupported(getattr(x, "dtype", type(x).__name__))
    return _convert_numpy(x)


def torch_plain(x: Any) -> bool:
    """Whether a tensor's memory holds its values: no conjugation or negation is pending. Refuses to lose a gradient."""
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise InvalidError("the tensor requires a gradient, which is not computed here; pass x.detach() or use torch.no_grad()")
    return not (x.is_conj() or x.is_neg())


def empty(library: str, kind: type, dtype: str, shape: tuple[int, ...], device: int) -> Any:
    """A new array of "torch" or "cupy"; for another library (""), of one that can carry it there by DLPack."""
    if library == "":
        if device < 0:
            import numpy as np

            return np.empty(shape, numpy_dtype(dtype))
        library = "torch" if "torch" in sys.modules else "cupy"
    if library == "torch":
        torch = _module("torch")
        return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu" if device < 0 else f"cuda:{device}")
    try:
        cupy = _module("cupy")
    except ImportError:
        raise DeviceError(
            f"a result for {kind.__module__}.{kind.__qualname__} on cuda:{device} needs CuPy or PyTorch"
        ) from None
    if cupy.cuda.runtime.getDevice() == device:  # entering a device costs more than asking
        return cupy.ndarray(shape, numpy_dtype(dtype))
    with cupy.cuda.Device(device):
        return cupy.ndarray(shape, numpy_dtype(dtype))


def wrap(kind: type, array: Any) -> Any:
    """Hand an array to the library of `kind`: by DLPack, or by its asarray for dtypes that NumPy does not export."""
    package = kind.__module__.partition(".")[0].removesuffix("lib")  # jaxlib's arrays belong to jax
    for name in ("from_dlpack", "asarray"):
        for module in (kind.__module__, package, package + ".dlpack", package + ".numpy"):
            take = getattr(sys.modules.get(module), name, None)
            if take is not None:
                with suppress(BufferError, TypeError):
                    return take(array)
    return array


def current_stream(library: str, device: int) -> int:
    """The stream that a library works on now, as an address."""
    if library == "torch":
        torch = _module("torch")
        return int(torch.cuda.current_stream(device).cuda_stream)
    if library == "cupy":
        cupy = _module("cupy")
        if cupy.cuda.runtime.getDevice() == device:
            return int(cupy.cuda.get_current_stream().ptr)
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0


def stream_pointer(stream: Any) -> int:
    """The address of a stream object of any library."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(value)
    raise InvalidError(f"stream must be an int or an object with __cuda_stream__, .cuda_stream or .ptr, not {stream!r}")


def to_numpy(x: Any) -> Any:
    """A host copy, whatever the library."""
    import numpy as np

    if hasattr(x, "get"):  # CuPy
        return x.get()
    if hasattr(x, "cpu"):  # PyTorch
        return x.cpu().numpy()
    return np.asarray(x)


def library_directories() -> str:
    """Where pip puts NVIDIA's libraries: every sys.path entry that has an `nvidia` folder."""
    from os.path import isdir, join

    return ":".join(p for p in dict.fromkeys(sys.path) if p and isdir(join(p, "nvidia")))
