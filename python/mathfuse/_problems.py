"""Problems in one line of text, for the command line and the benchmark suite.

    matmul:bf16:8192x512x512+bias+silu+residual     m x n x k; 16*256x256x64 is a batch of 16
    fft:c64:4096*16384+filter+ifft                  batch * n; fft, ifft, rfft, irfft; 64*512x512 transforms two axes
    conv:f32:64*4096x65                             batch * n x taps, mathfuse.fft.convolve
    solve:f32:10000*16x1                            batch * n x right-hand sides; solve, solve_pos (positive definite)
    cholesky:f64:4096                               batch * n; cholesky, inv, det, qr, eigh, eigvalsh, svdvals
    ridge:f32:1000*64x16x1                          batch * rows x n x right-hand sides, solve(A.T @ A + lambda, A.T @ b)
    swiglu:bf16:4096x14336x4096                     m x n x k, silu(x @ gate) * (x @ up)
    scaled_matmul:e4m3:16384x1024x1024+gelu+e4m3    m x n x k of fp8 with a scale for each operand; b is n x k, and transposed
    fno:f32:64*64x1024x64                           batch * channels x n x modes, or channels x n x n x modes: the lowest modes
    map:f32:4194304+mul+tanh                        elementwise; or shapes such as 8192x4096
    softmax:bf16:8192x4096                          over the last axis; softmax, log_softmax, rms_norm, layer_norm, sum, mean, max
    module:name(f32[64,32],f32[32,16])              a Python function of arrays of these dtypes and shapes

What follows a `+` is applied to the result so far: any elementwise operation by name (gelu, tanh, exp, …); bias (adds a row),
residual (adds an array of the result's shape), mul (multiplies by one), scale (by a number), filter (multiplies by one of the
last axis' length), softmax, rms_norm, layer_norm, fft, ifft, rfft, irfft, a dtype (bf16, f16, f32, e4m3: rounds to it), and
quantize (fp8 with a scale for each row, the last word).

In a file `!` and names of peers may follow: slow ones, which with a time limit take part only there.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mathfuse as mf
from mathfuse import _interop
from mathfuse._functions import ELEMENTWISE
from mathfuse._plan import Spec

TRANSFORMS = ("fft", "ifft", "rfft", "irfft")
SOLVES = ("solve", "solve_pos")
SOLVERS = (*SOLVES, "ridge", "cholesky", "inv", "det", "qr", "eigh", "eigvalsh", "svdvals")
LAST = ("det", "qr", "eigh")  # nothing follows
PRODUCTS = ("matmul", "swiglu", "scaled_matmul")
REDUCTIONS = ("sum", "mean", "max")
NORMS = ("softmax", "log_softmax", "rms_norm", "layer_norm")
KINDS = (*PRODUCTS, *TRANSFORMS, "conv", "fno", *SOLVERS, "map", *NORMS, *REDUCTIONS)
ADDED = ("bias", "residual", "mul", "filter")
CASTS = ("bf16", "f16", "f32", "e4m3")
PARTS = (*ADDED, "scale", "quantize", *NORMS, *TRANSFORMS, *CASTS)
UNARY = ("abs", *(name for name in ELEMENTWISE if name in {op[0] for op in mf._core.ops() if op[1] == 1}))
OPERANDS = {"matmul": 2, "swiglu": 3, "scaled_matmul": 4, "fno": 2, "conv": 2, "solve": 2, "solve_pos": 2, "ridge": 3}
SCALE = 0.125
REAL_OF = {"c64": "f32", "c128": "f64"}
COMPLEX_OF = {"f32": "c64", "f64": "c128"}
LARGEST = 448.0  # of e4m3
FNO = {1: "bcx,cox->box", 2: "bcxy,coxy->boxy"}


class ProblemError(ValueError):
    """A text that is no problem; `position` is where it goes wrong."""

    def __init__(self, text: str, position: int, what: str) -> None:
        self.text, self.position = text, position
        super().__init__(f"{what}\n  {text}\n  {' ' * position}^")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem: its text, the arrays it takes, and the function of them.

    `parts`: what happens, in order, by the words of the text; a peer that knows all the words can do the same.
    """

    text: str
    kind: str
    specs: tuple[Spec, ...]
    parts: tuple[str, ...]
    function: Callable[..., Any]
    transforms: int = 1  # axes
    result: str = ""  # dtype
    slow: tuple[str, ...] = ()  # slow peers that take part even when time is limited

    def plan(self, target: str | None = None, **options: Any) -> mf.Plan:
        return mf.plan(self.function, *self.specs, target=target, **options)


