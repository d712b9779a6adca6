"""Custom kernels: CUDA source compiled in process, with mathfuse's device headers on its include path.

On CUDA arrays a kernel runs on their GPU. On NumPy arrays it is emulated: compiled as C++ and run block by block, each thread
a fiber, so that kernels can be written and tested on a machine without a GPU.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from mathfuse import _core, _emulate
from mathfuse._occupancy import Occupancy, occupancy
from mathfuse._parameters import parameters, with_headers
from mathfuse.errors import DeviceError, MissingError


def _locate(x: Any) -> tuple[int, str, int]:
    """Address, dtype and CUDA device (-1: the CPU) of an array that the extension does not know better."""
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is None:
        interface = x.__array_interface__ if hasattr(x, "__array_interface__") else None
    kind, index = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (2 if interface else 1, 0)
    address = int(x.data_ptr()) if hasattr(x, "data_ptr") else int((interface or x.__array_interface__)["data"][0])
    return address, str(getattr(x, "dtype", "")).removeprefix("torch."), -1 if kind in (1, 3) else index


@cache
def _context(device: str) -> _core.Context:
    """Of a GPU the context that its arrays' plans have, of a target that is not here one for all kernels."""
    kind, _, index = device.partition(":")
    return _core.context_for("cuda", int(index or 0)) if kind == "cuda" else _core.Context(device)


def constants_of(arch: str, name: str, text: str, expressions: tuple[str, ...]) -> tuple[int, ...]:
    """Values of constant expressions, read from PTX."""
    lines = "".join(f'extern "C" __device__ long long mathfuse_constant_{i} = {e};\n' for i, e in enumerate(expressions))
    ptx = _core.compile("ptx", arch, name, f"{text}\n{lines}").decode()
    found = dict(re.findall(r"mathfuse_constant_(\d+)(?: = (-?\d+))?;", ptx))
    return tuple(int(found[str(i)] or 0) for i in range(len(expressions)))


class Kernel:
    """A kernel of `source`, declared there as extern "C" __global__ void `name`(...).

    k[grid, block](args...) or k[grid, block, shared_bytes](args...) launches it: arrays for pointers, Python or NumPy numbers
    for scalars, converted to what the source declares. CUDA arrays: on their GPU and their library's current stream (`stream=`
    overrides). NumPy arrays: emulated on the CPU, which needs a C++ compiler. What is launched often can be kept:
    `launch = k[grid, block]`.
    `defines` become macros, in the headers too, whose template parameters are single letters: choose longer names.
    `headers` are texts that the source includes by name: `Plan.device_header()`, say.
    `arch` is what `.cubin` and the resource figures are for: by default the GPU here, else "sm_90a".
    `check`: the emulation reports races between threads of a block and accesses beyond the dynamic shared memory; it is slow.
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        defines: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        arch: str | None = None,
        check: bool = False,
    ) -> None:
        self.name = name
        self.source = source
        self._parameters = parameters(source, name)
        macros = "".join(f"#define {key} {value}\n" for key, value in (defines or {}).items())
        text = with_headers(source, f"{name}.cu", headers or {})
        self._text = f'{macros}#line 1 "{name}.cu"\n{text}' if macros else text
        self._arch = arch
        self._check = check
        self._compiled: dict[str, _core.Kernel] = {}
        self._emulated: _emulate.Emulated | None = None
        self._launcher = _core.Launcher(
            name, tuple(p.described() for p in self._parameters), self._compile_for, self._emulate, _locate
        )

    def __getitem__(self, shape: Any) -> _core.Launch:
        return self._launcher[shape]

    def __repr__(self) -> str:
        return f"<mathfuse kernel {self.name}({', '.join(p.name for p in self._parameters)})>"

    # ---- compiled ----

    def compile(self, device: str | None = None) -> _core.Kernel:
        """Compile for a device or target now instead of at the first launch."""
        device = device or self._arch or self._default()
        if device not in self._compiled:
            self._compiled[device] = _core.Kernel(_context(device), self._text, self.name)
        return self._compiled[device]

    def _compile_for(self, index: int) -> _core.Kernel:
        return self.compile(f"cuda:{index}")

    @staticmethod
    def _default() -> str:
        try:
            return "cuda" if _context("cuda").can_run else "sm_90a"
        except DeviceError:
            return "sm_90a"

    @property
    def arch(self) -> str:
        """What the machine code and the figures are for: "sm_90a"."""
        return _context(self._arch or self._default()).target

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return int(self.compile().info()["registers"])

    @property
    def shared(self) -> int:
        """Static shared memory of a block, in bytes."""
        return int(self.compile().info()["shared"])

    @property
    def spills(self) -> int:
        """Local memory of a thread, in bytes: spilled registers and arrays that are indexed at run time."""
        return int(self.compile().info()["spills"])

    @property
    def cubin(self) -> bytes:
        """The machine code."""
        return bytes(self.compile().info()["cubin"])

    @property
    def ptx(self) -> str:
        """The assembly for CUDA's virtual machine."""
        return self._build("ptx").decode().rstrip("\0")

    @property
    def ltoir(self) -> bytes:
        """For nvJitLink."""
        return self._build("ltoir")

    def _build(self, code: str) -> bytes:
        return _core.compile(code, self.arch, self.name, f'#line 1 "{self.name}.cu"\n{self._text}')

    def occupancy(self, block: Any, shared: int = 0) -> Occupancy:
        """How many blocks of so many threads and bytes of dynamic shared memory a multiprocessor holds, and what limits it."""
        threads = 1
        for n in block if isinstance(block, (tuple, list)) else (block,):
            threads *= int(n)
        return occupancy(self.arch, threads, self.registers, self.shared + shared)

    def constants(self, *expressions: str) -> tuple[int, ...]:
        """Values of constant integer expressions in the source's words: what a launch has to know, "F::threads" say."""
        try:
            return constants_of(self.arch, f"{self.name}_constants", self._text, expressions)
        except MissingError:
            return _emulate.constants(self._text, self.name, expressions)

    # ---- emulated ----

    def _emulate(self, grid: Any, block: Any, shared: int, values: tuple[bytes, ...]) -> None:
        if self._emulated is None:
            self._emulated = _emulate.Emulated(self._text, self.name, self._parameters, self._check)
        self._emulated(grid, block, shared, values)
