"""Measuring problems beside peers: verified results, candidates that take turns, medians with their spread, and a budget."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import mathfuse as mf
from mathfuse import _bench_data as data, _peers
from mathfuse._problems import PRODUCTS, Problem, parse

Call = Callable[[], Any]
ROUNDS = 15
LONG = 0.5  # seconds; what takes longer is measured once
SAMPLING = 0.25  # seconds for each candidate, about
LEAST = 1.0  # seconds that a problem is begun with


class Budget:
    """Seconds for all problems; the share of the next one grows with what the others left."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.end = clock, None if seconds is None else clock() + seconds

    def left(self) -> float:
        return float("inf") if self.end is None else self.end - self.clock()

    def share(self, problems: int) -> float:
        return self.left() / max(1, problems)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """TimeoutError after so long, in the main thread, as soon as Python is reached again."""
    if seconds == float("inf") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError(f"it was not ready after {seconds:.1f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- timing ----


class Cpu:
    """The host's clock. A sample is of as many calls as take 2 ms."""

    gpu = False
    maker = data.NumPyArrays

    def first(self, call: Call) -> tuple[Any, float]:
        start = time.perf_counter()
        result = call()
        return result, time.perf_counter() - start

    def samples(self, calls: dict[str, Call], rounds: dict[str, int]) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in calls}
        runs = {}
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            runs[name] = max(1, min(1000, int(2e-3 / max(time.perf_counter() - start, 1e-7))))
        for i in range(max(rounds.values())):
            for name, call in calls.items():
                if i < rounds[name]:
                    start = time.perf_counter()
                    for _ in range(runs[name]):
                        call()
                    times[name].append(1e6 * (time.perf_counter() - start) / runs[name])
        return times


class Gpu:
    """Events of PyTorch's stream. Before each sample L2 is filled with something else, by reading, so that nothing is left to
    be written; then a kernel sleeps while the host queues the call."""

    gpu = True
    maker = data.TorchArrays

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.rubbish = torch.zeros(64 << 20, dtype=torch.int32, device="cuda")
        self.sum = torch.zeros((), dtype=torch.int64, device="cuda")

    def first(self, call: Call) -> tuple[Any, float]:
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        result = call()
        self.torch.cuda.synchronize()
        return result, time.perf_counter() - start

    def samples(self, calls: dict[str, Call], rounds: dict[str, int]) -> dict[str, list[float]]:
        spans: dict[str, list[Any]] = {name: [] for name in calls}
        for call in calls.values():
            call()
        self.torch.cuda.synchronize()
        for i in range(max(rounds.values())):
            for name, call in calls.items():
                if i >= rounds[name]:
                    continue
                self.torch.sum(self.rubbish, dim=0, out=self.sum)
                first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                self.torch.cuda._sleep(400_000)
                first.record()
                call()
                last.record()
                spans[name].append((first, last))
            self.torch.cuda.synchronize()
        return {name: [1e3 * a.elapsed_time(b) for a, b in pairs] for name, pairs in spans.items()}


def host_us(call: Call, wait: Call, calls: int = 50) -> float:
    """What submitting a call costs, the device being idle before: the median of three batches."""
    times = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        times.append(1e6 * (time.perf_counter() - start) / calls)
    wait()
    return statistics.median(times)


