"""How many blocks of a kernel a multiprocessor holds at once, from the kernel's resources and the architecture's limits."""

from __future__ import annotations

import re
from typing import NamedTuple

from mathfuse.errors import InvalidError


class _Limits(NamedTuple):
    warps: int
    blocks: int
    shared: int  # bytes of a multiprocessor


# CUDA C++ Programming Guide, technical specifications by compute capability. All have 65536 registers, handed to warps in
# pieces of 256, and keep 1 KiB of shared memory of each block for themselves.
_LIMITS = {
    80: _Limits(64, 32, 164 << 10), 86: _Limits(48, 16, 100 << 10), 87: _Limits(48, 16, 164 << 10),
    89: _Limits(48, 24, 100 << 10), 90: _Limits(64, 32, 228 << 10), 100: _Limits(64, 32, 228 << 10),
    103: _Limits(64, 32, 228 << 10), 120: _Limits(48, 24, 100 << 10), 121: _Limits(48, 24, 100 << 10),
}  # fmt: skip
_REGISTERS, _REGISTER_UNIT, _SHARED_UNIT, _RESERVED = 65536, 256, 128, 1024


class Occupancy(NamedTuple):
    """Blocks and warps that a multiprocessor holds at once, which share of its warps that is, and what keeps it from more:
    "registers", "shared memory", "blocks" or "threads"."""

    blocks: int
    warps: int
    fraction: float
    limited_by: str


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def occupancy(arch: str, threads: int, registers: int, shared: int) -> Occupancy:
    found = re.match(r"sm_(\d+)", arch)
    limits = _LIMITS.get(int(found.group(1))) if found else None
    if limits is None:
        raise InvalidError(f"the limits of {arch} are not known; they are of {', '.join(f'sm_{n}' for n in _LIMITS)}")
    if not 1 <= threads <= 1024:
        raise InvalidError(f"a block has 1 to 1024 threads, not {threads}")
    warps = -(-threads // 32)
    by = {
        "threads": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _REGISTERS // (_up(max(registers, 1) * 32, _REGISTER_UNIT) * warps),
        "shared memory": limits.shared // _up(shared + _RESERVED, _SHARED_UNIT),
    }
    limit = min(by, key=lambda name: by[name])
    return Occupancy(by[limit], by[limit] * warps, by[limit] * warps / limits.warps, limit)
