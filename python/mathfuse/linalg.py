"""Dense solvers, with NumPy's and SciPy's names and shapes. Leading axes are a batch.

Each takes `check`: True raises LinAlgError if a matrix failed; False returns the results followed by `info`, an integer array
over the batch with LAPACK's meaning (0 is fine).
"""

from __future__ import annotations

import operator
from typing import Any

from mathfuse import _core
from mathfuse._functions import function
from mathfuse._trace import Traced, apply, as_traced, broadcast, cast, current, matmul, reduce
from mathfuse._views import diagonal
from mathfuse.errors import Error, ShapeError, lin_alg_error

__all__ = [
    "LinAlgError", "cho_solve", "cholesky", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "lu_factor",
    "lu_solve", "matrix_power", "matrix_rank", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals",
]  # fmt: skip

_COMPUTE = {"f32": "f32", "f64": "f64", "c64": "c64", "c128": "c128", "i8": "f64", "i32": "f64", "i64": "f64", "bool": "f64"}
_WHY = {
    "cholesky": "leading minor {0} is not positive definite",
    "solve": "pivot {0} is exactly zero: the matrix is singular",
    "cho_solve": "diagonal element {0} of the factor is zero",
    "solve_triangular": "diagonal element {0} is exactly zero: the matrix is singular",
    "lu_factor": "pivot {0} is exactly zero: the matrix is singular",
    "lu_solve": "pivot {0} is exactly zero: the matrix is singular",
    "inv": "pivot {0} is exactly zero: the matrix is singular",
    "qr": "column {0} could not be reduced",
    "eigh": "{0} off-diagonal elements did not converge to zero",
    "eig": "eigenvalues up to {0} did not converge",
    "svd": "{0} superdiagonals did not converge to zero",
    "lstsq": "{0} superdiagonals did not converge to zero",
}


def __getattr__(name: str) -> Any:
    if name == "LinAlgError":
        return lin_alg_error()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def failure(name: str, info: Any) -> Error:
    """The exception for a nonzero info: which matrices failed, and why."""
    import numpy as np

    bad = np.argwhere(info != 0)
    reasons = []
    for at in bad[:4]:
        code = int(info[tuple(at)])
        why = _WHY[name].format(code) if code > 0 else "it holds NaN or infinity"
        reasons.append(why if info.ndim == 0 else f"matrix {tuple(int(i) for i in at)}: {why}")
    more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
    count = "" if info.ndim == 0 else f"{len(bad)} of {info.size} matrices failed: "
    error = lin_alg_error()(f"{name}: {count}{'; '.join(reasons)}{more} (check=False returns info instead)")
    error.info = info  # type: ignore[attr-defined]
    return error


def _operand(a: Any, name: str, square: bool = True) -> Traced:
    x = as_traced(a)
    x = cast(x, _COMPUTE.get(x._dtype, "f32"))
    if square and (x.ndim < 2 or x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"{name} needs square matrices in the last two axes, not shape {x.shape}")
    return x


def _finish(name: str, solver: Traced, check: bool) -> Any:
    trace = current()
    info = trace.wrap(trace.graph.result(solver._node, 1))
    if not check:
        return solver, info
    trace.checks.append((name, info))
    return solver


def _right_hand_side(name: str, a: Traced, b: Any, flags: int, check: bool) -> Any:
    """Only a b of one dimension is a vector, as in NumPy 2."""
    right = _operand(b, name, square=False)
    if right.ndim == 0:
        raise ShapeError(f"{name} needs b of at least one dimension")
    dtype = _core.promote(a._dtype, right._dtype)
    a, right = cast(a, dtype), cast(right, dtype)
    trace = current()
    solver = trace.wrap(trace.graph.solver(name, a._node, right._node, flags))
    return _finish(name, solver, check)


