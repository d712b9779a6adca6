"""Factor once, solve many: the factors of a matrix with a plan that makes them and one for each width of right-hand sides."""

from __future__ import annotations

import operator
from typing import Any

from mathfuse import _core
from mathfuse._functions import function
from mathfuse._linalg import COMPUTE, adjoint, arange, deliver, identity_like, operand
from mathfuse._linalg_solve import cho_solve, cholesky, lu_factor, lu_solve, sign_and_log
from mathfuse._plan import Spec, plan as make_plan, spec
from mathfuse._trace import Traced, apply, as_traced, broadcast, cast, matmul, raise_for_info, reduce
from mathfuse._views import diagonal
from mathfuse.errors import AliasError, DtypeError, InvalidError, ShapeError, StateError

_HALF = {"f64": "f32", "c128": "c64"}
_KEPT = 16  # plans for widths, the least recently used one goes first


def _describe(a: Any) -> tuple[str, tuple[int, ...]]:
    return (a.dtype, a.shape) if isinstance(a, Spec) else _core.inspect(a)[:2]


def _array(x: Any) -> Any:
    if isinstance(x, Spec) or _core.is_array(x):
        return x
    import numpy as np

    return np.asarray(x)


def _largest(x: Traced, axis: Any) -> Traced:
    """Of moduli, 0 for none; the axis stays."""
    size = apply("absolute", x)
    return reduce("max", size, axis, True) if 0 not in x.shape else reduce("sum", size, axis, True)


@function
def _logdet(factor: Any) -> Any:
    d = diagonal(as_traced(factor), factor.ndim - 2, factor.ndim - 1)
    return apply("multiply", reduce("sum", apply("log", apply("real", d) if d._dtype[0] == "c" else d), -1), 2)


@function
def _slogdet(lu: Any, pivots: Any) -> Any:
    d = diagonal(as_traced(lu), lu.ndim - 2, lu.ndim - 1)
    kept = apply("equal", as_traced(pivots), arange(lu.shape[-1]))
    sign = cast(reduce("prod", cast(apply("where", kept, 1, -1), "i32"), -1), d._dtype)
    return sign_and_log(sign, d)


