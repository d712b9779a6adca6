"""What the CPU shows: the epilogue beside the bare product, FFT chains beside SciPy, the cost of a call."""

import ctypes
import json
import multiprocessing
import statistics

import mathfuse as mf
import numpy as np
import scipy.fft
import scipy.linalg.blas
from timing import cpu_us


def random(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def relative(got, want):
    return float(np.abs(np.asarray(got).astype(want.dtype) - want).max() / np.abs(want).max())


def gelu(y):
    return 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)))


def cblas_sgemm():
    """cblas_sgemm of the very library that mathfuse loads, for a comparison of like with like; None without one."""
    for entry in json.loads(mf.info(json=True)).get("libraries", []):
        if "blas" in str(entry.get("name", entry.get("library", ""))).lower() and str(entry.get("path") or "").startswith("/"):
            try:
                return ctypes.CDLL(entry["path"]).cblas_sgemm
            except (OSError, AttributeError):
                continue
    return None


def operands(m, n, k):
    rng = np.random.default_rng(1)
    x, w, b = random(rng, m, k), random(rng, k, n), random(rng, n)
    return x, w / np.float32(k**0.5), b, np.empty((m, n), np.float32)


def same_library(x, w, out):
    (m, k), n = x.shape, w.shape[1]
    sgemm = cblas_sgemm()
    sgemm.argtypes = [ctypes.c_int] * 6 + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
                                           ctypes.c_float, ctypes.c_void_p, ctypes.c_int]  # fmt: skip
    sgemm.restype = None
    return lambda: sgemm(101, 111, 111, m, n, k, 1.0, x.ctypes.data, k, w.ctypes.data, n, 0.0, out.ctypes.data, n)


def fused(x, w, b, out):
    plan = mf.plan(mf.matmul, x, w, bias=b, activation="gelu")
    return lambda: plan.run(x, w, b, out=out)


def product_us(name, shape):
    """Runs in a process of its own: two BLAS libraries in one process wait for each other's threads."""
    x, w, b, out = operands(*shape)
    call = {
        "mathfuse": lambda: fused(x, w, b, out),
        "NumPy matmul": lambda: lambda: np.matmul(x, w, out=out),
        "SciPy sgemm": lambda: lambda: scipy.linalg.blas.sgemm(1.0, w.T, x.T),
        "cblas_sgemm, same library": lambda: same_library(x, w, out),
        "NumPy, unfused": lambda: lambda: gelu(x @ w + b),
    }[name]()
    return cpu_us({name: call}, rounds=5)[name]


def linear_gelu(m, n, k):
    names = ["mathfuse", "NumPy matmul", "SciPy sgemm", "NumPy, unfused"]
    if cblas_sgemm():
        names.append("cblas_sgemm, same library")
    times = {name: [] for name in names}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for _ in range(3):
            for name in names:
                times[name].append(pool.apply(product_us, (name, (m, n, k))))
    x, w, b, out = operands(m, n, k)
    fused(x, w, b, out)()
    x8, w8, b8 = (a.astype(np.float64) for a in (x, w, b))
    yield {"name": f"f32 {m}×{n}×{k} linear + gelu", "us": {name: statistics.median(t) for name, t in times.items()},
           "error": relative(out, gelu(x8 @ w8 + b8)), "against": "bare product", "goal": 1.15,
           "baseline": [name for name in names if name not in ("mathfuse", "NumPy, unfused")]}  # fmt: skip


def fft_chain(rng, batch, n):
    x = (random(rng, batch, n) + 1j * random(rng, batch, n)).astype(np.complex64)
    h = (random(rng, n) + 1j * random(rng, n)).astype(np.complex64)
    out = np.empty_like(x)

    def chain(x, h):
        return mf.fft.ifft(mf.fft.fft(x) * h)

    plan = mf.plan(chain, x, h)
    plan.run(x, h, out=out)
    want = np.fft.ifft(np.fft.fft(x.astype(np.complex128)) * h)
    times = cpu_us(
        {"mathfuse": lambda: plan.run(x, h, out=out), "SciPy": lambda: scipy.fft.ifft(scipy.fft.fft(x) * h),
         "SciPy, workers": lambda: scipy.fft.ifft(scipy.fft.fft(x, workers=-1) * h, workers=-1)}
    )  # fmt: skip
    yield {"name": f"c64 FFT · filter · IFFT, {batch} of {n}", "us": times, "error": relative(out, want), "against": "SciPy"}


