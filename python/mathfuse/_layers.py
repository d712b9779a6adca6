"""Layers of networks as functions: products with what follows them, normalisations, softmax, dropout. Each is written over
traced values, so that it is one plan by itself and fuses with its surroundings inside a traced function."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from mathfuse import _core, _interop
from mathfuse._functions import activate, add_bias, function, make_function
from mathfuse._integers import exact
from mathfuse._trace import Traced, apply, as_traced, cast, current, matmul, normalise_axes, reduce, reshape
from mathfuse._views import index
from mathfuse.errors import DtypeError, InvalidError, ShapeError


def _floating(x: Any, name: str) -> Traced:
    value = as_traced(x)
    if value._dtype[0] in "bi" and value._dtype != "bf16":
        raise DtypeError(f"{name} needs floating point values, not {value._dtype}; convert with astype")
    return value


def _rounded(x: Traced, out_dtype: Any) -> Traced:
    return x if out_dtype is None else cast(x, _interop.dtype_name(out_dtype))


# ---- products ----


def _affine(x: Any, weight: Any, bias: Any) -> Traced:
    x, w = as_traced(x), as_traced(weight)
    if x.ndim == 0 or w.ndim < 2 or x.shape[-1] != w.shape[-2]:
        raise ShapeError(
            f"x of shape {x.shape} does not multiply weight of shape {w.shape}: weight is (in, out), and x's last extent is "
            "`in`; pass weight.T if yours is (out, in)"
        )
    y = matmul(x, w)
    return y if bias is None else add_bias(y, bias, -1)


@function
def linear(
    x: Any, weight: Any, bias: Any = None, *, activation: Any = None, out_dtype: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """activation(x @ weight + bias) for x (…, in), weight (in, out), bias (out)."""
    return _rounded(activate(_affine(x, weight, bias), activation), out_dtype)


@function
def mlp(
    x: Any,
    weights: Any,
    biases: Any = None,
    *,
    activation: Any = "gelu",
    output_activation: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Layers of `linear` one after another: `activation` between them, `output_activation` after the last. `weights` is a
    sequence of (in, out) matrices; `biases` a sequence as long, of vectors or None."""
    count = len(weights)
    if count == 0:
        raise InvalidError("mlp needs at least one weight")
    vectors = [None] * count if biases is None else biases
    if len(vectors) != count:
        raise InvalidError(f"{count} weights and {len(vectors)} biases were given; pass one bias, or None, for each weight")
    for layer, (weight, bias) in enumerate(zip(weights, vectors)):
        x = activate(_affine(x, weight, bias), activation if layer < count - 1 else output_activation)
    return x


def _gated(x: Any, gate: Any, up: Any, down: Any, gate_bias: Any, up_bias: Any, activation: str) -> Traced:
    hidden = apply("multiply", apply(activation, _affine(x, gate, gate_bias)), _affine(x, up, up_bias))
    return hidden if down is None else _affine(hidden, down, None)


