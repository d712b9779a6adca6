"""Device functions as LTO-IR, for kernels that are compiled elsewhere and linked by nvJitLink: numba-cuda's, cuFFT's callbacks."""

from __future__ import annotations

import re
from typing import Any

from mathfuse import _core, _interop
from mathfuse._kernel import constants_of
from mathfuse.errors import DtypeError, InvalidError

_SCALARS = {"f32": "float", "f64": "double", "i32": "int", "i64": "long long"}
_REDUCTIONS = ("sum", "prod", "max", "min")
_TRANSFORMS = {
    "fft": ("block<{T}, {n}, mf::fft::forward>", "load", "store", "cplx", "cplx"),
    "ifft": ("block<{T}, {n}, mf::fft::inverse>", "load", "store", "cplx", "cplx"),
    "rfft": ("real_forward<{T}, {n}>", "load_real", "store_bins", "real", "cplx"),
    "irfft": ("real_inverse<{T}, {n}>", "load_bins", "store_real", "cplx", "real"),
}
_FFT = """
#include "mathfuse/device/fft.cuh"
using F = mf::fft::%(type)s;

extern "C" __device__ int %(name)s(const %(src)s *src, %(dst)s *dst, int count, void *shared, const %(bin)s *table)
{
    %(bin)s x[F::elements];
    bool mine = F::signal() < count;
    for (int i = 0; i < F::elements; i++)
        x[i] = %(bin)s{0, 0};
    if (mine)
        F::%(load)s(x, src + (mf::i64)F::signal() * %(src_size)d);
    F::run(x, shared, table);
    if (mine)
        F::%(store)s(x, dst + (mf::i64)F::signal() * %(dst_size)d);
    return 0;
}
extern "C" __device__ int %(name)s_run(%(bin)s *x, void *shared, const %(bin)s *table)
{
    %(bin)s v[F::elements];
    for (int i = 0; i < F::elements; i++)
        v[i] = x[i];
    F::run(v, shared, table);
    for (int i = 0; i < F::elements; i++)
        x[i] = v[i];
    return 0;
}
extern "C" __device__ int %(name)s_index(int i)
{
    return F::valid(i) ? F::index(i) : -1;
}
extern "C" __device__ int %(name)s_table(int i, %(bin)s *out)
{
    *out = F::table_entry(i);
    return 0;
}
"""
_FFT_TRAITS = ("threads", "ffts", "elements", "shared_bytes", "table_size")


class Ltoir(bytes):
    """LTO-IR of device functions with C linkage. `name` is the first of them, `symbols` maps each to its C prototype, `source` is
    what was compiled. `traits` tells what a kernel has to provide: for a transform the block's `threads`, the `ffts` (signals)
    that it takes at once, the `elements` of a thread, `shared_bytes` and `table_size`; for a reduction `threads` and
    `shared_bytes`.

    Of a transform NAME, whose functions return 0 as some compilers have no functions without a result:
      - NAME(src, dst, count, shared, table) transforms `count` <= ffts signals, one after the other in memory;
      - NAME_run(x, shared, table) those that the threads hold: x[i] of a thread is element NAME_index(i), none where that is -1;
      - NAME_table(i, out) gives entry i of `table`, which a kernel fills once.
    All threads of the block call the first two; `shared` is aligned to 16 bytes."""

    arch: str
    name: str
    source: str
    symbols: dict[str, str]
    traits: dict[str, int]

    def __repr__(self) -> str:
        return f"<mathfuse LTO-IR for {self.arch}: {'; '.join(self.symbols.values())}>"

    __str__ = __repr__


def _prototypes(source: str) -> dict[str, str]:
    found = re.findall(r'^extern "C" __device__ ((?:[\w:]+ )+(\w+)\(.*\))$', source, re.MULTILINE)
    return {name: prototype for prototype, name in found}


def _scalar(dtype: str, function: str) -> str:
    if dtype not in _SCALARS:
        raise DtypeError(f"{function} is made for {', '.join(_SCALARS)}; not for {dtype}")
    return _SCALARS[dtype]


def _size(size: int | None, function: str, what: str, fits: Any) -> int:
    if not isinstance(size, int) or not fits(size):
        raise InvalidError(f"{function} needs size=, {what}; not {size!r}")
    return size


