"""numpy.fft, with its names, signatures and defaults, over traced values and arrays of any library."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

from mathfuse._functions import function
from mathfuse._trace import Traced, apply, as_traced, cast, current, normalise_axis, reshape
from mathfuse._views import roll
from mathfuse.errors import DtypeError, InvalidError, ShapeError

__all__ = [
    "fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn",
    "fftfreq", "rfftfreq", "fftshift", "ifftshift", "convolve", "correlate",
]  # fmt: skip

_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
_COMPLEX = {"f64": "c128", "i8": "c128", "i32": "c128", "i64": "c128", "bool": "c128", "c64": "c64", "c128": "c128"}


def _norm(norm: Any) -> str:
    if norm is None:
        return "backward"
    if norm not in _SWAPPED:
        raise InvalidError(f'norm {norm!r} is not known; it is "backward", "ortho" or "forward"')
    return str(norm)


def _length(n: Any, what: str = "n") -> int:
    length = operator.index(n)
    if not 1 <= length < 1 << 48:
        raise InvalidError(f"the transform length {what}={length} is not possible; it must be at least 1, and below 2**48")
    return length


def _to_complex(x: Traced) -> Traced:
    return cast(x, _COMPLEX.get(x._dtype, "c64"))


def _to_real(x: Traced, name: str) -> Traced:
    if x._dtype in ("c64", "c128"):
        raise DtypeError(f"{name} takes real input, not {x._dtype}; use its complex counterpart or take .real first")
    return cast(x, {"c64": "f32", "c128": "f64"}[_COMPLEX.get(x._dtype, "c64")])


def _node(kind: str, x: Traced, axes: Sequence[int], lengths: Sequence[int], norm: str) -> Traced:
    x = _to_real(x, kind) if kind == "rfft" else _to_complex(x)
    trace = current()
    return trace.wrap(trace.graph.fft(kind, x._node, tuple(axes), tuple(lengths), norm))


def _one(kind: str, a: Any, n: Any, axis: Any, norm: Any) -> Traced:
    x = as_traced(a)
    at = normalise_axis(axis, x.ndim)
    if n is None:
        n = 2 * (x.shape[at] - 1) if kind == "irfft" else x.shape[at]
    return _node(kind, x, (at,), (_length(n),), _norm(norm))


def _conjugate(x: Traced) -> Traced:
    return apply("conjugate", x) if x._dtype[0] == "c" else x


def _sizes(x: Traced, s: Any, axes: Any, inverse_real: bool = False) -> tuple[list[int], list[int]]:
    """Lengths and axes from NumPy's s and axes."""
    given = s is not None
    if axes is None:
        if given:
            warnings.warn("s without axes is deprecated in NumPy 2; pass axes too", DeprecationWarning, stacklevel=4)
        axes = range(-len(tuple(s)), 0) if given else range(x.ndim)
    axes = [operator.index(a) for a in ((axes,) if isinstance(axes, int) else axes)]
    places = [normalise_axis(a, x.ndim) for a in axes]
    lengths = [operator.index(n) for n in s] if given else [x.shape[d] for d in places]
    if len(lengths) != len(places):
        raise InvalidError(f"s has {len(lengths)} lengths, axes has {len(places)} axes; they must be as many")
    if inverse_real and not given and places:
        lengths[-1] = 2 * (x.shape[places[-1]] - 1)
    lengths = [x.shape[d] if n == -1 else n for n, d in zip(lengths, places)]
    for n, d in zip(lengths, places):
        _length(n, f"s for axis {d}")
    return lengths, places


def _complex_many(kind: str, x: Traced, lengths: list[int], axes: list[int], norm: str) -> Traced:
    """One node for distinct axes; an axis that is named twice is transformed twice, from the last to the first."""
    if not axes:
        return x
    if len(set(axes)) == len(axes):
        return _node(kind, x, axes, lengths, norm)
    for n, d in zip(reversed(lengths), reversed(axes)):
        x = _node(kind, x, (d,), (n,), norm)
    return x


