"""Solvers of mathfuse.linalg: a matrix and right-hand sides, or the factors that a solve needs."""

from __future__ import annotations

from typing import Any, NamedTuple

from mathfuse import _core
from mathfuse._functions import function
from mathfuse._linalg import (
    arange,
    decompose,
    deliver,
    finish,
    finish_all,
    first_zero,
    matrix,
    operand,
    result,
    right_hand_side,
    shared_dtype,
    transposition,
)
from mathfuse._trace import Traced, apply, as_traced, broadcast, cast, current, matmul, reduce
from mathfuse._views import diagonal
from mathfuse.errors import InvalidError, ShapeError

_STRUCTURES = {
    "gen": "general",
    "sym": "symmetric",
    "her": "hermitian",
    "pos": "positive definite",
    "banded": "general",
}
_KNOWN = (
    "general",
    "symmetric",
    "hermitian",
    "positive definite",
    "diagonal",
    "tridiagonal",
    "upper triangular",
    "lower triangular",
)


class SlogdetResult(NamedTuple):
    sign: Any
    logabsdet: Any


def _solver(kind: str, a: Traced, b: Traced, flags: int) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.solver(kind, a._node, b._node, flags))


def _solve_definite(a: Traced, b: Traced, flags: int, check: bool) -> Any:
    trace = current()
    factor = trace.wrap(trace.graph.solver("cholesky", a._node, -1, flags))
    return deliver("solve, positive definite", result(factor, 1), check, _solver("cho_solve", factor, b, flags))


def _solve_diagonal(a: Traced, b: Traced, check: bool) -> Any:
    d = diagonal(a, a.ndim - 2, a.ndim - 1)
    info = first_zero(d)
    vector = b.ndim == 1
    along = d if vector else d.reshape(*d.shape, 1)
    failed = apply("not_equal", info.reshape(*info.shape, *(1,) * (1 if vector else 2)), 0)
    x = apply("divide", b, apply("where", failed, float("nan"), along))
    return deliver("solve, diagonal", info, check, x)


def _sided(a: Any, b: Any, name: str) -> tuple[Traced, Traced]:
    x, right = shared_dtype(operand(a, name), operand(b, name, square=False))
    rows = right.shape[-1 if right.ndim == 1 else -2] if right.ndim else -1
    if rows != x.shape[-1]:
        raise ShapeError(f"{name}: a has shape {x.shape} and b {right.shape}; b needs {x.shape[-1]} rows")
    return x, right


@function
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x with a @ x = b. b is (…, n, k), or (n,) for a vector.

    `assume_a` says what is known of a, which is not verified: "general" (LU with row exchanges, the default), "positive
    definite" (Cholesky), "symmetric", "hermitian", "diagonal", "tridiagonal", "upper triangular", "lower triangular", or SciPy's
    short names. Of symmetric, Hermitian and positive definite matrices one triangle is read, with `lower` the lower one.
    `transposed` solves a.T @ x = b. "banded" matrices are solved as general ones.
    """
    x, right = operand(a, "solve"), operand(b, "solve", square=False)
    if right.ndim == 0:
        raise ShapeError("solve needs b of at least one dimension")
    structure = _STRUCTURES.get(assume_a or "general", assume_a or "general")
    if structure not in _KNOWN:
        raise InvalidError(f"solve: assume_a={assume_a!r} is not known; it is one of {', '.join(map(repr, _KNOWN))}")
    if structure in ("general", "tridiagonal"):
        x = x.mT if transposed else x
    if structure == "general":
        return right_hand_side("solve", x, right, 0, check)
    x, right = _sided(x, right, "solve")
    if structure == "tridiagonal":
        factor = decompose("solve_tridiagonal", x, right)
        return finish_all("solve", factor, check, factor)
    if structure == "diagonal":
        return _solve_diagonal(x, right, check)
    flags = 0 if lower else _core.UPPER
    if structure.endswith("triangular"):
        flags = (_core.UPPER if structure.startswith("upper") else 0) | (_core.TRANS if transposed else 0)
        return finish("solve_triangular", _solver("solve_triangular", x, right, flags), check)
    if transposed and structure != "symmetric":
        x = apply("conjugate", x) if x._dtype[0] == "c" else x
    if structure == "positive definite":
        return _solve_definite(x, right, flags, check)
    factor = decompose("solve_symmetric", x, right, flags=flags | (_core.SYMMETRIC if structure == "symmetric" else 0))
    return finish_all("solve", factor, check, factor)


@function
def cholesky(a: Any, *, upper: bool = False, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The lower factor L with a = L Lᴴ, or the upper U with a = Uᴴ U. Only that triangle of `a` is read."""
    x = operand(a, "cholesky")
    trace = current()
    solver = trace.wrap(trace.graph.solver("cholesky", x._node, -1, _core.UPPER if upper else 0))
    return finish("cholesky", solver, check)


