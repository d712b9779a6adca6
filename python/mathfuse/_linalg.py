"""What the functions of mathfuse.linalg share: operands, results with info, and the errors made from it."""

from __future__ import annotations

from typing import Any

from mathfuse import _core
from mathfuse._trace import Traced, apply, as_traced, cast, current, reduce
from mathfuse.errors import Error, ShapeError, lin_alg_error

COMPUTE = {"f32": "f32", "f64": "f64", "c64": "c64", "c128": "c128", "i8": "f64", "i32": "f64", "i64": "f64", "bool": "f64"}
_SINGULAR = "pivot {0} is exactly zero: the matrix is singular"
_INDEFINITE = "leading minor {0} is not positive definite"
_DIAGONAL = "diagonal element {0} is exactly zero: the matrix is singular"
_SINGULAR_VALUES = "{0} superdiagonals did not converge to zero"
_WHY = {
    "cholesky": _INDEFINITE,
    "cho_factor": _INDEFINITE,
    "cholesky_plan": _INDEFINITE,
    "lu_plan": _SINGULAR,
    "refine": "{0} refinements did not reach f64's accuracy: raise refine, or leave it at 0 for an ill-conditioned matrix",
    "solve": _SINGULAR,
    "solve, positive definite": _INDEFINITE,
    "solve, diagonal": _DIAGONAL,
    "cho_solve": "diagonal element {0} of the factor is zero",
    "solve_triangular": _DIAGONAL,
    "lu": _SINGULAR,
    "lu_factor": _SINGULAR,
    "lu_solve": _SINGULAR,
    "inv": _SINGULAR,
    "qr": "column {0} could not be reduced",
    "eigh": "{0} off-diagonal elements did not converge to zero",
    "eig": "eigenvalues up to {0} did not converge",
    "svd": _SINGULAR_VALUES,
    "lstsq": _SINGULAR_VALUES,
    "expm": "the norm is above what {0} squarings reach; call expm outside the traced function, or raise max_squarings",
}


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


def operand(a: Any, name: str, square: bool = True) -> Traced:
    x = as_traced(a)
    x = cast(x, COMPUTE.get(x._dtype, "f32"))
    if square and (x.ndim < 2 or x.shape[-1] != x.shape[-2]):
        raise ShapeError(f"{name} needs square matrices in the last two axes, not shape {x.shape}")
    return x


def finish(name: str, solver: Traced, check: bool) -> Any:
    return deliver(name, result(solver, 1), check, solver)


def right_hand_side(name: str, a: Traced, b: Any, flags: int, check: bool) -> Any:
    """Only a b of one dimension is a vector, as in NumPy 2."""
    right = operand(b, name, square=False)
    if right.ndim == 0:
        raise ShapeError(f"{name} needs b of at least one dimension")
    dtype = _core.promote(a._dtype, right._dtype)
    a, right = cast(a, dtype), cast(right, dtype)
    trace = current()
    solver = trace.wrap(trace.graph.solver(name, a._node, right._node, flags))
    return finish(name, solver, check)


def shared_dtype(a: Traced, b: Traced) -> tuple[Traced, Traced]:
    dtype = _core.promote(a._dtype, b._dtype)
    return cast(a, dtype), cast(b, dtype)


def transposition(trans: Any) -> int:
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ShapeError(f'trans {trans!r} is not known; it is 0 or "N", 1 or "T", 2 or "C"')
    return {0: 0, "N": 0, 1: _core.TRANS, "T": _core.TRANS, 2: _core.ADJOINT, "C": _core.ADJOINT}[trans]


def matrix(a: Any, name: str, square: bool = False) -> Traced:
    x = operand(a, name, square)
    if x.ndim < 2:
        raise ShapeError(f"{name} needs matrices in the last two axes, not shape {x.shape}")
    return x


def decompose(kind: str, *operands: Traced, flags: int = 0, rcond: float = -1.0) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.factor(kind, tuple(x._node for x in operands), flags, rcond))


def result(factor: Traced, index: int) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.result(factor._node, index))


def deliver(name: str, info: Traced, check: bool, *results: Any, into: Any = None) -> Any:
    """The results, as the named tuple `into` if there is one; a failure is an exception, or the last of them is info."""
    if not check:
        return (*results, info)
    current().checks.append((name, info))
    if into is not None:
        return into(*results)
    return results[0] if len(results) == 1 else results


def finish_all(name: str, factor: Traced, check: bool, *results: Any, into: Any = None) -> Any:
    return deliver(name, result(factor, 1), check, *results, into=into)


def adjoint(x: Traced) -> Traced:
    return apply("conjugate", x.mT) if x._dtype[0] == "c" else x.mT


def arange(n: int) -> Traced:
    trace = current()
    return trace.wrap(trace.graph.arange((n,)))


_EPSILON = {"f32": 1.1920928955078125e-07, "f64": 2.220446049250313e-16}


def epsilon(x: Traced) -> float:
    return _EPSILON[{"c64": "f32", "c128": "f64"}.get(x._dtype, x._dtype)]


def identity_like(x: Traced) -> Traced:
    """The identity with the last axis of `x`, in its dtype; broadcasts over its batch."""
    i, j = arange(x.shape[-1]).reshape(-1, 1), arange(x.shape[-1]).reshape(1, -1)
    return cast(apply("equal", i, j), x._dtype)


def per_matrix(value: Any, axes: int = 1) -> Any:
    """A limit given for each matrix, with `axes` new last axes; a number stays one."""
    if isinstance(value, (int, float)):
        return value
    x = as_traced(value)
    return x.reshape(*x.shape, *(1,) * axes) if x.ndim else x


def first_zero(x: Traced) -> Traced:
    """info of vectors along the last axis: the position, from 1, of the first zero; -1 where there is NaN or infinity."""
    n = x.shape[-1]
    at = apply("where", apply("equal", x, 0), apply("add", arange(n), 1), n + 1)
    first = reduce("min", at, -1) if n else reduce("sum", at, -1)
    finite = reduce("all", apply("isfinite", x), -1)
    return cast(apply("where", finite, apply("where", apply("equal", first, n + 1), 0, first), -1), "i32")