class FactorPlan:
    """What cholesky_plan and lu_plan return.

    `info` is that of the factors, an array over the batch, None before there are any. `plan` is the plan that makes them. The
    factors lie in memory of this object, which `factor` writes anew: what was read from it before changes with it.
    """

    _name = ""
    info: Any = None

    def __init__(self, a: Any, refine: int, overwrite_a: bool, check: bool, target: str | None, providers: str | None) -> None:
        a = _array(a)
        self.refine = operator.index(refine)
        if self.refine < 0:
            raise InvalidError(f"{self._name}: refine is {refine}; it is a number of refinements, 0 for none")
        given, self.shape = _describe(a)
        if len(self.shape) < 2 or self.shape[-1] != self.shape[-2]:
            raise ShapeError(f"{self._name} needs square matrices in the last two axes, not shape {self.shape}")
        self.given, self.dtype = given, COMPUTE.get(given, "f32")
        if self.refine and self.dtype not in _HALF:
            raise DtypeError(
                f"{self._name}: refine makes factors in f32 of f64 (c64 of c128), not of {given}: cast the matrix, or leave refine at 0"
            )
        self.check, self.overwrite_a = bool(check), bool(overwrite_a)
        self._target, self._providers = target, providers
        self._kept: tuple[Any, ...] = ()
        self._ready = False
        self._solvers: dict[Any, _core.Plan] = {}
        self.plan = self._plan(self._make, a)
        if not isinstance(a, Spec):
            self.factor(a)

    def __repr__(self) -> str:
        state = "factored" if self._ready else "not factored"
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)}, {state}>"

    def _plan(self, function: Any, *args: Any) -> _core.Plan:
        return make_plan(function, *args, target=self._target, providers=self._providers)

    # ---- traced ----

    def _factors(self, a: Traced) -> tuple[Any, ...]:
        """(factors, …, info)"""
        raise NotImplementedError

    def _whole(self, a: Traced) -> Traced:
        """The matrix whose factors these are."""
        return a

    def _solution(self, factors: tuple[Any, ...], b: Traced, trans: Any) -> tuple[Traced, Traced]:
        """(x, info)"""
        raise NotImplementedError

    def _make(self, a: Any) -> tuple[Any, ...]:
        x = operand(a, self._name)
        if not self.refine:
            return self._factors(x)
        return (*self._factors(cast(x, _HALF[self.dtype])), self._whole(x))

    def _refined(self, kept: tuple[Any, ...], b: Traced, trans: Any) -> tuple[Traced, Traced]:
        """Solutions of residuals, which are scaled into the range of the factors, added up."""
        *factors, failed, a = kept
        right = cast(b, _core.promote(b._dtype, a._dtype))
        right = right.reshape(-1, 1) if b.ndim == 1 else right
        a = {0: a, "N": a}.get(trans, a.mT if trans in (1, "T") else adjoint(a))
        x, rest = None, right
        for _ in range(self.refine + 1):
            size = _largest(rest, -2)
            unit = apply("divide", rest, apply("where", apply("greater", size, 0), size, 1))
            step = self._solution(tuple(factors), cast(unit, _HALF[self.dtype]), trans)[0]
            step = apply("multiply", cast(step, right._dtype), size)
            x = step if x is None else apply("add", x, step)
            rest = apply("subtract", right, matmul(a, x))
        assert x is not None
        n = max(self.shape[-1], 1)
        norm = _largest(reduce("sum", apply("absolute", a), -1, True), -2)
        allowed = apply("multiply", apply("multiply", norm, _largest(x, -2)), 2.220446049250313e-16 * n**0.5)
        fine = reduce("all", apply("less_equal", _largest(rest, -2), allowed), (-2, -1))
        info = apply("where", apply("not_equal", failed, 0), failed, apply("where", fine, 0, self.refine))
        x = apply("where", apply("equal", info.reshape(*info.shape, 1, 1), 0), x, float("nan"))
        return x.reshape(*x.shape[:-1]) if b.ndim == 1 else x, cast(info, "i32")

    def _solve(self, kept: tuple[Any, ...], b: Any, trans: Any) -> Any:
        x = operand(b, f"{self._name}.solve", square=False)
        n = self.shape[-1]
        if x.ndim == 0 or x.shape[-1 if x.ndim == 1 else -2] != n:
            raise ShapeError(f"{self._name}.solve: b has shape {x.shape}; it is ({n},) or (…, {n}, k)")
        solved = self._refined(kept, x, trans) if self.refine else self._solution(kept[:-1], x, trans)
        return deliver("refine" if self.refine else self._name, solved[1], self.check, solved[0])

    # ---- factors ----

    def factor(self, a: Any, *, stream: Any = None) -> Any:
        """Factor another matrix of the same shape and dtype, into the memory of the factors before. Returns the object."""
        a = _array(a)
        found = _describe(a)
        if isinstance(a, Spec) or found != (self.given, self.shape):
            raise ShapeError(
                f"{self._name}: the plan is for arrays of {self.given}{list(self.shape)}, not {found[0]}{list(found[1])}"
            )
        self._ready = False
        self._kept = self._run(a, stream)
        self.info = self._kept[-2 if self.refine else -1]
        if self.check:
            raise_for_info(self._name, self.info)
        self._ready = True
        return self

    def _run(self, a: Any, stream: Any) -> tuple[Any, ...]:
        places = self._kept if self._kept and type(self._kept[0]) is type(a) else None
        if self.overwrite_a and not self.refine and self.dtype == self.given:
            try:
                rest = places[1:] if places else self._others(a)
                return tuple(self.plan.run(a, out=(a, *rest), stream=stream))
            except AliasError:
                self.overwrite_a = False  # this plan reads a matrix while it writes
        return tuple(self.plan.run(a, out=places, stream=stream))

    def _others(self, a: Any) -> tuple[Any, ...]:
        """Memory for what there is beside the first factor, where `a` lies."""
        from mathfuse._interop import empty

        _, _, device, index = _core.inspect(a)
        library = type(a).__module__.partition(".")[0]
        library = library if library in ("torch", "cupy") else ""
        place = -1 if device == "cpu" else index
        return tuple(empty(library, type(a), dtype, shape, place) for shape, dtype in self.plan.outputs[1:])

    def _factored(self) -> tuple[Any, ...]:
        if not self._ready:
            failed = "the matrix could not be factored" if self._kept else "nothing is factored yet"
            raise StateError(f"{self._name}: {failed}; call factor(a)")
        return self._kept

    # ---- solutions ----

    def solve_plan(self, b: Any, trans: Any = 0) -> _core.Plan:
        """The plan that `solve` runs for right-hand sides like `b`, an array or a spec: to explain it, or to tune it."""
        b = _array(b)
        key = (*_describe(b), trans)
        found = self._solvers.pop(key, None)
        if found is None:
            kept = self._kept if self._ready and not isinstance(b, Spec) else [spec(*x) for x in self.plan.outputs]
            found = self._plan(lambda kept, b: self._solve(kept, b, trans), tuple(kept), b)
        self._solvers[key] = found
        if len(self._solvers) > _KEPT:
            self._solvers.pop(next(iter(self._solvers)), None)
        return found

    def _solved(self, b: Any, trans: Any, out: Any, stream: Any) -> Any:
        kept, b = self._factored(), _array(b)
        return self.solve_plan(b, trans).run(*kept, b, out=out, stream=stream)

    def inv(self, *, out: Any = None, stream: Any = None) -> Any:
        """The inverse of the matrix; with check=False (inverse, info)."""
        kept = self._factored()
        if "inv" not in self._solvers:
            self._solvers["inv"] = self._plan(self._inverse, kept)
        return self._solvers["inv"].run(*kept, out=out, stream=stream)

    def _inverse(self, kept: tuple[Any, ...]) -> Any:
        unit = identity_like(cast(as_traced(kept[0]), self.dtype))
        return self._solve(kept, broadcast(unit, self.shape), 0)

    def explain(self, b: Any = None, format: str = "text") -> str:
        """What the plan of the factors does, or the plan of right-hand sides like `b`, an array or a spec."""
        return self.plan.explain(format) if b is None else self.solve_plan(b).explain(format)