@function
def solve(a: Any, b: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """x with a @ x = b, by LU with row exchanges. b is (…, n, k), or (n,) for a vector."""
    return _right_hand_side("solve", _operand(a, "solve"), b, 0, check)


@function
def cholesky(a: Any, *, upper: bool = False, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The lower factor L with a = L Lᴴ, or the upper U with a = Uᴴ U. Only that triangle of `a` is read."""
    x = _operand(a, "cholesky")
    trace = current()
    solver = trace.wrap(trace.graph.solver("cholesky", x._node, -1, _core.UPPER if upper else 0))
    return _finish("cholesky", solver, check)


@function
def cho_solve(factor: Any, b: Any, *, upper: bool = False, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """x with a @ x = b, from the factor that cholesky gave."""
    flags = _core.UPPER if upper else 0
    return _right_hand_side("cho_solve", _operand(factor, "cho_solve"), b, flags, check)


def _transposition(trans: Any) -> int:
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ShapeError(f'trans {trans!r} is not known; it is 0 or "N", 1 or "T", 2 or "C"')
    return {0: 0, "N": 0, 1: _core.TRANS, "T": _core.TRANS, 2: _core.ADJOINT, "C": _core.ADJOINT}[trans]


@function
def solve_triangular(
    a: Any,
    b: Any,
    *,
    lower: bool = False,
    trans: Any = 0,
    unit_diagonal: bool = False,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x with a @ x = b for a triangular `a`, of which only that triangle is read. `trans` 1 or "T" transposes it, 2 or "C"
    takes its adjoint."""
    flags = 0 if lower else _core.UPPER
    flags |= _core.UNIT if unit_diagonal else 0
    flags |= _transposition(trans)
    return _right_hand_side("solve_triangular", _operand(a, "solve_triangular"), b, flags, check)


# ---- decompositions ----


def _matrix(a: Any, name: str, square: bool = False) -> Traced:
    x = _operand(a, name, square)
    if x.ndim < 2:
        raise ShapeError(f"{name} needs matrices in the last two axes, not shape {x.shape}")
    return x


def _factor(kind: str, *operands: Traced, flags: int = 0, rcond: float = -1.0) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.factor(kind, tuple(x._node for x in operands), flags, rcond))


def _result(factor: Traced, index: int) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.result(factor._node, index))


def _all(name: str, factor: Traced, check: bool, *results: Traced) -> Any:
    """The results; a failure is an exception, or the last of them is info."""
    info = _result(factor, 1)
    if not check:
        return (*results, info)
    current().checks.append((name, info))
    return results[0] if len(results) == 1 else results


def _adjoint(x: Traced) -> Traced:
    return apply("conjugate", x.mT) if x._dtype[0] == "c" else x.mT


def _arange(n: int) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.arange((n,)))


