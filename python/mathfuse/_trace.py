"""Tracing: a function is called once with Traced values, which record what is done to them in a graph."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mathfuse import _core, _interop
from mathfuse.errors import AxisError, DtypeError, InvalidError, ShapeError, StateError

_local = threading.local()


class Trace:
    """One graph under construction, and what it needs beside the arguments."""

    def __init__(self) -> None:
        self.graph = _core.Graph()
        self.captured: list[Any] = []
        self.nodes: dict[int, Traced] = {}  # of captured arrays, by id
        self.checks: list[tuple[str, Traced]] = []
        self.ranked: list[tuple[Traced, Traced, int]] = []  # results that are empty unless a rank is full

    def __enter__(self) -> Trace:
        stack = _local.__dict__.setdefault("stack", [])
        stack.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _local.stack.pop()

    def wrap(self, node: int) -> Traced:
        return Traced(self, node)

    def capture(self, array: Any) -> Traced:
        """An array from outside: bound by reference at every run. NumPy scalars become constants."""
        if id(array) in self.nodes:
            return self.nodes[id(array)]
        dtype, shape, _, _ = _core.inspect(array)
        constant = not shape and _scalar_value(array, dtype)
        if constant:
            return self.wrap(self.graph.constant(dtype, *constant))
        traced = self.wrap(self.graph.input(dtype, shape))
        self.captured.append(array)
        self.nodes[id(array)] = traced
        return traced


def _scalar_value(array: Any, dtype: str) -> tuple[float, float] | None:
    """The parts of an immutable NumPy scalar that a double holds exactly."""
    if type(array).__module__.partition(".")[0] not in ("numpy", "ml_dtypes") or type(array).__name__ == "ndarray":
        return None
    value = array.item() if dtype[0] in "bif" and dtype not in ("bf16",) else complex(array)
    if isinstance(value, int) and abs(value) > 2**53:
        return None
    return (value.real, value.imag)


def _number(x: Any) -> Traced:
    """A NumPy integer or bool: a constant of its dtype, the next wider one that there is."""
    trace = current()
    dtype = _interop.integer_dtype(x.dtype.name)
    if abs(int(x)) <= 2**53:
        return trace.wrap(trace.graph.constant(dtype, float(int(x))))
    return trace.capture(_array_of([x]).reshape(()))


def current() -> Trace:
    stack = _local.__dict__.get("stack")
    if not stack:
        raise StateError("a traced value was used after its trace ended; return it from the traced function instead")
    trace: Trace = stack[-1]
    return trace


def as_traced(x: Any) -> Traced:
    """A value of the current trace: a traced value, a number, an array, or a list of numbers."""
    trace = current()
    if isinstance(x, Traced):
        if x._trace is not trace:
            raise StateError("a traced value of another trace was used; pass it as an argument")
        return x
    kind = type(x)
    if kind is bool:
        return trace.wrap(trace.graph.constant("bool", float(x)))
    if kind is int:
        return trace.wrap(trace.graph.number("int", x))
    if kind is float:
        return trace.wrap(trace.graph.number("float", x))
    if kind is complex:
        return trace.wrap(trace.graph.number("complex", x.real, x.imag))
    if _core.is_array(x):
        return trace.capture(x)
    if hasattr(x, "__array_struct__"):
        return _number(x)
    if isinstance(x, (list, tuple)):
        return trace.capture(_array_of(x))
    raise DtypeError(f"{x!r} is neither an array nor a number")


def _array_of(items: Sequence[Any]) -> Any:
    import numpy as np

    if _contains_traced(items):
        raise DtypeError("a list of traced values cannot become an array; concatenating and stacking are not supported")
    return np.asarray(items)


def _contains_traced(x: Any) -> bool:
    return isinstance(x, Traced) or (isinstance(x, (list, tuple)) and any(map(_contains_traced, x)))


def normalise_axis(axis: Any, ndim: int) -> int:
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise AxisError(f"axis {number} is out of range for an array of {ndim} dimensions")
    return number % ndim


def normalise_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Distinct axes from None (all), an int or a sequence."""
    if axes is None:
        return tuple(range(ndim))
    items = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
    result = tuple(normalise_axis(a, ndim) for a in items)
    if len(set(result)) != len(result):
        raise InvalidError(f"axes {axes!r} name an axis twice")
    return result


def _shape_of(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """(2, 3), ((2, 3),) and ([2, 3],) mean the same."""
    if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)):
        arguments = tuple(arguments[0])
    return tuple(operator.index(n) for n in arguments)


