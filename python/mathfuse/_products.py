"""NumPy's products of arrays: dot, inner, outer, vdot, kron, tensordot, vecdot, matvec and vecmat."""

from __future__ import annotations

from typing import Any

from mathfuse import _core
from mathfuse._functions import function
from mathfuse._linalg_products import contract_axes, vector_products
from mathfuse._trace import Traced, apply, as_traced, matmul
from mathfuse._views import expand_dims
from mathfuse.errors import ShapeError


@function
def dot(a: Any, b: Any, out: Any = None, *, stream: Any = None) -> Any:
    """numpy.dot: the sum of products over the last axis of `a` and the last but one of `b`, or its only one; of a number and an
    array their product."""
    x, y = as_traced(a), as_traced(b)
    if x.ndim == 0 or y.ndim == 0:
        return apply("multiply", x, y)
    return contract_axes(x, y, ([-1], [-2])) if y.ndim > 2 else matmul(x, y)


@function
def inner(a: Any, b: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """numpy.inner: the sum of products over the last axes; of a number and an array their product."""
    x, y = as_traced(a), as_traced(b)
    if x.ndim == 0 or y.ndim == 0:
        return apply("multiply", x, y)
    if x.ndim > 2 or y.ndim > 2:
        return contract_axes(x, y, ([-1], [-1]))
    return matmul(x, y.T)


@function
def vdot(a: Any, b: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """numpy.vdot: the sum of conj(a) * b over all elements, row by row."""
    x, y = as_traced(a), as_traced(b)
    if x.size != y.size:
        raise ShapeError(f"vdot: a has shape {x.shape} and b {y.shape}; they need as many elements")
    return vector_products(x.reshape(-1), y.reshape(-1), -1)


@function
def outer(a: Any, b: Any, out: Any = None, *, stream: Any = None) -> Any:
    """numpy.outer: the products of all pairs of elements; arrays are taken row by row."""
    return apply("multiply", as_traced(a).reshape(-1, 1), as_traced(b).reshape(1, -1))


@function
def kron(a: Any, b: Any, *, out: Any = None, stream: Any = None) -> Any:
    """numpy.kron: blocks of `b`, each scaled by an element of `a`."""
    x, y = as_traced(a), as_traced(b)
    n = max(x.ndim, y.ndim)
    first, second = (1,) * (n - x.ndim) + x.shape, (1,) * (n - y.ndim) + y.shape
    left = tuple(k for i in first for k in (i, 1))
    right = tuple(k for j in second for k in (1, j))
    if 2 * n > _core.MAX_DIMS:  # axes of length 1 need no place of their own
        kept = [d for d in range(2 * n) if (left[d], right[d]) != (1, 1)]
        left, right = tuple(left[d] for d in kept), tuple(right[d] for d in kept)
    value = apply("multiply", x.reshape(*left), y.reshape(*right))
    return value.reshape(*(i * j for i, j in zip(first, second)))


@function
def tensordot(a: Any, b: Any, axes: Any = 2, *, out: Any = None, stream: Any = None) -> Any:
    """numpy.tensordot: sums of products over the last `axes` axes of `a` and the first of `b`, or over two lists of axes."""
    return contract_axes(as_traced(a), as_traced(b), axes)


@function
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, out: Any = None, stream: Any = None) -> Any:
    """numpy.vecdot: the sum of conj(x1) * x2 along `axis` of each; the other axes broadcast."""
    return vector_products(as_traced(x1), as_traced(x2), axis)


def _vector(x: Traced, name: str) -> Traced:
    if x.ndim == 0:
        raise ShapeError(f"{name} needs vectors along the last axis, not a number")
    return x


@function
def matvec(x1: Any, x2: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """numpy.matvec: matrices times vectors, which lie along the last axis."""
    return matmul(x1, expand_dims(_vector(as_traced(x2), "matvec"), -1))[..., 0]


@function
def vecmat(x1: Any, x2: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """numpy.vecmat: conjugated vectors, which lie along the last axis, times matrices."""
    return matmul(expand_dims(_vector(apply("conjugate", x1), "vecmat"), -2), x2)[..., 0, :]
