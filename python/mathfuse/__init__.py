"""mathfuse: plans chains of linear algebra and FFT calls and runs each in as few kernels as it can.

y = mathfuse.matmul(x, w, bias=b, activation="gelu")

@mathfuse.fuse
def layer(x, w, b, r):
    return numpy.tanh(x @ w + b) + r
"""

from __future__ import annotations

import os
from typing import Any

from mathfuse import _core, _interop

_core.library_path(_interop.library_directories())

from mathfuse import errors, fft, linalg, tuning  # noqa: E402
from mathfuse._core import Context, Plan  # noqa: E402
from mathfuse._functions import (  # noqa: E402
    ELEMENTWISE,
    all,
    any,
    cast,
    clip,
    einsum,
    matmul,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
    where,
)
from mathfuse._gradients import activation_backward, linear_backward  # noqa: E402
from mathfuse._kernel import Kernel  # noqa: E402
from mathfuse._layers import (  # noqa: E402
    dropout,
    geglu,
    grouped_matmul,
    layer_norm,
    linear,
    log_softmax,
    mlp,
    rms_norm,
    scaled_matmul,
    softmax,
    swiglu,
)
from mathfuse._log import log_records  # noqa: E402
from mathfuse._ltoir import Ltoir, get_ltoir  # noqa: E402
from mathfuse._plan import Spec, fuse, plan, spec  # noqa: E402
from mathfuse._products import dot, inner, kron, matvec, outer, tensordot, vdot, vecdot, vecmat  # noqa: E402
from mathfuse.errors import Error  # noqa: E402

__version__: str = _core.version()

globals().update(ELEMENTWISE)


def get_include() -> str:
    """The directory that holds mathfuse/mathfuse.h and the device headers."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def info(device: str | None = None, *, json: bool = False) -> str:
    """What was found on this machine: version, devices, libraries with version, path and how they were found, what is missing.

    `device` adds a device or target: "cuda", "sm_90a".
    """
    return _core.info(None if device is None else Context(device), json)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'mathfuse' has no attribute {name!r}")


__all__ = [
    "Context", "Error", "Kernel", "Ltoir", "Plan", "Spec", "activation_backward", "all", "any", "cast", "clip", "dot", "dropout", "einsum", "errors", "fft",
    "fuse", "geglu", "get_include", "get_ltoir", "grouped_matmul", "info", "inner", "kron", "layer_norm", "linalg", "linear", "linear_backward", "log_softmax",
    "matmul", "matvec", "max", "mean", "min", "mlp", "outer", "plan", "prod", "rms_norm", "scaled_matmul", "softmax", "spec", "std", "sum", "swiglu",
    "log_records", "tensordot", "tuning",
    "var", "vdot", "vecdot", "vecmat", "where", *ELEMENTWISE,
]  # fmt: skip