class CholeskyPlan(FactorPlan):
    """Cholesky factors and what solves with them; cholesky_plan makes it."""

    _name = "cholesky_plan"

    def __init__(self, a: Any, upper: bool, *options: Any) -> None:
        self.upper = bool(upper)
        super().__init__(a, *options)

    def _factors(self, a: Traced) -> tuple[Any, ...]:
        return tuple(cholesky(a, upper=self.upper, check=False))

    def _whole(self, a: Traced) -> Traced:
        i, j = arange(a.shape[-1]).reshape(-1, 1), arange(a.shape[-1]).reshape(1, -1)
        whole = apply("where", apply("less_equal" if self.upper else "greater_equal", i, j), a, adjoint(a))
        return apply("where", apply("equal", i, j), cast(apply("real", a), a._dtype), whole) if a._dtype[0] == "c" else whole

    def _solution(self, factors: tuple[Any, ...], b: Traced, trans: Any) -> tuple[Traced, Traced]:
        x, info = cho_solve(factors[0], b, upper=self.upper, check=False)
        return x, info

    @property
    def factors(self) -> Any:
        """The lower factor L with a = L Lᴴ, or the upper one U with a = Uᴴ U."""
        return self._factored()[0]

    def solve(self, b: Any, *, out: Any = None, stream: Any = None) -> Any:
        """x with a @ x = b, where b is (n,), (n, k) or a batch of such, of any width; with check=False (x, info)."""
        return self._solved(b, 0, out, stream)

    def logdet(self) -> Any:
        """log det a, from the factor."""
        return _logdet(self._factored()[0])


class LuPlan(FactorPlan):
    """LU factors with row exchanges and what solves with them; lu_plan makes it."""

    _name = "lu_plan"

    def _factors(self, a: Traced) -> tuple[Any, ...]:
        lu, pivots, info = lu_factor(a, check=False)
        return lu, pivots, info

    def _solution(self, factors: tuple[Any, ...], b: Traced, trans: Any) -> tuple[Traced, Traced]:
        x, info = lu_solve((factors[0], factors[1]), b, trans, check=False)
        return x, info

    @property
    def factors(self) -> Any:
        """(lu, pivots) as from lu_factor."""
        return self._factored()[:2]

    def solve(self, b: Any, trans: Any = 0, *, out: Any = None, stream: Any = None) -> Any:
        """x with a @ x = b, where b is (n,), (n, k) or a batch of such, of any width; with `trans` 1 or "T" a.T @ x = b, with 2
        or "C" the adjoint's. With check=False (x, info)."""
        return self._solved(b, trans, out, stream)

    def slogdet(self) -> Any:
        """(sign, log |det a|), from the factors."""
        return _slogdet(*self._factored()[:2])


def cholesky_plan(
    a: Any,
    *,
    upper: bool = False,
    refine: int = 0,
    overwrite_a: bool = False,
    check: bool = True,
    target: str | None = None,
    providers: str | None = None,
) -> CholeskyPlan:
    """Factor positive definite matrices once, and solve with them for right-hand sides of any width.

    `a` is an array, or a `spec` whose matrices `factor` brings. One triangle is read, with `upper` the upper one. `refine`
    makes the factors in f32 (c64) of an f64 (c128) matrix and improves each solution so many times by its residual in f64;
    four do for condition numbers up to about 1e6; a copy of the matrix is kept. Solutions that do not reach f64's accuracy fail.
    `overwrite_a` lets the factors lie in the array's own memory, where the plan can. With check=False `info` says what failed,
    and `solve` returns (x, info) without waiting for the device. `target` and `providers` as for mathfuse.plan.
    """
    return CholeskyPlan(a, upper, refine, overwrite_a, check, target, providers)


def lu_plan(
    a: Any,
    *,
    refine: int = 0,
    overwrite_a: bool = False,
    check: bool = True,
    target: str | None = None,
    providers: str | None = None,
) -> LuPlan:
    """Factor square matrices by LU with row exchanges once, and solve with them, their transposes or adjoints, for right-hand
    sides of any width. Arguments as for cholesky_plan."""
    return LuPlan(a, refine, overwrite_a, check, target, providers)