def one_fft(rng, batch, n):
    x = (random(rng, batch, n) + 1j * random(rng, batch, n)).astype(np.complex64)
    out = np.empty_like(x)
    plan = mf.plan(mf.fft.fft, x)
    plan.run(x, out=out)
    times = cpu_us({"mathfuse": lambda: plan.run(x, out=out), "SciPy": lambda: scipy.fft.fft(x),
                    "SciPy, workers": lambda: scipy.fft.fft(x, workers=-1)})  # fmt: skip
    yield {"name": f"c64 FFT, {batch} of {n}", "us": times, "error": relative(out, np.fft.fft(x.astype(np.complex128))),
           "against": "SciPy"}  # fmt: skip


def elementwise(rng, n):
    x, y = random(rng, n), random(rng, n)
    out = np.empty_like(x)

    def chain(x, y):
        return mf.tanh(x * y + 1) * mf.sigmoid(y)

    plan = mf.plan(chain, x, y)
    plan.run(x, y, out=out)

    def unfused(x, y):
        return np.tanh(x * y + 1) / (1 + np.exp(-y))

    times = cpu_us({"mathfuse": lambda: plan.run(x, y, out=out), "NumPy": lambda: unfused(x, y)})
    want = unfused(x.astype(np.float64), y.astype(np.float64))
    yield {"name": f"f32 tanh(x y + 1) sigmoid(y), {n} elements", "us": times, "error": relative(out, want), "against": "NumPy"}


def small_solve(rng, batch, n):
    a = random(rng, batch, n, n) + n * np.eye(n, dtype=np.float32)
    b = random(rng, batch, n, 1)
    plan = mf.plan(mf.linalg.solve, a, b)
    out = plan.run(a, b)
    times = cpu_us({"mathfuse": lambda: plan.run(a, b), "NumPy": lambda: np.linalg.solve(a, b)})
    want = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
    yield {"name": f"f32 solve, {batch} of {n}×{n}", "us": times, "error": relative(out, want), "against": "NumPy"}


def call_cost(rng):
    x = random(rng, 4, 4)
    out = np.empty_like(x)
    plan = mf.plan(mf.add, x, x)
    matmul = mf.plan(mf.matmul, x, x)

    def many(call):
        def run():
            for _ in range(1000):
                call()

        return run

    candidates = {"plan.run, add": lambda: plan.run(x, x, out=out), "mf.add": lambda: mf.add(x, x, out=out),
                  "np.add": lambda: np.add(x, x, out=out), "plan.run, matmul": lambda: matmul.run(x, x, out=out),
                  "mf.matmul": lambda: mf.matmul(x, x, out=out), "np.matmul": lambda: np.matmul(x, x, out=out)}  # fmt: skip
    times = {k: v / 1000 for k, v in cpu_us({k: many(c) for k, c in candidates.items()}, calls=1).items()}
    yield {"name": "cost of a call, f32 4×4", "us": times, "kind": "cost"}


def rows(smoke):
    rng = np.random.default_rng(0)
    if smoke:
        parts = [linear_gelu(128, 256, 64), fft_chain(rng, 16, 256), elementwise(rng, 10_000), small_solve(rng, 64, 8)]
    else:
        parts = [linear_gelu(1024, 4096, 1024), linear_gelu(256, 512, 512), fft_chain(rng, 2048, 1024),
                 fft_chain(rng, 256, 4096), one_fft(rng, 2048, 1024), one_fft(rng, 64, 65536), elementwise(rng, 1 << 22),
                 small_solve(rng, 10_000, 16)]  # fmt: skip
    for part in [*parts, call_cost(rng)]:
        yield from part
