"""NumPy's own functions on traced values: ufuncs and the functions that NEP 18 hands over."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from mathfuse import _core, _functions, _interop, _numpy_views, _products, _views, fft, linalg
from mathfuse._integers import exact
from mathfuse._linalg_products import diagonal_with_offset
from mathfuse._reductions import reduced
from mathfuse._trace import (
    Traced,
    apply,
    as_traced,
    broadcast,
    cast,
    current,
    general_power,
    matmul,
    power,
    reduce,
)
from mathfuse.errors import InvalidError, UnsupportedError

_REDUCED = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any"}


def _refuse(name: str, hint: str = "") -> UnsupportedError:
    return UnsupportedError(
        f"numpy.{name} cannot be traced{hint or '; write it with functions of mathfuse, or call it outside'}"
    )


def _plain(kwargs: dict[str, Any], name: str, **allowed: Any) -> None:
    """Refuse keyword arguments that change the meaning; those at their defaults pass."""
    defaults = {"out": None, "where": True, "initial": None, "order": "K", "subok": True, "casting": "same_kind", **allowed}
    for key, value in kwargs.items():
        if key in defaults and (value is defaults[key] or type(value).__name__ == "_NoValueType"):
            continue
        if key == "out" and isinstance(value, tuple) and not any(x is not None for x in value):
            continue
        if key == "out":
            raise InvalidError(f"numpy.{name}: out= cannot be traced; return the value, and pass out= to the fused function")
        if key in ("order", "subok", "casting"):
            continue
        raise InvalidError(f"numpy.{name}: the argument {key}= cannot be traced; use mf.where or a separate step")


# ---- ufuncs ----


def _positive(x: Any) -> Traced:
    return as_traced(x)


def _scaled(factor: float) -> Callable[[Any], Traced]:
    return lambda x: apply("multiply", x, factor)


def _float_power(x: Any, y: Any) -> Traced:
    return apply("power", cast(as_traced(x), "f64"), y)


def _signbit(x: Any) -> Traced:
    x = as_traced(x)
    return apply("less", x if x._dtype in ("i8", "i32", "i64", "bool") else apply("copysign", 1.0, x), 0)


def _as_float(name: str) -> Callable[[Any], Traced]:
    """NumPy has it for real floats only, and casts integers to them."""

    def traced(x: Any) -> Traced:
        x = as_traced(x)
        return apply(name, cast(x, "f64") if x._dtype in ("i8", "i32", "i64") else x)

    return traced


def _heaviside(x: Any, y: Any) -> Traced:
    x = as_traced(x)
    return apply("where", apply("equal", x, 0), y, apply("where", apply("isnan", x), x, apply("greater", x, 0)))


def _logaddexp2(x: Any, y: Any) -> Traced:
    log2 = 0.6931471805599453
    return apply("multiply", apply("logaddexp", apply("multiply", x, log2), apply("multiply", y, log2)), 1 / log2)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "matmul": matmul,
    "positive": _positive,
    "fabs": _as_float("absolute"),
    "rint": _as_float("rint"),
    "signbit": _signbit,
    "invert": _functions.invert_bits,
    "bitwise_invert": _functions.invert_bits,
    "deg2rad": _scaled(0.017453292519943295),
    "radians": _scaled(0.017453292519943295),
    "rad2deg": _scaled(57.29577951308232),
    "degrees": _scaled(57.29577951308232),
    "float_power": _float_power,
    "heaviside": _heaviside,
    "logaddexp2": _logaddexp2,
    "divmod": lambda x, y: (apply("floor_divide", x, y), apply("remainder", x, y)),
    "power": lambda x, y: power(as_traced(x), y) if type(y) in (int, float) and y == 2 else general_power(x, y),
    "vecdot": _products.vecdot,
    "matvec": _products.matvec,
    "vecmat": _products.vecmat,
}


@cache
def _arities() -> dict[str, int]:
    return {name: arity for name, arity, _ in _core.ops()}


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = str(ufunc.__name__)
    if method == "reduce" and name in _REDUCED:
        axis, keepdims, dtype = kwargs.pop("axis", 0), kwargs.pop("keepdims", False), kwargs.pop("dtype", None)
        initial, where = kwargs.pop("initial", None), kwargs.pop("where", True)
        _plain(kwargs, f"{name}.reduce")
        return reduced(_REDUCED[name], inputs[0], axis, bool(keepdims), dtype, initial, where)
    if method == "outer" and len(inputs) == 2:
        first, second = (as_traced(x) for x in inputs)
        inputs, method = (first.reshape(*first.shape, *(1,) * second.ndim), second), "__call__"
    if method != "__call__":
        raise _refuse(f"{name}.{method}")
    dtype = kwargs.pop("dtype", None)
    along = {"axis": kwargs.pop("axis")} if name == "vecdot" and "axis" in kwargs else {}
    _plain(kwargs, name)
    if dtype is not None:
        inputs = tuple(cast(as_traced(x), _interop.dtype_name(dtype)) for x in inputs)
    if name in _UFUNCS:
        return _UFUNCS[name](*inputs, **along)
    name = _functions.ALIASES.get(name, name)
    if _arities().get(name) != len(inputs):
        raise _refuse(name)
    return apply(name, *inputs)


# ---- functions ----


def _reduction(op: str) -> Callable[..., Any]:
    def traced(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        initial, where = kwargs.pop("initial", None), kwargs.pop("where", True)
        _plain({"out": out, **kwargs}, op)
        return reduced(op, a, axis, keepdims is True, dtype, initial, where)

    return traced


def _extreme(op: str) -> Callable[..., Any]:
    def traced(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        initial, where = kwargs.pop("initial", None), kwargs.pop("where", True)
        _plain({"out": out, **kwargs}, op)
        return reduced(op, a, axis, keepdims is True, None, initial, where)

    return traced


def _spread(root: bool) -> Callable[..., Any]:
    def traced(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False, **kwargs: Any
    ) -> Any:
        ddof = kwargs.pop("correction", ddof)
        _plain({"out": out, **kwargs}, "std" if root else "var")
        x = as_traced(a) if dtype is None else cast(as_traced(a), _interop.dtype_name(dtype))
        value = _functions.variance(x, axis, ddof, keepdims is True)
        return apply("sqrt", value) if root else value

    return traced


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise _refuse("where", " without its two branches: the number of hits is not known; pass x and y")
    return _functions.where(condition, *branches)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    low, high = kwargs.pop("min", a_min), kwargs.pop("max", a_max)
    _plain({"out": out, **kwargs}, "clip")
    values = [None if type(v).__name__ == "_NoValueType" else v for v in (low, high)]
    return _functions.limited(a, *values)


def _reshape(a: Any, /, shape: Any = None, order: str = "C", **kwargs: Any) -> Any:
    kwargs.pop("copy", None)
    shape = kwargs.pop("newshape", shape)
    return as_traced(a).reshape(shape, order=order)


def _full(value: float) -> Callable[..., Any]:
    def traced(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **_: Any) -> Any:
        return _filled(a, value, dtype, shape)

    return traced


def _filled(a: Any, value: Any, dtype: Any, shape: Any) -> Traced:
    x = as_traced(a)
    extents = x.shape if shape is None else tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    number = exact(value) if type(value) is int and 2**31 < abs(value) < 2**63 else as_traced(value)
    return broadcast(cast(number, x._dtype if dtype is None else _interop.dtype_name(dtype)), extents)


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **_: Any
) -> Any:
    return _filled(a, fill_value, dtype, shape)


def _einsum(*given: Any, out: Any = None, dtype: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    _plain({"out": out, **kwargs}, "einsum")
    return _functions.einsum(*given, dtype=dtype)


def _trace_of(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return reduce("sum", _diagonal(a, offset, axis1, axis2), -1, False, dtype)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return diagonal_with_offset(_views.moveaxis(as_traced(a), (axis1, axis2), (-2, -1)), offset)


_LARGEST = {"f16": 65504.0, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    value = as_traced(x)
    if value._dtype in ("i8", "i32", "i64", "bool"):
        return value
    if value._dtype not in _LARGEST and (posinf is None or neginf is None):
        raise _refuse("nan_to_num", f" for {value._dtype} without posinf= and neginf=, or for complex values")
    if value._dtype[0] == "c":
        raise _refuse("nan_to_num", " for complex values; take .real and .imag")
    posinf = _LARGEST[value._dtype] if posinf is None else posinf
    neginf = -_LARGEST[value._dtype] if neginf is None else neginf
    value = apply("where", apply("isnan", value), nan, value)
    value = apply("where", apply("equal", value, float("inf")), posinf, value)
    return apply("where", apply("equal", value, float("-inf")), neginf, value)


def _without_nan(op: str, instead: float) -> Callable[..., Any]:
    def traced(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        _plain({"out": out, **kwargs}, f"nan{op}")
        x = as_traced(a)
        if x._dtype not in ("i8", "i32", "i64", "bool"):
            x = apply("where", apply("isnan", x), instead, x)
        return reduce(op, x, axis, keepdims is True, dtype)

    return traced


def _nan_extreme(op: str) -> Callable[..., Any]:
    def traced(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        _plain({"out": out, **kwargs}, f"nan{op}")
        x = as_traced(a)
        if x._dtype in ("i8", "i32", "i64", "bool"):
            return reduce(op, x, axis, keepdims is True)
        missing = apply("isnan", x)
        found = reduce(op, apply("where", missing, float("-inf" if op == "max" else "inf"), x), axis, keepdims is True)
        return apply("where", reduce("all", missing, axis, keepdims is True), float("nan"), found)

    return traced


def _nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
    _plain({"out": out, **kwargs}, "nanmean")
    x = as_traced(a) if dtype is None else cast(as_traced(a), _interop.dtype_name(dtype))
    if x._dtype in ("i8", "i32", "i64", "bool"):
        return reduce("mean", x, axis, keepdims is True)
    missing = apply("isnan", x)
    total = reduce("sum", cast(apply("where", missing, 0.0, x), {"f16": "f32"}.get(x._dtype, x._dtype)), axis, keepdims is True)
    count = reduce("sum", apply("logical_not", missing), axis, keepdims is True)
    return cast(apply("divide", total, cast(count, "f64" if x._dtype in ("f64", "c128") else "f32")), x._dtype)


def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return reduce("sum", cast(apply("not_equal", a, 0), "i64"), axis, keepdims)


def _angle(z: Any, deg: bool = False) -> Any:
    value = as_traced(z)
    radians = (
        apply("arctan2", value.imag, value.real) if value._dtype[0] == "c" else apply("arctan2", _filled(z, 0, None, None), z)
    )
    return apply("multiply", radians, 57.29577951308232) if deg else radians


def _sinc(x: Any) -> Any:
    value = as_traced(x)
    if value._dtype in ("i8", "i32", "i64", "bool"):
        value = cast(value, "f64")
    zero = apply("equal", value, 0)
    y = apply("multiply", apply("where", zero, 1.0, value), 3.141592653589793)
    return apply("where", zero, 1.0, apply("divide", apply("sin", y), y))


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return reduce("max", a, axis, keepdims is True) - reduce("min", a, axis, keepdims is True)


def _stack_refused(*_: Any, **__: Any) -> Any:
    raise _refuse("concatenate", ", nor stack and its kin; return the parts as separate results")


def _astype(x: Any, dtype: Any, /, **_: Any) -> Any:
    return as_traced(x).astype(dtype)


def _expand_dims(a: Any, axis: Any) -> Any:
    return _views.expand_dims(as_traced(a), axis)


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    import numpy as np

    table: dict[Any, Callable[..., Any]] = {
        np.where: _where,
        np.clip: _clip,
        np.reshape: _reshape,
        np.ravel: lambda a, order="C": as_traced(a).reshape(-1, order=order),
        np.transpose: lambda a, axes=None: as_traced(a).transpose(axes),
        np.swapaxes: lambda a, axis1, axis2: as_traced(a).swapaxes(axis1, axis2),
        np.moveaxis: lambda a, source, destination: _views.moveaxis(as_traced(a), source, destination),
        np.expand_dims: _expand_dims,
        np.squeeze: lambda a, axis=None: _views.squeeze(as_traced(a), axis),
        np.broadcast_to: lambda array, shape, subok=False: _views.broadcast_to(as_traced(array), shape),
        np.flip: lambda m, axis=None: _views.flip(as_traced(m), axis),
        np.roll: lambda a, shift, axis=None: _views.roll(as_traced(a), shift, axis),
        np.diagonal: _diagonal,
        np.trace: _trace_of,
        np.einsum: _einsum,
        np.dot: _without_out(_products.dot),
        np.vdot: _products.vdot,
        np.outer: _without_out(_products.outer),
        np.inner: _products.inner,
        np.kron: _products.kron,
        np.tensordot: _products.tensordot,
        np.real: lambda val: as_traced(val).real,
        np.imag: lambda val: as_traced(val).imag,
        np.copy: lambda a, order="K", subok=False: as_traced(a),
        np.zeros_like: _full(0),
        np.ones_like: _full(1),
        np.empty_like: _full(0),
        np.full_like: _full_like,
        np.nan_to_num: _nan_to_num,
        np.ptp: _ptp,
        np.nansum: _without_nan("sum", 0.0),
        np.nanprod: _without_nan("prod", 1.0),
        np.nanmax: _nan_extreme("max"),
        np.nanmin: _nan_extreme("min"),
        np.nanmean: _nanmean,
        np.count_nonzero: _count_nonzero,
        np.angle: _angle,
        np.sinc: _sinc,
        np.shape: lambda a: a.shape,
        np.ndim: lambda a: a.ndim,
        np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
        np.sum: _reduction("sum"),
        np.prod: _reduction("prod"),
        np.mean: _reduction("mean"),
        np.var: _spread(False),
        np.std: _spread(True),
        np.round: _round,
        np.around: _round,
    }
    table.update(_numpy_views.table())
    for name, op in {"max": "max", "min": "min", "amax": "max", "amin": "min", "any": "any", "all": "all"}.items():
        table[getattr(np, name)] = _extreme(op)
    for name in ("concatenate", "stack", "vstack", "hstack", "dstack", "block", "column_stack", "append"):
        table[getattr(np, name)] = _stack_refused
    for name in linalg.__all__:
        if hasattr(np.linalg, name) and name[0].islower():
            table[getattr(np.linalg, name)] = getattr(linalg, name)
    for name in fft.__all__:
        if hasattr(np.fft, name) and not name.endswith("freq"):
            table[getattr(np.fft, name)] = _without_out(getattr(fft, name))
    if hasattr(np, "astype"):
        table[np.astype] = _astype
    if hasattr(np, "matrix_transpose"):
        table[np.matrix_transpose] = lambda x: as_traced(x).mT
    return table


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    _plain({"out": out}, "round")
    x = as_traced(a)
    whole = x._dtype in ("i8", "i32", "i64")
    if whole and decimals >= 0:
        return x
    if decimals == 0:
        return apply("rint", x)
    scale = 10.0 ** abs(decimals)
    forth, back = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    value = apply(back, apply("rint", apply(forth, x, scale)), scale)
    return cast(value, x._dtype) if whole else value


def _without_out(function: Callable[..., Any]) -> Callable[..., Any]:
    def traced(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("out", None) is not None:
            raise InvalidError(f"numpy's {function.__name__}: out= cannot be traced; pass out= to the fused function")
        return function(*args, **kwargs)

    return traced


def call_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    traced = _table().get(func)
    if traced is None:
        module = str(getattr(func, "__module__", "numpy")).removeprefix("numpy").lstrip(".")
        raise _refuse(f"{module + '.' if module else ''}{func.__name__}")
    current()  # a clear message if the trace is over
    return traced(*args, **kwargs)