@function
def cho_factor(
    a: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(c, lower) for cho_solve: the Cholesky factor, upper unless `lower`, zero outside its triangle."""
    x = operand(a, "cho_factor")
    trace = current()
    factor = trace.wrap(trace.graph.solver("cholesky", x._node, -1, 0 if lower else _core.UPPER))
    return deliver("cho_factor", result(factor, 1), check, factor, bool(lower))


@function
def cho_solve(
    c_and_lower: Any,
    b: Any,
    overwrite_b: bool = False,
    check_finite: bool = True,
    *,
    upper: bool = False,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x with a @ x = b, from the (c, lower) of cho_factor, or the factor that cholesky gave and its `upper`."""
    if isinstance(c_and_lower, tuple):
        factor, upper = c_and_lower[0], not c_and_lower[1]
    else:
        factor = c_and_lower
    return right_hand_side("cho_solve", operand(factor, "cho_solve"), b, _core.UPPER if upper else 0, check)


@function
def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x with a @ x = b for a triangular `a`, of which only that triangle is read. `trans` 1 or "T" transposes it, 2 or "C"
    takes its adjoint."""
    flags = 0 if lower else _core.UPPER
    flags |= _core.UNIT if unit_diagonal else 0
    flags |= transposition(trans)
    return right_hand_side("solve_triangular", operand(a, "solve_triangular"), b, flags, check)


@function
def lu_factor(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(lu, pivots) of (…, m, n) matrices with partial pivoting: L below the diagonal, without its ones, and U; row i was
    exchanged with row pivots[i], from 0. A singular matrix has factors too: check=False gives them, with info."""
    factor = decompose("lu_factor", matrix(a, "lu_factor"))
    return finish_all("lu_factor", factor, check, factor, result(factor, 2))


def _row_exchanges(pivots: Traced, rows: int) -> Traced:
    """The matrix that exchanges rows as LU did: the solution for factors L = U = 1, which is exact."""
    identity = cast(apply("equal", arange(rows).reshape(-1, 1), arange(rows)), "f64")
    count = pivots.shape[-1]
    if count < rows:  # the last rows of a tall matrix stay where they are
        place = cast(apply("equal", arange(rows).reshape(-1, 1), arange(count)), "f64")
        moved = matmul(place, cast(pivots, "f64").reshape(*pivots.shape, 1)).reshape(*pivots.shape[:-1], rows)
        pivots = cast(apply("where", apply("less", arange(rows), count), moved, arange(rows)), "i32")
    square = broadcast(identity, (*pivots.shape[:-1], rows, rows))
    return decompose("lu_solve", square, pivots, square)


@function
def lu(
    a: Any,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    p_indices: bool = False,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(p, l, u) of (…, m, n) matrices with a = p @ l @ u, as scipy.linalg.lu; with `p_indices` p holds the row of l for each
    row of a, with `permute_l` the result is (p @ l, u). A singular matrix has factors, and is no error; info tells of it."""
    x = matrix(a, "lu")
    factor = decompose("lu_factor", x)
    info, pivots = result(factor, 1), result(factor, 2)
    (m, n), k = x.shape[-2:], min(x.shape[-2:])
    row = arange(m).reshape(-1, 1)
    left = factor[..., :k]
    left = apply("where", apply("greater", row, arange(k)), left, cast(apply("equal", row, arange(k)), factor._dtype))
    upper = apply("where", apply("less_equal", arange(k).reshape(-1, 1), arange(n)), factor[..., :k, :], 0)
    back = _row_exchanges(pivots, m).mT
    if permute_l:
        first: tuple[Traced, ...] = (matmul(cast(back, factor._dtype), left),)
    elif p_indices:
        order = matmul(back, cast(arange(m).reshape(-1, 1), "f64"))
        first = (cast(order.reshape(*order.shape[:-1]), "i32"), left)
    else:
        first = (cast(back, {"c64": "f32", "c128": "f64"}.get(factor._dtype, factor._dtype)), left)
    return deliver("lu", cast(apply("minimum", info, 0), "i32") if check else info, check, *first, upper)


@function
def lu_solve(
    lu_and_piv: Any,
    b: Any,
    trans: Any = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x with a @ x = b from the (lu, pivots) of lu_factor; `trans` 1 or "T" solves with the transpose, 2 or "C" with the
    adjoint."""
    lu, right = shared_dtype(matrix(lu_and_piv[0], "lu_solve", True), operand(b, "lu_solve", square=False))
    pivots = cast(as_traced(lu_and_piv[1]), "i32")
    factor = decompose("lu_solve", lu, pivots, right, flags=transposition(trans))
    return finish_all("lu_solve", factor, check, factor)


@function
def inv(
    a: Any, overwrite_a: bool = False, check_finite: bool = True, *, check: bool = True, out: Any = None, stream: Any = None
) -> Any:
    """The inverse, by LU with row exchanges."""
    factor = decompose("inv", matrix(a, "inv", True))
    return finish_all("inv", factor, check, factor)


def _sign_and_diagonal(a: Any, name: str) -> tuple[Traced, Traced]:
    factor = decompose("lu_factor", matrix(a, name, True))
    return cast(result(factor, 3), factor._dtype), diagonal(factor, factor.ndim - 2, factor.ndim - 1)


def sign_and_log(sign: Traced, pivots: Traced) -> Any:
    """slogdet's result from the sign of the row exchanges and the diagonal of U."""
    size = apply("absolute", pivots)
    zero = apply("equal", size, 0)
    unit = apply("where", zero, pivots, apply("divide", pivots, apply("where", zero, 1, size)))
    return SlogdetResult(apply("multiply", sign, reduce("prod", unit, -1)), reduce("sum", apply("log", size), -1))


@function
def det(a: Any, *, out: Any = None, stream: Any = None) -> Any:
    """The determinant, from the LU factors; 0 for a singular matrix. It over- and underflows where slogdet does not."""
    sign, pivots = _sign_and_diagonal(a, "det")
    return apply("multiply", sign, reduce("prod", pivots, -1))


@function
def slogdet(a: Any, *, out: Any = None, stream: Any = None) -> Any:
    """(sign, log |det|): the sign of the determinant, for complex matrices a number of modulus 1 or 0."""
    sign, pivots = _sign_and_diagonal(a, "slogdet")
    return sign_and_log(sign, pivots)
