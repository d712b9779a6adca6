"""Peers of the benchmark suite behind one interface: whether it is here, and a problem as a call without arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mathfuse import _problems
from mathfuse._problems import Problem

Call = Callable[[], Any]
Made = Call | str
NUMPY_NAMES = {"rsqrt": None, "neg": "negative"}


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

    def solver(self, name: str, *arrays: Any) -> Any:
        if name == "svdvals":
            return self.xp.linalg.svd(*arrays, compute_uv=False)
        return getattr(self.xp.linalg, name)(*arrays)

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


def exact(problem: Problem, arrays: list[Any]) -> Any:
    """NumPy in double precision; a Python function is run by our reference provider, unfused."""
    if problem.kind == "python":
        import mathfuse as mf

        return mf.plan(problem.function, *arrays, providers="ref", no_fusion=True, tune="off").run(*arrays)
    wide = [a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) for a in arrays]
    return _problems.evaluate(problem.kind, problem.parts, wide, Operations(np), problem.transforms)


def to_numpy(x: Any) -> Any:
    if type(x).__module__.startswith("torch"):
        x = x.detach().cpu()
        return x.float().numpy() if str(x.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn") else x.numpy()
    return x.get() if type(x).__module__.startswith("cupy") else np.asarray(x)


def to_gpu(x: Any) -> Any:
    """A CUDA tensor of PyTorch with the same bits."""
    import torch

    names = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
    if x.dtype.name in names:
        bits = x.view(np.uint8 if x.dtype.itemsize == 1 else np.int16)
        return torch.from_numpy(bits).cuda().view(names[x.dtype.name])
    return torch.from_numpy(x).cuda()


def gpu_clock() -> tuple[Any, ...]:
    """Events, a call that overwrites the L2 cache, a call that waits, and milliseconds between events."""
    import torch

    rubbish = torch.empty(64 << 20, dtype=torch.int32, device="cuda")

    def event() -> Any:
        return torch.cuda.Event(enable_timing=True)

    def flush() -> None:
        rubbish.zero_()
        torch.cuda._sleep(200_000)

    return event, event, flush, torch.cuda.synchronize, lambda a, b: a.elapsed_time(b)


class Peer:
    """A candidate beside ours."""

    name = ""
    module = ""
    devices: tuple[str, ...] = ()

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

        def call() -> Any:
            return _problems.evaluate(problem.kind, problem.parts, inputs, operations, problem.transforms)

        try:
            inputs = [self.take(a) for a in arrays]
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return call

    def operations(self) -> Any:
        return Operations(importlib.import_module(self.module))

    def take(self, array: Any) -> Any:
        return array


class NumPy(Peer):
    name, module, devices = "NumPy", "numpy", ("cpu",)

    def take(self, array: Any) -> Any:
        if array.dtype.name in ("bfloat16", "float16"):
            raise NotImplementedError("it has no fast arithmetic in 16 bits")
        return array


class SciPyOperations(Operations):
    def __init__(self, scipy: Any) -> None:
        super().__init__(np)
        self.fft, self.linalg, self.signal = (importlib.import_module(f"scipy.{m}") for m in ("fft", "linalg", "signal"))

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
        uses = {problem.kind, *problem.parts} & {*_problems.TRANSFORMS, "conv"}
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

    def solver(self, name: str, *arrays: Any) -> Any:
        result = getattr(self.xp.linalg, name)(*arrays)
        return tuple(result) if name == "qr" else result

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
        import torch

        return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


class TorchCompiled(Torch):
    name = "torch.compile"

    def prepare(self, problem: Problem, arrays: list[Any]) -> Made:
        import torch

        if problem.kind == "python":
            return "a Python function is not translated for peers"
        operations, inputs = self.operations(), [self.take(a) for a in arrays]

        def function(*given: Any) -> Any:
            return _problems.evaluate(problem.kind, problem.parts, list(given), operations, problem.transforms)

        compiled = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)
        try:
            compiled(*inputs)
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return lambda: compiled(*inputs)


class CuPy(Peer):
    name, module, devices = "CuPy", "cupy", ("cuda",)

    def take(self, array: Any) -> Any:
        import cupy

        if str(array.dtype) == "torch.bfloat16":
            raise NotImplementedError("it has no bfloat16")
        return cupy.from_dlpack(array)

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
    name, module, devices = "JAX", "jax", ("cpu", "cuda")

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


ALL: tuple[Peer, ...] = (NumPy(), SciPy(), Torch(), TorchCompiled(), CuPy(), Jax(), Nvmath())


def available(device: str, names: list[str] | None = None) -> list[Peer]:
    """The peers for a device; `names`: only these, which have to be there."""
    kind = "cpu" if device == "cpu" else "cuda"
    for name in names or []:
        if name not in {p.name for p in ALL}:
            raise ValueError(f"no peer is called {name!r}; there are {', '.join(p.name for p in ALL)}")
    return [p for p in ALL if kind in p.devices and (not names or p.name in names) and p.missing() is None]


def absent(device: str) -> dict[str, str]:
    """Why the others do not take part."""
    kind = "cpu" if device == "cpu" else "cuda"
    return {p.name: why for p in ALL if kind in p.devices and (why := p.missing()) is not None}
