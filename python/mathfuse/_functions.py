"""The functions of the top-level namespace. Each is written over traced values; `function` makes it callable on arrays,
where the first call of a signature traces it and later ones run its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mathfuse import _core, _interop
from mathfuse._reductions import reduced
from mathfuse._trace import (
    Traced,
    apply,
    as_traced,
    broadcast,
    cast as cast_traced,
    general_power,
    matmul as product,
    normalise_axes,
    normalise_axis,
    reduce,
    reshape,
)
from mathfuse.errors import InvalidError, ShapeError

F = TypeVar("F", bound=Callable[..., Any])


def make_function(implementation: Callable[..., Any], flags: int = 0) -> Any:
    """The extension's callable, dressed as the function it runs."""
    made: Any = _core.Function(implementation, flags)
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        if hasattr(implementation, name):
            setattr(made, name, getattr(implementation, name))
    made.__dict__.update(getattr(implementation, "__dict__", {}))
    return made


def function(implementation: F) -> F:
    """A function over traced values becomes one over arrays, with out= and stream=, that still works inside a trace."""
    made: F = make_function(implementation)
    return made


def _elementwise(name: str, arity: int, doc: str) -> Callable[..., Any]:
    if arity == 1:

        def implementation(x: Any, /, *, out: Any = None, stream: Any = None) -> Any:
            return apply(name, x)
    elif arity == 2:

        def implementation(x: Any, y: Any, /, *, out: Any = None, stream: Any = None) -> Any:  # type: ignore[misc]
            return general_power(x, y) if name == "power" else apply(name, x, y)
    else:

        def implementation(x: Any, y: Any, z: Any, /, *, out: Any = None, stream: Any = None) -> Any:  # type: ignore[misc]
            return apply(name, x, y, z)

    implementation.__name__ = implementation.__qualname__ = name
    implementation.__doc__ = f"Elementwise: {doc}."
    implementation.__module__ = "mathfuse"
    return function(implementation)


ALIASES = {
    "abs": "absolute",
    "conj": "conjugate",
    "true_divide": "divide",
    "pow": "power",
    "mod": "remainder",
    "gelu_tanh": "gelu",
    "swish": "silu",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}

ELEMENTWISE: dict[str, Callable[..., Any]] = {}
for _name, _arity, _doc in _core.ops():
    if _name not in ("where", "clip"):
        ELEMENTWISE[_name] = _elementwise(_name, _arity, _doc)
for _alias, _name in ALIASES.items():
    ELEMENTWISE[_alias] = ELEMENTWISE[_name]


def invert_bits(x: Any) -> Traced:
    return ~as_traced(x)


@function
def where(condition: Any, x: Any, y: Any, /, *, out: Any = None, stream: Any = None) -> Any:
    """`x` where `condition` holds, else `y`."""
    chosen = as_traced(condition)
    return apply("where", chosen if chosen._dtype == "bool" else apply("not_equal", chosen, 0), x, y)


def limited(x: Any, low: Any, high: Any) -> Traced:
    if low is None and high is None:
        return as_traced(x)
    if low is None:
        return apply("minimum", x, high)
    return apply("maximum", x, low) if high is None else apply("clip", x, low, high)


