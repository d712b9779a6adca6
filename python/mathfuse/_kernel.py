"""Custom kernels: CUDA source compiled in process, with mathfuse's device headers on its include path.

On CUDA arrays a kernel runs on their GPU. On NumPy arrays it is emulated: compiled as C++ and run block by block, each thread
a fiber, so that kernels can be written and tested on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from mathfuse import _core, _interop
from mathfuse.errors import CompileError, DeviceError, DtypeError, InvalidError, MissingError

# C's scalar types by what struct packs them with.
_SCALARS = {
    "bool": "?", "char": "b", "signed char": "b", "unsigned char": "B", "short": "h", "unsigned short": "H", "int": "i",
    "unsigned": "I", "unsigned int": "I", "long": "q", "unsigned long": "Q", "long long": "q", "unsigned long long": "Q",
    "float": "f", "double": "d", "size_t": "Q", "int8_t": "b", "uint8_t": "B", "int16_t": "h", "uint16_t": "H", "int32_t": "i",
    "uint32_t": "I", "int64_t": "q", "uint64_t": "Q",
}  # fmt: skip
# What arrays may be passed for a pointer to one of these; other pointers take any array.
_POINTEES = {
    "float": ("float32", "complex64"), "double": ("float64", "complex128"), "int": ("int32",), "int32_t": ("int32",),
    "long long": ("int64",), "int64_t": ("int64",), "mf::f16": ("float16",), "mf::bf16": ("bfloat16",),
    "__half": ("float16",), "__nv_bfloat16": ("bfloat16",), "mf::cplx<float>": ("complex64",), "float2": ("complex64",),
    "mf::c64": ("complex64",), "mf::cplx<double>": ("complex128",), "mf::c128": ("complex128",), "double2": ("complex128",),
    "mf::f32": ("float32",), "mf::f64": ("float64",), "mf::i32": ("int32",), "mf::i64": ("int64",),
}  # fmt: skip
_ENTRY = """
extern "C" const char *mathfuse_entry(const int *grid, const int *block, unsigned long shared, void **p)
{
    return mf::emulate::launch(%s, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared%s);
}
"""


class _Parameter:
    """One parameter of a kernel, as its source declares it."""

    def __init__(self, text: str) -> None:
        words = text.strip()
        match = re.fullmatch(r"(.*?)(\w+)?\s*(\[\s*\])?", words, re.S)
        declared = match.group(1).strip() if match and match.group(1).strip() else words
        self.name = (match.group(2) if match else None) or words
        self.pointer = "*" in declared or bool(match and match.group(3))
        plain = re.sub(r"\b(const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct)\b|\*|&", " ", declared)
        self.type = " ".join(plain.split())


def _parameters(source: str, name: str) -> list[_Parameter]:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    found = re.search(r"\b__global__\b[^;{}]*?\b" + re.escape(name) + r"\s*\(", text)
    if not found:
        raise InvalidError(f"the source has no __global__ function called {name!r}")
    depth, start, pieces = 0, found.end(), []
    for at in range(found.end(), len(text)):
        if text[at] in "(<[":
            depth += 1
        elif text[at] in ")>]" and depth:
            depth -= 1
        elif text[at] in ",)":
            pieces.append(text[start:at])
            start = at + 1
            if text[at] == ")":
                break
    else:
        raise InvalidError(f"the parameter list of {name} does not end")
    return [_Parameter(piece) for piece in pieces if piece.strip() not in ("", "void")]


def _with_headers(source: str, file: str, headers: dict[str, str]) -> str:
    """The source with the texts of `headers` where it includes them; lines keep their numbers."""
    unused = set(headers)

    def paste(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in headers:
            return found.group(0)
        unused.discard(name)
        line = source.count("\n", 0, found.start()) + 2
        return f'#line 1 "{name}"\n{headers[name]}\n#line {line} "{file}"'

    text = re.sub(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">].*$', paste, source, flags=re.MULTILINE)
    if unused:
        raise InvalidError(f"the source does not include {', '.join(sorted(unused))}, which headers= gives")
    return text


def _extents(value: Any, what: str) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(given) <= 3 or not all(isinstance(n, int) for n in given):
        raise InvalidError(f"{what} is an integer or up to three of them, not {value!r}")
    return (*given, 1, 1)[:3]


def _cache_directory() -> Path:
    explicit = os.environ.get("MATHFUSE_CACHE_DIR")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mathfuse"


def _where(x: Any) -> str:
    """The device of an array: "cpu" or "cuda:0"."""
    module = type(x).__module__.partition(".")[0]
    if module == "numpy":
        return "cpu"
    if module == "torch":
        return str(x.device) if x.device.type != "cuda" else f"cuda:{x.device.index}"
    if module == "cupy":
        return f"cuda:{x.device.id}"
    kind, index = x.__dlpack_device__()
    return "cpu" if kind in (1, 3) else f"cuda:{index}"


def _address(x: Any) -> int:
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
    return int(interface["data"][0])


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and bool(getattr(x, "shape", None) is not None) and not _is_numpy_scalar(x)


def _is_numpy_scalar(x: Any) -> bool:
    return "numpy" in sys.modules and isinstance(x, sys.modules["numpy"].generic)


class Kernel:
    """A kernel of `source`, declared there as extern "C" __global__ void `name`(...).

    k[grid, block](args...) or k[grid, block, shared_bytes](args...) launches it: arrays for pointers, Python or NumPy numbers
    for scalars, converted to what the source declares. CUDA arrays: on their GPU and their library's current stream (`stream=`
    overrides). NumPy arrays: emulated on the CPU, which needs a C++ compiler.
    `defines` become macros. `headers` are texts that the source includes by name: `Plan.device_header()`, say. `arch` is what `.cubin` and the resource figures are for: by default the GPU here, else "sm_90a".
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        defines: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        arch: str | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self._parameters = _parameters(source, name)
        macros = "".join(f"#define {key} {value}\n" for key, value in (defines or {}).items())
        text = _with_headers(source, f"{name}.cu", headers or {})
        self._text = f'{macros}#line 1 "{name}.cu"\n{text}' if macros else text
        self._arch = arch
        self._compiled: dict[str, Any] = {}
        self._emulated: Any = None

    def __getitem__(self, shape: Any) -> _Launch:
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 3:
            raise InvalidError("a launch is kernel[grid, block] or kernel[grid, block, shared_bytes]")
        return _Launch(self, _extents(shape[0], "grid"), _extents(shape[1], "block"), int(shape[2]) if len(shape) > 2 else 0)

    def __repr__(self) -> str:
        return f"<mathfuse kernel {self.name}({', '.join(p.name for p in self._parameters)})>"

    def compile(self, device: str | None = None) -> Any:
        """Compile for a device or target now instead of at the first launch."""
        device = device or self._arch or self._default()
        if device not in self._compiled:
            self._compiled[device] = _core.Kernel(_core.Context(device), self._text, self.name)
        return self._compiled[device]

    @staticmethod
    def _default() -> str:
        try:
            return "cuda" if _core.Context("cuda").can_run else "sm_90a"
        except DeviceError:
            return "sm_90a"

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

    # ---- launching ----

    def _pack(self, index: int, value: Any) -> bytes:
        parameter = self._parameters[index]
        where = f"argument {index} ({parameter.name}) of {self.name}"
        if parameter.pointer:
            if not _is_array(value):
                raise DtypeError(f"{where} is a pointer: pass an array, not {type(value).__name__}")
            allowed = _POINTEES.get(parameter.type)
            dtype = _core.dtype(_interop.dtype_name(value.dtype))[1] if allowed else ""
            if allowed and dtype not in allowed:
                raise DtypeError(f"{where} points to {parameter.type} and takes {' or '.join(allowed)}; the array is {dtype}")
            return struct.pack("P", _address(value))
        if _is_array(value):
            raise DtypeError(f"{where} is a {parameter.type}, not a pointer: pass a number")
        if parameter.type in _SCALARS:
            code = _SCALARS[parameter.type]
            try:
                return struct.pack(code, float(value) if code in "fd" else bool(value) if code == "?" else value)
            except (struct.error, TypeError, OverflowError):
                raise DtypeError(f"{where} is a {parameter.type}; {value!r} is not one") from None
        if isinstance(value, bytes):
            return value
        if _is_numpy_scalar(value):
            return bytes(value.tobytes())
        raise DtypeError(f"{where} has the type {parameter.type}, which is not known: pass its bytes or a NumPy scalar")

    def _launch(self, launch: _Launch, args: tuple[Any, ...], stream: Any) -> None:
        if len(args) != len(self._parameters):
            listed = ", ".join(p.name for p in self._parameters)
            raise InvalidError(f"{self.name} takes {len(self._parameters)} arguments ({listed}); {len(args)} were given")
        values = tuple(self._pack(i, value) for i, value in enumerate(args))
        places = {_where(x): x for x in args if _is_array(x)}
        if len(places) > 1:
            raise DeviceError(f"the arrays of {self.name} lie on {' and '.join(sorted(places))}; they must share a device")
        device = next(iter(places), "cpu")
        if device == "cpu":
            self._emulate(launch, values)
            return
        array = places[device]
        if stream is not None:
            pointer = _interop.stream_pointer(stream)
        else:
            pointer = _interop.current_stream(type(array).__module__.partition(".")[0], int(device.partition(":")[2]))
        self.compile(device).launch(launch.grid, launch.block, launch.shared, pointer, values)

    # ---- emulation ----

    def _emulate(self, launch: _Launch, values: tuple[bytes, ...]) -> None:
        if self._emulated is None:
            self._emulated = self._build_emulated()
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(b) for b in buffers])
        message = self._emulated((ctypes.c_int * 3)(*launch.grid), (ctypes.c_int * 3)(*launch.block), launch.shared, pointers)
        if message:
            raise InvalidError(f"kernel {self.name}: {message.decode()}")

    def _build_emulated(self) -> Any:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
        if not compiler:
            raise MissingError("emulating a kernel needs a C++ compiler: install g++, set CXX, or pass CUDA arrays")
        include = Path(__file__).parent / "include"
        types = [p.type if not p.pointer else None for p in self._parameters]
        arguments = "".join(f", *(void **)p[{i}]" if t is None else f", *({t} *)p[{i}]" for i, t in enumerate(types))
        head = '#include "mathfuse/device/emulate.h"\n'
        text = f'{head}#line 1 "{self.name}.cu"\n{self._text}\n{_ENTRY % (self.name, arguments)}'
        key = hashlib.sha256(text.encode())
        for header in sorted((include / "mathfuse").rglob("*")):
            if header.is_file():
                key.update(header.read_bytes())
        key.update(compiler.encode())
        library = _cache_directory() / "emulated" / f"{key.hexdigest()[:32]}.so"
        if not library.exists():
            self._compile_emulated(compiler, include, text, library)
        entry = ctypes.CDLL(str(library)).mathfuse_entry
        entry.restype = ctypes.c_char_p
        entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p]
        return entry

    def _compile_emulated(self, compiler: str, include: Path, text: str, library: Path) -> None:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            source, result = Path(scratch) / f"{self.name}.cpp", Path(scratch) / "kernel.so"
            source.write_text(text)
            command = [
                compiler,
                "-std=c++17",
                "-O2",
                "-fPIC",
                "-shared",
                "-w",
                "-I",
                str(include),
                str(source),
                "-o",
                str(result),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise CompileError(f"kernel {self.name} does not compile for emulation on the CPU:\n{done.stderr.strip()}")
            os.replace(result, library)


class _Launch:
    """A kernel with its grid, block and dynamic shared memory."""

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int) -> None:
        if min(*grid, *block) < 1 or block[0] * block[1] * block[2] > 1024 or shared < 0:
            raise InvalidError(
                f"grid {grid}, block {block}, shared {shared}: extents start at 1, a block has at most 1024 threads"
            )
        self.kernel, self.grid, self.block, self.shared = kernel, grid, block, shared

    def __call__(self, *args: Any, stream: Any = None) -> None:
        self.kernel._launch(self, args, stream)
