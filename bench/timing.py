"""Timing: candidates of one comparison take turns, so that clocks and neighbours treat all alike; medians of many."""

import statistics
import time


def cpu_us(candidates, rounds=11, calls=3):
    """{name: median µs} of {name: callable}, on the host's clock. In each round each has its turn: one call that does not count,
    then `calls` that do."""
    times = {name: [] for name in candidates}
    for call in candidates.values():
        call()
    for _ in range(rounds):
        for name, call in candidates.items():
            call()
            for _ in range(calls):
                start = time.perf_counter()
                call()
                times[name].append(1e6 * (time.perf_counter() - start))
    return {name: statistics.median(t) for name, t in times.items()}


def gpu_us(candidates, rounds=25, warmup=5):
    """{name: median µs} of {name: callable of a round number}, by events. The number picks the buffers, so that they rotate.

    A sleeping kernel goes first, so that the events and the call are all queued when the device reaches them: the time between
    the events is then the device's, not the host's.
    """
    import torch

    spans = {name: [] for name in candidates}
    for i in range(rounds + warmup):
        for name, call in candidates.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(400_000)
            first.record()
            call(i)
            last.record()
            if i >= warmup:
                spans[name].append((first, last))
        torch.cuda.synchronize()
    return {name: statistics.median(1e3 * a.elapsed_time(b) for a, b in pairs) for name, pairs in spans.items()}


def host_us(candidates, batches=15, calls=200):
    """{name: median over batches of µs a call} that the host spends submitting; the device is idle when a batch starts."""
    import torch

    times = {name: [] for name in candidates}
    for call in candidates.values():
        for _ in range(20):
            call()
    for _ in range(batches):
        for name, call in candidates.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            times[name].append(1e6 * (time.perf_counter() - start) / calls)
    torch.cuda.synchronize()
    return {name: statistics.median(t) for name, t in times.items()}