def evaluate(kind: str, parts: Iterable[str], arrays: list[Any], ops: Any, axes: int = 1) -> Any:
    """The problem on arrays of any library. `ops` has matmul, fft and the like, and every elementwise operation by name."""
    rest = iter(arrays)
    x = next(rest)
    parts = list(parts)
    if kind == "matmul" and parts[:1] == ["bias"] and hasattr(ops, "product_and_bias"):
        y = ops.product_and_bias(x, next(rest), next(rest))
        parts = parts[1:]
    elif kind == "matmul":
        y = ops.matmul(x, next(rest))
    elif kind in ("swiglu", "scaled_matmul", "fno"):
        y = getattr(ops, kind)(x, *(next(rest) for _ in range(OPERANDS[kind] - 1)))
    elif kind in TRANSFORMS:
        y = ops.transform(kind, x, axes)
    elif kind == "conv":
        y = ops.convolve(x, next(rest))
    elif kind in SOLVERS:
        y = ops.solver(kind, x, *(next(rest) for _ in range(OPERANDS.get(kind, 1) - 1)))
    elif kind in REDUCTIONS or kind in NORMS:
        y = ops.along(kind, x)
    else:
        y = x
    for part in parts:
        if part in ("bias", "residual"):
            y = y + next(rest)
        elif part in ("mul", "filter"):
            y = y * next(rest)
        elif part == "scale":
            y = y * SCALE
        elif part in TRANSFORMS:
            y = ops.transform(part, y, axes)
        elif part in NORMS:
            y = ops.along(part, y)
        elif part in CASTS:
            y = ops.cast(part, y)
        elif part == "quantize":
            y = ops.quantize(y)
        else:
            y = ops.unary(part, y)
    return y