@function
def clip(x: Any, min: Any = None, max: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """`x` limited to [min, max]; NaN stays NaN. None leaves that side open."""
    return limited(x, min, max)


@function
def cast(x: Any, dtype: Any, saturate: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """`x` rounded to `dtype`, to nearest even. With `saturate`, what lies beyond the range of fp8 or a 16-bit float becomes
    the largest finite value; else e4m3 gives NaN and the others infinity."""
    return cast_traced(as_traced(x), _interop.dtype_name(dtype), bool(saturate))


# ---- reductions ----


def _dressed(implementation: F, name: str, doc: str) -> F:
    implementation.__name__ = implementation.__qualname__ = name
    implementation.__doc__ = doc
    implementation.__module__ = "mathfuse"
    return function(implementation)


def _reduction(name: str, doc: str) -> Callable[..., Any]:
    """As in NumPy, mean, any and all have no `initial`."""
    of = f"{doc} over `axis`: an int, a tuple, or None for all. `dtype` is what `x` is converted to first."
    if name in ("mean", "any", "all"):

        def implementation(
            x: Any,
            axis: Any = None,
            *,
            dtype: Any = None,
            keepdims: bool = False,
            where: Any = True,
            out: Any = None,
            stream: Any = None,
        ) -> Any:
            return reduced(name, x, axis, bool(keepdims), dtype, None, where)

        return _dressed(implementation, name, f"{of} Elements count only where `where` holds.")

    def with_initial(
        x: Any,
        axis: Any = None,
        *,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = True,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        return reduced(name, x, axis, bool(keepdims), dtype, initial, where)

    return _dressed(with_initial, name, f"{of} `initial` is one more element; others count only where `where` holds.")


sum = _reduction("sum", "The sum")
prod = _reduction("prod", "The product")
mean = _reduction("mean", "The mean")
max = _reduction("max", "The largest, NaN if there is one,")
min = _reduction("min", "The smallest, NaN if there is one,")
any = _reduction("any", "Whether anything is nonzero")
all = _reduction("all", "Whether everything is nonzero")


def variance(x: Any, axis: Any, ddof: float, keepdims: bool) -> Traced:
    x = as_traced(x)
    if x._dtype[0] in "bi" and x._dtype != "bf16":
        x = cast_traced(x, "f64")
    axes = normalise_axes(axis, x.ndim)
    d = x - reduce("mean", x, axes, True)
    squares = apply("square", d) if x._dtype[0] != "c" else apply("square", d.real) + apply("square", d.imag)
    count = 1
    for a in axes:
        count *= x.shape[a]
    if ddof == 0:
        return reduce("mean", squares, axes, keepdims)
    free = count - ddof
    return apply("divide", reduce("sum", squares, axes, keepdims), float(free) if free > 0 else 0.0)


@function
def var(x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False, out: Any = None, stream: Any = None) -> Any:
    """The variance over `axis`, divided by the number of elements less `ddof`."""
    return variance(x, axis, ddof, keepdims)


@function
def std(x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False, out: Any = None, stream: Any = None) -> Any:
    """The standard deviation over `axis`."""
    return apply("sqrt", variance(x, axis, ddof, keepdims))


# ---- matmul ----


def activate(x: Traced, activation: Any) -> Traced:
    """Apply an activation given by name or as a function."""
    if activation is None:
        return x
    if callable(activation):
        return as_traced(activation(x))
    name = ALIASES.get(activation, activation)
    if name in ("identity", "linear", "none"):
        return x
    if name not in {n for n, arity, _ in _core.ops() if arity == 1}:
        raise InvalidError(
            f"activation {activation!r} is not known; use the name of an elementwise function (relu, gelu, gelu_erf, silu, "
            "sigmoid, tanh, …) or a function of one array"
        )
    return apply(name, x)


def add_bias(x: Traced, bias: Any, axis: int) -> Traced:
    """x + bias: a vector along `axis`, one vector for each batch, or anything that broadcasts with as many dimensions."""
    b = as_traced(bias)
    if b.ndim in (0, x.ndim):
        return apply("add", x, b)
    along = normalise_axis(axis, x.ndim)
    if b.ndim == 1:
        lead: tuple[int, ...] = (1,) * along
    elif b.ndim == x.ndim - 1 and along >= x.ndim - 2:
        lead = b.shape[:-1] if along == x.ndim - 2 else (*b.shape[:-1], 1)
    else:
        raise ShapeError(
            f"bias of shape {b.shape} does not fit a result of shape {x.shape} along axis {axis}; pass a vector, one vector "
            f"for each batch, or {x.ndim} dimensions"
        )
    n = b.shape[-1]
    if n not in (1, x.shape[along]):
        raise ShapeError(
            f"bias has {n} elements; the result has {x.shape[along]} along axis {axis} (shape {x.shape}): pass a vector of "
            f"length {x.shape[along]} or set bias_axis"
        )
    return apply("add", x, reshape(b, (*lead, n, *(1,) * (x.ndim - along - 1))))


def _is(value: Any, number: int) -> bool:
    return isinstance(value, (int, float, complex)) and value == number


def _scaled(x: Any, factor: Any) -> Traced:
    """factor * x, and 0 for a factor of 0 whatever x holds: NaN must not come through."""
    if isinstance(factor, (int, float, complex)):
        value = apply("multiply", x, factor)
        return broadcast(cast_traced(as_traced(0), value._dtype), value.shape) if factor == 0 else value
    given = as_traced(factor)
    value = apply("multiply", x, given)
    return value if given.ndim else apply("where", apply("equal", given, 0), 0, value)


@function
def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    bias: Any = None,
    bias_axis: int = -1,
    activation: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    compute: str | None = None,
    stream: Any = None,
) -> Any:
    """activation(alpha * (a @ b) + beta * c + bias).

    `alpha` does not scale `bias`; with beta 0, `c` is never read, with alpha 0 neither `a` nor `b`. `bias` is a vector
    along `bias_axis` of the result, or one vector for each batch. `activation` is the name of an elementwise function
    ("gelu", "relu", "silu", …) or a function. `out_dtype` is the result's dtype: the sum is rounded once. `compute` "tf32"
    lets f32 use tensor cores.
    """
    x = product(a, b, compute or "default")
    if not _is(alpha, 1):
        x = _scaled(x, alpha)
    if not _is(beta, 0):
        if c is None:
            raise InvalidError(f"beta is {beta!r} but c is missing; pass c, or leave beta at 0")
        x = apply("add", x, c if _is(beta, 1) else _scaled(c, beta))
    if bias is not None:
        x = add_bias(x, bias, bias_axis)
    x = activate(x, activation)
    return x if out_dtype is None else cast_traced(x, _interop.dtype_name(out_dtype))


@function
def einsum(
    subscripts: Any, /, *operands: Any, dtype: Any = None, optimize: Any = True, out: Any = None, stream: Any = None
) -> Any:
    """numpy.einsum: contractions become matmul steps, pair by pair, smallest intermediate first. `dtype` is what the operands are
    converted to first. NumPy's other form, arrays and lists of labels in turn, is taken too."""
    from mathfuse._einsum import contract, from_lists

    if not isinstance(subscripts, str):
        subscripts, operands = from_lists((subscripts, *operands))
    values = [as_traced(x) for x in operands]
    if dtype is not None:
        values = [cast_traced(x, _interop.dtype_name(dtype)) for x in values]
    return contract(subscripts, values)