class Traced:
    """An array inside a trace: it has a shape and a dtype, and no values."""

    __slots__ = ("_trace", "_node", "_dtype", "shape")
    __mathfuse_traced__ = True
    __array_priority__ = 1e6
    __hash__ = object.__hash__

    def __init__(self, trace: Trace, node: int) -> None:
        self._trace = trace
        self._node = node
        self._dtype, self.shape = trace.graph.describe(node)

    # ---- what is known ----

    @property
    def dtype(self) -> Any:
        return _interop.numpy_dtype(_core.dtype(self._dtype)[1])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a traced value without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<traced {self._dtype}{list(self.shape)}>"

    def _no_value(self, *_: Any) -> Any:
        raise TypeError(
            "a traced value has no contents yet, so Python cannot branch on it or convert it; use mf.where, or compute "
            "this outside the traced function"
        )

    __bool__ = __int__ = __float__ = __complex__ = __index__ = item = tolist = _no_value

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this function cannot be traced: it asked for the contents of a traced value")

    def __iter__(self) -> Iterator[Traced]:
        return (self[i] for i in range(len(self)))

    # ---- NumPy's functions ----

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from mathfuse._numpy import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from mathfuse._numpy import call_function

        return call_function(func, args, kwargs)

    # ---- operators ----

    def __add__(self, other: Any) -> Traced:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Traced:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Traced:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Traced:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Traced:
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Traced:
        return apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Traced:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Traced:
        return apply("divide", other, self)

    def __floordiv__(self, other: Any) -> Traced:
        return apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Traced:
        return apply("floor_divide", other, self)

    def __mod__(self, other: Any) -> Traced:
        return apply("remainder", self, other)

    def __rmod__(self, other: Any) -> Traced:
        return apply("remainder", other, self)

    def __divmod__(self, other: Any) -> tuple[Traced, Traced]:
        return self // other, self % other

    def __pow__(self, other: Any) -> Traced:
        return power(self, other)

    def __rpow__(self, other: Any) -> Traced:
        return general_power(other, self)

    def __matmul__(self, other: Any) -> Traced:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Traced:
        return matmul(other, self)

    def __and__(self, other: Any) -> Traced:
        return apply("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Traced:
        return apply("bitwise_and", other, self)

    def __or__(self, other: Any) -> Traced:
        return apply("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Traced:
        return apply("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Traced:
        return apply("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Traced:
        return apply("bitwise_xor", other, self)

    def __invert__(self) -> Traced:
        return apply("logical_not", self) if self._dtype == "bool" else apply("bitwise_xor", self, -1)

    def __eq__(self, other: Any) -> Traced:  # type: ignore[override]
        return apply("equal", self, other)

    def __ne__(self, other: Any) -> Traced:  # type: ignore[override]
        return apply("not_equal", self, other)

    def __lt__(self, other: Any) -> Traced:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Traced:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Traced:
        return apply("greater", self, other)

    def __ge__(self, other: Any) -> Traced:
        return apply("greater_equal", self, other)

    def __neg__(self) -> Traced:
        return apply("negative", self)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return apply("absolute", self)

    def __getitem__(self, key: Any) -> Traced:
        from mathfuse._views import index

        return index(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("traced values cannot be assigned to; build the result with mf.where or by arithmetic")

    # ---- methods, as NumPy's arrays have them ----

    def astype(self, dtype: Any, *, saturate: bool = False, **_: Any) -> Traced:
        return cast(self, _interop.dtype_name(dtype), saturate)

    def reshape(self, *shape: Any, order: str = "C") -> Traced:
        if order != "C":
            raise InvalidError(f"reshape knows order 'C' only, not {order!r}; transpose around it")
        return reshape(self, _shape_of(shape))

    def transpose(self, *axes: Any) -> Traced:
        if not axes or axes == (None,):
            return transpose(self, tuple(reversed(range(self.ndim))))
        return transpose(self, _shape_of(axes))

    @property
    def T(self) -> Traced:
        return self.transpose()

    @property
    def mT(self) -> Traced:
        if self.ndim < 2:
            raise ShapeError(f"mT needs at least two dimensions; the value has {self.ndim}")
        return self.swapaxes(-1, -2)

    def swapaxes(self, a: int, b: int) -> Traced:
        order = list(range(self.ndim))
        i, j = normalise_axis(a, self.ndim), normalise_axis(b, self.ndim)
        order[i], order[j] = order[j], order[i]
        return transpose(self, tuple(order))

    def ravel(self, order: str = "C") -> Traced:
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Traced:
        return self.reshape(-1, order=order)

    def squeeze(self, axis: Any = None) -> Traced:
        from mathfuse._views import squeeze

        return squeeze(self, axis)

    def copy(self, order: str = "C") -> Traced:
        return self

    @property
    def real(self) -> Traced:
        return apply("real", self)

    @property
    def imag(self) -> Traced:
        return apply("imag", self)

    def conj(self) -> Traced:
        return apply("conjugate", self)

    conjugate = conj

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("sum", self, axis, keepdims, dtype)

    def prod(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("prod", self, axis, keepdims, dtype)

    def mean(self, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("mean", self, axis, keepdims, dtype)

    def max(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("max", self, axis, keepdims)

    def min(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("min", self, axis, keepdims)

    def any(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("any", self, axis, keepdims)

    def all(self, axis: Any = None, out: None = None, keepdims: bool = False) -> Traced:
        return reduce("all", self, axis, keepdims)

    def var(self, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Traced:
        from mathfuse._functions import variance

        return variance(self, axis, ddof, keepdims)

    def std(self, axis: Any = None, ddof: float = 0, keepdims: bool = False) -> Traced:
        return apply("sqrt", self.var(axis, ddof, keepdims))

    def clip(self, min: Any = None, max: Any = None) -> Traced:
        from mathfuse._functions import limited

        return limited(self, min, max)

    def dot(self, other: Any) -> Traced:
        from mathfuse._products import dot

        value: Traced = dot(self, other)
        return value


# ---- the graph's builders over traced values ----


def apply(op: str, *operands: Any) -> Traced:
    """An elementwise operation of op.def."""
    traced = [as_traced(x) for x in operands]
    if any(type(x) is int and not -(2**31) <= x < 2**31 for x in operands):
        from mathfuse._integers import large_operands

        traced = large_operands(op, operands, traced)
    trace = current()
    return trace.wrap(trace.graph.op(op, *(x._node for x in traced)))


def cast(x: Traced, dtype: str, saturate: bool = False) -> Traced:
    trace = current()
    return x if x._dtype == dtype and not saturate else trace.wrap(trace.graph.cast(x._node, dtype, saturate))


def reduce(op: str, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Traced:
    x = as_traced(x)
    if dtype is not None:
        x = cast(x, _interop.dtype_name(dtype))
    trace = current()
    value = trace.wrap(trace.graph.reduce(op, x._node, normalise_axes(axis, x.ndim), bool(keepdims)))
    return value if dtype is None or op not in ("sum", "prod") else cast(value, x._dtype)  # integers are added as i64


def matmul(a: Any, b: Any, compute: str = "default") -> Traced:
    x, y = as_traced(a), as_traced(b)
    trace = current()
    return trace.wrap(trace.graph.matmul(x._node, y._node, compute))


def _check_integers(x: Traced, y: Any) -> None:
    """NumPy's rule for powers, where the exponent is known. In an array negative ones give the integer part."""
    number = y.item() if hasattr(y, "item") and hasattr(y, "__array_struct__") and getattr(y, "shape", None) == () else y
    if type(number) is int and number < 0 and x._dtype in ("bool", "i8", "i32", "i64"):
        raise InvalidError(f"Integers to negative integer powers are not allowed, and x is {x._dtype}; cast it to a float")


def power(x: Traced, y: Any) -> Traced:
    """x ** y. Small whole powers are products, which is what complex numbers have; 0.5 is the square root, as in NumPy."""
    if type(y) in (int, float):
        if y == 2:
            return apply("square", x)
        if y == 0.5:
            return apply("sqrt", x)
        if x._dtype[0] == "c" and y == int(y) and abs(y) <= 64:
            return _whole_power(x, int(y))
    return general_power(x, y)


def general_power(x: Any, y: Any) -> Traced:
    """x ** y; of complex numbers the principal value exp(y log x), 0 ** y being 0, or 1 for y = 0."""
    x, exponent = as_traced(x), y
    y = as_traced(y)
    if x._dtype[0] != "c" and y._dtype[0] != "c":
        _check_integers(x, exponent)
        return apply("power", x, y)
    both = apply("add", x, y)._dtype
    x, y = cast(x, both), cast(y, both)
    zero = apply("equal", x, 0)
    of_zero = cast(apply("equal", y, 0), both)
    return apply("where", zero, of_zero, apply("exp", apply("multiply", y, apply("log", apply("where", zero, 1.0, x)))))


def _whole_power(x: Traced, n: int) -> Traced:
    if n < 0:
        return apply("reciprocal", _whole_power(x, -n))
    if n == 0:
        return apply("add", apply("multiply", x, 0), 1)
    half = _whole_power(x, n // 2) if n > 1 else None
    if half is None:
        return x
    square = apply("square", half)
    return apply("multiply", square, x) if n % 2 else square


def transpose(x: Traced, order: tuple[int, ...]) -> Traced:
    if len(order) != x.ndim:
        raise ShapeError(f"axes {order} do not match an array of {x.ndim} dimensions")
    normal = normalise_axes(order, x.ndim)
    trace = current()
    return x if normal == tuple(range(x.ndim)) else trace.wrap(trace.graph.transpose(x._node, normal))


def reshape(x: Traced, shape: tuple[int, ...]) -> Traced:
    trace = current()
    return x if shape == x.shape else trace.wrap(trace.graph.reshape(x._node, shape))


def broadcast(x: Traced, shape: tuple[int, ...]) -> Traced:
    trace = current()
    return x if shape == x.shape else trace.wrap(trace.graph.broadcast(x._node, shape))


# ---- building ----


def map_tree(leaf: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `leaf` to everything that is no tuple, list or dict."""
    if isinstance(tree, tuple):
        items = [map_tree(leaf, x) for x in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if type(tree) is list:
        return [map_tree(leaf, x) for x in tree]
    if type(tree) is dict:
        return {key: map_tree(leaf, x) for key, x in tree.items()}
    return leaf(tree)


class _Output:
    """In the template of a result: output number `index` goes here."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Finish:
    """Checks the info arrays of a run and puts its outputs where the function returned them."""

    def __init__(self, template: Any, checks: list[tuple[str, int]], ranked: list[tuple[int, int, int]]) -> None:
        self.template = template
        self.checks = checks
        self.ranked = ranked

    def __call__(self, outputs: tuple[Any, ...]) -> Any:
        for name, index in self.checks:
            raise_for_info(name, outputs[index])
        for index, rank, full in self.ranked:
            if int(_interop.to_numpy(outputs[rank])) < full:
                outputs = (*outputs[:index], outputs[index][:0], *outputs[index + 1 :])
        return map_tree(lambda x: outputs[x.index] if isinstance(x, _Output) else x, self.template)


def raise_for_info(name: str, info: Any) -> None:
    host = _interop.to_numpy(info)
    if not host.any():
        return
    from mathfuse._linalg import failure

    raise failure(name, host)


def finish(trace: Trace, result: Any) -> Callable[[tuple[Any, ...]], Any] | None:
    """Make the traced values in `result` the graph's outputs; what turns the outputs back into such a result."""
    count = 0
    residuals = {id(x): (rank, full) for x, rank, full in trace.ranked}
    found: list[tuple[int, tuple[Traced, int]]] = []

    def leaf(x: Any) -> Any:
        nonlocal count
        if not isinstance(x, Traced) and not _core.is_array(x):
            return x
        if id(x) in residuals:
            found.append((count, residuals[id(x)]))
        trace.graph.output(as_traced(x)._node)
        count += 1
        return _Output(count - 1)

    template = map_tree(leaf, result)
    if not count:
        raise DtypeError(f"the traced function returned {result!r}, which holds no array")
    checks = []
    for name, info in trace.checks:
        trace.graph.output(info._node)
        checks.append((name, count))
        count += 1
    ranked = []
    for index, (rank, full) in found:
        trace.graph.output(rank._node)
        ranked.append((index, count, full))
        count += 1
    flat = type(template) is tuple and count > 1 and all(isinstance(x, _Output) for x in template)
    if not checks and not ranked and (isinstance(template, _Output) or flat):
        return None
    return _Finish(template, checks, ranked)


def trace_call(
    function: Callable[..., Any], args: Any, kwargs: Any, is_leaf: Callable[[Any], bool], specs: Sequence[tuple[str, Any]]
) -> tuple[_core.Graph, Callable[..., Any] | None, tuple[Any, ...]]:
    """Call `function` with traced values in place of the leaves, whose dtypes and shapes are `specs` in order."""
    with Trace() as trace:
        inputs = iter([trace.wrap(trace.graph.input(dtype, shape)) for dtype, shape in specs])

        def leaf(x: Any) -> Any:
            return next(inputs) if is_leaf(x) else x

        result = function(*map_tree(leaf, args), **map_tree(leaf, kwargs))
        return trace.graph, finish(trace, result), tuple(trace.captured)


def build(
    function: Callable[..., Any], args: Any, kwargs: Any, specs: Sequence[tuple[str, Any]]
) -> tuple[_core.Graph, Callable[..., Any] | None, tuple[Any, ...]]:
    """What the extension calls for a signature it has not seen."""
    return trace_call(function, args, kwargs, _core.is_array, specs)