class Ours:
    """mathfuse's own operations, for evaluate()."""

    @staticmethod
    def matmul(a: Any, b: Any) -> Any:
        return mf.matmul(a, b)

    @staticmethod
    def transform(name: str, x: Any, axes: int) -> Any:
        return getattr(mf.fft, name)(x) if axes == 1 else getattr(mf.fft, f"{name}n")(x, axes=tuple(range(-axes, 0)))

    @staticmethod
    def convolve(x: Any, k: Any) -> Any:
        return mf.fft.convolve(x, k)

    @staticmethod
    def swiglu(x: Any, gate: Any, up: Any) -> Any:
        return mf.swiglu(x, gate, up)

    @staticmethod
    def scaled_matmul(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return mf.scaled_matmul(a, b.mT, scale_a, scale_b, out_dtype="float32")

    @staticmethod
    def fno(x: Any, w: Any) -> Any:
        axes = tuple(range(2 - len(x.shape), 0))
        kept = mf.fft.rfftn(x, axes=axes)[(..., *(slice(w.shape[-1]) for _ in axes))]
        return mf.fft.irfftn(mf.einsum(FNO[len(axes)], kept, w), x.shape[2:], axes=axes)

    @staticmethod
    def solver(name: str, *arrays: Any) -> Any:
        if name == "ridge":
            a, b, diagonal = arrays
            return mf.linalg.solve(a.mT @ a + diagonal, a.mT @ b, assume_a="pos", check=False)[0]
        if name == "solve_pos":
            a, b = arrays
            return mf.linalg.solve(a, b, assume_a="pos", check=False)[0]
        if name == "det":
            return mf.linalg.det(*arrays)
        got = getattr(mf.linalg, name)(*arrays, check=False)
        return tuple(got[:2]) if name in ("qr", "eigh") else got[0]

    @staticmethod
    def cast(name: str, x: Any) -> Any:
        return mf.cast(x, name, saturate=name == "e4m3")

    @staticmethod
    def quantize(x: Any) -> Any:
        scale = mf.cast(mf.max(mf.abs(x), axis=-1, keepdims=True), "f32") / LARGEST
        return mf.cast(x / scale, "e4m3", saturate=True), scale

    @staticmethod
    def along(name: str, x: Any) -> Any:
        return (
            getattr(mf, name)(x, axis=-1) if name in REDUCTIONS or name in ("softmax", "log_softmax") else getattr(mf, name)(x)
        )

    @staticmethod
    def unary(name: str, x: Any) -> Any:
        return getattr(mf, name)(x)


# ---- reading ----


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fail(self, what: str, at: int | None = None) -> ProblemError:
        return ProblemError(self.text, self.at if at is None else at, what)

    def word(self, what: str, allowed: Iterable[str]) -> str:
        match = re.compile(r"[A-Za-z_][A-Za-z_0-9]*").match(self.text, self.at)
        names = tuple(allowed)
        if not match or match.group() not in names:
            raise self.fail(f"{what} is expected here, one of {', '.join(names)}")
        self.at = match.end()
        return match.group()

    def take(self, character: str, what: str) -> None:
        if self.text[self.at : self.at + 1] != character:
            raise self.fail(f"{character!r} is expected here, {what}")
        self.at += 1

    def number(self) -> int:
        match = re.compile(r"[0-9]+").match(self.text, self.at)
        if not match:
            raise self.fail("a number is expected here")
        value = int(match.group())
        if value >= 1 << 63:
            raise self.fail("a number below 2**63 is expected here")
        self.at = match.end()
        return value

    def sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """`a*b*` in front: batch dimensions; `cxd` behind."""
        batch: list[int] = []
        sizes = [self.number()]
        while self.text[self.at : self.at + 1] in ("*", "x"):
            star = self.text[self.at] == "*"
            if star and len(sizes) > 1:
                raise self.fail("batches, with *, come in front of sizes, with x")
            self.at += 1
            if star:
                batch.append(sizes.pop())
            sizes.append(self.number())
        return tuple(batch), tuple(sizes)


def _count(reader: _Reader, sizes: tuple[int, ...], wanted: int, form: str, start: int) -> None:
    if len(sizes) != wanted:
        raise reader.fail(f"{form} is expected here, {wanted} sizes; these are {len(sizes)}", start)


def _leading(reader: _Reader, kind: str, dtype: str) -> tuple[list[Spec], tuple[int, ...], int]:
    """The arrays of the problem itself, the shape of its result, and the axes of a transform."""
    start = reader.at
    batch, sizes = reader.sizes()
    if kind == "matmul":
        _count(reader, sizes, 3, "m x n x k", start)
        m, n, k = sizes
        return [Spec((*batch, m, k), dtype), Spec((*batch, k, n) if batch else (k, n), dtype)], (*batch, m, n), 1
    if kind in TRANSFORMS:
        last = sizes[-1] // 2 + 1 if kind == "rfft" else 2 * (sizes[-1] - 1) if kind == "irfft" else sizes[-1]
        return [Spec((*batch, *sizes), dtype)], (*batch, *sizes[:-1], last), len(sizes)
    if kind == "conv":
        _count(reader, sizes, 2, "n x taps", start)
        return [Spec((*batch, sizes[0]), dtype), Spec((sizes[1],), dtype)], (*batch, sizes[0] + sizes[1] - 1), 1
    if kind == "swiglu":
        _count(reader, sizes, 3, "m x n x k", start)
        m, n, k = sizes
        return [Spec((*batch, m, k), dtype), Spec((k, n), dtype), Spec((k, n), dtype)], (*batch, m, n), 1
    if kind == "scaled_matmul":
        _count(reader, sizes, 3, "m x n x k", start)
        m, n, k = sizes
        return [Spec((m, k), dtype), Spec((n, k), dtype), Spec((), "f32"), Spec((), "f32")], (m, n), 1
    if kind == "fno":
        return _spectral_layer(reader, batch, sizes, dtype, start)
    if kind == "ridge":
        _count(reader, sizes, 3, "rows x n x right-hand sides", start)
        rows, n, columns = sizes
        arrays = [Spec((*batch, rows, n), dtype), Spec((*batch, rows, columns), dtype), Spec((n, n), dtype)]
        return arrays, (*batch, n, columns), 1
    if kind in SOLVES:
        _count(reader, sizes, 2, "n x right-hand sides", start)
        return [Spec((*batch, sizes[0], sizes[0]), dtype), Spec((*batch, *sizes), dtype)], (*batch, *sizes), 1
    if kind in SOLVERS:
        _count(reader, sizes, 1, "n", start)
        return [Spec((*batch, sizes[0], sizes[0]), dtype)], (*batch, sizes[0], sizes[0]), 1
    shape = (*batch, *sizes)
    return [Spec(shape, dtype)], shape[:-1] if kind in REDUCTIONS else shape, 1


def _spectral_layer(
    reader: _Reader, batch: tuple[int, ...], sizes: tuple[int, ...], dtype: str, start: int
) -> tuple[list[Spec], tuple[int, ...], int]:
    axes = len(sizes) - 2
    if len(batch) != 1 or axes not in FNO or dtype not in COMPLEX_OF:
        raise reader.fail("batch * channels x n x modes or batch * channels x n x n x modes of f32 or f64 is expected", start)
    channels, *extents, modes = sizes
    if not 0 < modes <= min(extents) // 2:
        raise reader.fail(f"modes go from 1 to half the length, {min(extents) // 2}; not {modes}", start)
    shape = (*batch, channels, *extents)
    return [Spec(shape, dtype), Spec((channels, channels, *([modes] * axes)), COMPLEX_OF[dtype])], shape, axes


def _added(part: str, shape: tuple[int, ...], dtype: str) -> Spec | None:
    if part in ("bias", "filter"):
        return Spec(shape[-1:], dtype)
    return Spec(shape, dtype) if part in ("residual", "mul") else None


def _dtype(reader: _Reader) -> str:
    match = re.compile(r"[a-z0-9_]+").match(reader.text, reader.at)
    try:
        name = _interop.dtype_name(match.group() if match else "")
    except Exception:
        raise reader.fail("a dtype is expected here: f32, f64, c64, c128, bf16, f16, …") from None
    reader.at = match.end() if match else reader.at
    return name


def _first_dtype(kind: str, dtype: str) -> str:
    """Of what the kind gives, before the parts."""
    if kind in ("irfft", "eigvalsh", "svdvals"):
        return REAL_OF.get(dtype, dtype)
    return COMPLEX_OF.get(dtype, dtype) if kind == "rfft" else "f32" if kind == "scaled_matmul" else dtype


def _after(part: str, shape: tuple[int, ...], dtype: str) -> tuple[tuple[int, ...], str]:
    if part == "rfft":
        return (*shape[:-1], shape[-1] // 2 + 1), COMPLEX_OF.get(dtype, dtype)
    if part == "irfft":
        return (*shape[:-1], 2 * (shape[-1] - 1)), REAL_OF.get(dtype, dtype)
    if part in ("abs", "absolute"):
        return shape, REAL_OF.get(dtype, dtype)
    return shape, "e4m3" if part == "quantize" else part if part in CASTS else dtype


def _parts(reader: _Reader, kind: str, specs: list[Spec], shape: tuple[int, ...], now: str) -> tuple[list[str], str]:
    """What follows, with its arrays appended to `specs`; and the result's dtype."""
    parts: list[str] = []
    while reader.at < len(reader.text):
        reader.take("+", "then what follows; or the end")
        at = reader.at
        part = reader.word("what follows", (*PARTS, *UNARY))
        last = next((p for p in (kind, *parts) if p in (*LAST, "quantize")), None)
        if last or (kind == "svdvals" and part in TRANSFORMS):
            raise reader.fail(f"nothing can follow {last or kind}", at)
        if part == "quantize" and now not in ("bf16", "f16", "f32"):
            raise reader.fail(f"quantize takes bf16, f16 and f32, not {now}", at)
        added = _added(part, shape, now)
        specs += [added] if added else []
        shape, now = _after(part, shape, now)
        parts.append(part)
    if kind == "scaled_matmul" and now == "f32":
        parts.append("bf16")
        now = "bf16"
    return parts, now


def _named(reader: _Reader) -> Problem:
    start = reader.at
    kind = reader.word("a kind of problem", KINDS)
    reader.take(":", "then a dtype")
    dtype = _dtype(reader)
    reader.take(":", "then sizes")
    specs, shape, axes = _leading(reader, kind, dtype)
    parts, result = _parts(reader, kind, specs, shape, _first_dtype(kind, dtype))

    def function(*arrays: Any) -> Any:
        return evaluate(kind, parts, list(arrays), Ours, axes)

    function.__name__ = reader.text[start:]
    return Problem(reader.text[start:], kind, tuple(specs), tuple(parts), function, axes, result)


ARRAY = re.compile(r"([a-z0-9_]+)\[([0-9, ]*)\]")


def _of_module(text: str) -> Problem:
    match = re.fullmatch(r"([\w.]+):(\w+)\((.*)\)", text)
    if not match:
        raise ProblemError(text, 0, "a problem is KIND:DTYPE:SIZES, or module:function(f32[64,32],…)")
    module, name, arrays = match.groups()
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ProblemError(text, match.start(1), f"{module}:{name} cannot be imported: {error}") from None
    specs, at = [], match.start(3)
    while at < match.end(3):
        array = ARRAY.match(text, at)
        if not array:
            raise ProblemError(text, at, "an array is expected here, such as bf16[8192,512]")
        shape = tuple(int(n) for n in array.group(2).replace(" ", "").split(",") if n)
        if any(n >= 1 << 63 for n in shape):
            raise ProblemError(text, at, "extents are below 2**63")
        try:
            specs.append(Spec(shape, _interop.dtype_name(array.group(1))))
        except Exception:
            raise ProblemError(text, at, f"{array.group(1)} is no dtype: f32, f64, c64, c128, bf16, f16, …") from None
        at = array.end() + (text[array.end() : array.end() + 1] == ",")
    return Problem(text, "python", tuple(specs), (), function)


def parse(text: str) -> Problem:
    """A problem from its text; ProblemError shows where it is none."""
    text = text.strip()
    return _of_module(text) if "(" in text else _named(_Reader(text))


def parse_file(path: str | Path) -> list[Problem]:
    """Problems, one a line; what follows # is a remark."""
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        text, _, slow = line.split("#", 1)[0].partition("!")
        if not text.strip():
            continue
        try:
            found.append(dataclasses.replace(parse(text), slow=tuple(slow.split())))
        except ProblemError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if not found:
        raise ValueError(f"{path} holds no problem; write one a line, such as matmul:f32:512x512x512+relu")
    return found


def gather(given: Iterable[str]) -> list[Problem]:
    """From texts, and from names of files that hold them."""
    found: list[Problem] = []
    for text in given:
        if Path(text).is_file():
            found += parse_file(text)
        elif ":" in text:
            found.append(parse(text))
        else:
            raise ValueError(
                f"{text!r} is neither a problem, such as matmul:f32:512x512x512+relu, nor a file; --help says more"
            )
    return found
