"""Gradients of layers, written over traced values: training's backward pass fuses as the forward pass does."""

from __future__ import annotations

import math
from typing import Any

from mathfuse._functions import ALIASES, function, make_function
from mathfuse._trace import Traced, apply, as_traced, cast, matmul, reduce, reshape
from mathfuse.errors import InvalidError, ShapeError


def _silu(z: Traced) -> Traced:
    s = apply("sigmoid", z)
    return s * (1 + z * (1 - s))


def _sigmoid(z: Traced) -> Traced:
    s = apply("sigmoid", z)
    return s * (1 - s)


def _gelu_erf(z: Traced) -> Traced:
    return apply("erf", z * math.sqrt(0.5)) * 0.5 + 0.5 + z * apply("exp", z * z * -0.5) * (1 / math.sqrt(2 * math.pi))


def _tanh(z: Traced) -> Traced:
    t = apply("tanh", z)
    return 1 - t * t


NO_ACTIVATION = (None, "identity", "linear", "none")
DERIVATIVES = {
    "gelu": lambda z: apply("gelu_grad", z),
    "gelu_erf": _gelu_erf,
    "silu": _silu,
    "sigmoid": _sigmoid,
    "softplus": lambda z: apply("sigmoid", z),
    "tanh": _tanh,
}


def _activation_backward(dy: Any, z: Any, activation: Any) -> Traced:
    name = ALIASES.get(activation, activation)
    if name in NO_ACTIVATION:
        return as_traced(dy)
    if z is None:
        raise InvalidError(f"the gradient of {name} needs z, the value before it; pass what the forward pass kept")
    g, z = as_traced(dy), as_traced(z)
    if g.shape != z.shape:
        raise ShapeError(f"z has shape {z.shape} and the gradient {g.shape}; they are to be the same")
    if name == "relu":
        return apply("where", apply("greater", z, 0), g, 0)
    if name not in DERIVATIVES:
        raise InvalidError(
            f"the derivative of activation {activation!r} is not known; it is of relu, {', '.join(DERIVATIVES)}: write "
            "another one as an expression"
        )
    return apply("multiply", g, DERIVATIVES[name](z))


@function
def activation_backward(dy: Any, z: Any, activation: Any, *, out: Any = None, stream: Any = None) -> Any:
    """dy times the derivative of `activation` at z: the gradient before an activation, from the one after it."""
    return _activation_backward(dy, z, activation)


def _widened(x: Any) -> Traced:
    """16-bit values as f32, so that rounding back is an operation of its own, which what follows sees."""
    value = as_traced(x)
    return cast(value, "f32") if value._dtype in ("f16", "bf16") else value


def _linear_backward(dy: Any, x: Any, weight: Any, z: Any = None, *, activation: Any = None) -> tuple[Any, ...]:
    x, w, dy = as_traced(x), as_traced(weight), as_traced(dy)
    if w.ndim != 2 or x.ndim == 0 or x.shape[-1] != w.shape[0] or dy.shape != (*x.shape[:-1], w.shape[1]):
        raise ShapeError(
            f"x has shape {x.shape}, weight {w.shape} and dy {dy.shape}; they are (…, in), (in, out) and (…, out), with the "
            "same leading extents"
        )
    dz = dy
    if ALIASES.get(activation, activation) not in NO_ACTIVATION:
        dz = cast(_activation_backward(_widened(dy), None if z is None else _widened(z), activation), x._dtype)
    rows = math.prod(x.shape[:-1])
    flat = reshape(dz, (rows, w.shape[1]))
    dw = matmul(reshape(x, (rows, w.shape[0])).T, flat)
    return matmul(dz, w.T), dw, reduce("sum", flat, 0, False)


_linear_backward_function = make_function(_linear_backward)


def linear_backward(
    dy: Any, x: Any, weight: Any, z: Any = None, *, activation: Any = None, out: Any = None, stream: Any = None
) -> tuple[Any, Any, Any]:
    """Gradients of `linear`: (dx, dweight, dbias) from dy, the gradient of activation(x @ weight + bias).

    x is (…, in), weight (in, out), dy (…, out). With an activation, z is x @ weight + bias, kept by the forward pass. The
    gradient before the activation is rounded to x's dtype, as it is where it is stored. Within a traced function the layer
    above's dx is not stored: its product ends in this layer's derivative.
    """
    result: tuple[Any, Any, Any] = _linear_backward_function(dy, x, weight, z, activation=activation, out=out, stream=stream)
    return result
