"""Python's integers as operands: exact, or refused where the dtype they take does not hold them, as in NumPy."""

from __future__ import annotations

from typing import Any

from mathfuse._trace import Traced, current
from mathfuse.errors import RangeError

_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def exact(value: int) -> Traced:
    """An i64, of two halves, as constants pass through a double."""
    trace = current()
    high, low = (value + 2**63) // 2**32 - 2**31, value % 2**32
    parts = [trace.wrap(trace.graph.constant("i64", float(part))) for part in (high, 2**32, low)]
    if not high:
        return parts[2]
    shifted = trace.graph.op("multiply", parts[0]._node, parts[1]._node)
    return trace.wrap(trace.graph.op("add", shifted, parts[2]._node))


def _bits(dtypes: set[str]) -> int:
    """Of the integers that operands of these dtypes are computed in; 0 where that is a floating type."""
    if not dtypes <= {"bool", "i8", "i32", "i64"}:
        return 0
    return 64 if "i64" in dtypes or dtypes <= {"bool"} else 32


def large_operands(op: str, operands: tuple[Any, ...], traced: list[Traced]) -> list[Traced]:
    """`traced`, with integers beyond 31 bits among `operands` made exact. A comparison with one that the dtype of the others does
    not hold has an answer; anything else is an error."""
    first = 1 if op == "where" else 0  # its condition does not promote
    if any(type(x) in (float, complex) for x in operands[first:]):
        return traced
    bits = _bits({t._dtype for x, t in zip(operands[first:], traced[first:]) if type(x) not in (int, bool)})
    for i, value in enumerate(operands):
        if not bits or type(value) is not int or -(2**31) <= value < 2**31:
            continue
        fits, compared = -(2 ** (bits - 1)) <= value < 2 ** (bits - 1), op in _COMPARISONS
        if not fits and not compared:
            raise RangeError(
                f"{op}: the Python integer {value} is out of bounds for int{bits}, which the other operands have; cast them first"
            )
        if not -(2**63) <= value < 2**63:
            traced[i] = current().wrap(current().graph.number("float", float("inf") if value > 0 else float("-inf")))
        elif not fits or abs(value) > 2**53:
            traced[i] = exact(value)
    return traced
