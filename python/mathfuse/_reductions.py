"""NumPy's `initial` and `where` of reductions."""

from __future__ import annotations

from typing import Any

from mathfuse import _interop
from mathfuse._trace import Traced, apply, as_traced, broadcast, cast, normalise_axes, reduce
from mathfuse.errors import InvalidError, ShapeError

_JOINED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}


def given(value: Any, default: Any) -> bool:
    """Whether a keyword argument differs from its default; NumPy marks those not passed by an object of its own."""
    return value is not default and type(value).__name__ != "_NoValueType"


def _mask(where: Any, x: Traced) -> Traced:
    mask = as_traced(where)
    if mask._dtype != "bool":
        mask = apply("not_equal", mask, 0)
    try:
        return broadcast(mask, x.shape)
    except ShapeError:
        raise ShapeError(f"where has shape {mask.shape}, which does not broadcast to {x.shape}") from None


def _mean_where(x: Traced, axis: Any, keepdims: bool, where: Any) -> Traced:
    mask = _mask(where, x)
    real = {"f64": "f64", "c128": "f64"}.get(x._dtype, "f64" if x._dtype in ("i8", "i32", "i64", "bool") else "f32")
    wide = x._dtype if x._dtype[0] == "c" else real
    total = reduce("sum", apply("where", mask, cast(x, wide), cast(as_traced(0), wide)), axis, keepdims)
    value = apply("divide", total, cast(reduce("sum", mask, axis, keepdims), real))
    return cast(value, x._dtype) if x._dtype in ("f16", "bf16") else value


def reduced(name: str, a: Any, axis: Any, keepdims: bool, dtype: Any, initial: Any, where: Any) -> Traced:
    """A reduction over the elements where `where` holds, and `initial`."""
    x = as_traced(a)
    start, chosen = given(initial, None), given(where, True)
    if not start and not chosen:
        return reduce(name, x, axis, keepdims, dtype)
    if dtype is not None:
        x = cast(x, _interop.dtype_name(dtype))
    if name == "mean":
        return _mean_where(x, axis, keepdims, where)
    if name not in _IDENTITY and not start:
        raise InvalidError(f"{name}: where= needs initial=, as {name} of nothing has no value")
    if chosen:
        x = apply("where", _mask(where, x), x, cast(as_traced(_IDENTITY.get(name, initial)), x._dtype))
    axes = normalise_axes(axis, x.ndim)
    if name not in _IDENTITY and any(x.shape[d] == 0 for d in axes):
        kept = [1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes]
        return broadcast(cast(as_traced(initial), x._dtype), tuple(kept))
    value = reduce(name, x, axes, keepdims, None if dtype is None else x._dtype)
    return apply(_JOINED[name], value, cast(as_traced(initial), value._dtype)) if start else value
