"""Exceptions. Each status of the C library has one; all derive from Error and from the built-in class that fits."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from mathfuse import _core


class Error(Exception):
    """What every exception of mathfuse derives from."""


class InvalidError(Error, ValueError):
    """An argument has a value that is not allowed."""


class RangeError(InvalidError, OverflowError):
    """A Python integer does not fit the dtype that it would take."""


class DtypeError(Error, TypeError):
    """A dtype is not supported, or dtypes do not fit together."""


class ShapeError(Error, ValueError):
    """Shapes do not fit."""


class AxisError(Error, ValueError, IndexError):
    """An axis is out of range."""


class LayoutError(Error, ValueError):
    """Strides or alignment do not fit."""


class AliasError(Error, ValueError):
    """An output overlaps an input."""


class DeviceError(Error, ValueError):
    """Arrays lie on the wrong device, or on several."""


class UnsupportedError(Error, NotImplementedError):
    """No provider can run this."""


class OutOfMemoryError(Error, MemoryError):
    """The host or the device is out of memory."""


class StateError(Error, RuntimeError):
    """A call is not allowed in this state."""


class MissingError(Error, RuntimeError):
    """A library was not found."""


class LibraryError(Error, RuntimeError):
    """A vendor library failed."""


class CompileError(Error, RuntimeError):
    """A kernel did not compile."""


class CudaError(Error, RuntimeError):
    """A CUDA call failed."""


class IoError(Error, OSError):
    """A file could not be read or written."""


class InternalError(Error, RuntimeError):
    """A mistake of mathfuse; please report it."""


@cache
def lin_alg_error() -> type[Error]:
    """LinAlgError: a subclass of NumPy's where NumPy is present."""
    base: Any = ValueError  # what NumPy's own derives from
    with suppress(ImportError):
        base = import_module("numpy.linalg").LinAlgError

    class LinAlgError(Error, base):  # type: ignore[misc]
        """A factorisation failed. `info` has LAPACK's code of every matrix in the batch; 0 is fine."""

        info: Any = None

    LinAlgError.__module__ = "mathfuse.linalg"
    LinAlgError.__qualname__ = "LinAlgError"
    return LinAlgError


_NAMES = {"MF_E_TYPE": "DtypeError", "MF_E_MEMORY": "OutOfMemoryError"}


@cache
def error_class(status: int) -> type[BaseException]:
    """The exception of a status; called by the extension."""
    for value, name, _, _ in _core.statuses():
        if value == status:
            if name == "MF_E_NUMERIC":
                return lin_alg_error()
            found = globals().get(_NAMES.get(name, name.removeprefix("MF_E_").title() + "Error"))
            return found if isinstance(found, type) else InternalError
    return InternalError
