"""Dense linear algebra, with NumPy's and SciPy's names, signatures and shapes. Leading axes are a batch.

What factors or solves takes `check`: True raises LinAlgError if a matrix failed; False returns the results followed by `info`, an
integer array over the batch with LAPACK's meaning (0 is fine, -1: the matrix holds NaN or infinity), and NaN in place of the
results of a failed matrix. f16 and bf16 are computed in f32. SciPy's overwrite_a, overwrite_b and check_finite are accepted and
change nothing: inputs are not written, and NaN is found in any case. cholesky_plan and lu_plan factor once and solve many times.
"""

from __future__ import annotations

from typing import Any

from mathfuse._linalg_decompose import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lstsq,
    matrix_rank,
    pinv,
    qr,
    svd,
    svdvals,
)
from mathfuse._linalg_norms import cond, matrix_norm, norm, vector_norm
from mathfuse._linalg_plan import CholeskyPlan, FactorPlan, LuPlan, cholesky_plan, lu_plan
from mathfuse._linalg_products import (
    cross,
    diagonal,
    expm,
    matmul,
    matrix_power,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    tensorinv,
    tensorsolve,
    trace,
    vecdot,
)
from mathfuse._linalg_solve import (
    SlogdetResult,
    cho_factor,
    cho_solve,
    cholesky,
    det,
    inv,
    lu,
    lu_factor,
    lu_solve,
    slogdet,
    solve,
    solve_triangular,
)
from mathfuse.errors import lin_alg_error

__all__ = [
    "CholeskyPlan", "EigResult", "EighResult", "FactorPlan", "LinAlgError", "LuPlan", "QRResult", "SVDResult", "SlogdetResult",
    "cho_factor", "cho_solve", "cholesky", "cholesky_plan", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "expm", "inv", "lstsq", "lu", "lu_factor", "lu_plan", "lu_solve", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv",
    "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot",
    "vector_norm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "LinAlgError":
        return lin_alg_error()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
