"""Random arrays for problems, what is right, and how far a result is from it; with NumPy, or with PyTorch on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from mathfuse import _interop, _peers
from mathfuse._plan import Spec
from mathfuse._problems import PRODUCTS, SOLVERS, Problem

COMPLEX = ("c64", "c128")
SIZES = {
    "bool": 1, "i8": 1, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16, "e4m3": 1, "e5m2": 1,
}  # fmt: skip
INTEGERS = ("bool", "i8", "i32", "i64")


class NumPyArrays:
    """What arrays are made and compared with."""

    xp: Any = np

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def normal(self, shape: tuple[int, ...], double: bool) -> Any:
        return self.random.standard_normal(shape, dtype=np.float64 if double else np.float32)

    def integers(self, shape: tuple[int, ...], end: int) -> Any:
        return self.random.integers(0, end, shape)

    def eye(self, n: int, like: Any) -> Any:
        return np.eye(n, dtype=like.dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(_interop.numpy_dtype(mf_name(dtype)))

    def wide(self, x: Any) -> Any:
        x = np.asarray(_peers.to_numpy(x))
        return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


class TorchArrays:
    """The same on a GPU."""

    def __init__(self, seed: int = 0, device: str = "cuda") -> None:
        import torch

        self.xp: Any = torch
        self.device = device
        self.generator = torch.Generator(device)
        self.generator.manual_seed(seed)

    def normal(self, shape: tuple[int, ...], double: bool) -> Any:
        dtype = self.xp.float64 if double else self.xp.float32
        return self.xp.randn(shape, generator=self.generator, device=self.device, dtype=dtype)

    def integers(self, shape: tuple[int, ...], end: int) -> Any:
        return self.xp.randint(0, end, shape, generator=self.generator, device=self.device)

    def eye(self, n: int, like: Any) -> Any:
        return self.xp.eye(n, device=self.device, dtype=like.dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(_peers.torch_dtype(dtype))

    def wide(self, x: Any) -> Any:
        x = _peers.as_torch(x, self.device)
        return x.to(self.xp.complex128 if x.is_complex() else self.xp.float64)


def mf_name(dtype: str) -> str:
    import mathfuse as mf

    name: str = mf._core.dtype(dtype)[1]
    return name


def _one(maker: Any, spec: Spec, definite: bool) -> Any:
    """Normal numbers, small integers; with `definite`, a square matrix is symmetric with a large diagonal."""
    if spec.dtype in INTEGERS:
        return maker.cast(maker.integers(spec.shape, 2 if spec.dtype == "bool" else 8), spec.dtype)
    double = spec.dtype in ("f64", "c128")
    x = maker.normal(spec.shape, double)
    if spec.dtype in COMPLEX:
        x = x + 1j * maker.normal(spec.shape, double)
    if definite and len(spec.shape) >= 2 and spec.shape[-1] == spec.shape[-2]:
        n = spec.shape[-1]
        x = (x + x.mT.conj()) / 2 + 2 * n**0.5 * maker.eye(n, x)
    return x


def arrays_of(problem: Problem, maker: Any = None) -> list[Any]:
    maker = maker or NumPyArrays()
    definite = problem.kind in SOLVERS or problem.kind == "python"
    found = [_one(maker, s, definite) for s in problem.specs]
    if problem.kind in PRODUCTS:  # results of the size of the inputs
        found[1:] = [w / float(np.sqrt(problem.specs[0].shape[-1])) if i == 0 else w for i, w in enumerate(found[1:])]
    if problem.kind == "scaled_matmul":
        found[2], found[3] = found[2] * 0 + 0.5, found[3] * 0 + 2.0
    if problem.kind == "ridge":
        found[2] = maker.eye(problem.specs[2].shape[0], found[2])
    if problem.kind == "fno":
        _make_real(found[1], problem.transforms)
    _make_filters_real(problem, found)
    return [maker.cast(x, s.dtype) for x, s in zip(found, problem.specs)]


def _make_real(w: Any, axes: int) -> None:
    """Libraries differ in what they make of a real inverse's imaginary parts at frequency 0."""
    if axes == 1:
        w[..., 0] = w[..., 0].real + 0j
    else:
        w[..., 0] = 0


