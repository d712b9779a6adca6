"""einsum over traced values: pairwise contractions onto matmul, sums, products and views."""

from __future__ import annotations

from typing import Any

from mathfuse._trace import Traced, apply, cast, matmul, reduce, reshape, transpose
from mathfuse._views import diagonal
from mathfuse.errors import InvalidError, ShapeError

_ELLIPSIS_LABELS = "⁰¹²³⁴⁵⁶⁷⁸⁹ᵃᵇ"  # one for each axis that an ellipsis can stand for, from the right


class _Term:
    """An operand with one label for each axis."""

    def __init__(self, value: Traced, labels: str) -> None:
        self.value = value
        self.labels = labels

    def size(self, label: str) -> int:
        return self.value.shape[self.labels.index(label)]


def _expand_term(text: str, value: Traced) -> str:
    if "..." in text:
        head, _, tail = text.partition("...")
        count = value.ndim - len(head) - len(tail)
        if count < 0:
            raise ShapeError(f"einsum operand '{text}' has more labels than the array of shape {value.shape} has axes")
        text = head + _ELLIPSIS_LABELS[:count][::-1] + tail
    if "." in text or not all(c.isalpha() or c in _ELLIPSIS_LABELS for c in text):
        raise InvalidError(f"einsum operand '{text}' holds something that is no letter and no ellipsis")
    if len(text) != value.ndim:
        raise ShapeError(f"einsum operand '{text}' names {len(text)} axes; the array has shape {value.shape}")
    return text


def from_lists(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts and operands from array, labels, array, labels, …, and the labels of the output if they are wanted."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def word(labels: Any) -> str:
        if not isinstance(labels, (list, tuple)):
            raise InvalidError(
                f"einsum takes subscripts such as 'ij,jk->ik', or arrays and lists of labels; {labels!r} is no list"
            )
        if any(x is not Ellipsis and (type(x) is not int or not 0 <= x < 52) for x in labels):
            raise InvalidError(f"einsum: labels are integers from 0 to 51, or an Ellipsis, not {labels!r}")
        return "".join("..." if x is Ellipsis else letters[x] for x in labels)

    pairs = len(given) // 2
    text = ",".join(word(given[2 * i + 1]) for i in range(pairs))
    return text + ("->" + word(given[-1]) if len(given) % 2 else ""), given[: 2 * pairs : 2]


def _parse(subscripts: str, operands: list[Traced]) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        raise InvalidError("einsum takes its subscripts as a string first, 'ij,jk->ik'")
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise InvalidError(f"einsum '{subscripts}' names {len(terms)} operands; {len(operands)} were given")
    labels = [_expand_term(t, x) for t, x in zip(terms, operands)]
    joined = "".join(labels)
    broadcast = "".join(c for c in reversed(_ELLIPSIS_LABELS) if c in joined)
    if arrow:
        output = output.replace("...", broadcast)
    else:
        output = broadcast + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in broadcast))
    for c in output:
        if output.count(c) > 1:
            raise InvalidError(f"einsum '{subscripts}': output label '{c}' appears twice")
        if c not in joined:
            raise InvalidError(f"einsum '{subscripts}': output label '{c}' is in no operand")
    return labels, output


def _diagonals(value: Traced, labels: str) -> _Term:
    """Repeated labels of one operand take a diagonal."""
    for label in sorted(set(labels)):
        while labels.count(label) > 1:
            a = labels.index(label)
            b = labels.index(label, a + 1)
            if value.shape[a] != value.shape[b]:
                raise ShapeError(f"einsum label '{label}' stands for {value.shape[a]} and {value.shape[b]} in one operand")
            value = diagonal(value, a, b)
            labels = labels[:a] + labels[a + 1 : b] + labels[b + 1 :] + label
    return _Term(value, labels)


