"""Measuring problems beside peers: verified results, candidates that take turns, medians with their spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mathfuse as mf
from mathfuse import _interop, _peers
from mathfuse._plan import Spec
from mathfuse._problems import SOLVERS, Problem

Call = Callable[[], Any]
ROUNDS = 15


def random_array(spec: Spec, rng: np.random.Generator, definite: bool) -> np.ndarray[Any, Any]:
    """Normal numbers; integers from 0 to 7; for solvers symmetric matrices with a large diagonal."""
    dtype = _interop.numpy_dtype(mf._core.dtype(spec.dtype)[1])
    if spec.dtype in ("bool", "i8", "i32", "i64"):
        return rng.integers(0, 2 if spec.dtype == "bool" else 8, spec.shape).astype(dtype)
    wide = "f64" if spec.dtype in ("f64", "c128") else "f32"
    x: np.ndarray[Any, Any] = rng.standard_normal(spec.shape, dtype=np.float64 if wide == "f64" else np.float32)
    if spec.dtype in ("c64", "c128"):
        x = x + 1j * rng.standard_normal(spec.shape, dtype=x.dtype.type)
    if definite and len(spec.shape) >= 2 and spec.shape[-1] == spec.shape[-2]:
        n = spec.shape[-1]
        x = (x + np.conj(np.swapaxes(x, -1, -2))) / 2 + 2 * n**0.5 * np.eye(n, dtype=x.real.dtype)
    return x.astype(dtype)


def arrays_of(problem: Problem, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    definite = problem.kind in SOLVERS or problem.kind == "python"
    found = [random_array(s, rng, definite) for s in problem.specs]
    if problem.kind == "matmul":  # results of the size of the inputs
        found[1] = (found[1] / np.sqrt(problem.specs[0].shape[-1])).astype(found[1].dtype)
    return found


def flatten(result: Any) -> list[np.ndarray[Any, Any]]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(_peers.to_numpy(p)) for p in parts]


def wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def error_of(got: list[np.ndarray[Any, Any]], want: list[np.ndarray[Any, Any]]) -> float:
    """The largest difference, of the largest value; infinite if shapes or NaNs differ."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        if g.shape != w.shape or not np.array_equal(np.isnan(wide(g)), np.isnan(wide(w))):
            return float("inf")
        scale = float(np.nanmax(np.abs(wide(w)), initial=0.0)) or 1.0
        worst = max(worst, float(np.nanmax(np.abs(wide(g) - wide(w)), initial=0.0)) / scale)
    return worst


def allowed(problem: Problem) -> float:
    """Errors of a right result: a few hundred last digits of the narrowest dtype, more for solvers of large systems."""
    digits = {"f64": 1e-11, "c128": 1e-11, "f32": 2e-4, "c64": 2e-4, "f16": 2e-2, "bf16": 6e-2, "e4m3": 0.3, "e5m2": 0.5}
    return max(digits.get(s.dtype, 0.0) for s in problem.specs) * (10 if problem.kind in SOLVERS else 1)


# ---- timing ----


def _cpu_rounds(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    runs = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        runs[name] = max(1, min(1000, int(2e-3 / max(time.perf_counter() - start, 1e-7))))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(runs[name]):
                call()
            times[name].append(1e6 * (time.perf_counter() - start) / runs[name])
    return times


def _gpu_rounds(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """By events of PyTorch, or else of CuPy; L2 is overwritten in between."""
    begin, end, flush, wait, elapsed = _peers.gpu_clock()
    spans: dict[str, list[Any]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    wait()
    for _ in range(rounds):
        for name, call in calls.items():
            flush()
            first, last = begin(), end()
            first.record()
            call()
            last.record()
            spans[name].append((first, last))
        wait()
    return {name: [1e3 * elapsed(a, b) for a, b in pairs] for name, pairs in spans.items()}


def _host_us(call: Call, calls: int = 50) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - start) / calls


def spread(samples: list[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median, from order statistics."""
    ordered, n = sorted(samples), len(samples)
    below = max(0, int(n / 2 - 0.98 * n**0.5))
    return ordered[below], ordered[n - 1 - below]


# ---- one problem ----


def _bound_us(plan: mf.Plan) -> dict[str, Any]:
    profile = plan.profile(0.3)
    return {
        "bytes": profile["bytes"],
        "flops": sum(s["flops"] for s in profile["steps"]),
        "bound_us": sum(s["bound_us"] for s in profile["steps"]),
        "copy_gb_s": profile["copy_gb_s"],
        "host_us": profile["host_us"],
    }


def measure(
    problem: Problem, device: str, peers: list[_peers.Peer], *, tune: float = 0.0, rounds: int = ROUNDS
) -> dict[str, Any]:
    """A row: median time of each candidate with its interval, errors against NumPy in double precision, and what the roofline
    says. `tune`: seconds to tune our plan first; the untuned one then races too."""
    host = arrays_of(problem)
    want = flatten(_peers.exact(problem, host))
    gpu = device != "cpu"
    arrays = [_peers.to_gpu(a) for a in host] if gpu else host
    row: dict[str, Any] = {"problem": problem.text, "device": device, "us": {}, "interval": {}, "error": {}, "skipped": {}}
    plan = mf.plan(problem.function, *arrays, tune="off" if tune else None)
    calls: dict[str, Call] = {"mathfuse": lambda: plan.run(*arrays)}
    if tune:
        calls["mathfuse, tuned"] = _tuned(problem, arrays, tune, row)
    for peer in peers:
        made = peer.prepare(problem, arrays)
        if isinstance(made, str):
            row["skipped"][peer.name] = made
        else:
            calls[peer.name] = made
    for name in list(calls):
        try:
            row["error"][name] = error_of(flatten(calls[name]()), want)
        except Exception as failure:
            row["skipped"][name] = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            del calls[name]
    for name, error in row["error"].items():
        if not error <= allowed(problem):
            row["skipped"][name] = f"wrong: its error is {error:.1e}, {allowed(problem):.0e} is allowed"
            calls.pop(name, None)
    if not calls:
        return row
    samples = _gpu_rounds(calls, rounds) if gpu else _cpu_rounds(calls, rounds)
    row["us"] = {name: round(statistics.median(s), 4) for name, s in samples.items()}
    row["interval"] = {name: [round(x, 4) for x in spread(s)] for name, s in samples.items()}
    row["launches"] = plan.launches
    row.update(_bound_us(plan))
    if gpu:
        row["host"] = {name: round(_host_us(call), 3) for name, call in calls.items()}
    return row


def _tuned(problem: Problem, arrays: list[Any], seconds: float, row: dict[str, Any]) -> Call:
    plan = mf.plan(problem.function, *arrays, tune="cached")
    if plan.tuning["source"] == "default":
        plan.tune(seconds=seconds)
    row["tuning"] = {k: plan.tuning[k] for k in ("source", "winner", "default", "winner_us", "default_us", "seconds")}
    return lambda: plan.run(*arrays)


def rows(problems: list[Problem], device: str, names: list[str] | None, **options: Any) -> Iterator[dict[str, Any]]:
    """A row a problem; one that fails is a row that says why."""
    peers = _peers.available(device, names)
    for problem in problems:
        try:
            yield measure(problem, device, peers, **options)
        except KeyboardInterrupt:
            raise
        except Exception as failure:
            yield {"problem": problem.text, "device": device, "failed": f"{type(failure).__name__}: {failure}"[:500]}