@function
def swiglu(
    x: Any,
    gate: Any,
    up: Any,
    down: Any = None,
    *,
    gate_bias: Any = None,
    up_bias: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """silu(x @ gate + gate_bias) * (x @ up + up_bias), and that times `down` where it is given. gate and up are (in, hidden),
    down is (hidden, out)."""
    return _gated(x, gate, up, down, gate_bias, up_bias, "silu")


@function
def geglu(
    x: Any,
    gate: Any,
    up: Any,
    down: Any = None,
    *,
    gate_bias: Any = None,
    up_bias: Any = None,
    approximate: str = "tanh",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """gelu(x @ gate + gate_bias) * (x @ up + up_bias), and that times `down` where it is given. `approximate` "none" uses the
    error function instead of the tanh form."""
    if approximate not in ("tanh", "none"):
        raise InvalidError(f'approximate is "tanh" or "none", not {approximate!r}')
    return _gated(x, gate, up, down, gate_bias, up_bias, "gelu" if approximate == "tanh" else "gelu_erf")


def _scale(product: Traced, scale: Any, operand: Traced, name: str, rows: bool) -> Traced:
    """product * scale: one number, or one for each row of a (column of b), with or without a unit last (first) axis."""
    s = as_traced(scale)
    if s.size == 1 and s.ndim < 2:
        return apply("multiply", product, reshape(s, ()))
    vector = (*operand.shape[:-1], 1) if rows else (*operand.shape[:-2], 1, operand.shape[-1])
    flat = vector[:-1] if rows else (*vector[:-2], vector[-1])
    if s.shape not in (vector, flat, (1,) * len(vector)):
        raise ShapeError(
            f"{name} has shape {s.shape}; pass one number, or {'a row' if rows else 'a column'} vector of shape {flat} or {vector}"
        )
    return apply("multiply", product, s if s.ndim == len(vector) else reshape(s, vector))


@function
def scaled_matmul(
    a: Any,
    b: Any,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    *,
    scale_result: Any = None,
    activation: Any = None,
    out_dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """activation((a * scale_a) @ (b * scale_b) + bias) * scale_result, for fp8 and int8 operands and any others.

    The sum is taken over a and b as they are, for int8 exactly in int32, and scaled in f32. scale_a is one number or one for
    each row of a, scale_b one or one for each column of b. fp8 results saturate; int8 results are rounded to nearest and
    saturate. `out_dtype` is bfloat16 for fp8 operands, float32 for int8 ones, unless given.
    """
    x, y = as_traced(a), as_traced(b)
    if x.ndim < 2 or y.ndim < 2:
        raise ShapeError(f"scaled_matmul takes matrices or batches of them, not shapes {x.shape} and {y.shape}")
    narrow = x._dtype in ("e4m3", "e5m2") or y._dtype in ("e4m3", "e5m2")
    z = matmul(x, y)
    if z._dtype == "i32":
        z = cast(z, "f32")
    plain = z._dtype
    if scale_a is not None:
        z = _scale(z, scale_a, x, "scale_a", True)
    if scale_b is not None:
        z = _scale(z, scale_b, y, "scale_b", False)
    z = activate(z if bias is None else add_bias(z, bias, -1), activation)
    if scale_result is not None:
        z = apply("multiply", z, scale_result)
    if out_dtype is None:
        return cast(z, "bf16" if narrow else plain)
    name = _interop.dtype_name(out_dtype)
    if name == "i8":
        z = apply("rint", z)
    return cast(z, name, name in ("e4m3", "e5m2", "i8"))


def _offsets(offsets: Any, count: int, rows: int) -> list[int]:
    """Ends of the groups, as plain numbers from 0 to the number of rows."""
    try:
        ends = [operator.index(n) for n in offsets]
    except TypeError:
        raise InvalidError("offsets are whole numbers known when the plan is made; pass a list or tuple of ints") from None
    if len(ends) == count + 1 and ends[0] == 0:
        ends = ends[1:]
    if len(ends) != count:
        raise InvalidError(
            f"{len(ends)} offsets were given for {count} groups; pass where each group ends, with or without a leading 0"
        )
    for before, after in zip([0, *ends], ends):
        if after < before or after > rows:
            raise InvalidError(f"offsets {ends} must not decrease, and end at most at the {rows} rows of a")
    if ends[-1] != rows:
        raise InvalidError(f"the offsets end at {ends[-1]}; a has {rows} rows: pass only the rows that are in a group")
    return ends


def _each(values: Any, count: int, name: str) -> list[Any]:
    """One entry for each group, from a sequence or from the first axis of an array."""
    if values is None:
        return [None] * count
    if isinstance(values, (list, tuple)):
        items = list(values)
    else:
        stacked = as_traced(values)
        items = [stacked[i] for i in range(stacked.shape[0])] if stacked.ndim else []
    if len(items) != count:
        raise InvalidError(f"{name} has {len(items)} entries for {count} groups; pass one for each group")
    return items


def _grouped(a: Any, b: Any, offsets: Any = None, bias: Any = None, *, activation: Any = None) -> tuple[Any, ...]:
    weights = list(b) if isinstance(b, (list, tuple)) else _each(b, as_traced(b).shape[0], "b")
    if offsets is None:
        if not isinstance(a, (list, tuple)):
            raise InvalidError("pass a as a list with one matrix for each group, or as one matrix with offsets")
        groups: Sequence[Any] = _each(a, len(weights), "a")
    else:
        rows = as_traced(a)
        if rows.ndim != 2:
            raise ShapeError(f"with offsets, a is one matrix of all groups' rows, not of shape {rows.shape}")
        ends = _offsets(offsets, len(weights), rows.shape[0])
        groups = [index(rows, slice(before, after)) for before, after in zip([0, *ends], ends)]
    vectors = _each(bias, len(weights), "bias")
    return tuple(activate(_affine(x, w, v), activation) for x, w, v in zip(groups, weights, vectors))


_grouped_function = make_function(_grouped)


def grouped_matmul(
    a: Any,
    b: Any,
    offsets: Any = None,
    bias: Any = None,
    *,
    activation: Any = None,
    out: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """activation(a[g] @ b[g] + bias[g]) for each group g, in one plan; returns a tuple of the results.

    `a` is a list of matrices of any shapes; or, with `offsets`, one matrix whose rows [offsets[g-1], offsets[g]) are group g
    (a leading 0 may be written). `b` is a list of matrices or an array of groups × in × out; `bias` likewise or None. `out` is
    a tuple of arrays: with offsets, slices of one array put the results side by side.
    """
    if offsets is not None and _core.is_array(offsets):
        offsets = tuple(_interop.to_numpy(offsets).tolist())
    result: tuple[Any, ...] = _grouped_function(a, b, offsets, bias, activation=activation, out=out, stream=stream)
    return result


# ---- normalisations ----


def _normalised_axes(x: Traced, axis: Any, normalized_shape: Any) -> tuple[int, ...]:
    """The axes to normalise over: `axis`, or the last ones, whose extents are `normalized_shape` as in PyTorch."""
    if normalized_shape is None:
        return normalise_axes(axis, x.ndim)
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    if not shape or x.shape[-len(shape) :] != shape:
        raise ShapeError(f"normalized_shape {shape} is not how the shape {x.shape} of x ends")
    return tuple(range(x.ndim - len(shape), x.ndim))


def _along(vector: Any, x: Traced, axes: tuple[int, ...], name: str) -> Traced:
    """weight or bias of the normalised axes, which may lie anywhere in x."""
    v = as_traced(vector)
    extents = tuple(x.shape[d] for d in sorted(axes))
    if v.shape == extents:
        return reshape(v, tuple(n if d in axes else 1 for d, n in enumerate(x.shape)))
    if v.size == 1 or v.ndim == x.ndim:
        return v
    raise ShapeError(f"{name} has shape {v.shape}; the normalised axes of x {x.shape} have {extents}")


@function
def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: float = 1e-6,
    axis: Any = -1,
    normalized_shape: Any = None,
    out_dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """x / sqrt(mean(x * x) + eps) * weight, over `axis`: an int, a tuple, or the last axes by `normalized_shape`."""
    x = _floating(x, "rms_norm")
    axes = _normalised_axes(x, axis, normalized_shape)
    y = x * apply("rsqrt", reduce("mean", apply("square", x), axes, True) + eps)
    return _rounded(y if weight is None else y * _along(weight, x, axes, "weight"), out_dtype)


@function
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    axis: Any = -1,
    normalized_shape: Any = None,
    out_dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over `axis`: an int, a tuple, or the last axes by
    `normalized_shape`."""
    x = _floating(x, "layer_norm")
    axes = _normalised_axes(x, axis, normalized_shape)
    d = x - reduce("mean", x, axes, True)
    y = d * apply("rsqrt", reduce("mean", apply("square", d), axes, True) + eps)
    y = y if weight is None else y * _along(weight, x, axes, "weight")
    return _rounded(y if bias is None else y + _along(bias, x, axes, "bias"), out_dtype)


def _below_largest(x: Any, axis: Any) -> Traced:
    """x less its largest value over `axis`; of nothing there is none, and nothing to take it from."""
    value = as_traced(x)
    return value - reduce("max", value, axis, True) if value.size else apply("subtract", value, value)


@function
def softmax(x: Any, axis: Any = -1, *, out_dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """exp(x) / sum(exp(x)) over `axis`, without overflow."""
    e = apply("exp", _below_largest(x, axis))
    return _rounded(e / reduce("sum", e, axis, True), out_dtype)


@function
def log_softmax(x: Any, axis: Any = -1, *, out_dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """log(softmax(x)) over `axis`, accurate where softmax is near 0."""
    d = _below_largest(x, axis)
    return _rounded(d - apply("log", reduce("sum", apply("exp", d), axis, True)), out_dtype)


# ---- dropout ----


def _integer(value: Any, name: str) -> Traced:
    """An int of up to 64 bits as i64, exactly; or an array of one."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**64:
            raise InvalidError(f"{name} has 64 bits; {value} does not fit")
        return exact(value if value < 2**63 else value - 2**64)
    number = as_traced(value)
    if number.size != 1 or number._dtype not in ("i32", "i64"):
        raise InvalidError(f"{name} is an int or an array of one int64, not {number._dtype} of shape {number.shape}")
    return cast(reshape(number, ()), "i64")


def _dropped(x: Traced, p: float, seed: Any, offset: Any) -> Traced:
    trace = current()
    place = reshape(trace.wrap(trace.graph.arange((x.size,))), x.shape)
    counter = place if type(offset) is int and offset == 0 else apply("add", place, _integer(offset, "offset"))
    bits = apply("philox", counter, _integer(seed, "seed"))
    kept = apply("greater_equal", apply("bitwise_and", bits, 2**32 - 1), round(p * 2**32))
    return apply("where", kept, apply("multiply", x, 1 / (1 - p) if p < 1 else 0), 0)


@function
def dropout(
    x: Any, p: float = 0.5, training: bool = True, *, seed: Any, offset: Any = 0, out: Any = None, stream: Any = None
) -> Any:
    """Each element is 0 with probability `p`, and divided by 1 - p otherwise; `x` itself if not `training`.

    Element i (row by row, from 0) is dropped where word 0 of Philox4x32-10 with key `seed` and counter `offset` + i is less
    than p · 2³²: the same ones on every device. `seed` and `offset` are ints or int64 arrays of no dimensions; a plan belongs to
    the ints it was made with, so pass arrays where they change from call to call, and advance `offset` by x.size.
    """
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise InvalidError(f"p is the probability of dropping an element, a number from 0 to 1, not {p!r}")
    value = _floating(x, "dropout")
    return _dropped(value, p, seed, offset) if training and p > 0 else value