def _sizes(terms: list[_Term], subscripts: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term in terms:
        for label, n in zip(term.labels, term.value.shape):
            if sizes.get(label, 1) not in (1, n) and n != 1:
                raise ShapeError(f"einsum '{subscripts}': label '{label}' stands for {sizes[label]} and for {n}")
            sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    return sizes


def _drop(term: _Term, labels: str) -> _Term:
    """Remove axes of size 1."""
    if not labels:
        return term
    kept = [(c, n) for c, n in zip(term.labels, term.value.shape) if c not in labels]
    return _Term(reshape(term.value, tuple(n for _, n in kept)), "".join(c for c, _ in kept))


def _sum_out(term: _Term, keep: set[str]) -> _Term:
    gone = tuple(i for i, c in enumerate(term.labels) if c not in keep)
    if not gone:
        return term
    labels = "".join(c for c in term.labels if c in keep)
    return _Term(reduce("any" if term.value._dtype == "bool" else "sum", term.value, gone), labels)


def _arrange(term: _Term, labels: str) -> Traced:
    return transpose(term.value, tuple(term.labels.index(c) for c in labels))


def _count(labels: str, sizes: dict[str, int]) -> int:
    n = 1
    for c in labels:
        n *= sizes[c]
    return n


def _multiply(a: _Term, b: _Term, batch: str, free_a: str, free_b: str) -> _Term:
    """No sum: a broadcast product."""
    x = _arrange(a, batch + free_a)
    y = _arrange(b, batch + free_b)
    x = reshape(x, x.shape + (1,) * len(free_b))
    y = reshape(y, y.shape[: len(batch)] + (1,) * len(free_a) + y.shape[len(batch) :])
    return _Term(apply("multiply", x, y), batch + free_a + free_b)


def _pair(a: _Term, b: _Term, keep: set[str], sizes: dict[str, int]) -> _Term:
    """Contract two operands: labels outside `keep` are summed."""
    a, b = _sum_out(a, keep | set(b.labels)), _sum_out(b, keep | set(a.labels))
    shared = [c for c in a.labels if c in b.labels]
    batch = "".join(c for c in shared if c in keep)
    inner = "".join(c for c in shared if c not in keep)
    free_a = "".join(c for c in a.labels if c not in shared)
    free_b = "".join(c for c in b.labels if c not in shared)
    if not inner:
        return _multiply(a, b, batch, free_a, free_b)
    lead = tuple(sizes[c] for c in batch)
    m, n, k = (_count(x, sizes) for x in (free_a, free_b, inner))
    x = reshape(_arrange(a, batch + free_a + inner), (*lead, m, k))
    y = reshape(_arrange(b, batch + inner + free_b), (*lead, k, n))
    result = reshape(matmul(x, y), (*lead, *(sizes[c] for c in free_a + free_b)))
    return _Term(result, batch + free_a + free_b)


def _kept(terms: list[_Term], skip: tuple[int, int], output: str) -> set[str]:
    return set(output).union(*(t.labels for i, t in enumerate(terms) if i not in skip))


def _cheapest(terms: list[_Term], output: str, sizes: dict[str, int]) -> tuple[int, int]:
    """The pair whose result is smallest, then whose work is least."""
    best: tuple[tuple[int, int], tuple[int, int]] | None = None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            union = "".join(sorted(set(terms[i].labels + terms[j].labels)))
            keep = _kept(terms, (i, j), output)
            cost = (_count("".join(c for c in union if c in keep), sizes), _count(union, sizes))
            if best is None or cost < best[0]:
                best = (cost, (i, j))
    assert best is not None
    return best[1]


def contract(subscripts: str, operands: list[Traced]) -> Traced:
    labels, output = _parse(subscripts, operands)
    terms = [_diagonals(x, text) for x, text in zip(operands, labels)]
    sizes = _sizes(terms, subscripts)
    # An axis of length 1 where others have n repeats: leaving it out says the same.
    terms = [_drop(t, "".join(c for c in t.labels if t.size(c) == 1 and sizes[c] != 1)) for t in terms]
    while len(terms) > 1:
        i, j = _cheapest(terms, output, sizes)
        merged = _pair(terms[i], terms[j], _kept(terms, (i, j), output), sizes)
        terms = [t for at, t in enumerate(terms) if at not in (i, j)] + [merged]
    value = _arrange(_sum_out(terms[0], set(output)), output)
    given = {x._dtype for x in operands}
    narrow = value._dtype == "i64" and given <= {"i8", "i32", "bool"} and given != {"bool"}
    return cast(value, "i32") if narrow else value  # integers are added as i64
