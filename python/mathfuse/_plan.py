"""fuse, plan and spec: whole functions as plans."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar, overload

from mathfuse import _core, _interop
from mathfuse._functions import make_function
from mathfuse._trace import map_tree, trace_call
from mathfuse.errors import DeviceError, ShapeError

F = TypeVar("F", bound=Callable[..., Any])


class Spec:
    """The shape and dtype of an array that is not there; `dtype` is the short name."""

    __slots__ = ("shape", "dtype")

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape = shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"spec({self.shape}, {self.dtype!r})"


def spec(shape: Any, dtype: Any = "float32") -> Spec:
    """Describe an array for mathfuse.plan."""
    extents = tuple(operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    if any(not 0 <= n < 1 << 63 for n in extents):
        raise ShapeError(f"spec: the shape is {extents}; extents are 0 or more, and below 2**63")
    return Spec(extents, _interop.dtype_name(dtype))


class DeviceHeader(str):
    """What Plan.device_header() returns: the text, and what a launch has to know of each step."""

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """Threads of a block, step by step."""
        return tuple(map(int, re.findall(r"^constexpr int block_size = (\d+)", self, re.MULTILINE)))

    @property
    def workspace_bytes(self) -> int:
        """Of args.workspace, which is aligned to 256."""
        found = re.search(r"^constexpr long long workspace_bytes = (\d+);", self, re.MULTILINE)
        return int(found.group(1)) if found else 0

    @property
    def tiles(self) -> tuple[int, ...]:
        """Tiles, step by step."""
        return tuple(map(int, re.findall(r"^constexpr mf::i64 tiles = (\d+)", self, re.MULTILINE)))


@overload
def fuse(function: F, /) -> F: ...
@overload
def fuse(*, match_unfused: bool = False) -> Callable[[F], F]: ...
def fuse(function: Any = None, /, *, match_unfused: bool = False) -> Any:
    """Make a function over arrays run as one plan.

    It is traced once for each signature: the shapes, strides, dtypes and device of its array arguments and the value of every
    other argument. Arguments and results may be nested tuples, lists and dicts. Arrays that it takes from outside are bound by
    reference. `match_unfused` rounds every intermediate to its dtype, as separate calls would. The result takes out= and
    stream=, and has `explain(*args)`.
    """
    if function is None:
        return functools.partial(fuse, match_unfused=match_unfused)
    made = make_function(function, _core.MATCH_UNFUSED if match_unfused else 0)
    made.explain = functools.partial(_explain, made)
    return made


def _explain(function: Any, *args: Any, format: str = "text", **kwargs: Any) -> str:
    return plan(function, *args, **kwargs).explain(format)


@functools.cache
def _target_context(target: str) -> _core.Context:
    return _core.Context(target)


def _is_leaf(x: Any) -> bool:
    return isinstance(x, Spec) or _core.is_array(x)


def _context(leaves: list[Any], target: str | None) -> _core.Context:
    if target is not None:
        return _target_context(target)
    places = {_core.inspect(x)[2:] for x in leaves if not isinstance(x, Spec)}
    if len(places) > 1:
        raise DeviceError(f"the arrays lie on several devices: {sorted(places)}; pass arrays of one device, or specs")
    return _core.context_for(*places.pop()) if places else _core.context_for("cpu")


def plan(
    function: Callable[..., Any],
    /,
    *args: Any,
    target: str | None = None,
    providers: str | None = None,
    match_unfused: bool = False,
    no_fusion: bool = False,
    tune: str | None = None,
    **kwargs: Any,
) -> _core.Plan:
    """Plan a call of `function` without running it.

    Arguments are arrays or `spec`s. The plan is for the arrays' device, the CPU if there are only specs, or for `target`:
    "cpu", "cuda", "cuda:1", or a GPU that is not here, "sm_90a". `providers` limits who may run steps: "ref,blas", "-cublaslt".
    `tune`: "off" goes by estimates; "cached", the default, by the tuning database where it has this problem; "measure" tunes
    where it has not; "require" fails there. MATHFUSE_TUNE sets the default.
    """
    flags = _core.MATCH_UNFUSED if match_unfused else 0
    if isinstance(function, _core.Function):
        flags |= function.flags
        function = function.__wrapped__
    leaves: list[Any] = []
    map_tree(lambda x: leaves.append(x) if _is_leaf(x) else None, (args, kwargs))
    specs = [(x.dtype, x.shape) if isinstance(x, Spec) else _core.inspect(x)[:2] for x in leaves]
    graph, finish, captured = trace_call(function, args, kwargs, _is_leaf, specs)
    bindings = None if any(isinstance(x, Spec) for x in leaves) else (*leaves, *captured)
    context = _context([*leaves, *captured] if bindings is not None else leaves, target)
    return graph.plan(
        context,
        finish=finish,
        captured=captured,
        flags=flags | (_core.NO_FUSION if no_fusion else 0),
        providers=providers,
        bindings=bindings if target is None else None,
        tune=tune,
    )
