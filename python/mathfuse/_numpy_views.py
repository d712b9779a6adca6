"""NumPy's functions that are views or short formulas of others, on traced values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from mathfuse import _functions, _interop, _views
from mathfuse._linalg import arange
from mathfuse._linalg_products import diagonal_with_offset
from mathfuse._reductions import reduced
from mathfuse._trace import Traced, apply, as_traced, broadcast, cast, normalise_axis, reduce, transpose
from mathfuse.errors import InvalidError, ShapeError, UnsupportedError

_WHOLE = ("bool", "i8", "i32", "i64")


def _triangle(op: str) -> Callable[..., Any]:
    def traced(m: Any, k: int = 0) -> Traced:
        x = as_traced(m)
        if x.ndim == 0:
            raise ShapeError("a triangle needs at least one dimension")
        x = broadcast(x, (x.shape[0], x.shape[0])) if x.ndim == 1 else x
        row = apply("add", arange(x.shape[-2]).reshape(-1, 1), operator.index(k))
        return apply("where", apply(op, arange(x.shape[-1]), row), x, cast(as_traced(0), x._dtype))

    return traced


def _diag(v: Any, k: int = 0) -> Traced:
    x = as_traced(v)
    if x.ndim == 2:
        return diagonal_with_offset(x, operator.index(k))
    if x.ndim != 1 or k:
        raise UnsupportedError("numpy.diag of a vector off the main diagonal cannot be traced; write it outside")
    n = x.shape[0]
    return apply("where", apply("equal", arange(n).reshape(-1, 1), arange(n)), x, cast(as_traced(0), x._dtype))


def _at_least(n: int) -> Callable[..., Any]:
    def one(a: Any) -> Traced:
        x = as_traced(a)
        if x.ndim >= n:
            return x
        if n == 3 and x.ndim:
            return x.reshape(1, -1, 1) if x.ndim == 1 else x.reshape(*x.shape, 1)
        return x.reshape(*(1,) * (n - x.ndim), *x.shape)

    def traced(*arrays: Any) -> Any:
        return one(arrays[0]) if len(arrays) == 1 else tuple(map(one, arrays))

    return traced


def _flipped(axis: int) -> Callable[..., Any]:
    return lambda m: _views.flip(as_traced(m), axis)


def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Traced:
    x = as_traced(m)
    a, b = (normalise_axis(d, x.ndim) for d in axes)
    if a == b:
        raise InvalidError(f"rot90: axes {axes} name one axis twice")
    turns = operator.index(k) % 4
    if turns == 2:
        return _views.flip(x, (a, b))
    if turns == 1:
        return _views.flip(x, b).swapaxes(a, b)
    return _views.flip(x.swapaxes(a, b), b) if turns else x


def _rollaxis(a: Any, axis: int, start: int = 0) -> Traced:
    x = as_traced(a)
    axis = normalise_axis(axis, x.ndim)
    start = normalise_axis(start, x.ndim + 1)
    return _views.moveaxis(x, axis, start - 1 if axis < start else start)


def _permuted(a: Any, axes: Any = None) -> Traced:
    x = as_traced(a)
    return transpose(x, tuple(reversed(range(x.ndim))) if axes is None else tuple(axes))


def _broadcast_all(*arrays: Any, subok: bool = False) -> tuple[Traced, ...]:
    import numpy as np

    values = [as_traced(x) for x in arrays]
    shape = np.broadcast_shapes(*(x.shape for x in values))
    return tuple(broadcast(x, shape) for x in values)


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Traced:
    if any(x is not None and type(x).__name__ != "_NoValueType" for x in (prepend, append)):
        raise UnsupportedError("numpy.diff: prepend= and append= cannot be traced")
    x = as_traced(a)
    if n < 0 or x.ndim == 0:
        raise InvalidError(f"diff: n is {n} and the array has {x.ndim} dimensions; n is 0 or more, and there is an axis")
    lead = (slice(None),) * normalise_axis(axis, x.ndim)
    for _ in range(n):
        after, before = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
        x = apply("not_equal" if x._dtype == "bool" else "subtract", after, before)
    return x


def _average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    x, kept = as_traced(a), keepdims is True
    if weights is None:
        return reduce("mean", x, axis, kept)
    if returned:
        raise UnsupportedError("numpy.average: returned= cannot be traced; sum the weights beside it")
    w = as_traced(weights)
    if w.shape != x.shape:
        if not isinstance(axis, int) or w.shape != (x.shape[normalise_axis(axis, x.ndim)],):
            raise ShapeError(f"average: weights have shape {w.shape}, a {x.shape}; pass as many as a has along one axis")
        w = w.reshape(-1, *(1,) * (x.ndim - normalise_axis(axis, x.ndim) - 1))
    x = cast(x, "f64") if x._dtype in _WHOLE else x
    total = reduce("sum", apply("multiply", x, w), axis, kept)
    return apply("divide", total, reduce("sum", broadcast(w, x.shape), axis, kept))


def _close(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Traced:
    x, y = as_traced(a), as_traced(b)
    if y._dtype in _WHOLE:
        y = cast(y, "f64")
    limit = apply("add", apply("multiply", apply("absolute", y), rtol), atol)
    near = apply("less_equal", apply("absolute", apply("subtract", x, y)), limit)
    close = apply("logical_or", apply("logical_and", near, apply("isfinite", y)), apply("equal", x, y))
    return apply("logical_or", close, apply("logical_and", apply("isnan", x), apply("isnan", y))) if equal_nan else close


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = as_traced(a1), as_traced(a2)
    if x.shape != y.shape:
        return as_traced(False)
    same = apply("equal", x, y)
    if equal_nan:
        same = apply("logical_or", same, apply("logical_and", apply("isnan", x), apply("isnan", y)))
    return reduce("all", same)


def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Traced]:
    x = as_traced(ary)
    at = normalise_axis(axis, x.ndim)
    n = x.shape[at]
    if isinstance(indices_or_sections, int):
        count, rest = divmod(n, indices_or_sections)
        sizes = [count + 1] * rest + [count] * (indices_or_sections - rest)
        cuts = [sum(sizes[:i]) for i in range(1, len(sizes))]
    else:
        cuts = [operator.index(c) for c in indices_or_sections]
    lead = (slice(None),) * at
    return [x[(*lead, slice(i, j))] for i, j in zip([0, *cuts], [*cuts, n])]


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Traced]:
    x = as_traced(ary)
    if isinstance(indices_or_sections, int) and x.shape[normalise_axis(axis, x.ndim)] % indices_or_sections:
        raise ShapeError(f"split: {x.shape} does not divide into {indices_or_sections} along axis {axis}; use array_split")
    return _array_split(x, indices_or_sections, axis)


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Traced:
    x = as_traced(a)
    if not isinstance(repeats, int) or repeats < 0:
        raise UnsupportedError("numpy.repeat: only one number of repeats, 0 or more, can be traced")
    x = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else normalise_axis(axis, x.ndim)
    before, after = x.shape[:at], x.shape[at + 1 :]
    more = broadcast(x.reshape(*before, x.shape[at], 1, *after), (*before, x.shape[at], repeats, *after))
    return more.reshape(*before, x.shape[at] * repeats, *after)


def _of_infinity(value: float) -> Callable[..., Any]:
    def traced(x: Any, out: Any = None) -> Traced:
        if out is not None:
            raise InvalidError("numpy.isposinf and isneginf: out= cannot be traced")
        return apply("equal", x, value)

    return traced


def _spread_without_nan(root: bool) -> Callable[..., Any]:
    def traced(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False) -> Traced:
        x = as_traced(a) if dtype is None else cast(as_traced(a), _interop.dtype_name(dtype))
        if x._dtype[0] == "c" or out is not None:
            raise UnsupportedError("numpy.nanvar and nanstd: complex values and out= cannot be traced")
        if x._dtype in _WHOLE:
            value = _functions.variance(x, axis, ddof, keepdims is True)
            return apply("sqrt", value) if root else value
        there = apply("logical_not", apply("isnan", x))
        mean = reduced("mean", x, axis, True, None, None, there)
        squares = apply("where", there, apply("square", apply("subtract", x, mean)), cast(as_traced(0), x._dtype))
        count = cast(reduce("sum", there, axis, keepdims is True), "f64" if x._dtype == "f64" else "f32")
        free = apply("subtract", count, float(ddof))
        free = apply("where", apply("greater", free, 0), free, float("nan"))
        value = cast(apply("divide", reduce("sum", squares, axis, keepdims is True), free), x._dtype)
        return apply("sqrt", value) if root else value

    return traced


def table() -> dict[Any, Callable[..., Any]]:
    import numpy as np

    newer = {np.permute_dims: _permuted} if hasattr(np, "permute_dims") else {}
    return newer | {
        np.tril: _triangle("less_equal"),
        np.triu: _triangle("greater_equal"),
        np.diag: _diag,
        np.atleast_1d: _at_least(1),
        np.atleast_2d: _at_least(2),
        np.atleast_3d: _at_least(3),
        np.fliplr: _flipped(1),
        np.flipud: _flipped(0),
        np.rot90: _rot90,
        np.rollaxis: _rollaxis,
        np.broadcast_arrays: _broadcast_all,
        np.diff: _diff,
        np.average: _average,
        np.isclose: _close,
        np.allclose: lambda *args, **kwargs: reduce("all", _close(*args, **kwargs)),
        np.array_equal: _array_equal,
        np.split: _split,
        np.array_split: _array_split,
        np.repeat: _repeat,
        np.isposinf: _of_infinity(float("inf")),
        np.isneginf: _of_infinity(float("-inf")),
        np.fix: lambda x, out=None: apply("trunc", x),
        np.nanvar: _spread_without_nan(False),
        np.nanstd: _spread_without_nan(True),
    }
