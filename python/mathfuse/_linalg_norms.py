"""Norms of vectors and matrices, and condition numbers, as NumPy has them."""

from __future__ import annotations

from math import inf
from typing import Any

from mathfuse._functions import function
from mathfuse._linalg import decompose, deliver, finish_all, matrix, result
from mathfuse._trace import Traced, apply, as_traced, cast, normalise_axes, reduce, reshape
from mathfuse._views import expand_dims, moveaxis
from mathfuse.errors import InvalidError, ShapeError


def _floating(x: Any) -> Traced:
    value = as_traced(x)
    return cast(value, "f64") if value._dtype in ("bool", "i8", "i32", "i64") else value


def _squares(x: Traced) -> Traced:
    if x._dtype[0] != "c":
        return apply("square", x)
    return apply("add", apply("square", x.real), apply("square", x.imag))


def _euclidean(x: Traced, axes: Any, keepdims: bool) -> Traced:
    return apply("sqrt", reduce("sum", _squares(x), axes, keepdims))


def vector_norm_of(x: Traced, ord: Any, axes: Any, keepdims: bool) -> Traced:
    """The norm over `axes`, taken together as one vector."""
    if ord is None or ord == 2:
        return _euclidean(x, axes, keepdims)
    if ord in (inf, -inf):
        return reduce("max" if ord > 0 else "min", apply("absolute", x), axes, keepdims)
    if isinstance(ord, str) or isinstance(ord, complex):
        raise InvalidError(f"norm: ord={ord!r} is not known for vectors; it is a number, inf, -inf or None")
    if ord == 0:
        nonzero = apply("not_equal", x, 0)
        size = apply("absolute", x)
        return reduce("sum", cast(nonzero, size._dtype), axes, keepdims)
    size = apply("absolute", x)
    if ord == 1:
        return reduce("sum", size, axes, keepdims)
    power = float(ord)
    return apply("power", reduce("sum", apply("power", size, power), axes, keepdims), 1 / power)


_MATRIX_ORDERS = "None, 'fro', 'nuc', 1, -1, 2, -2, inf or -inf"


def matrix_norm_of(x: Traced, ord: Any, keepdims: bool) -> tuple[Traced, Traced | None]:
    """The norm of matrices in the last two axes; and, if it took singular values, their decomposition."""
    if ord is None or ord in ("f", "fro"):
        return _euclidean(x, (-2, -1), keepdims), None
    if ord in (1, -1, inf, -inf) and not isinstance(ord, str):
        over = -2 if abs(ord) == 1 else -1
        sums = reduce("sum", apply("absolute", x), over, True)
        value = reduce("max" if ord > 0 else "min", sums, (-2, -1), keepdims)
        return value, None
    if ord not in (2, -2, "nuc"):
        raise InvalidError(f"norm: ord={ord!r} is not known for matrices; it is {_MATRIX_ORDERS}")
    value = matrix(x, "norm")
    factor = decompose("svd", value)
    norm = reduce("sum" if ord == "nuc" else "max" if ord == 2 else "min", factor, -1)
    return (expand_dims(norm, (-2, -1)) if keepdims else norm), factor


def _checked(value: Traced, factor: Traced | None, check: bool) -> Any:
    if factor is not None:
        return finish_all("svd", factor, check, value)
    return value if check else (value, _no_failure(value))


def _no_failure(value: Traced) -> Traced:
    """info where nothing can fail."""
    return cast(apply("not_equal", value, value) if value._dtype == "bool" else apply("isnan", value), "i32") * 0


@function
def norm(
    x: Any,
    ord: Any = None,
    axis: Any = None,
    keepdims: bool = False,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """numpy.linalg.norm: of vectors along an axis, of matrices in a pair of axes, of all elements with neither ord nor axis.

    Vectors: ord is None or 2, inf, -inf, 0 (how many are nonzero) or any other number p. Matrices: None or "fro", "nuc" (the
    sum of the singular values), inf, -inf, 1, -1, 2, -2.
    """
    value = _floating(x)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and value.ndim == 2) or (ord == 2 and value.ndim == 1):
            total = _euclidean(reshape(value, (value.size,)), None, False)
            total = reshape(total, (1,) * value.ndim) if keepdims else total
            return _checked(total, None, check)
        axes = tuple(range(value.ndim))
    else:
        axes = normalise_axes(axis, value.ndim)
    if len(axes) == 1:
        return _checked(vector_norm_of(value, ord, axes, keepdims), None, check)
    if len(axes) != 2:
        raise InvalidError(f"norm: ord={ord!r} over {len(axes)} axes is not defined; name one axis, or two")
    moved, factor = matrix_norm_of(moveaxis(value, axes, (-2, -1)), ord, False)
    moved = expand_dims(moved, tuple(sorted(axes))) if keepdims else moved
    return _checked(moved, factor, check)


@function
def vector_norm(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2, out: Any = None, stream: Any = None
) -> Any:
    """numpy.linalg.vector_norm: over the axes, taken together as one vector; over all of them by default."""
    return vector_norm_of(_floating(x), ord, axis, keepdims)


@function
def matrix_norm(
    x: Any, /, *, keepdims: bool = False, ord: Any = "fro", check: bool = True, out: Any = None, stream: Any = None
) -> Any:
    """numpy.linalg.matrix_norm: of the matrices in the last two axes."""
    value = _floating(x)
    if value.ndim < 2:
        raise ShapeError(f"matrix_norm needs matrices in the last two axes, not shape {value.shape}")
    result, factor = matrix_norm_of(value, ord, keepdims)
    return _checked(result, factor, check)


def _condition_by_inverse(x: Traced, p: Any, check: bool) -> Any:
    """norm(x) norm(inverse); infinite for a singular matrix."""
    inverse = decompose("inv", matrix(x, "cond", True))
    product = apply("multiply", matrix_norm_of(x, p, False)[0], matrix_norm_of(inverse, p, False)[0])
    info = result(inverse, 1)
    product = apply("where", apply("greater", info, 0), inf, product)
    return deliver("inv", apply("minimum", info, 0), check, product)


@function
def cond(x: Any, p: Any = None, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The condition number: for p None or 2 the ratio of the extreme singular values, for -2 its inverse, else
    norm(x, p) norm(inv(x), p). That of a singular matrix is infinite."""
    value = matrix(x, "cond")
    if 0 in value.shape[-2:]:
        raise ShapeError(f"cond is not defined on empty matrices; the shape is {value.shape}")
    if p not in (None, 2, -2):
        return _condition_by_inverse(value, p, check)
    s = decompose("svd", value)
    largest, smallest = s[..., 0], s[..., -1]
    ratio = apply("divide", smallest, largest) if p == -2 else apply("divide", largest, smallest)
    if p != -2:  # a zero matrix: 0 / 0
        ratio = apply("where", apply("equal", largest, 0), inf, ratio)
    return finish_all("svd", s, check, ratio)
