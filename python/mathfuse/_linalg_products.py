"""Products and powers of matrices, and NumPy's tensor equations."""

from __future__ import annotations

import operator
from math import ceil, frexp, prod
from typing import Any

from mathfuse import _core, _interop
from mathfuse._einsum import contract
from mathfuse._functions import function
from mathfuse._linalg import arange, decompose, deliver, finish_all, identity_like, matrix, operand, result, right_hand_side
from mathfuse._trace import Traced, apply, as_traced, broadcast, cast, current, matmul as product, normalise_axis, reduce
from mathfuse._views import diagonal as diagonal_of, moveaxis
from mathfuse.errors import InvalidError, ShapeError

# ---- powers ----


@function
def matrix_power(a: Any, n: int, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """a @ a @ … n times, by squaring; the inverse's for negative n, the identity for 0."""
    power = operator.index(n)
    x = as_traced(a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power needs square matrices in the last two axes, not shape {x.shape}")
    if power == 0:
        return broadcast(identity_like(x), x.shape)
    factor = None
    if power < 0:
        factor = decompose("inv", matrix(a, "matrix_power", True))
        x, power = factor, -power
    value = None
    while power:
        if power & 1:
            value = x if value is None else product(value, x)
        power >>= 1
        x = product(x, x) if power else x
    assert value is not None
    return value if factor is None else finish_all("inv", factor, check, value)


# Higham, "The scaling and squaring method for the matrix exponential revisited" (2005): up to which 1-norm the approximant
# of each order is accurate to f64 and f32, and the numerators' coefficients.
_THETA = {
    "f64": {3: 1.495585217958292e-2, 5: 2.539398330063230e-1, 7: 9.504178996162932e-1, 9: 2.097847961257068, 13: 5.371920351148152},
    "f32": {3: 4.258730016922831e-1, 5: 1.880152677804762, 7: 3.925724783138660},
}  # fmt: skip
_PADE = {
    3: (120.0, 60.0, 12.0, 1.0),
    5: (30240.0, 15120.0, 3360.0, 420.0, 30.0, 1.0),
    7: (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0),
    9: (17643225600.0, 8821612800.0, 2075673600.0, 302702400.0, 30270240.0, 2162160.0, 110880.0, 3960.0, 90.0, 1.0),
    13: (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
         670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0),
}  # fmt: skip


def _sum(terms: list[tuple[float, Traced]]) -> Traced:
    total = None
    for factor, x in terms:
        term = x if factor == 1 else apply("multiply", x, factor)
        total = term if total is None else apply("add", total, term)
    assert total is not None
    return total


def _pade(x: Traced, order: int) -> tuple[Traced, Traced]:
    """The odd and the even part of the numerator."""
    b, eye = _PADE[order], identity_like(x)
    x2 = product(x, x)
    if order == 13:
        x4 = product(x2, x2)
        x6 = product(x4, x2)
        u = product(x6, _sum([(b[13], x6), (b[11], x4), (b[9], x2)]))
        v = product(x6, _sum([(b[12], x6), (b[10], x4), (b[8], x2)]))
        u = _sum([(1, u), (b[7], x6), (b[5], x4), (b[3], x2), (b[1], eye)])
        return product(x, u), _sum([(1, v), (b[6], x6), (b[4], x4), (b[2], x2), (b[0], eye)])
    powers = [eye, x2]
    while 2 * len(powers) <= order:
        powers.append(product(powers[-1], x2))
    odd = _sum([(b[2 * i + 1], p) for i, p in reversed(list(enumerate(powers)))])
    return product(x, odd), _sum([(b[2 * i], p) for i, p in reversed(list(enumerate(powers)))])


def _precision(x: Traced) -> str:
    return {"c64": "f32", "c128": "f64"}.get(x._dtype, x._dtype)


def _one_norm(x: Traced) -> Traced:
    """Of each matrix, with both axes kept."""
    return reduce("max", reduce("sum", apply("absolute", x), -2, True), -1, True)


@function
def _largest_norm(a: Any, *, stream: Any = None) -> Any:
    x = matrix(a, "expm", True)
    return reduce("max", _one_norm(x)) if x.size else reduce("sum", apply("absolute", x))


@function
def _expm(A: Any, order: int, squarings: int, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """By an approximant of one order; each matrix is scaled by as many halvings as it needs, `squarings` at most."""
    x = matrix(A, "expm", True)
    if not x.size:
        return deliver("expm", reduce("sum", cast(x.real, "i32"), (-2, -1)), check, x)
    norm = _one_norm(x)
    ratio = apply("divide", norm, _THETA[_precision(x)][order])
    halvings = apply("ceil", apply("log2", apply("maximum", ratio, 1.0)))
    too_large = apply("greater", halvings, squarings)
    halvings = apply("where", apply("isfinite", halvings), apply("minimum", halvings, squarings), 0)
    u, v = _pade(apply("multiply", x, apply("exp2", apply("negative", halvings))), order)
    trace = current()
    left, right = apply("subtract", v, u), apply("add", v, u)
    solver = trace.wrap(trace.graph.solver("solve", left._node, right._node, 0))
    value, info = solver, result(solver, 1)
    for i in range(squarings):
        value = apply("where", apply("greater", halvings, i), product(value, value), value)
    flat = too_large.reshape(too_large.shape[:-2])
    nonfinite = apply("logical_not", apply("isfinite", norm)).reshape(flat.shape)
    info = apply("where", nonfinite, -1, apply("where", flat, squarings, info))
    value = apply("where", apply("equal", info.reshape(*info.shape, 1, 1), 0), value, float("nan"))
    return deliver("expm", cast(info, "i32"), check, value)


def _plan_of(norm: float, precision: str) -> tuple[int, int]:
    """The lowest order that does without scaling, else the highest and how many squarings it takes."""
    for order, theta in _THETA[precision].items():
        if norm <= theta:
            return order, 0
    order, theta = max(_THETA[precision].items())
    fraction, exponent = frexp(norm / theta) if norm < float("inf") else (0.5, 1)
    return order, ceil(exponent - (fraction == 0.5))


def expm(A: Any, *, max_squarings: int = 24, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The matrix exponential, by scaling, a Padé approximant and squaring (Higham 2005); (…, n, n) gives (…, n, n).

    On arrays the order and the number of squarings are chosen from the largest norm, which the host waits for. Inside a traced
    function nothing is known of the values: there are `max_squarings` of them, each of which a matrix takes only if it needs
    it, and a norm above 5 * 2**max_squarings is an error.
    """
    if not _core.is_array(A):
        if isinstance(A, (list, tuple)):
            import numpy as np

            return expm(np.asarray(A), check=check, out=out, stream=stream)
        x = matrix(A, "expm", True)
        return _expm(x, max(_THETA[_precision(x)]), operator.index(max_squarings), check=check)
    largest = float(_interop.to_numpy(_largest_norm(A, stream=stream)))
    dtype = _core.inspect(A)[0]
    order, squarings = _plan_of(largest, "f64" if dtype in ("f64", "c128", "i8", "i32", "i64", "bool") else "f32")
    options = {"check": check, "stream": stream} | ({} if out is None else {"out": out})
    return _expm(A, order, squarings, **options)


# ---- products ----


@function
def matmul(x1: Any, x2: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """x1 @ x2."""
    return product(x1, x2)


@function
def matrix_transpose(x: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """The last two axes exchanged."""
    return as_traced(x).mT


@function
def outer(x1: Any, x2: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """The products of all pairs of elements of two vectors."""
    a, b = as_traced(x1), as_traced(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer needs two vectors, not shapes {a.shape} and {b.shape}")
    return apply("multiply", a.reshape(-1, 1), b.reshape(1, -1))


def vector_products(x: Traced, y: Traced, axis: int) -> Traced:
    """numpy.vecdot: sums of conj(x) * y along `axis` of each, whose extents must agree; the others broadcast."""
    for value in (x, y):
        if value.ndim == 0:
            raise ShapeError(f"vecdot needs vectors, not shapes {x.shape} and {y.shape}")
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"vecdot: the vectors have {x.shape[-1]} and {y.shape[-1]} elements along axis {axis}")
    products = apply("multiply", apply("conjugate", x) if x._dtype[0] == "c" else x, y)
    if products._dtype == "bool":
        return reduce("any", products, -1)
    total = reduce("sum", products, -1)
    return cast(total, "i32") if products._dtype in ("i8", "i32") else total  # integers are added as i64


@function
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, out: Any = None, stream: Any = None) -> Any:
    """The sum of conj(x1) * x2 along `axis` of each; the other axes broadcast."""
    return vector_products(as_traced(x1), as_traced(x2), axis)


@function
def cross(x1: Any, x2: Any, /, *, axis: int = -1, out: Any = None, stream: Any = None) -> Any:
    """The vector product of vectors of three elements along an axis."""
    a, b = as_traced(x1), as_traced(x2)
    for x in (a, b):
        if not x.ndim or x.shape[normalise_axis(axis, x.ndim)] != 3:
            raise ShapeError(f"cross needs three elements along axis {axis}; the shapes are {a.shape} and {b.shape}")
    a, b = moveaxis(a, axis, -1), moveaxis(b, axis, -1)
    first = apply("multiply", _turned(a, 1), _turned(b, 2))
    second = apply("multiply", _turned(a, 2), _turned(b, 1))
    return moveaxis(apply("subtract", first, second), -1, axis)


def _turned(x: Traced, by: int) -> Traced:
    """Element i + by of three, chosen for each i: no copy, as rolling would need."""
    elements = [x[..., (i + by) % 3 : (i + by) % 3 + 1] for i in range(3)]
    rest = apply("where", apply("equal", arange(3), 1), elements[1], elements[2])
    return apply("where", apply("equal", arange(3), 0), elements[0], rest)


def diagonal_with_offset(x: Traced, offset: int) -> Traced:
    """Of the last two axes, as a new last axis: the elements whose column is `offset` to the right of their row."""
    if x.ndim < 2:
        raise ShapeError(f"a diagonal needs matrices in the last two axes, not shape {x.shape}")
    m, n = x.shape[-2:]
    below, right = max(-offset, 0), max(offset, 0)
    count = max(min(m - below, n - right), 0)
    square = x[..., below : below + count, right : right + count]
    return diagonal_of(square, square.ndim - 2, square.ndim - 1)


@function
def diagonal(x: Any, /, *, offset: int = 0, out: Any = None, stream: Any = None) -> Any:
    """The diagonals of the matrices in the last two axes, `offset` to the right of the main one."""
    return diagonal_with_offset(as_traced(x), operator.index(offset))


@function
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """The sums of the diagonals of the matrices in the last two axes."""
    return reduce("sum", diagonal_with_offset(as_traced(x), operator.index(offset)), -1, False, dtype)


def contract_axes(x: Traced, y: Traced, axes: Any) -> Traced:
    """numpy.tensordot."""
    if isinstance(axes, int):
        if axes > min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: axes={axes}, but the shapes are {x.shape} and {y.shape}; they need as many axes")
        first, second = list(range(x.ndim - axes, x.ndim)), list(range(axes))
    else:
        sides = [list(s) if isinstance(s, (tuple, list)) else [s] for s in axes]
        first, second = ([normalise_axis(a, v.ndim) for a in s] for s, v in zip(sides, (x, y)))
    if len(first) != len(second) or [x.shape[d] for d in first] != [y.shape[d] for d in second]:
        raise ShapeError(
            f"tensordot: axes {first} of shape {x.shape} do not match axes {second} of shape {y.shape}; they need the same lengths"
        )
    if len(set(first)) != len(first) or len(set(second)) != len(second):
        raise ShapeError(f"tensordot: axes {first} and {second} name an axis twice; name each once")
    letters = "abcdefghijklmnopqrstuvwxyz"
    left, right = list(letters[: x.ndim]), list(letters[x.ndim : x.ndim + y.ndim])
    for i, j in zip(first, second):
        right[j] = left[i]
    kept = [c for d, c in enumerate(left) if d not in first] + [c for d, c in enumerate(right) if d not in second]
    return contract(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", [x, y])


@function
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2, out: Any = None, stream: Any = None) -> Any:
    """Sums of products over the last `axes` axes of x1 and the first of x2, or over two lists of axes."""
    return contract_axes(as_traced(x1), as_traced(x2), axes)


def _best_order(sizes: list[int]) -> list[list[int]]:
    """Where to split each chain of matrices so that the products take the fewest operations; matrix i is sizes[i] x sizes[i + 1]."""
    count = len(sizes) - 1
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], split[i][j] = min(options)
    return split


@function
def multi_dot(arrays: Any, *, out: Any = None, stream: Any = None) -> Any:
    """The product of two or more matrices, in the order that takes the fewest operations; the first and the last may be
    vectors."""
    items = [as_traced(x) for x in arrays]
    if len(items) < 2:
        raise InvalidError(f"multi_dot needs two arrays or more, not {len(items)}")
    for i, x in enumerate(items):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(items) - 1)):
            raise ShapeError(f"multi_dot: array {i} has shape {x.shape}; it needs matrices, and vectors only at the ends")
    row, column = items[0].ndim == 1, items[-1].ndim == 1
    items[0] = items[0].reshape(1, -1) if row else items[0]
    items[-1] = items[-1].reshape(-1, 1) if column else items[-1]
    split = _best_order([items[0].shape[0], *(x.shape[1] for x in items)])

    def chain(i: int, j: int) -> Traced:
        return items[i] if i == j else product(chain(i, split[i][j]), chain(split[i][j] + 1, j))

    value = chain(0, len(items) - 1)
    return value.reshape(*(() if row else value.shape[:1]), *(() if column else value.shape[1:]))


# ---- tensor equations ----


@function
def tensorsolve(a: Any, b: Any, axes: Any = None, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """x with tensordot(a, x, x.ndim) == b; `axes` of a are moved to its end first."""
    x, right = as_traced(a), as_traced(b)
    if axes is not None:
        order = [d for d in range(x.ndim) if d not in [normalise_axis(k, x.ndim) for k in axes]]
        x = x.transpose(*order, *(normalise_axis(k, x.ndim) for k in axes))
    shape = x.shape[right.ndim :] if right.ndim else x.shape
    n = prod(shape)
    if x.size != n * n:
        raise ShapeError(
            f"tensorsolve: a has shape {x.shape} and b {right.shape}; the product of a's first {right.ndim} extents must equal "
            "that of the rest"
        )
    square = operand(x.reshape(n, n), "tensorsolve")
    solved = right_hand_side("solve", square, right.reshape(right.size), 0, check)
    if check:
        return solved.reshape(*shape)
    return solved[0].reshape(*shape), solved[1]


@function
def tensorinv(a: Any, ind: int = 2, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The inverse of a for tensordot over `ind` axes: its first `ind` extents have the product that the rest have."""
    x = as_traced(a)
    if ind <= 0:
        raise InvalidError(f"tensorinv: ind is {ind}; it is the number of leading axes, 1 or more")
    first, rest = x.shape[:ind], x.shape[ind:]
    if prod(first) != prod(rest):
        raise ShapeError(f"tensorinv: a has shape {x.shape}; the extents before and after axis {ind} need one product")
    factor = decompose("inv", matrix(x.reshape(prod(first), -1) if x.size else x.reshape(prod(first), prod(rest)), "inv", True))
    return finish_all("inv", factor, check, factor.reshape(*rest, *first))