def _make_filters_real(problem: Problem, found: list[Any]) -> None:
    """The same for a filter between rfft and irfft."""
    transforms = [problem.kind, *problem.parts]
    if problem.kind == "rfft" and "filter" in transforms and "irfft" in transforms:
        h = found[1]
        h[0] = h[0].real + 0j
        h[-1] = h[-1].real + 0j


def exact(problem: Problem, arrays: list[Any], maker: Any) -> list[Any]:
    """In double precision, by NumPy or PyTorch; a Python function by our reference provider, unfused."""
    if problem.kind == "python":
        import mathfuse as mf

        host = [_peers.to_numpy(a) for a in arrays]
        result = mf.plan(problem.function, *host, providers="ref", no_fusion=True, tune="off").run(*host)
    elif problem.kind in PROPERTIES:
        wanted: list[Any] = PROPERTIES[problem.kind][1](maker, maker.wide(arrays[0]))
        return wanted
    else:
        result = _peers.exact(problem, [maker.wide(a) for a in arrays], maker.xp)
    return comparable(problem, arrays, result, maker)


def _qr(maker: Any, a: Any, results: list[Any]) -> list[Any]:
    q, r = results
    return [q @ r, q.mT.conj() @ q, maker.xp.tril(r, -1)]


def _qr_wanted(maker: Any, a: Any) -> list[Any]:
    k = min(a.shape[-2:])
    identity = maker.eye(k, a) + 0 * a[..., :k, :k]
    return [a, identity, 0 * a[..., :k, :]]


def _eigh(maker: Any, a: Any, results: list[Any]) -> list[Any]:
    w, v = results
    return [(v * w[..., None, :]) @ v.mT.conj(), v.mT.conj() @ v]


def _eigh_wanted(maker: Any, a: Any) -> list[Any]:
    return [a, maker.eye(a.shape[-1], a) + 0 * a]


# Results that are not unique: what must hold of them, and what that is of a right one.
PROPERTIES: dict[str, tuple[Any, Any]] = {"qr": (_qr, _qr_wanted), "eigh": (_eigh, _eigh_wanted)}


def comparable(problem: Problem, arrays: list[Any], result: Any, maker: Any) -> list[Any]:
    """In double precision; where a result is not unique, what must hold of it."""
    parts = [maker.wide(p) for p in (result if isinstance(result, (tuple, list)) else [result])]
    if problem.kind in PROPERTIES:
        found: list[Any] = PROPERTIES[problem.kind][0](maker, maker.wide(arrays[0]), parts)
        return found
    return [parts[0] * parts[1]] if "quantize" in problem.parts else parts


def error_of(got: list[Any], want: list[Any], xp: Any = np) -> float:
    """The largest difference, of the largest value; infinite if shapes or NaNs differ."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        bad = xp.isnan(w)
        if tuple(g.shape) != tuple(w.shape) or not bool((xp.isnan(g) == bad).all()):
            return float("inf")
        if 0 in g.shape:
            continue
        scale = float(xp.where(bad, 0 * bad, abs(w)).max()) or 1.0
        worst = max(worst, float(xp.where(bad, 0 * bad, abs(g - w)).max()) / scale)
    return worst


def allowed(problem: Problem) -> float:
    """Errors of a right result: a few hundred last digits of the narrowest dtype, more for solvers of large systems."""
    digits = {"f64": 1e-11, "c128": 1e-11, "f32": 2e-4, "c64": 2e-4, "f16": 1e-2, "bf16": 3e-2, "e4m3": 0.1, "e5m2": 0.2}
    dtypes = [problem.result] if problem.result else [s.dtype for s in problem.specs]
    if problem.kind != "scaled_matmul":
        dtypes += [s.dtype for s in problem.specs]
    return max(digits.get(d, 0.0) for d in dtypes) * (10 if problem.kind in SOLVERS else 1)
