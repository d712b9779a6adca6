"""Benchmark results as tables and plots, and what changed between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OURS = ("mathfuse, tuned", "mathfuse")
SMALL = 20.0  # microseconds


def load(path: str | Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if "rows" not in result or "provenance" not in result:
        raise ValueError(f"{path} holds no benchmark results; mathfuse bench --output writes them")
    return result


def ours(row: dict[str, Any]) -> str | None:
    return next((name for name in OURS if name in row.get("us", {})), None)


def best_peer(row: dict[str, Any]) -> str | None:
    peers = {name: us for name, us in row.get("us", {}).items() if name not in OURS}
    return min(peers, key=peers.__getitem__) if peers else None


def ratio(row: dict[str, Any]) -> float | None:
    """Our time over the fastest peer's: below 1 is faster."""
    mine, other = ours(row), best_peer(row)
    return row["us"][mine] / row["us"][other] if mine and other else None


def losing_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -(ratio(row) or 0.0))


def time_of(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 10_000 else f"{us:.2f} µs" if us < 100 else f"{us:.0f} µs"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def place(result: dict[str, Any]) -> str:
    p = result["provenance"]
    gpu = p.get("gpu")
    on_gpu = gpu and result["device"] != "cpu"
    where = f"{gpu['name']} (driver {gpu['driver_version']})" if on_gpu else f"{p['processor']}, {p['cores']} cores"
    load = f", load {p['load']:.1f} before it" if not on_gpu and p.get("load") is not None else ""
    call = f", {p['call_us']:.2f} µs for a call of nothing" if p.get("call_us") else ""
    shown = {name: v for name, v in p["versions"].items() if on_gpu or not name.startswith("nvidia-")}
    versions = ", ".join(f"{name} {v}" for name, v in shown.items())
    return f"{where}{load}{call}; {versions}; commit {p['commit']}, {p['date']}: `{p['command']}`"


def bare(row: dict[str, Any]) -> float | None:
    """The fastest measured product without what follows it."""
    times = [us for name, us in row.get("reference", {}).items() if us and name.startswith("bare product")]
    return min(times) if times else None


def one_pass(row: dict[str, Any]) -> float | None:
    """Microseconds that every input and result takes once, at the speed of a copy."""
    return 1e-3 * row["io_bytes"] / row["copy_gb_s"] if row.get("io_bytes") and row.get("copy_gb_s") else None


def _times(us: float, of: float | None) -> str:
    return f"{us / of:.2f}" if of else "–"


def _percent(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.0f} %" if row.get(name) is not None else "–"


HEAD = (
    "problem", "mathfuse", "fastest peer", "ratio", "of the bare product", "of one pass", "tuned gain", "of a copy's speed",
    "of a matmul's speed", "host µs", "error",
)  # fmt: skip


def _cells(row: dict[str, Any]) -> Iterator[str]:
    mine, other = ours(row), best_peer(row)
    assert mine
    us = row["us"][mine]
    yield f"`{row['problem']}`" if ":" in row["problem"] else row["problem"]
    yield time_of(us)
    yield f"{time_of(row['us'][other])} ({other})" if other else "–"
    yield f"{us / row['us'][other]:.2f}" if other else "–"
    yield _times(us, bare(row))
    yield _times(us, one_pass(row))
    yield f"{row['us'][OURS[1]] / us:.3f}" if mine == OURS[0] and OURS[1] in row["us"] else "–"
    yield _percent(row, "copy_percent")
    yield _percent(row, "matmul_percent")
    yield f"{row['host'][mine]:.1f}" if mine in row.get("host", {}) else "–"
    yield f"{row['error'][mine]:.0e}"


def table(result: dict[str, Any]) -> Iterator[str]:
    """Losing rows first. Columns that no row has are left out."""
    rows = [list(_cells(row)) for row in losing_first(row for row in result["rows"] if ours(row))]
    kept = [i for i in range(len(HEAD)) if any(cells[i] != "–" for cells in rows)]
    yield "| " + " | ".join(HEAD[i] for i in kept) + " |"
    yield "| " + " | ".join("---" for _ in kept) + " |"
    for cells in rows:
        yield "| " + " | ".join(_escape(cells[i]) for i in kept) + " |"


def markdown(result: dict[str, Any]) -> str:
    head = [f"# Benchmarks on {result['device']}", "", place(result), "", *table(result), ""]
    lines = [*head, *_remarks(result), *_notes(result["rows"])]
    return "\n".join(lines).rstrip() + "\n"


def figures(result: dict[str, Any], plots: Iterable[str] = ()) -> Iterator[str]:
    """What the README shows of a result: where, the table, what could not be measured; `plots` are pictures' addresses."""
    yield f"**{'CPU' if result['device'] == 'cpu' else 'GPU'}** — {place(result)}"
    yield ""
    yield from table(result)
    yield ""
    yield from _remarks(result)
    yield from _calls(result["rows"])
    yield from _gaps(result["rows"])
    for address in plots:
        name = address.rsplit("-", 1)[1].split(".")[0]
        yield f"![{PLOTS[name]}]({address})"
        yield ""


def _remarks(result: dict[str, Any]) -> Iterator[str]:
    """What is to be known of the run, and of rows; rows that share a remark are named together."""
    remarks: dict[str, list[str]] = {result["note"]: []} if result.get("note") else {}
    for row in result["rows"]:
        if row.get("note"):
            remarks.setdefault(row["note"], []).append(f"`{row['problem']}`")
    for remark, problems in remarks.items():
        yield f"{', '.join(problems)}: {remark}." if problems else f"{remark}."
        yield ""


PLOTS = {"speedup": "times as fast as the fastest peer", "roofline": "roofline", "tuning": "seconds of tuning against gain"}


def _calls(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What the caller's thread spends, where there is next to nothing to compute."""
    small = [row for row in rows if row.get("host") and min(row["us"].values(), default=0) < SMALL]
    if small:
        yield "What a call costs the caller's thread:"
        yield ""
        for row in small:
            costs = sorted(row["host"].items(), key=lambda item: item[1])
            yield f"- `{row['problem']}`: " + ", ".join(f"{name} {us:.1f} µs" for name, us in costs)
        yield ""


def _gaps(rows: list[dict[str, Any]]) -> Iterator[str]:
    late = [row for row in rows if row.get("not_reached")]
    if late:
        yield "Not reached in time: " + ", ".join(f"`{row['problem']}`" for row in late) + "."
        yield ""
    failed = [row for row in rows if row not in late and (row.get("failed") or not (ours(row) or row.get("host")))]
    if failed:
        yield "Not measured:"
        yield ""
        for row in failed:
            yield f"- `{row['problem']}`: {row.get('failed') or row.get('skipped', {}).get('mathfuse', 'no result')}"
        yield ""


def _notes(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from _gaps(rows)
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, why in row.get("skipped", {}).items():
            reasons.setdefault((name, why), []).append(row["problem"])
    if reasons:
        yield "Candidates left out:"
        yield ""
        for (name, why), problems in reasons.items():
            which = ", ".join(f"`{p}`" for p in problems[:3]) + (f" and {len(problems) - 3} more" if len(problems) > 3 else "")
            yield f"- {name}: {why} ({which})"


def plots(result: dict[str, Any], directory: Path, kind: str = "svg") -> list[Path]:
    """Speed-up bars, the roofline, and gain against tuning time; needs matplotlib. The same result gives the same bytes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    written = []
    draw = {"speedup": _speedup, "roofline": _roofline, "tuning": _tuning}
    device = "cpu" if result["device"] == "cpu" else "gpu"
    with matplotlib.rc_context({"svg.hashsalt": "mathfuse", "svg.fonttype": "none", "font.size": 8}):
        for name, function in draw.items():
            figure, axis = plt.subplots()
            if function(result, figure, axis):
                path = directory / f"{device}-{name}.{kind}"
                figure.tight_layout()
                figure.savefig(path, metadata={"Date": None} if kind == "svg" else None)
                written.append(path)
            plt.close(figure)
    return written


def _speedup(result: dict[str, Any], figure: Any, axis: Any) -> bool:
    rows = [row for row in losing_first(result["rows"]) if ratio(row)]
    if not rows:
        return False
    figure.set_size_inches(8, 0.17 * len(rows) + 0.9)
    gains = [1 / (ratio(row) or 1.0) for row in rows]
    bars = axis.barh([row["problem"] for row in rows], gains, color=["tab:red" if g < 1 else "tab:green" for g in gains])
    axis.bar_label(bars, [f" {g:.2f}" for g in gains], fontsize=6)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.invert_yaxis()
    axis.margins(y=0.01)
    axis.set_xlabel("times as fast as the fastest peer")
    axis.set_xscale("log")
    return True


def _roofline(result: dict[str, Any], figure: Any, axis: Any) -> bool:
    points = [row for row in result["rows"] if ours(row) and row.get("bytes") and row.get("flops")]
    if not points:
        return False
    figure.set_size_inches(7, 4.5)
    families = sorted({row["problem"].split(":")[0] for row in points})
    for family in families:
        some = [row for row in points if row["problem"].split(":")[0] == family]
        axis.loglog(
            [row["flops"] / row["bytes"] for row in some], [1e-3 * row["flops"] / row["us"][ours(row)] for row in some], "o",
            markersize=4, label=family,
        )  # fmt: skip
    copy = max(row["copy_gb_s"] for row in points)
    ends = [min(row["flops"] / row["bytes"] for row in points), max(row["flops"] / row["bytes"] for row in points)]
    axis.loglog(ends, [copy * i for i in ends], "--", color="gray", label=f"a copy, {copy:.0f} GB/s")
    ceilings = {row["problem"].split(":")[1]: row["matmul_gflop_s"] for row in points if row.get("matmul_gflop_s")}
    for dtype, rate in sorted(ceilings.items()):
        axis.axhline(rate, linestyle=":", color="gray", linewidth=0.8)
        axis.annotate(f"matmul, {dtype}", (ends[0], rate), fontsize=6)
    axis.set_xlabel("operations a byte")
    axis.set_ylabel("GFLOP/s")
    axis.legend(fontsize=6)
    return True


def _tuning(result: dict[str, Any], figure: Any, axis: Any) -> bool:
    tuned = [row for row in result["rows"] if row.get("tuning", {}).get("seconds") and all(n in row["us"] for n in OURS)]
    if not tuned:
        return False
    figure.set_size_inches(7, 4)
    axis.plot([r["tuning"]["seconds"] for r in tuned], [r["us"][OURS[1]] / r["us"][OURS[0]] for r in tuned], "o", markersize=4)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_xlabel("seconds of tuning")
    axis.set_ylabel("times as fast as untuned")
    return True


def compare(before: dict[str, Any], after: dict[str, Any], threshold: float = 0.02) -> list[dict[str, Any]]:
    """What happened to our time, problem by problem, worst first: "slower" and "faster" where the intervals do not meet and
    the medians differ by more than `threshold`, else "same"."""
    old = {row["problem"]: row for row in before["rows"] if ours(row)}
    found = []
    for row in after["rows"]:
        name = ours(row)
        other = old.get(row["problem"])
        if not name or not other or name not in other["us"]:
            continue
        a, b = other["us"][name], row["us"][name]
        (a_low, a_high), (b_low, b_high) = other["interval"][name], row["interval"][name]
        verdict = "slower" if b_low > a_high and b > a * (1 + threshold) else "same"
        verdict = "faster" if b_high < a_low and b < a * (1 - threshold) else verdict
        found.append({"problem": row["problem"], "before_us": a, "after_us": b, "ratio": b / a, "verdict": verdict})
    return sorted(found, key=lambda c: -c["ratio"])