def _real_many(x: Traced, lengths: list[int], axes: list[int], norm: str) -> Traced:
    if not axes:
        raise InvalidError("rfftn needs at least one axis")
    if len(set(axes)) == len(axes):
        return _node("rfft", x, axes, lengths, norm)
    first = _node("rfft", x, axes[-1:], lengths[-1:], norm)
    return _complex_many("fft", first, lengths[:-1], axes[:-1], norm)


def _inverse_real_many(x: Traced, lengths: list[int], axes: list[int], norm: str) -> Traced:
    if not axes:
        raise InvalidError("irfftn needs at least one axis")
    if len(set(axes)) == len(axes):
        return _node("irfft", x, axes, lengths, norm)
    for n, d in zip(lengths[:-1], axes[:-1]):
        x = _node("ifft", x, (d,), (n,), norm)
    return _node("irfft", x, axes[-1:], lengths[-1:], norm)


@function
def fft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The discrete Fourier transform along `axis`; the input is cut or padded with zeros to `n`."""
    return _one("fft", a, n, axis, norm)


@function
def ifft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of fft."""
    return _one("ifft", a, n, axis, norm)


@function
def rfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The transform of real input: its n // 2 + 1 first terms."""
    return _one("rfft", a, n, axis, norm)


@function
def irfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of rfft: `n` real numbers, 2 (m - 1) by default. Imaginary parts of the first and, for even n, the last
    term are ignored."""
    return _one("irfft", a, n, axis, norm)


@function
def hfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The transform of a signal with Hermitian symmetry: `n` real numbers."""
    return _one("irfft", _conjugate(as_traced(a)), n, axis, _SWAPPED[_norm(norm)])


@function
def ihfft(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of hfft."""
    return _conjugate(_one("rfft", a, n, axis, _SWAPPED[_norm(norm)]))


@function
def fftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The transform over several axes."""
    x = as_traced(a)
    return _complex_many("fft", x, *_sizes(x, s, axes), _norm(norm))


@function
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of fftn."""
    x = as_traced(a)
    return _complex_many("ifft", x, *_sizes(x, s, axes), _norm(norm))


@function
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The transform of real input over several axes; the last of `axes` is halved."""
    x = as_traced(a)
    return _real_many(x, *_sizes(x, s, axes), _norm(norm))


@function
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of rfftn: the complex inverse over all but the last of `axes`, then the real one."""
    x = as_traced(a)
    return _inverse_real_many(x, *_sizes(x, s, axes, inverse_real=True), _norm(norm))


@function
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The transform over two axes."""
    x = as_traced(a)
    return _complex_many("fft", x, *_sizes(x, s, axes), _norm(norm))


@function
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of fft2."""
    x = as_traced(a)
    return _complex_many("ifft", x, *_sizes(x, s, axes), _norm(norm))


@function
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The transform of real input over two axes."""
    x = as_traced(a)
    return _real_many(x, *_sizes(x, s, axes), _norm(norm))


@function
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None, out: Any = None, *, stream: Any = None) -> Any:
    """The inverse of rfft2."""
    x = as_traced(a)
    return _inverse_real_many(x, *_sizes(x, s, axes, inverse_real=True), _norm(norm))


