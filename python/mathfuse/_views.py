"""Views of traced values: indexing, and NumPy's functions that only move axes and elements."""

from __future__ import annotations

import operator
from typing import Any

from mathfuse import _core
from mathfuse._trace import Traced, broadcast, current, normalise_axes, normalise_axis, reshape, transpose
from mathfuse.errors import DtypeError, InvalidError, ShapeError


def _expand(key: Any, ndim: int) -> list[Any]:
    """One entry per axis (and None for each new one): the ellipsis is filled in."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(x is not None and x is not Ellipsis for x in items)
    ellipses = [i for i, x in enumerate(items) if x is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can have one ellipsis ('...') only")
    if used > ndim:
        raise IndexError(f"too many indices: the array has {ndim} dimensions, {used} were indexed")
    at = ellipses[0] if ellipses else len(items)
    return items[:at] + [slice(None)] * (ndim - used) + items[at + 1 :]


def _range(item: Any, length: int, axis: int) -> tuple[int, int, int]:
    """start, length and step of one axis; for an integer length -1."""
    if isinstance(item, slice):
        start, stop, step = item.indices(length)
        return start, len(range(start, stop, step)), step
    try:
        at = operator.index(item)
    except TypeError:
        raise DtypeError(
            f"a traced value is indexed with integers, slices, None and '...', not with {item!r}; use mf.where for masks"
        ) from None
    if not -length <= at < length:
        raise IndexError(f"index {at} is out of range for axis {axis} with size {length}")
    return at % length, -1, 1


def index(x: Traced, key: Any) -> Traced:
    """x[key] for integers, slices, None and an ellipsis."""
    start, length, step, shape = [], [], [], []
    axis = 0
    for item in _expand(key, x.ndim):
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, bool):
            raise DtypeError("a traced value cannot be indexed with a boolean; use mf.where")
        s, n, k = _range(item, x.shape[axis], axis)
        start.append(s)
        length.append(max(n, 0) if n >= 0 else 1)
        step.append(k)
        if n >= 0:
            shape.append(n)
        axis += 1
    trace = current()
    whole = tuple(length) == x.shape and not any(start) and all(k == 1 for k in step)
    view = x if whole else trace.wrap(trace.graph.slice(x._node, start, length, step))
    return reshape(view, tuple(shape))


def squeeze(x: Traced, axis: Any = None) -> Traced:
    axes = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else normalise_axes(axis, x.ndim)
    for d in axes:
        if x.shape[d] != 1:
            raise ShapeError(f"axis {d} of size {x.shape[d]} cannot be squeezed; only axes of size 1 can")
    return reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in axes))


def expand_dims(x: Traced, axis: Any) -> Traced:
    items = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = normalise_axes(items, x.ndim + len(items))
    rest = iter(x.shape)
    return reshape(x, tuple(1 if d in axes else next(rest) for d in range(x.ndim + len(items))))


def moveaxis(x: Traced, source: Any, destination: Any) -> Traced:
    src = normalise_axes(source if isinstance(source, (tuple, list)) else (source,), x.ndim)
    dst = normalise_axes(destination if isinstance(destination, (tuple, list)) else (destination,), x.ndim)
    if len(src) != len(dst):
        raise InvalidError(f"source has {len(src)} axes, destination {len(dst)}; they must be as many")
    order = [d for d in range(x.ndim) if d not in src]
    for to, of in sorted(zip(dst, src)):
        order.insert(to, of)
    return transpose(x, tuple(order))


def broadcast_to(x: Traced, shape: Any) -> Traced:
    items = (shape,) if isinstance(shape, int) else tuple(shape)
    return broadcast(x, tuple(operator.index(n) for n in items))


def roll(x: Traced, shift: Any, axis: Any = None) -> Traced:
    """numpy.roll: a slice out of two copies laid end to end."""
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, 0), x.shape)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,)
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(axes) == 1:
        axes *= len(shifts)
    if len(axes) != len(shifts):
        raise InvalidError(f"{len(shifts)} shifts do not fit {len(axes)} axes")
    total = [0] * x.ndim
    for by, of in zip(shifts, axes):
        total[normalise_axis(of, x.ndim)] += operator.index(by)
    halved = [d for d, by in enumerate(total) if x.shape[d] and by % x.shape[d] * 2 == x.shape[d]]
    halved = halved[: _core.MAX_DIMS - x.ndim]
    x = _swap_halves(x, halved)
    for d, by in enumerate(total):
        if d not in halved:
            x = _roll_axis(x, by, d)
    return x


def _swap_halves(x: Traced, axes: list[int]) -> Traced:
    """The halves of even axes change places by a negative step over both: one copy for all axes."""
    if not axes:
        return x
    halves: list[int] = []
    steps: list[slice] = []
    for d, n in enumerate(x.shape):
        halves += (2, n // 2) if d in axes else (n,)
        steps += (slice(None, None, -1), slice(None)) if d in axes else (slice(None),)
    return reshape(index(reshape(x, tuple(halves)), tuple(steps)), x.shape)


def _roll_axis(x: Traced, shift: int, axis: int) -> Traced:
    n = x.shape[axis]
    if n == 0 or shift % n == 0:
        return x
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    twice = broadcast(reshape(x, (*before, 1, n, *after)), (*before, 2, n, *after))
    start = n - shift % n
    return index(reshape(twice, (*before, 2 * n, *after)), (slice(None),) * axis + (slice(start, start + n),))


def flip(x: Traced, axis: Any = None) -> Traced:
    axes = normalise_axes(axis, x.ndim)
    return index(x, tuple(slice(None, None, -1) if d in axes else slice(None) for d in range(x.ndim)))


def diagonal(x: Traced, axis1: int, axis2: int) -> Traced:
    """The diagonal of two axes of one length, as a new last axis."""
    a, b = normalise_axis(axis1, x.ndim), normalise_axis(axis2, x.ndim)
    n = x.shape[a]
    rest = tuple(d for d in range(x.ndim) if d not in (a, b))
    flat = reshape(transpose(x, (*rest, a, b)), (*(x.shape[d] for d in rest), n * n))
    return index(flat, (Ellipsis, slice(None, None, n + 1)))
