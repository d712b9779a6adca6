"""Benchmark results as tables and plots, and what changed between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

OURS = ("mathfuse, tuned", "mathfuse")


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


def _place(result: dict[str, Any]) -> str:
    p = result["provenance"]
    gpu = p.get("gpu")
    where = f"{gpu['name']} (driver {gpu['driver_version']})" if gpu and result["device"] != "cpu" else p["processor"]
    versions = ", ".join(f"{name} {v}" for name, v in p["versions"].items())
    return f"{where}, {p['cores']} cores; {versions}; commit {p['commit']}, {p['date']}: `{p['command']}`"


def markdown(result: dict[str, Any]) -> str:
    """Losing rows first."""
    lines = [f"# Benchmarks on {result['device']}", "", _place(result), ""]
    lines += [
        "| problem | mathfuse | fastest peer | ratio | tuned gain | of the roofline | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = losing_first(row for row in result["rows"] if row.get("us"))
    for row in rows:
        mine, other = ours(row), best_peer(row)
        if not mine:
            continue
        gain = row["us"]["mathfuse"] / row["us"][OURS[0]] if OURS[0] in row["us"] and OURS[1] in row["us"] else None
        lines.append(
            f"| `{_escape(row['problem'])}` | {time_of(row['us'][mine])} | "
            + (f"{time_of(row['us'][other])} ({other}) | {ratio(row):.2f} | " if other else "– | – | ")
            + (f"{gain:.3f} | " if gain else "– | ")
            + (f"{100 * row['bound_us'] / row['us'][mine]:.0f} % | " if row.get("bound_us") else "– | ")
            + f"{row['error'][mine]:.0e} |"
        )
    lines += ["", *_notes(result["rows"])]
    return "\n".join(lines).rstrip() + "\n"


def _notes(rows: list[dict[str, Any]]) -> Iterator[str]:
    failed = [row for row in rows if row.get("failed") or not ours(row)]
    if failed:
        yield "Not measured:"
        yield ""
        for row in failed:
            yield f"- `{row['problem']}`: {row.get('failed') or row.get('skipped', {}).get('mathfuse', 'no result')}"
        yield ""
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
    """Speed-up bars, the roofline, and gain against tuning time; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    written = []
    rows = [row for row in losing_first(result["rows"]) if ratio(row)]
    if rows:
        figure, axis = plt.subplots(figsize=(9, 0.3 * len(rows) + 1.2))
        gains = [1 / (ratio(row) or 1.0) for row in rows]
        axis.barh([row["problem"] for row in rows], gains, color=["tab:red" if g < 1 else "tab:green" for g in gains])
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xlabel("times as fast as the fastest peer")
        axis.set_xscale("log")
        written.append(_save(figure, directory / f"{result['device']}-speedup.{kind}"))
    points = [row for row in result["rows"] if row.get("bound_us") and ours(row) and row.get("bytes")]
    if points:
        figure, axis = plt.subplots(figsize=(7, 5))
        axis.loglog(
            [row["flops"] / row["bytes"] for row in points],
            [1e-3 * row["flops"] / row["us"][ours(row)] for row in points],
            "o",
        )
        rate = max(row["copy_gb_s"] for row in points)
        intensity = [min(row["flops"] / row["bytes"] for row in points), max(row["flops"] / row["bytes"] for row in points)]
        axis.loglog(intensity, [rate * i for i in intensity], "--", color="gray", label=f"a copy's {rate:.0f} GB/s")
        axis.set_xlabel("operations a byte")
        axis.set_ylabel("GFLOP/s")
        axis.legend()
        written.append(_save(figure, directory / f"{result['device']}-roofline.{kind}"))
    tuned = [row for row in result["rows"] if row.get("tuning", {}).get("seconds") and all(n in row["us"] for n in OURS)]
    if tuned:
        figure, axis = plt.subplots(figsize=(7, 5))
        axis.plot([r["tuning"]["seconds"] for r in tuned], [r["us"][OURS[1]] / r["us"][OURS[0]] for r in tuned], "o")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xlabel("seconds of tuning")
        axis.set_ylabel("times as fast as untuned")
        written.append(_save(figure, directory / f"{result['device']}-tuning.{kind}"))
    return written


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path)
    return path


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
