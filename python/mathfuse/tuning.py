"""Tuning results and the database that keeps them.

plan.tune() measures the ways a plan can run and keeps the fastest right one; plans of the same problem, on the same device with
the same libraries, find it again in any later process. Records are data, never code.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from mathfuse import _core


class Tuning(dict[str, Any]):
    """What is known of a plan's tuning: "source" ("default", "tuned", "database" or "memory"), "winner", "default",
    "winner_us", "default_us", "complete" (nothing was cut short), "seconds", "candidates", and the key: "problem", "device",
    "libraries". Each candidate has "step", "choice", "result" ("won", "slower", "wrong", "failed", "crashed", "hung" or "not
    reached"), and, if it raced, "us" with its interval "low_us" to "high_us"; if it raced one run at a time, too, "alone_us"."""

    @property
    def speedup(self) -> float:
        """How many times as fast as the default; 1 if nothing was found or measured."""
        winner, default = float(self["winner_us"]), float(self["default_us"])
        return default / winner if winner > 0 and self["winner"] != self["default"] else 1.0

    @property
    def tried(self) -> dict[str, dict[str, int]]:
        """Of each provider, how many of its ways to run a step were tried, by what came of them:
        {"cublaslt": {"slower": 30, "won": 1}, ...}. Nothing of a plan that was not tuned."""
        counts: dict[str, dict[str, int]] = {}
        for c in self["candidates"]:
            if c["step"]:
                of = counts.setdefault(c["choice"].split("/")[0], {})
                of[c["result"]] = of.get(c["result"], 0) + 1
        return counts

    def __str__(self) -> str:
        lines = [self["title"], f"on {self['device']} ({self['libraries']})"]
        if self["source"] == "default":
            return "\n".join([*lines, "not tuned: the plan goes by estimates"])
        lines.append(
            f"{self['default_us']:.2f} us by default, {self['winner_us']:.2f} us tuned: {self.speedup:.3f} x, "
            f"in {self['seconds']:.1f} s{'' if self['complete'] else ', cut short'}; known from: {self['source']}"
        )
        for provider, results in self.tried.items():
            each = ", ".join(f"{count} {result}" for result, count in results.items())
            lines.append(f"  tried {sum(results.values())} of {provider}: {each}")
        for c in self["candidates"]:
            us = f"{c['us']:10.2f} us" if c.get("us") is not None else " " * 13
            where = f"step {c['step']}" if c["step"] else "whole "
            detail = f": {c['detail']}" if c["detail"] else ""
            lines.append(f"  {where} {us}  {c['result']:<11} {c['choice']}{detail}")
        return "\n".join(lines)


class Profile(dict[str, Any]):
    """Where a plan's time goes: "us" of the whole, "host_us" of submitting it, "bytes", "copy_gb_s" (a copy measured here), "percent"
    of the roofline, and "steps", each with "problem", "provider", "kernel", "us", "bytes", "flops", "gb_s", "gflop_s", "bound_us",
    "bound" ("memory" or "arithmetic") and "percent"."""

    def __str__(self) -> str:
        lines = [
            f"{self['us']:.2f} us on {self['target']}, {self['host_us']:.2f} us of the host; {self['bytes'] / 1e6:.2f} MB; "
            f"{self['percent']:.0f} % of the roofline (a copy moves {self['copy_gb_s']:.0f} GB/s here)"
        ]
        for number, s in enumerate(self["steps"], 1):
            lines.append(
                f"  step {number} {s['us']:10.2f} us {s['gb_s']:9.1f} GB/s {s['gflop_s']:11.1f} GFLOP/s {s['percent']:5.0f} % of "
                f"{s['bound']:<10}  {s['problem']}: {s['provider']} {s['kernel']}"
            )
        return "\n".join(lines)


def profile(plan: _core.Plan, seconds: float = 1.0) -> Profile:
    """The same as plan.profile(): random data, rotated through more than the last cache."""
    return Profile(json.loads(plan._profile(seconds)))


def tuning_of(plan: _core.Plan) -> Tuning:
    """The same as plan.tuning."""
    return Tuning(json.loads(plan._tuning()))


def tune(
    plan: _core.Plan,
    *,
    progress: bool | Callable[[dict[str, Any]], object] = False,
    seconds: float = 10.0,
    candidates: int = 64,
) -> Tuning:
    """Measure how `plan` can run here, and let it run the fastest way that gives the right result.

    `seconds` is a budget; `candidates` the most to try for each step. `progress`: True shows what is tried, what is left and where
    the result goes, on stderr; a function is called with each event and returns True to stop. Whatever ends it early, Ctrl-C too,
    what was measured so far decides and is kept.
    """
    show = _Display(sys.stderr) if progress is True else None
    callback = show if show is not None else progress if callable(progress) else None
    try:
        plan._tune(callback, seconds, candidates)
    finally:
        if show is not None:
            show.close()
    return tuning_of(plan)


class _Display:
    """One line on a terminal, redrawn; a line every few seconds elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self.written = 0.0
        self.dirty = False
        print(f"mathfuse: results go to {_core.tune_database()}", file=stream)

    def __call__(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self.written < (0.1 if self.terminal else 2.0):
            return
        self.written = now
        step = f"step {event['step']} of {event['steps']}" if event["step"] else "groupings"
        doing = "trying" if event["stage"] == "prepare" else f"racing {event['alive']}"
        best = f", best {event['best_us']:.2f} us, default {event['default_us']:.2f} us" if event["best_us"] else ""
        done = f"{event['done']}/{event['count']}"
        text = f"{event['left_s']:5.1f} s left: {step}, {doing} {done}: {event['candidate']}{best}"
        if self.terminal:
            self.stream.write(f"\r\x1b[K{text[:150]}")
            self.stream.flush()
            self.dirty = True
        else:
            print(f"mathfuse: {text}", file=self.stream)

    def close(self) -> None:
        if self.dirty:
            print(file=self.stream)


def database() -> str:
    """The user's own database: MATHFUSE_CACHE_DIR/tuning.db, else below XDG_CACHE_HOME or ~/.cache; it may not exist yet."""
    return _core.tune_database()


def records(filter: str | None = None, *, path: str | None = None, whole: bool = False) -> list[dict[str, Any]]:
    """Records whose problem, title, device or winner contains `filter`, newest first; with their candidates if `whole`."""
    found: list[dict[str, Any]] = json.loads(_core.tune_records(path, filter, whole))
    return found


def export(file: str | Path, filter: str | None = None, *, path: str | None = None) -> int:
    """Write records as JSON lines; how many."""
    found = records(filter, path=path, whole=True)
    Path(file).write_text("".join(json.dumps(r, sort_keys=True) + "\n" for r in found), encoding="utf-8")
    return len(found)


def load(file: str | Path, *, path: str | None = None) -> int:
    """Take records from a file that `export` wrote; of two for one key the newer stays. How many were taken."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}, line {number}: not JSON ({error}); the file is to be one that export wrote") from None
        missing = _FIELDS - set(found[-1]) if isinstance(found[-1], dict) else _FIELDS
        if missing:
            raise ValueError(f"{file}, line {number}: no tuning record; it lacks {', '.join(sorted(missing))}")
    return _core.tune_import(json.dumps(found), path)


_FIELDS = {
    "problem", "device", "libraries", "title", "winner", "default", "winner_us", "default_us", "seconds", "complete",
    "candidates", "created",
}  # fmt: skip


def merge(other: str | Path, *, path: str | None = None) -> int:
    """Take the records of another database; of two for one key the newer stays. How many were taken."""
    return _core.tune_merge(str(other), path)


def clear(filter: str | None = None, *, path: str | None = None) -> int:
    """Remove the records that `records(filter)` lists; how many."""
    return _core.tune_clear(filter, path)


def verify(path: str | None = None) -> list[str]:
    """Faults of a database and its records, none for a sound one."""
    return _core.tune_verify(path).splitlines()
