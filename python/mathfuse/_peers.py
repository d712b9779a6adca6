"""Peers of the benchmark suite behind one interface: whether it is here, and a problem as a call without arguments."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mathfuse import _problems
from mathfuse._problems import Problem

Call = Callable[[], Any]
Made = Call | str


class Operations:
    """evaluate()'s operations over a namespace with NumPy's names."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def matmul(self, a: Any, b: Any) -> Any:
        return self.xp.matmul(a, b)

    def transform(self, name: str, x: Any, axes: int) -> Any:
        fft = self.xp.fft
        return getattr(fft, name)(x) if axes == 1 else getattr(fft, f"{name}n")(x, axes=tuple(range(-axes, 0)))

    def convolve(self, x: Any, k: Any) -> Any:
        n = x.shape[-1] + k.shape[-1] - 1
        if np.iscomplexobj(x):
            return self.xp.fft.ifft(self.xp.fft.fft(x, n) * self.xp.fft.fft(k, n))
        return self.xp.fft.irfft(self.xp.fft.rfft(x, n) * self.xp.fft.rfft(k, n), n)

    def swiglu(self, x: Any, gate: Any, up: Any) -> Any:
        return self.unary("silu", self.matmul(x, gate)) * self.matmul(x, up)

    def scaled_matmul(self, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return self.matmul(a, b.T) * (scale_a * scale_b)

    def fno(self, x: Any, w: Any) -> Any:
        fft, axes = self.xp.fft, tuple(range(2 - len(x.shape), 0))
        kept = fft.rfftn(x, axes=axes)[(..., *(slice(w.shape[-1]) for _ in axes))]
        return fft.irfftn(self.xp.einsum(_problems.FNO[len(axes)], kept, w), s=x.shape[2:], axes=axes)

    def solver(self, name: str, *arrays: Any) -> Any:
        linalg = self.xp.linalg
        if name == "svdvals":
            return linalg.svd(*arrays, compute_uv=False)
        if name == "solve_pos":
            return self.definite(*arrays)
        if name == "ridge":
            a, b, diagonal = arrays
            transposed = a.swapaxes(-1, -2)
            return self.definite(transposed @ a + diagonal, transposed @ b)
        return getattr(linalg, name)(*arrays)

    def definite(self, a: Any, b: Any) -> Any:
        return self.xp.linalg.solve(a, b)

    def cast(self, name: str, x: Any) -> Any:
        if name == "e4m3":
            raise NotImplementedError("it has no fp8")
        return x.astype({"f16": "float16", "f32": "float32", "bf16": "bfloat16"}[name])

    def quantize(self, x: Any) -> Any:
        raise NotImplementedError("it has no fp8")

    def along(self, name: str, x: Any) -> Any:
        xp = self.xp
        if name in _problems.REDUCTIONS:
            return getattr(xp, name)(x, axis=-1)
        if name == "rms_norm":
            return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + self.epsilon(x))
        if name == "layer_norm":
            c = x - xp.mean(x, axis=-1, keepdims=True)
            return c / xp.sqrt(xp.mean(c * c, axis=-1, keepdims=True) + 1e-5)
        e = x - xp.max(x, axis=-1, keepdims=True)
        if name == "log_softmax":
            return e - xp.log(xp.sum(xp.exp(e), axis=-1, keepdims=True))
        e = xp.exp(e)
        return e / xp.sum(e, axis=-1, keepdims=True)

    def epsilon(self, x: Any) -> float:
        return self.norm_epsilon

    norm_epsilon = 1e-6

    def unary(self, name: str, x: Any) -> Any:
        xp = self.xp
        own: dict[str, Callable[[Any], Any]] = {
            "relu": lambda x: xp.maximum(x, 0),
            "sigmoid": lambda x: 1 / (1 + xp.exp(-x)),
            "silu": lambda x: x / (1 + xp.exp(-x)),
            "gelu": lambda x: 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
            "rsqrt": lambda x: 1 / xp.sqrt(x),
            "neg": lambda x: -x,
        }
        function = own.get(name) or getattr(xp, name, None)
        if function is None:
            raise NotImplementedError(f"it has no {name}")
        return function(x)