@function
def lu_factor(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(lu, pivots) of (…, m, n) matrices with partial pivoting: L below the diagonal, without its ones, and U; row i was
    exchanged with row pivots[i], from 0. A singular matrix has factors too: check=False gives them, with info."""
    factor = _factor("lu_factor", _matrix(a, "lu_factor"))
    return _all("lu_factor", factor, check, factor, _result(factor, 2))


@function
def lu_solve(lu_and_piv: Any, b: Any, trans: Any = 0, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """x with a @ x = b from the (lu, pivots) of lu_factor; `trans` 1 or "T" solves with the transpose, 2 or "C" with the
    adjoint."""
    lu, right = _matrix(lu_and_piv[0], "lu_solve", True), _operand(b, "lu_solve", square=False)
    dtype = _core.promote(lu._dtype, right._dtype)
    pivots = cast(as_traced(lu_and_piv[1]), "i32")
    factor = _factor("lu_solve", cast(lu, dtype), pivots, cast(right, dtype), flags=_transposition(trans))
    return _all("lu_solve", factor, check, factor)


@function
def inv(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The inverse."""
    factor = _factor("inv", _matrix(a, "inv", True))
    return _all("inv", factor, check, factor)


def _sign_and_diagonal(a: Any, name: str) -> tuple[Traced, Traced]:
    factor = _factor("lu_factor", _matrix(a, name, True))
    return cast(_result(factor, 3), factor._dtype), diagonal(factor, factor.ndim - 2, factor.ndim - 1)


@function
def det(a: Any, *, out: Any = None, stream: Any = None) -> Any:
    """The determinant, from the LU factors; 0 for a singular matrix. It over- and underflows where slogdet does not."""
    sign, pivots = _sign_and_diagonal(a, "det")
    return apply("multiply", sign, reduce("prod", pivots, -1))


@function
def slogdet(a: Any, *, out: Any = None, stream: Any = None) -> Any:
    """(sign, log |det|): the sign of the determinant, for complex matrices a number of modulus 1 or 0."""
    sign, pivots = _sign_and_diagonal(a, "slogdet")
    size = apply("absolute", pivots)
    zero = apply("equal", size, 0)
    unit = apply("where", zero, pivots, apply("divide", pivots, apply("where", zero, 1, size)))
    return apply("multiply", sign, reduce("prod", unit, -1)), reduce("sum", apply("log", size), -1)


@function
def qr(a: Any, mode: str = "reduced", *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(q, r) by Householder reflections, with numpy.linalg.qr's modes "reduced", "complete", "r" and "raw"."""
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ShapeError(f"qr: mode {mode!r} is not known; it is 'reduced', 'complete', 'r' or 'raw'")
    flags = {"complete": _core.FULL, "raw": _core.RAW}.get(mode, 0)
    factor = _factor("qr", _matrix(a, "qr"), flags=flags)
    second = _result(factor, 2)
    if mode == "r":
        return _all("qr", factor, check, second)
    return _all("qr", factor, check, factor.mT if mode == "raw" else factor, second)


def _uplo(UPLO: Any, name: str) -> int:
    if str(UPLO).upper() not in ("L", "U"):
        raise ShapeError(f"{name}: UPLO {UPLO!r} is not known; it is 'L' or 'U'")
    return _core.UPPER if str(UPLO).upper() == "U" else 0


@function
def eigh(a: Any, UPLO: str = "L", *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(w, v): eigenvalues of a symmetric or Hermitian matrix, ascending, and orthonormal eigenvectors as columns. One triangle
    is read."""
    factor = _factor("eigh", _matrix(a, "eigh", True), flags=_uplo(UPLO, "eigh"))
    return _all("eigh", factor, check, factor, _result(factor, 2))


@function
def eigvalsh(a: Any, UPLO: str = "L", *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The eigenvalues that eigh gives."""
    factor = _factor("eigh", _matrix(a, "eigvalsh", True), flags=_uplo(UPLO, "eigvalsh"))
    return _all("eigh", factor, check, factor)


@function
def eig(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(w, v): eigenvalues of a square matrix and right eigenvectors of norm 1 as columns. Both are complex always, so that the
    dtype does not depend on the values."""
    factor = _factor("eig", _matrix(a, "eig", True))
    return _all("eig", factor, check, factor, _result(factor, 2))


@function
def eigvals(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The eigenvalues that eig gives, complex."""
    factor = _factor("eig", _matrix(a, "eigvals", True))
    return _all("eig", factor, check, factor)


@function
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(u, s, vh) with a = u @ diag(s) @ vh and s descending; `s` alone without compute_uv."""
    factor = _factor("svd", _matrix(a, "svd"), flags=_core.FULL if full_matrices and compute_uv else 0)
    if not compute_uv:
        return _all("svd", factor, check, factor)
    return _all("svd", factor, check, _result(factor, 2), factor, _result(factor, 3))


@function
def svdvals(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The singular values, descending."""
    factor = _factor("svd", _matrix(a, "svdvals"))
    return _all("svd", factor, check, factor)


_EPSILON = {"f32": 1.1920928955078125e-07, "f64": 2.220446049250313e-16}


def _epsilon(x: Traced) -> float:
    return _EPSILON[{"c64": "f32", "c128": "f64"}.get(x._dtype, x._dtype)]


@function
def lstsq(a: Any, b: Any, rcond: Any = None, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(x, residuals, rank, s): the x of least norm for which |a x - b| is least, the sums of squared residuals (nothing unless
    m > n; meaningful for full rank), the rank and the singular values. Singular values up to rcond times the largest count as
    zero; by default the dtype's epsilon times max(m, n), a negative one is the epsilon alone."""
    x, right = _matrix(a, "lstsq"), _operand(b, "lstsq", square=False)
    dtype = _core.promote(x._dtype, right._dtype)
    x, right = cast(x, dtype), cast(right, dtype)
    m, n = x.shape[-2:]
    limit = _epsilon(x) * max(m, n, 1) if rcond is None else float(rcond)
    factor = _factor("lstsq", x, right, rcond=limit)
    vector = right.ndim == 1
    solution = factor.reshape(*factor.shape, 1) if vector else factor
    difference = apply("subtract", matmul(x, solution), right.reshape(-1, 1) if vector else right)
    size = apply("absolute", difference) if dtype[0] == "c" else difference
    residuals = reduce("sum", apply("square", size), -2)
    if m <= n:
        residuals = residuals[..., :0]
    return _all("lstsq", factor, check, factor, residuals, _result(factor, 2), _result(factor, 3))


@function
def pinv(
    a: Any,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    rtol: Any = None,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The pseudo-inverse; singular values up to rtol (rcond) times the largest count as zero, by default 1e-15 for rcond as in
    NumPy 2.0, or the epsilon times max(m, n) with rtol=None given as neither."""
    x = _matrix(a, "pinv")
    limit = rtol if rtol is not None else rcond
    if limit is None:
        limit = _epsilon(x) * max(*x.shape[-2:], 1)
    factor = _factor("svd", x)
    u, s, vh = _result(factor, 2), factor, _result(factor, 3)
    if x.shape[-1] == 0 or x.shape[-2] == 0:
        return _all("svd", factor, check, _adjoint(x))
    cutoff = apply("multiply", reduce("max", s, -1, True), limit)
    large = apply("greater", s, cutoff)
    inverse = apply("where", large, apply("reciprocal", apply("where", large, s, 1)), 0)
    scaled = apply("multiply", _adjoint(vh), inverse.reshape(*inverse.shape[:-1], 1, inverse.shape[-1]))
    return _all("svd", factor, check, matmul(scaled, _adjoint(u)))


@function
def matrix_rank(
    A: Any,
    tol: Any = None,
    hermitian: bool = False,
    *,
    rtol: Any = None,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """How many singular values exceed `tol`, by default rtol times the largest; rtol is max(m, n) epsilons."""
    x = _matrix(A, "matrix_rank")
    factor = _factor("svd", x)
    if factor.shape[-1] == 0:
        return _all("svd", factor, check, reduce("sum", cast(factor, "i64"), -1))
    limit = _epsilon(x) * max(x.shape[-2:]) if rtol is None else rtol
    limit = apply("multiply", reduce("max", factor, -1, True), limit) if tol is None else tol
    return _all("svd", factor, check, reduce("sum", cast(apply("greater", factor, limit), "i64"), -1))


@function
def cond(x: Any, p: Any = None, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The condition number: the ratio of the extreme singular values (p None, 2, or -2 for its inverse)."""
    if p not in (None, 2, -2):
        raise ShapeError(f"cond: p={p!r} is not known; it is None, 2 or -2. For others: norm(x, p) * norm(inv(x), p)")
    value = _matrix(x, "cond")
    if 0 in value.shape[-2:]:
        raise ShapeError(f"cond is not defined on empty matrices; the shape is {value.shape}")
    s = _factor("svd", value)
    ratio = apply("divide", s[..., -1], s[..., 0]) if p == -2 else apply("divide", s[..., 0], s[..., -1])
    return _all("svd", s, check, ratio)


@function
def matrix_power(a: Any, n: int, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """a @ a @ … n times, by squaring; the inverse's for negative n, the identity for 0."""
    power = operator.index(n)
    x = as_traced(a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power needs square matrices in the last two axes, not shape {x.shape}")
    if power == 0:
        i, j = _arange(x.shape[-1]).reshape(-1, 1), _arange(x.shape[-1]).reshape(1, -1)
        return broadcast(cast(apply("equal", i, j), x._dtype), x.shape)
    factor = None
    if power < 0:
        factor = _factor("inv", _matrix(a, "matrix_power", True))
        x, power = factor, -power
    result = None
    while power:
        if power & 1:
            result = x if result is None else matmul(result, x)
        power >>= 1
        x = matmul(x, x) if power else x
    assert result is not None
    return result if factor is None else _all("inv", factor, check, result)
