"""Kernels as C++ on the CPU: compiled over mathfuse/device/emulate.h into a library, kept in the cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mathfuse._parameters import Parameter
from mathfuse.errors import CompileError, InvalidError, MissingError

_INCLUDE = Path(__file__).parent / "include"
_ENTRY = """
extern "C" const char *mathfuse_entry(const int *grid, const int *block, unsigned long shared, void **p)
{
    return mf::emulate::launch(%s, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared%s);
}
"""


def _cache_directory() -> Path:
    explicit = os.environ.get("MATHFUSE_CACHE_DIR")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mathfuse"


# In checked mode the compiler's thread-sanitizer calls lead to emulate_check.h, so the sanitizer is not linked.
_CHECKED = ["-fsanitize=thread", "-DMF_EMULATE_CHECK"]


def _run(name: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"kernel {name} does not compile for emulation on the CPU:\n{done.stderr.strip()}")


def _compile(compiler: str, name: str, text: str, library: Path, check: bool) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source, compiled, result = (str(Path(folder) / n) for n in (f"{name}.cpp", "kernel.o", "kernel.so"))
        Path(source).write_text(text)
        options = ["-std=c++17", "-O1" if check else "-O2", "-fPIC", "-w", "-I", str(_INCLUDE), *(_CHECKED if check else [])]
        _run(name, [compiler, *options, "-c", source, "-o", compiled])
        _run(name, [compiler, "-shared", compiled, "-o", result])
        os.replace(result, library)


def _library(name: str, body: str, check: bool = False) -> ctypes.CDLL:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise MissingError("emulating a kernel needs a C++ compiler: install g++, set CXX, or pass CUDA arrays")
    text = f'#include "mathfuse/device/emulate.h"\n{body}'
    key = hashlib.sha256(text.encode())
    for header in sorted((_INCLUDE / "mathfuse").rglob("*")):
        if header.is_file():
            key.update(header.read_bytes())
    key.update(f"{compiler} {check}".encode())
    library = _cache_directory() / "emulated" / f"{key.hexdigest()[:32]}.so"
    if not library.exists():
        _compile(compiler, name, text, library, check)
    return ctypes.CDLL(str(library))


class Emulated:
    """A kernel that runs on the CPU."""

    def __init__(self, text: str, name: str, parameters: list[Parameter], check: bool) -> None:
        arguments = "".join(f", *(void **)p[{i}]" if p.pointer else f", *({p.type} *)p[{i}]" for i, p in enumerate(parameters))
        self._name = name
        body = f'#line 1 "{name}.cu"\n{text}\n{_ENTRY % (name, arguments)}'
        self._entry = _library(name, body, check).mathfuse_entry
        self._entry.restype = ctypes.c_char_p
        self._entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p]

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], shared: int, values: tuple[bytes, ...]) -> None:
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(b) for b in buffers])
        message = self._entry((ctypes.c_int * 3)(*grid), (ctypes.c_int * 3)(*block), shared, pointers)
        if message:
            raise InvalidError(f"kernel {self._name}: {message.decode()}")


def constants(text: str, name: str, expressions: tuple[str, ...]) -> tuple[int, ...]:
    """Values of constant expressions of the source, found by the host's compiler."""
    lines = "".join(f'extern "C" long long mathfuse_constant_{i};\nlong long mathfuse_constant_{i} = {e};\n'
                    for i, e in enumerate(expressions))  # fmt: skip
    library: Any = _library(name, f'#line 1 "{name}.cu"\n{text}\n#line 1 "constants"\n{lines}')
    return tuple(ctypes.c_longlong.in_dll(library, f"mathfuse_constant_{i}").value for i in range(len(expressions)))