def _unrounded(operations: Any) -> Any:
    """The same operations, and no rounding: casts keep every digit."""

    class Exact(operations):  # type: ignore[misc]
        def cast(self, name: str, x: Any) -> Any:
            return x

        def quantize(self, x: Any) -> Any:
            return x, 1 + 0 * x[..., :1]

        def scaled_matmul(self, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
            return Operations.scaled_matmul(self, a, b, scale_a, scale_b)

    return Exact


def exact(problem: Problem, wide: list[Any], xp: Any = np) -> Any:
    """The problem on arrays in double precision, of NumPy or PyTorch."""
    operations = _unrounded(Operations if xp is np else TorchOperations)(xp)
    return _problems.evaluate(problem.kind, problem.parts, wide, operations, problem.transforms)


def to_numpy(x: Any) -> Any:
    if type(x).__module__.startswith("torch"):
        x = x.detach().cpu()
        return x.float().numpy() if str(x.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn") else x.numpy()
    return x.get() if type(x).__module__.startswith("cupy") else np.asarray(x)


TORCH_NAMES = {
    "bool": "bool", "i8": "int8", "i32": "int32", "i64": "int64", "f16": "float16", "bf16": "bfloat16", "f32": "float32",
    "f64": "float64", "c64": "complex64", "c128": "complex128", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip


def torch_dtype(name: str) -> Any:
    import torch

    return getattr(torch, TORCH_NAMES[name])


def as_torch(x: Any, device: str) -> Any:
    """A tensor of PyTorch on `device`, from any library's array; the same bits."""
    import torch

    if isinstance(x, torch.Tensor):
        return x.to(device)
    if not isinstance(x, np.ndarray):
        return torch.from_dlpack(x).to(device)
    if x.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = x.view(np.uint8 if x.dtype.itemsize == 1 else np.int16)
        return torch.from_numpy(bits).to(device).view(getattr(torch, x.dtype.name))
    return torch.from_numpy(np.ascontiguousarray(x)).to(device)


class Peer:
    """A candidate beside ours."""

    name = ""
    module = ""
    devices: tuple[str, ...] = ()
    slow = False  # to start with

    def missing(self) -> str | None:
        """Why it cannot take part; None if it can."""
        try:
            importlib.import_module(self.module)
        except Exception as error:
            return f"{self.module} cannot be imported: {error}".splitlines()[0]
        return None

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        """A call that computes the problem, or why there is none."""
        if problem.kind == "python":
            return "a Python function is not translated for peers"
        operations = self.operations()
        try:
            inputs = [self.take(a) for a in arrays]
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if problem.kind == "matmul" and not problem.parts:  # nothing of ours in the call
            return functools.partial(operations.xp.matmul, *inputs)
        if problem.kind in ("fft", "ifft", "rfft", "irfft") and not problem.parts and problem.transforms == 1:
            return functools.partial(getattr(operations.xp.fft, problem.kind), *inputs)

        def call() -> Any:
            return _problems.evaluate(problem.kind, problem.parts, inputs, operations, problem.transforms)

        return call

    def references(self, problem: Problem, arrays: list[Any]) -> dict[str, Call]:
        """Calls that are not the problem but tell what it may cost: the product without what follows it."""
        return {}

    def operations(self) -> Any:
        return Operations(importlib.import_module(self.module))

    def take(self, array: Any) -> Any:
        return array


class NumPy(Peer):
    name, module, devices = "NumPy", "numpy", ("cpu",)

    def take(self, array: Any) -> Any:
        if array.dtype.name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
            raise NotImplementedError("it has no fast arithmetic in 16 or 8 bits")
        return array

    def references(self, problem: Problem, arrays: list[Any]) -> dict[str, Call]:
        if problem.kind != "matmul" or not problem.parts or arrays[0].dtype.kind not in "fc" or arrays[0].itemsize < 4:
            return {}
        return {"bare product, NumPy": functools.partial(np.matmul, *arrays[:2])}


class SciPyOperations(Operations):
    def __init__(self, scipy: Any) -> None:
        super().__init__(np)
        self.fft, self.linalg, self.signal = (importlib.import_module(f"scipy.{m}") for m in ("fft", "linalg", "signal"))

    def definite(self, a: Any, b: Any) -> Any:
        return self.linalg.solve(a, b, assume_a="pos")

    def fno(self, x: Any, w: Any) -> Any:
        axes = tuple(range(2 - x.ndim, 0))
        kept = self.fft.rfftn(x, axes=axes, workers=-1)[(..., *(slice(w.shape[-1]) for _ in axes))]
        y = np.einsum(_problems.FNO[len(axes)], kept, w, optimize=True)
        return self.fft.irfftn(y, s=x.shape[2:], axes=axes, workers=-1)

    def solver(self, name: str, *arrays: Any) -> Any:
        return self.linalg.svdvals(*arrays) if name == "svdvals" else super().solver(name, *arrays)

    def transform(self, name: str, x: Any, axes: int) -> Any:
        if axes == 1:
            return getattr(self.fft, name)(x, workers=-1)
        return getattr(self.fft, f"{name}n")(x, axes=tuple(range(-axes, 0)), workers=-1)

    def convolve(self, x: Any, k: Any) -> Any:
        return self.signal.oaconvolve(x, k.reshape((1,) * (x.ndim - 1) + k.shape), axes=-1)


class SciPy(Peer):
    name, module, devices = "SciPy", "scipy", ("cpu",)

    def operations(self) -> Any:
        return SciPyOperations(importlib.import_module("scipy"))

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        if problem.kind in _problems.TRANSFORMS and not problem.parts and problem.transforms == 1:
            function = getattr(importlib.import_module("scipy.fft"), problem.kind)
            return functools.partial(function, arrays[0], workers=-1)
        uses = {problem.kind, *problem.parts} & {*_problems.TRANSFORMS, "conv", "fno", "solve_pos", "ridge"}
        return super().prepare(problem, arrays) if uses else "the same calls as NumPy's"


class TorchOperations(Operations):
    norm_epsilon = 1e-6

    def __init__(self, torch: Any) -> None:
        super().__init__(torch)
        self.functional = importlib.import_module("torch.nn.functional")

    def transform(self, name: str, x: Any, axes: int) -> Any:
        fft = self.xp.fft
        return getattr(fft, name)(x) if axes == 1 else getattr(fft, f"{name}n")(x, dim=tuple(range(-axes, 0)))

    def convolve(self, x: Any, k: Any) -> Any:
        fft, n = self.xp.fft, x.shape[-1] + k.shape[-1] - 1
        if x.is_complex():
            return fft.ifft(fft.fft(x, n) * fft.fft(k, n))
        return fft.irfft(fft.rfft(x, n) * fft.rfft(k, n), n)

    def product_and_bias(self, x: Any, w: Any, bias: Any) -> Any:
        return self.xp.addmm(bias, x, w) if x.dim() == 2 else x @ w + bias

    def swiglu(self, x: Any, gate: Any, up: Any) -> Any:
        return self.functional.silu(x @ gate) * (x @ up)

    def scaled_matmul(self, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return self.xp._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=self.xp.bfloat16)

    def fno(self, x: Any, w: Any) -> Any:
        fft, axes = self.xp.fft, tuple(range(2 - x.dim(), 0))
        kept = fft.rfftn(x, dim=axes)[(..., *(slice(w.shape[-1]) for _ in axes))]
        return fft.irfftn(self.xp.einsum(_problems.FNO[len(axes)], kept, w), s=tuple(x.shape[2:]), dim=axes)

    def solver(self, name: str, *arrays: Any) -> Any:
        if name in ("solve_pos", "ridge"):
            return super().solver(name, *arrays)
        linalg = self.xp.linalg
        if name in ("cholesky", "solve", "inv"):  # the forms that do not wait for the GPU, as ours
            return getattr(linalg, f"{name}_ex")(*arrays)[0]
        result = getattr(linalg, name)(*arrays)
        return tuple(result) if name in ("qr", "eigh") else result

    def definite(self, a: Any, b: Any) -> Any:
        return self.xp.cholesky_solve(b, self.xp.linalg.cholesky_ex(a)[0])

    def cast(self, name: str, x: Any) -> Any:
        return x.to(torch_dtype(name))

    def quantize(self, x: Any) -> Any:
        scale = x.abs().amax(-1, keepdim=True).float() / _problems.LARGEST
        return (x / scale).clamp(-_problems.LARGEST, _problems.LARGEST).to(torch_dtype("e4m3")), scale

    def along(self, name: str, x: Any) -> Any:
        if name == "max":
            return x.amax(-1)
        if name in _problems.REDUCTIONS:
            return getattr(x, name)(-1)
        if name == "rms_norm":
            return self.functional.rms_norm(x, x.shape[-1:], eps=1e-6)
        if name == "layer_norm":
            return self.functional.layer_norm(x, x.shape[-1:])
        return getattr(self.functional, name)(x, dim=-1)

    def unary(self, name: str, x: Any) -> Any:
        if name == "gelu":
            return self.functional.gelu(x, approximate="tanh")
        function = getattr(self.xp, name, None) or getattr(self.functional, name, None)
        if function is None:
            raise NotImplementedError(f"it has no {name}")
        return function(x)


class Torch(Peer):
    name, module, devices = "torch", "torch", ("cpu", "cuda")

    def operations(self) -> Any:
        return TorchOperations(importlib.import_module("torch"))

    def take(self, array: Any) -> Any:
        return as_torch(array, "cpu") if isinstance(array, np.ndarray) else array

    def references(self, problem: Problem, arrays: list[Any]) -> dict[str, Call]:
        import torch

        if problem.kind != "matmul" or not problem.parts:
            return {}
        return {"bare product, torch": functools.partial(torch.matmul, *(self.take(a) for a in arrays[:2]))}


class TorchCompiled(Torch):
    name, slow = "torch.compile", True

    def references(self, problem: Problem, arrays: list[Any]) -> dict[str, Call]:
        return {}

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        import torch

        if problem.kind == "python":
            return "a Python function is not translated for peers"
        operations, inputs = self.operations(), [self.take(a) for a in arrays]

        def function(*given: Any) -> Any:
            return _problems.evaluate(problem.kind, problem.parts, list(given), operations, problem.transforms)

        torch._dynamo.reset()
        compiled = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
        return lambda: compiled(*inputs)


class CuPyOperations(Operations):
    def definite(self, a: Any, b: Any) -> Any:
        return importlib.import_module("cupyx.lapack").posv(a, b)


class CuPy(Peer):
    name, module, devices = "CuPy", "cupy", ("cuda",)

    def take(self, array: Any) -> Any:
        import cupy

        if str(array.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
            raise NotImplementedError("it has no bfloat16 and no fp8")
        return cupy.from_dlpack(array)

    def operations(self) -> Any:
        return CuPyOperations(importlib.import_module("cupy"))

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        made = super().prepare(problem, arrays)
        if isinstance(made, str):
            return made
        import cupy
        import torch

        def call() -> Any:
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                return made()

        return call


class Jax(Peer):
    # Not on GPUs: it runs on streams of its own, which the clock's events do not see, beside whoever comes next.
    name, module, devices = "JAX", "jax", ("cpu",)

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        import jax

        if problem.kind == "python":
            return "a Python function is not translated for peers"
        operations = Operations(importlib.import_module("jax.numpy"))
        inputs = [jax.numpy.from_dlpack(a) if not isinstance(a, np.ndarray) else jax.numpy.asarray(a) for a in arrays]
        if any(str(i.dtype) != str(a.dtype).replace("torch.", "") for i, a in zip(inputs, arrays, strict=True)):
            return "64-bit types are off (JAX_ENABLE_X64)"
        compiled = jax.jit(
            lambda *given: _problems.evaluate(problem.kind, problem.parts, list(given), operations, problem.transforms)
        )
        return lambda: jax.block_until_ready(compiled(*inputs))


class Nvmath(Peer):
    name, module, devices = "nvmath-python", "nvmath", ("cuda",)

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        import nvmath

        if problem.kind in ("fft", "ifft") and not problem.parts and problem.transforms == 1:
            return lambda: getattr(nvmath.fft, problem.kind)(arrays[0], axes=[len(problem.specs[0].shape) - 1])
        if problem.kind != "matmul" or problem.parts not in ((), ("bias",), ("bias", "relu"), ("bias", "gelu")):
            return "its epilogues do not say this"
        epilogs = {(): None, ("bias",): "BIAS", ("bias", "relu"): "RELU_BIAS", ("bias", "gelu"): "GELU_BIAS"}
        mm = nvmath.linalg.advanced.Matmul(arrays[0], arrays[1])
        name = epilogs[problem.parts]
        epilog = getattr(nvmath.linalg.advanced.MatmulEpilog, name) if name else None
        mm.plan(epilog=epilog, epilog_inputs={"bias": arrays[2]} if name else None)
        mm.autotune()
        execute: Call = mm.execute
        return execute


def everybody() -> tuple[Peer, ...]:
    from mathfuse import _peers_direct

    return (NumPy(), SciPy(), Torch(), TorchCompiled(), CuPy(), Jax(), Nvmath(), *_peers_direct.ALL)


def available(device: str, names: list[str] | None = None) -> list[Peer]:
    """The peers for a device; `names`: only these, which have to be there."""
    kind = "cpu" if device == "cpu" else "cuda"
    everyone = everybody()
    for name in names or []:
        if name not in {p.name for p in everyone}:
            raise ValueError(f"no peer is called {name!r}; there are {', '.join(p.name for p in everyone)}")
    return [p for p in everyone if kind in p.devices and (not names or p.name in names) and p.missing() is None]


def absent(device: str) -> dict[str, str]:
    """Why the others do not take part."""
    kind = "cpu" if device == "cpu" else "cuda"
    return {p.name: why for p in everybody() if kind in p.devices and (why := p.missing()) is not None}
