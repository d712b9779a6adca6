"""What the CPU shows: the epilogue beside the bare product, FFT chains beside SciPy, the cost of a call."""

import ctypes
import json

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


def bare_products(x, w):
    out = np.empty((x.shape[0], w.shape[1]), np.float32)
    yield "NumPy matmul", lambda: np.matmul(x, w, out=out)
    yield "SciPy sgemm", lambda: scipy.linalg.blas.sgemm(1.0, w.T, x.T)
    sgemm = cblas_sgemm()
    if sgemm:
        (m, k), n = x.shape, w.shape[1]
        sgemm.argtypes = [ctypes.c_int] * 6 + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
                                               ctypes.c_float, ctypes.c_void_p, ctypes.c_int]  # fmt: skip
        sgemm.restype = None
        yield (
            "cblas_sgemm, same library",
            lambda: sgemm(101, 111, 111, m, n, k, 1.0, x.ctypes.data, k, w.ctypes.data, n, 0.0, out.ctypes.data, n),
        )


def linear_gelu(rng, m, n, k):
    x, w, b = random(rng, m, k), random(rng, k, n), random(rng, n)
    w /= np.float32(k**0.5)
    out = np.empty((m, n), np.float32)
    plan = mf.plan(mf.matmul, x, w, bias=b, activation="gelu")
    plan.run(x, w, b, out=out)
    x8, w8, b8 = (a.astype(np.float64) for a in (x, w, b))
    times = cpu_us(
        {
            "mathfuse": lambda: plan.run(x, w, b, out=out),
            **dict(bare_products(x, w)),
            "NumPy, unfused": lambda: gelu(x @ w + b),
        },
        rounds=15,
    )
    yield {"name": f"f32 {m}×{n}×{k} linear + gelu", "us": times, "error": relative(out, gelu(x8 @ w8 + b8)),
           "against": "bare product", "goal": 1.15,
           "baseline": [name for name in times if name not in ("mathfuse", "NumPy, unfused")]}  # fmt: skip


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
         "SciPy, workers": lambda: scipy.fft.ifft(scipy.fft.fft(x, workers=-1) * h, workers=-1)}, rounds=15
    )  # fmt: skip
    yield {"name": f"c64 FFT · filter · IFFT, {batch} of {n}", "us": times, "error": relative(out, want), "against": "SciPy"}


def one_fft(rng, batch, n):
    x = (random(rng, batch, n) + 1j * random(rng, batch, n)).astype(np.complex64)
    out = np.empty_like(x)
    plan = mf.plan(mf.fft.fft, x)
    plan.run(x, out=out)
    times = cpu_us({"mathfuse": lambda: plan.run(x, out=out), "SciPy": lambda: scipy.fft.fft(x),
                    "SciPy, workers": lambda: scipy.fft.fft(x, workers=-1)}, rounds=15)  # fmt: skip
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

    times = cpu_us({"mathfuse": lambda: plan.run(x, y, out=out), "NumPy": lambda: unfused(x, y)}, rounds=15)
    want = unfused(x.astype(np.float64), y.astype(np.float64))
    yield {"name": f"f32 tanh(x y + 1) sigmoid(y), {n} elements", "us": times, "error": relative(out, want), "against": "NumPy"}


def small_solve(rng, batch, n):
    a = random(rng, batch, n, n) + n * np.eye(n, dtype=np.float32)
    b = random(rng, batch, n, 1)
    plan = mf.plan(mf.linalg.solve, a, b)
    out = plan.run(a, b)
    times = cpu_us({"mathfuse": lambda: plan.run(a, b), "NumPy": lambda: np.linalg.solve(a, b)}, rounds=15)
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
    times = {k: v / 1000 for k, v in cpu_us({k: many(c) for k, c in candidates.items()}, rounds=15, warmup=1).items()}
    yield {"name": "cost of a call, f32 4×4", "us": times, "kind": "cost"}


def rows(smoke):
    rng = np.random.default_rng(0)
    if smoke:
        parts = [linear_gelu(rng, 128, 256, 64), fft_chain(rng, 16, 256), elementwise(rng, 10_000), small_solve(rng, 64, 8)]
    else:
        parts = [linear_gelu(rng, 1024, 4096, 1024), linear_gelu(rng, 256, 512, 512), fft_chain(rng, 2048, 1024),
                 fft_chain(rng, 256, 4096), one_fft(rng, 2048, 1024), one_fft(rng, 64, 65536), elementwise(rng, 1 << 22),
                 small_solve(rng, 10_000, 16)]  # fmt: skip
    for part in [*parts, call_cost(rng)]:
        yield from part