def _transform(function: str, dtype: str, size: int) -> tuple[str, str, str, dict[str, str]]:
    if dtype not in ("c64", "c128"):
        raise DtypeError(f"{function} is made for c64 and c128, the dtype of its bins; not for {dtype}")
    kind, load, store, src, dst = _TRANSFORMS[function]
    real, half = "float" if dtype == "c64" else "double", size // 2 + 1
    types = {"real": real, "cplx": f"mf::{dtype}"}
    name = f"mf_{function}_{dtype}_{size}"
    source = _FFT % {
        "type": kind.format(T=real, n=size), "name": name, "load": load, "store": store,
        "bin": types["cplx"], "src": types[src], "dst": types[dst],
        "src_size": half if function == "irfft" else size, "dst_size": half if function == "rfft" else size,
    }  # fmt: skip
    head = source[: source.index("extern")]
    return name, source, head, {trait: f"F::{trait}" for trait in _FFT_TRAITS}


def _reduction(function: str, dtype: str, threads: int) -> tuple[str, str, str, dict[str, str]]:
    ctype, name = _scalar(dtype, function), f"mf_block_{function}_{dtype}_{threads}"
    head = '#include "mathfuse/device/reduce.cuh"\n'
    source = (
        f'{head}\nextern "C" __device__ {ctype} {name}({ctype} x, {ctype} *scratch)\n'
        f"{{\n    return mf::block_reduce<mf::op_{function}, {threads}>(x, scratch);\n}}\n"
    )
    return name, source, head, {"threads": str(threads), "shared_bytes": f"{threads} / 32 * (int)sizeof({ctype})"}


def _elementwise(function: str, dtype: str, arity: int) -> tuple[str, str]:
    ctype, name = _scalar(dtype, function), f"mf_{function}_{dtype}"
    operands = ("x", "y", "z")[:arity]
    first = "int x" if function == "where" else f"{ctype} x"
    parameters = ", ".join([first, *(f"{ctype} {o}" for o in operands[1:])])
    compares = f"decltype(mf::{function}({', '.join(f'{ctype}()' for _ in operands)}))"
    result = "int" if function in _BOOLEAN else ctype
    check = "" if function == "where" else f'static_assert(mf::same<{compares}, {result}>, "the result\'s type");\n'
    head = f'#include "mathfuse/device/elementwise.cuh"\n{check}'
    return (
        name,
        f'{head}\nextern "C" __device__ {result} {name}({parameters})\n{{\n    return mf::{function}({", ".join(operands)});\n}}\n',
    )


_BOOLEAN = {
    "isnan", "isinf", "isfinite", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_not",
    "logical_and", "logical_or", "logical_xor",
}  # fmt: skip


def get_ltoir(function: str, *, size: int | None = None, dtype: Any = None, arch: str) -> Ltoir:
    """Device functions with C linkage as LTO-IR of `arch`, "sm_90". Needs NVRTC, no GPU.

    `function` is
      - "fft", "ifft", "rfft" or "irfft" of a block of threads: `size` points; `dtype` "c64" (default) or "c128";
      - "sum", "prod", "max" or "min" over a block: `size` threads, a multiple of 32 and power of two; `dtype` "f32" (default),
        "f64", "i32", "i64";
      - an elementwise operation, "gelu" say: `dtype` likewise.
    The result says what the functions are called and need. With numba-cuda:
    `cuda.declare_device(ltoir.name, signature, abi="c", link=cuda.LTOIR(ltoir))`.
    """
    arity = {name: n for name, n, _ in _core.ops()}
    short = _interop.dtype_name(dtype) if dtype is not None else "c64" if function in _TRANSFORMS else "f32"
    values: dict[str, str] = {}
    if function in _TRANSFORMS:
        points = _size(size, function, "the points of a signal, 2 to 16384", lambda n: 2 <= n <= 16384)
        name, source, head, values = _transform(function, short, points)
    elif function in _REDUCTIONS:
        threads = _size(size, function, "the threads of a block: 32, 64, … 1024", lambda n: n in (32, 64, 128, 256, 512, 1024))
        name, source, head, values = _reduction(function, short, threads)
    elif function in arity:
        if size is not None:
            raise InvalidError(f"{function} works on single values and takes no size=")
        head, (name, source) = "", _elementwise(function, short, arity[function])
    else:
        raise InvalidError(
            f"there is no device function {function!r}: {', '.join([*_TRANSFORMS, *_REDUCTIONS])} or an elementwise operation"
        )
    made = Ltoir(_core.compile("ltoir", arch, name, source))
    made.arch, made.name, made.source, made.symbols = arch, name, source, _prototypes(source)
    found = constants_of(arch, f"{name}_traits", head, tuple(values.values())) if values else ()
    made.traits = dict(zip(values, found, strict=True))
    return made
