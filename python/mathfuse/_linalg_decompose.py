"""Decompositions of mathfuse.linalg, and what singular values and eigenvalues give."""

from __future__ import annotations

from typing import Any, NamedTuple

from mathfuse import _core
from mathfuse._functions import function
from mathfuse._linalg import (
    adjoint,
    arange,
    decompose,
    epsilon,
    finish_all,
    matrix,
    operand,
    per_matrix,
    result,
    shared_dtype,
)
from mathfuse._trace import Traced, apply, as_traced, cast, current, matmul, reduce
from mathfuse.errors import ShapeError


class QRResult(NamedTuple):
    Q: Any
    R: Any


class EighResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    U: Any
    S: Any
    Vh: Any


@function
def qr(a: Any, mode: str = "reduced", *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(q, r) by Householder reflections, with numpy.linalg.qr's modes "reduced", "complete", "r" and "raw"."""
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ShapeError(f"qr: mode {mode!r} is not known; it is 'reduced', 'complete', 'r' or 'raw'")
    flags = {"complete": _core.FULL, "raw": _core.RAW}.get(mode, 0)
    factor = decompose("qr", matrix(a, "qr"), flags=flags)
    second = result(factor, 2)
    if mode == "r":
        return finish_all("qr", factor, check, second)
    if mode == "raw":
        return finish_all("qr", factor, check, factor.mT, second)
    return finish_all("qr", factor, check, factor, second, into=QRResult)


def _uplo(UPLO: Any, name: str) -> int:
    if str(UPLO).upper() not in ("L", "U"):
        raise ShapeError(f"{name}: UPLO {UPLO!r} is not known; it is 'L' or 'U'")
    return _core.UPPER if str(UPLO).upper() == "U" else 0


@function
def eigh(a: Any, UPLO: str = "L", *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(w, v): eigenvalues of a symmetric or Hermitian matrix, ascending, and orthonormal eigenvectors as columns. One triangle
    is read."""
    factor = decompose("eigh", matrix(a, "eigh", True), flags=_uplo(UPLO, "eigh"))
    return finish_all("eigh", factor, check, factor, result(factor, 2), into=EighResult)


@function
def eigvalsh(a: Any, UPLO: str = "L", *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The eigenvalues that eigh gives."""
    factor = decompose("eigh", matrix(a, "eigvalsh", True), flags=_uplo(UPLO, "eigvalsh"))
    return finish_all("eigh", factor, check, factor)


@function
def eig(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(w, v): eigenvalues of a square matrix and right eigenvectors of norm 1 as columns. Both are complex always, so that the
    dtype does not depend on the values."""
    factor = decompose("eig", matrix(a, "eig", True))
    return finish_all("eig", factor, check, factor, result(factor, 2), into=EigResult)


@function
def eigvals(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The eigenvalues that eig gives, complex."""
    factor = decompose("eig", matrix(a, "eigvals", True))
    return finish_all("eig", factor, check, factor)


def _completed(x: Traced) -> Traced:
    """The Hermitian matrix whose lower triangle `x` has."""
    i, j = arange(x.shape[-1]).reshape(-1, 1), arange(x.shape[-1]).reshape(1, -1)
    return apply("where", apply("greater_equal", i, j), x, adjoint(x))


@function
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    check: bool = True,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(u, s, vh) with a = u @ diag(s) @ vh and s descending; `s` alone without compute_uv. With `hermitian` the matrix is taken
    as Hermitian, from its lower triangle."""
    x = matrix(a, "svd", hermitian)
    factor = decompose("svd", _completed(x) if hermitian else x, flags=_core.FULL if full_matrices and compute_uv else 0)
    if not compute_uv:
        return finish_all("svd", factor, check, factor)
    return finish_all("svd", factor, check, result(factor, 2), factor, result(factor, 3), into=SVDResult)


@function
def svdvals(a: Any, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """The singular values, descending."""
    factor = decompose("svd", matrix(a, "svdvals"))
    return finish_all("svd", factor, check, factor)


@function
def lstsq(a: Any, b: Any, rcond: Any = None, *, check: bool = True, out: Any = None, stream: Any = None) -> Any:
    """(x, residuals, rank, s): the x of least norm for which |a x - b| is least, the sums of squared residuals, the rank and the
    singular values. There are no residuals unless m > n, nor of one matrix whose rank is below n; of those the values remain in a
    batch, with check=False, and inside a traced function that computes with them. Singular values up to rcond times the largest count as
    zero; by default the dtype's epsilon times max(m, n), a negative one is the epsilon alone."""
    x, right = matrix(a, "lstsq"), operand(b, "lstsq", square=False)
    x, right = shared_dtype(x, right)
    m, n = x.shape[-2:]
    limit = epsilon(x) * max(m, n, 1) if rcond is None else float(rcond)
    factor = decompose("lstsq", x, right, rcond=limit)
    vector = right.ndim == 1
    solution = factor.reshape(*factor.shape, 1) if vector else factor
    difference = apply("subtract", matmul(x, solution), right.reshape(-1, 1) if vector else right)
    size = apply("absolute", difference) if x._dtype[0] == "c" else difference
    residuals = reduce("sum", apply("square", size), -2)
    if m <= n:
        residuals = residuals[..., :0]
    elif check and x.ndim == 2 and right.ndim <= 2:
        current().ranked.append((residuals, result(factor, 2), n))
    return finish_all("lstsq", factor, check, factor, residuals, result(factor, 2), result(factor, 3))


def _magnitudes(x: Traced, hermitian: bool) -> tuple[Traced, Traced, str]:
    """A decomposition, the singular values of x, not in order for Hermitian ones, and its name in errors."""
    if hermitian:
        if x.shape[-1] != x.shape[-2]:
            raise ShapeError(f"hermitian=True needs square matrices in the last two axes, not shape {x.shape}")
        factor = decompose("eigh", x)
        return factor, apply("absolute", factor), "eigh"
    factor = decompose("svd", x)
    return factor, factor, "svd"


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
    """The Moore-Penrose pseudo-inverse. Singular values of at most `rtol` (or `rcond`, an older name of it) times the largest
    count as zero; it is a number or one for each matrix, by default the dtype's epsilon times max(m, n). With `hermitian` the
    matrix is taken as Hermitian, and eigenvalues of its lower triangle are used."""
    x = matrix(a, "pinv")
    limit = rtol if rtol is not None else rcond
    limit = epsilon(x) * max(*x.shape[-2:], 1) if limit is None else per_matrix(limit)
    factor, size, name = _magnitudes(x, hermitian)
    if 0 in x.shape[-2:]:
        return finish_all(name, factor, check, adjoint(x))
    large = apply("greater", size, apply("multiply", reduce("max", size, -1, True), limit))
    inverse = apply("where", large, apply("reciprocal", apply("where", large, factor, 1)), 0)
    row = inverse.reshape(*inverse.shape[:-1], 1, inverse.shape[-1])
    left, right = result(factor, 2), result(factor, 2) if hermitian else adjoint(result(factor, 3))
    return finish_all(name, factor, check, matmul(apply("multiply", right, row), adjoint(left)))


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
    """How many singular values exceed `tol`, by default rtol times the largest; rtol is max(m, n) epsilons. With `hermitian`
    they are the moduli of eigenvalues. Of fewer than two dimensions: whether anything is nonzero."""
    value = as_traced(A)
    if value.ndim < 2:
        return cast(reduce("any", apply("not_equal", value, 0)), "i64")
    x = matrix(A, "matrix_rank")
    factor, size, name = _magnitudes(x, hermitian)
    if size.shape[-1] == 0:
        return finish_all(name, factor, check, reduce("sum", cast(size, "i64"), -1))
    if tol is None:
        relative = epsilon(x) * max(x.shape[-2:]) if rtol is None else per_matrix(rtol)
        limit = apply("multiply", reduce("max", size, -1, True), relative)
    else:
        limit = per_matrix(tol)
    return finish_all(name, factor, check, reduce("sum", cast(apply("greater", size, limit), "i64"), -1))