def spread(samples: list[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median, from order statistics."""
    ordered, n = sorted(samples), len(samples)
    below = max(0, int(n / 2 - 0.98 * n**0.5))
    return ordered[below], ordered[n - 1 - below]


def rounds_of(seconds: float, rounds: int) -> int:
    return max(3, min(rounds, int(SAMPLING / max(seconds, 1e-9))))


# ---- ceilings ----


@functools.cache
def matmul_gflop_s(dtype: str, device: str) -> float | None:
    """The fastest of ours and the library's on a square product, measured once; what arithmetic is compared with."""
    n = 8192 if device != "cpu" and dtype in ("bf16", "f16", "e4m3") else 4096 if device != "cpu" else 1024
    kind = "scaled_matmul" if dtype == "e4m3" else "matmul"
    problem = parse(f"{kind}:{dtype}:{n}x{n}x{n}")
    clock = clock_of(device)
    arrays = data.arrays_of(problem, clock.maker())
    plan = mf.plan(problem.function, *arrays)
    calls: dict[str, Call] = {"mathfuse": lambda: plan.run(*arrays)}
    for peer in _peers.available(device, None):
        if peer.name in ("torch", "NumPy") and not isinstance(made := peer.prepare(problem, arrays), str):
            calls[peer.name] = made
    times = clock.samples(calls, dict.fromkeys(calls, 5))
    flops = (8.0 if dtype in data.COMPLEX else 2.0) * n**3
    return float(1e-3 * flops / min(min(s) for s in times.values()))


def io_bytes(problem: Problem, results: Any) -> int:
    """What has to be moved at least: every input and every result once."""
    parts = results if isinstance(results, (tuple, list)) else [results]
    return sum(int(p.nbytes) for p in parts) + sum(data.SIZES[s.dtype] * math.prod(s.shape) for s in problem.specs)


def _roofline(plan: mf.Plan, problem: Problem, device: str, us: float) -> dict[str, Any]:
    profile = plan.profile(0.2)
    flops = sum(s["flops"] for s in profile["steps"])
    found: dict[str, Any] = {
        "bytes": profile["bytes"],
        "flops": flops,
        "bound_us": sum(s["bound_us"] for s in profile["steps"]),
        "copy_gb_s": profile["copy_gb_s"],
        "host_us": profile["host_us"],
        "copy_percent": round(0.1 * profile["bytes"] / us / profile["copy_gb_s"], 2),
    }
    if problem.kind in PRODUCTS and (rate := matmul_gflop_s(problem.specs[0].dtype, device)):
        found["matmul_gflop_s"] = round(rate, 1)
        found["matmul_percent"] = round(0.1 * flops / us / rate, 2)
    return found


# ---- one problem ----


class _Measurement:
    """A row in the making."""

    def __init__(self, problem: Problem, device: str, clock: Any, limit: float, rounds: int) -> None:
        self.problem, self.device, self.clock, self.limit, self.rounds = problem, device, clock, limit, rounds
        self.maker = clock.maker()
        self.arrays = data.arrays_of(problem, self.maker)
        self.want = data.exact(problem, self.arrays, self.maker)
        self.calls: dict[str, Call] = {}
        self.counts: dict[str, int] = {}
        self.once: dict[str, float] = {}
        self.row: dict[str, Any] = {
            "problem": problem.text, "device": device, "us": {}, "interval": {}, "error": {}, "skipped": {}, "reference": {},
        }  # fmt: skip

    def skip(self, name: str, why: str) -> None:
        self.row["skipped"][name] = (why.splitlines() or ["no reason was given"])[0][:200]

    def add(self, name: str, make: Callable[[], Any]) -> bool:
        """A candidate: made, run once and verified."""
        try:
            with within(self.limit):
                call = make()
                if isinstance(call, str):
                    self.skip(name, call)
                    return False
                result, seconds = self.clock.first(call)
                got = data.comparable(self.problem, self.arrays, result, self.maker)
            error = data.error_of(got, self.want, self.maker.xp)
        except Exception as failure:
            self.skip(name, f"{type(failure).__name__}: {failure}")
            return False
        self.row["error"][name] = error
        if not error <= (most := data.allowed(self.problem)):
            self.skip(name, f"wrong: its error is {error:.1e}, {most:.0e} is allowed")
            return False
        self.row.setdefault("io_bytes", io_bytes(self.problem, result))
        self.time(name, call, seconds)
        return True

    def add_reference(self, name: str, call: Call) -> None:
        try:
            with within(self.limit):
                _, seconds = self.clock.first(call)
            self.time(name, call, seconds)
            self.row["reference"][name] = None
        except Exception as failure:
            self.skip(name, f"{type(failure).__name__}: {failure}")

    def time(self, name: str, call: Call, seconds: float) -> None:
        """The first call may have been slow for once; one that still is is measured by this second one only."""
        if seconds > 0.1 * LONG:
            _, seconds = self.clock.first(call)
        if seconds > LONG:
            self.once[name] = 1e6 * seconds
            return
        self.calls[name] = call
        self.counts[name] = rounds_of(seconds, self.rounds)

    def finish(self) -> None:
        samples = self.clock.samples(self.calls, self.counts) if self.calls else {}
        samples |= {name: [us] for name, us in self.once.items()}
        for name, values in samples.items():
            us = round(statistics.median(values), 4)
            if name in self.row["reference"]:
                self.row["reference"][name] = us
            else:
                self.row["us"][name] = us
                self.row["interval"][name] = [round(x, 4) for x in spread(values)]


def _tuned(problem: Problem, arrays: list[Any], seconds: float, row: dict[str, Any]) -> mf.Plan:
    plan = mf.plan(problem.function, *arrays, tune="cached")
    if plan.tuning["source"] == "default":
        plan.tune(seconds=seconds)
    row["tuning"] = {k: plan.tuning[k] for k in ("source", "winner", "default", "winner_us", "default_us", "seconds")}
    return plan


@functools.cache
def clock_of(device: str) -> Any:
    return Cpu() if device == "cpu" else Gpu()


def measure(
    problem: Problem,
    device: str,
    peers: list[_peers.Peer],
    *,
    tune: float = 0.0,
    rounds: int = ROUNDS,
    limit: float = float("inf"),
) -> dict[str, Any]:
    """A row: median time of each candidate with its interval, errors against double precision, and what the roofline says.
    `tune`: seconds to tune our plan first; the untuned one then races too. `limit`: seconds to make a candidate ready in."""
    clock = clock_of(device)
    making = _Measurement(problem, device, clock, limit, rounds)
    row, arrays = making.row, making.arrays
    plans: dict[str, mf.Plan] = {}

    def ours(name: str, make: Callable[[], mf.Plan]) -> None:
        def call() -> Call:
            plan = plans[name] = make()
            return lambda: plan.run(*arrays)

        making.add(name, call)

    ours("mathfuse", lambda: mf.plan(problem.function, *arrays, tune="off" if tune else None))
    if tune:
        making.limit += tune
        ours("mathfuse, tuned", lambda: _tuned(problem, arrays, tune, row))
        making.limit -= tune
    for peer in peers:
        if making.add(peer.name, functools.partial(peer.prepare, problem, arrays)) or not peer.slow:
            _references(making, peer)
    making.finish()
    best = min((n for n in row["us"] if n in plans), key=row["us"].__getitem__, default=None)
    if best:
        row["launches"] = plans[best].launches
        try:
            row.update(_roofline(plans[best], problem, device, row["us"][best]))
            row["host"] = _host(making, problem)
        except Exception as failure:  # the times are worth keeping
            making.skip("roofline and cost of a call", f"{type(failure).__name__}: {failure}")
    return row


def _references(making: _Measurement, peer: _peers.Peer) -> None:
    try:
        found = peer.references(making.problem, making.arrays)
    except Exception as failure:
        making.skip(f"{peer.name}, for reference", f"{type(failure).__name__}: {failure}")
        return
    for name, call in found.items():
        making.add_reference(name, call)


def _host(making: _Measurement, problem: Problem) -> dict[str, float]:
    """Microseconds that the caller's thread spends on a call. On the CPU that is the whole call, so only calls that take next
    to nothing say what a call costs."""
    calls = {name: call for name, call in making.calls.items() if name in making.row["us"]}
    gpu = making.clock.gpu
    if not gpu and min(making.row["us"].values()) > 50:
        return {}
    calls["mathfuse, one call"] = functools.partial(mf.fuse(problem.function), *making.arrays)
    calls["mathfuse, one call"]()
    wait = making.clock.torch.cuda.synchronize if gpu else lambda: None
    return {name: round(host_us(call, wait), 3) for name, call in calls.items() if making.row["us"].get(name, 0) < 20_000}


# ---- all of them ----


def rows(
    problems: list[Problem],
    device: str,
    names: list[str] | None,
    *,
    tune: float = 0.0,
    rounds: int = ROUNDS,
    budget: Budget | None = None,
    begun: Callable[[Problem], None] = lambda problem: None,
) -> Iterator[dict[str, Any]]:
    """A row a problem, in their order; one that fails, or is not reached in time, is a row that says so."""
    budget = budget or Budget(None)
    peers = _peers.available(device, names)
    for i, problem in enumerate(problems):
        share = budget.share(len(problems) - i)
        if budget.left() < LEAST:
            yield {"problem": problem.text, "device": device, "not_reached": True}
            continue
        begun(problem)
        limited = share < float("inf")
        taking = [p for p in peers if not (limited and p.slow and p.name not in problem.slow)]
        limit = min(budget.left(), max(4 * share, 5.0)) if limited else share
        try:
            row = measure(problem, device, taking, tune=min(tune, 0.4 * share), rounds=rounds, limit=limit)
        except KeyboardInterrupt:
            raise
        except Exception as failure:
            row = {"problem": problem.text, "device": device, "failed": f"{type(failure).__name__}: {failure}"[:500]}
        if lost := _tidy(device):
            row |= {"failed": f"the GPU failed in it: {lost}"[:500], "lost": True, "us": {}}
        yield row
        if lost:
            return


def finished(result: dict[str, Any], problems: list[Problem]) -> list[dict[str, Any]]:
    """The rows of an earlier run that need not be measured again; a problem in which its process ended is not tried again."""
    wanted = {p.text for p in problems}
    rows = [
        r
        for r in result["rows"]
        if r["problem"] in wanted and not r.get("not_reached") and ("failed" not in r or r.get("lost"))
    ]
    if result.get("running") in wanted:
        rows.append({"problem": result["running"], "device": result["device"], "failed": "the process that measured it ended"})
    return rows


def _tidy(device: str) -> str:
    """What a problem left on the GPU goes. Not "": a kernel failed, and this process can use the GPU no more."""
    if device == "cpu":
        return ""
    import gc

    import torch

    gc.collect()
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception as failure:
        return (str(failure).splitlines() or [type(failure).__name__])[0]
    return ""
