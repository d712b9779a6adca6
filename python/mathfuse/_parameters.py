"""What the source of a kernel says of its parameters, for the launcher."""

from __future__ import annotations

import re

from mathfuse.errors import InvalidError

# C's scalar types by what struct packs them with.
SCALARS = {
    "bool": "?", "char": "b", "signed char": "b", "unsigned char": "B", "short": "h", "unsigned short": "H", "int": "i",
    "unsigned": "I", "unsigned int": "I", "long": "q", "unsigned long": "Q", "long long": "q", "unsigned long long": "Q",
    "float": "f", "double": "d", "size_t": "Q", "int8_t": "b", "uint8_t": "B", "int16_t": "h", "uint16_t": "H", "int32_t": "i",
    "uint32_t": "I", "int64_t": "q", "uint64_t": "Q", "mf::i32": "i", "mf::i64": "q", "mf::u8": "B", "mf::u16": "H",
    "mf::u32": "I", "mf::u64": "Q", "mf::f32": "f", "mf::f64": "d",
}  # fmt: skip
# What arrays may be passed for a pointer to one of these; other pointers take any array.
POINTEES = {
    "float": ("float32", "complex64"), "double": ("float64", "complex128"), "int": ("int32",), "int32_t": ("int32",),
    "long long": ("int64",), "int64_t": ("int64",), "mf::f16": ("float16",), "mf::bf16": ("bfloat16",),
    "__half": ("float16",), "__nv_bfloat16": ("bfloat16",), "mf::cplx<float>": ("complex64",), "float2": ("complex64",),
    "mf::c64": ("complex64",), "mf::cplx<double>": ("complex128",), "mf::c128": ("complex128",), "double2": ("complex128",),
    "mf::f32": ("float32",), "mf::f64": ("float64",), "mf::i8": ("int8",), "mf::i32": ("int32",), "mf::i64": ("int64",),
}  # fmt: skip
_QUALIFIERS = r"\b(const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct)\b|\*|&"


class Parameter:
    """One parameter of a kernel, as its source declares it."""

    def __init__(self, text: str) -> None:
        words = text.strip()
        match = re.fullmatch(r"(.*?)(\w+)?\s*(\[\s*\])?", words, re.S)
        declared = match.group(1).strip() if match and match.group(1).strip() else words
        self.name = (match.group(2) if match else None) or words
        self.pointer = "*" in declared or bool(match and match.group(3))
        self.type = " ".join(re.sub(_QUALIFIERS, " ", declared).split())
        self.constant = bool(re.search(r"\bconst\b", declared.partition("*")[0]))

    def described(self) -> tuple[str, str, str, bool, tuple[str, ...]]:
        """For _core.Launcher: name, type, code, whether it points to what may be written, dtypes of arrays for it."""
        code = "P" if self.pointer else SCALARS.get(self.type, "x")
        dtypes = POINTEES.get(self.type, ()) if self.pointer else ()
        return self.name, self.type, code, self.pointer and not self.constant, dtypes


def parameters(source: str, name: str) -> list[Parameter]:
    """The parameters of the kernel `name`."""
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
    return [Parameter(piece) for piece in pieces if piece.strip() not in ("", "void")]


def with_headers(source: str, file: str, headers: dict[str, str]) -> str:
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