@function
def fftshift(x: Any, axes: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """Move the zero frequency to the middle."""
    value = as_traced(x)
    places = _shift_axes(value, axes)
    return roll(value, tuple(value.shape[d] // 2 for d in places), places)


@function
def ifftshift(x: Any, axes: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """The inverse of fftshift."""
    value = as_traced(x)
    places = _shift_axes(value, axes)
    return roll(value, tuple(-(value.shape[d] // 2) for d in places), places)


def _shift_axes(x: Traced, axes: Any) -> tuple[int, ...]:
    items = range(x.ndim) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
    return tuple(normalise_axis(a, x.ndim) for a in items)


# ---- convolution ----

_MODES = ("full", "same", "valid", "wrap")


def _fast_length(n: int) -> int:
    """The least even number from n on without primes over 5."""
    n += n % 2
    while True:
        rest = n
        for p in (2, 3, 5):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return n
        n += 2


def _filter_axis(a: Traced, v: Traced, axis: Any, name: str) -> tuple[Traced, int]:
    """v with the axis where a has it, and that axis counted from the end."""
    at = normalise_axis(axis, a.ndim) - a.ndim
    if v.ndim == 1:
        v = reshape(v, (v.shape[0],) + (1,) * (-at - 1))
    if v.ndim < -at:
        raise ShapeError(f"{name}: v has the shape {v.shape}, which has no axis {at}; give it one axis, or those of a")
    if a.shape[at] == 0 or v.shape[at] == 0:
        raise ShapeError(
            f"{name}: a and v have {a.shape[at]} and {v.shape[at]} elements along the axis; each needs at least one"
        )
    return v, at


def _convolve(a: Traced, v: Traced, mode: Any, at: int, name: str) -> Traced:
    """With mode "same" numpy.correlate turns its operands round where v is the longer one, so that the middle is another."""
    if mode not in _MODES:
        raise InvalidError(f"{name}: mode {mode!r} is not known; it is one of {', '.join(map(repr, _MODES))}")
    m, k = a.shape[at], v.shape[at]
    if mode == "wrap" and k > m:
        raise ShapeError(f"{name}: v has {k} elements and a only {m}; with mode 'wrap' v has no more than a")
    n = m if mode == "wrap" else _fast_length(m + k - 1)
    real = not {a._dtype, v._dtype} & {"c64", "c128"}
    there, back = ("rfft", "irfft") if real else ("fft", "ifft")
    response = _node(there, v, (v.ndim + at,), (n,), "backward")
    product = _node(there, a, (a.ndim + at,), (n,), "backward") * response
    y = _node(back, product, (product.ndim + at,), (n,), "backward")
    first, count = {
        "wrap": (0, n),
        "full": (0, m + k - 1),
        "same": (m // 2 if name == "correlate" and k > m else (min(m, k) - 1) // 2, max(m, k)),
        "valid": (min(m, k) - 1, abs(m - k) + 1),
    }[mode]
    if count == n:
        return y
    key = [slice(None)] * y.ndim
    key[at] = slice(first, first + count)
    return y[tuple(key)]


@function
def convolve(a: Any, v: Any, mode: str = "full", axis: int = -1, out: Any = None, *, stream: Any = None) -> Any:
    """The convolution of a and v along `axis`, by FFT. v has one axis or broadcasts with a over the others.

    `mode` as in numpy.convolve, for m and k elements along the axis: "full" gives m + k - 1, "same" max(m, k), "valid"
    |m - k| + 1 where they overlap fully; "wrap" is the circular convolution, m long. Errors grow with the largest
    product, as for any convolution by FFT. On a GPU the transform of a, the product and the inverse are one kernel while
    the padded length fits a block."""
    x, y = as_traced(a), as_traced(v)
    y, at = _filter_axis(x, y, axis, "convolve")
    return _convolve(x, y, mode, at, "convolve")


@function
def correlate(a: Any, v: Any, mode: str = "valid", axis: int = -1, out: Any = None, *, stream: Any = None) -> Any:
    """The cross-correlation sum_n a[n + k] conj(v[n]) along `axis`, by FFT; see convolve. `mode` as in numpy.correlate."""
    x, y = as_traced(a), as_traced(v)
    y, at = _filter_axis(x, y, axis, "correlate")
    if mode == "wrap":
        raise InvalidError("correlate: mode 'wrap' is convolve's alone; correlate has 'full', 'same' and 'valid'")
    key = [slice(None)] * y.ndim
    key[at] = slice(None, None, -1)
    y = y[tuple(key)]
    return _convolve(x, _conjugate(y) if y._dtype in ("c64", "c128") else y, mode, at, "correlate")


def fftfreq(n: int, d: float = 1.0, device: Any = None) -> Any:
    """The frequencies of fft's terms, as a NumPy array."""
    import numpy as np

    return np.fft.fftfreq(_length(n), d)


def rfftfreq(n: int, d: float = 1.0, device: Any = None) -> Any:
    """The frequencies of rfft's terms, as a NumPy array."""
    import numpy as np

    return np.fft.rfftfreq(_length(n), d)
