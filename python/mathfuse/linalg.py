"""Dense solvers, with NumPy's and SciPy's names and shapes. Leading axes are a batch.

Each takes `check`: True raises LinAlgError if a matrix failed; False returns the results followed by `info`, an integer array
over the batch with LAPACK's meaning (0 is fine).
"""

from __future__ import annotations

from typing import Any

from mathfuse import _core
from mathfuse._functions import function
from mathfuse._trace import Traced, as_traced, cast, current
from mathfuse.errors import Error, ShapeError, lin_alg_error

__all__ = ["LinAlgError", "cho_solve", "cholesky", "solve", "solve_triangular"]

_COMPUTE = {"f32": "f32", "f64": "f64", "c64": "c64", "c128": "c128", "i32": "f64", "i64": "f64", "bool": "f64"}
_WHY = {
    "cholesky": "leading minor {0} is not positive definite",
    "solve": "pivot {0} is exactly zero: the matrix is singular",
    "cho_solve": "diagonal element {0} of the factor is zero",
    "solve_triangular": "diagonal element {0} is exactly zero: the matrix is singular",
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
        why = _WHY[name].format(code) if code > 0 else f"argument {-code} of LAPACK held a value that is not allowed (NaN?)"
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
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ShapeError(f'trans {trans!r} is not known; it is 0 or "N", 1 or "T", 2 or "C"')
    flags = 0 if lower else _core.UPPER
    flags |= _core.UNIT if unit_diagonal else 0
    flags |= {0: 0, "N": 0, 1: _core.TRANS, "T": _core.TRANS, 2: _core.ADJOINT, "C": _core.ADJOINT}[trans]
    return _right_hand_side("solve_triangular", _operand(a, "solve_triangular"), b, flags, check)
