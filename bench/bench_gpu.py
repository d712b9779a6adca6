"""What a GPU shows: fused matmuls beside cuBLASLt and PyTorch, FFTs beside cuFFT, the cost of a call. Needs PyTorch."""

import math

import lt_peer
import mathfuse as mf
import torch
import torch.nn.functional as F
from timing import gpu_us, host_us

L2_BYTES = 64 << 20


def random(*shape, dtype=torch.bfloat16):
    if dtype.is_complex:
        return torch.randn(*shape, device="cuda", dtype=dtype)
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def relative(got, want):
    wide = torch.complex128 if want.is_complex() else torch.float64
    got, want = got.to(wide), want.to(wide)
    return float((got - want).abs().max() / want.abs().max())


def rotated(make, bytes_each):
    """Enough sets of buffers that a set has left the L2 cache when its turn comes again."""
    count = max(2, min(40, math.ceil(3 * L2_BYTES / bytes_each)))
    return [make() for _ in range(count)]


def turn(sets, call):
    return lambda i: call(*sets[i % len(sets)])


def peer():
    """cuBLASLt called directly, or why not."""
    try:
        torch.empty(16, 16, device="cuda", dtype=torch.bfloat16) @ torch.empty(16, 16, device="cuda", dtype=torch.bfloat16)
        return lt_peer.build(), None
    except Exception as error:
        return None, f"cuBLASLt directly: {error}"


def lt_candidates(direct, m, n, k, gelu_bias, sets):
    """The heuristic's first pick and the fastest of the candidates, chosen by a first round of timing."""
    problem = lt_peer.Problem(direct, m, n, k, gelu_bias)
    arguments = [(s[0], s[1], s[2], s[-1]) for s in sets]

    def with_index(index):
        return turn(arguments, lambda *a: problem.run(index, *a))

    usable = {str(i): with_index(i) for i in range(problem.count) if problem.run(i, *arguments[0]) == 0}
    times = gpu_us(usable, rounds=15)
    best = min(times, key=times.get)
    suffix = "" if gelu_bias else ", bare product"
    yield f"cuBLASLt, first pick{suffix}", with_index(0)
    if best != "0":
        yield f"cuBLASLt, best of {len(usable)}{suffix}", with_index(int(best))


def matmul_gelu(direct, m, n, k):
    sets = rotated(lambda: (random(m, k), random(k, n) / k**0.5, random(n), random(m, n)), 2 * (m * k + k * n + m * n))
    x, w, b, y = sets[0]
    plan = mf.plan(mf.matmul, x, w, bias=b, activation="gelu")
    plan.run(x, w, b, out=y)
    want = F.gelu(x.double() @ w.double() + b.double(), approximate="tanh")
    error = relative(y, want)
    candidates = {
        "mathfuse": turn(sets, lambda x, w, b, y: plan.run(x, w, b, out=y)),
        "mf.matmul": turn(sets, lambda x, w, b, y: mf.matmul(x, w, bias=b, activation="gelu", out=y)),
        "torch._addmm_activation": turn(sets, lambda x, w, b, y: torch._addmm_activation(b, x, w, use_gelu=True)),
        "torch, eager": turn(sets, lambda x, w, b, y: F.gelu(torch.addmm(b, x, w), approximate="tanh")),
        "torch matmul, bare product": turn(sets, lambda x, w, b, y: torch.matmul(x, w, out=y)),
    }
    if direct:
        candidates |= dict(lt_candidates(direct, m, n, k, True, sets))
        candidates |= dict(lt_candidates(direct, m, n, k, False, sets))
    times = gpu_us(candidates)
    row = {"name": f"bf16 {m}×{n}×{k} matmul + bias + gelu", "us": times, "error": error, "launches": plan.launches}
    row["baseline"] = [c for c in times if c not in ("mathfuse", "mf.matmul") and "bare" not in c]
    yield {**row, "against": "fastest fused peer", "goal": 1.02}


def chain(direct, m, n, k):
    sets = rotated(lambda: (random(m, k), random(k, n) / k**0.5, random(n), random(m, n), random(m, n)),
                   2 * (m * k + k * n + 2 * m * n))  # fmt: skip
    x, w, b, r, y = sets[0]

    def layer(x, w, b, r):
        return mf.tanh(x @ w + b) + r

    plan = mf.plan(layer, x, w, b, r)
    plan.run(x, w, b, r, out=y)
    error = relative(y, torch.tanh(x.double() @ w.double() + b.double()) + r.double())
    times = gpu_us({
        "mathfuse": turn(sets, lambda x, w, b, r, y: plan.run(x, w, b, r, out=y)),
        "torch, eager": turn(sets, lambda x, w, b, r, y: torch.tanh(torch.addmm(b, x, w)) + r),
        "torch matmul, bare product": turn(sets, lambda x, w, b, r, y: torch.matmul(x, w, out=y)),
    })  # fmt: skip
    yield {"name": f"bf16 {m}×{n}×{k} tanh(x w + b) + r", "us": times, "error": error, "launches": plan.launches,
           "against": "torch, eager", "baseline": ["torch, eager"]}  # fmt: skip


def cupy_module():
    try:
        import cupy

        return cupy
    except ImportError:
        return None


def transform(name, ours, theirs, cupy_name, x, y):
    plan = mf.plan(ours, x)
    plan.run(x, out=y)
    error = relative(y, theirs(x))
    candidates = {"mathfuse": lambda i: plan.run(x, out=y), "torch": lambda i: theirs(x)}
    cupy = cupy_module()
    if cupy:
        borrowed, function = cupy.from_dlpack(x), getattr(cupy.fft, cupy_name)

        def by_cupy(i):
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                function(borrowed)

        candidates["CuPy"] = by_cupy
    times = gpu_us(candidates, rounds=15, warmup=3)
    return {"name": name, "us": times, "error": error, "launches": plan.launches, "against": "fastest of torch and CuPy (cuFFT)",
            "goal": 1.03}  # fmt: skip


def ffts(points, lengths, squares):
    complex64 = torch.complex64
    for n in lengths:
        x = random(points // n, n, dtype=complex64)
        yield transform(f"c64 FFT, {points // n} of {n}", mf.fft.fft, torch.fft.fft, "fft", x, torch.empty_like(x))
    for n in lengths[1::2]:
        x = random(points // n, n, dtype=torch.float32)
        y = torch.empty(points // n, n // 2 + 1, dtype=complex64, device="cuda")
        yield transform(f"f32 RFFT, {points // n} of {n}", mf.fft.rfft, torch.fft.rfft, "rfft", x, y)
    for n in squares:
        x = random(points // n**2, n, n, dtype=complex64)
        yield transform(f"c64 FFT2, {points // n**2} of {n}×{n}", mf.fft.fft2, torch.fft.fft2, "fft2", x, torch.empty_like(x))


def copy_us(x, y):
    """One pass: what reading the input and writing the result cost at least."""
    return {"one copy": lambda i: y.copy_(x)}


def filtered(points, n, channels=1):
    shape = (points // n // channels, channels, n)
    x, h = random(*shape, dtype=torch.complex64), random(channels, n, dtype=torch.complex64)
    y = torch.empty_like(x)

    def both(x, h):
        return mf.fft.ifft(mf.fft.fft(x) * h)

    plan = mf.plan(both, x, h)
    plan.run(x, h, out=y)
    error = relative(y, torch.fft.ifft(torch.fft.fft(x) * h))
    times = gpu_us({"mathfuse": lambda i: plan.run(x, h, out=y), "torch": lambda i: torch.fft.ifft(torch.fft.fft(x) * h),
                    **copy_us(x, y)}, rounds=9, warmup=2)  # fmt: skip
    each = f", {channels} filters" if channels > 1 else ""
    yield {"name": f"c64 FFT · filter · IFFT, {math.prod(shape[:2])} of {n}{each}", "us": times, "error": error,
           "launches": plan.launches, "against": "torch", "baseline": ["torch"]}  # fmt: skip


def real_filtered(points, n):
    x, h = random(points // n, n, dtype=torch.float32), random(n // 2 + 1, dtype=torch.complex64)
    torch.view_as_real(h)[[0, -1], 1] = 0  # cuFFT counts imaginary parts there, NumPy and mathfuse ignore them
    y = torch.empty_like(x)

    def both(x, h):
        return mf.fft.irfft(mf.fft.rfft(x) * h)

    plan = mf.plan(both, x, h)
    plan.run(x, h, out=y)
    error = relative(y, torch.fft.irfft(torch.fft.rfft(x) * h))
    times = gpu_us({"mathfuse": lambda i: plan.run(x, h, out=y), "torch": lambda i: torch.fft.irfft(torch.fft.rfft(x) * h),
                    **copy_us(x, y)}, rounds=9, warmup=2)  # fmt: skip
    yield {"name": f"f32 RFFT · filter · IRFFT, {points // n} of {n}", "us": times, "error": error,
           "launches": plan.launches, "against": "torch", "baseline": ["torch"]}  # fmt: skip


def spectrum(points, n):
    x, w = random(points // n, n, dtype=torch.float32), random(n, dtype=torch.float32)
    y = torch.empty(points // n, n // 2 + 1, device="cuda")

    def power(x, w):
        return mf.abs(mf.fft.rfft(x * w)) ** 2

    plan = mf.plan(power, x, w)
    plan.run(x, w, out=y)
    error = relative(y, torch.fft.rfft(x * w).abs() ** 2)
    times = gpu_us({"mathfuse": lambda i: plan.run(x, w, out=y), "torch": lambda i: torch.fft.rfft(x * w).abs() ** 2},
                   rounds=9, warmup=2)  # fmt: skip
    yield {"name": f"f32 |RFFT(window · x)|², {points // n} of {n}", "us": times, "error": error,
           "launches": plan.launches, "against": "torch", "baseline": ["torch"]}  # fmt: skip


def spectral_layer(batch, channels, n, modes):
    """The spectral layer of a Fourier Neural Operator: the lowest modes mixed over the channels."""
    x, w = random(batch, channels, n, dtype=torch.float32), random(channels, channels, modes, dtype=torch.complex64)
    w[..., 0] = w[..., 0].real  # of real signals cuFFT counts imaginary parts there, NumPy and mathfuse ignore them
    y = torch.empty_like(x)

    def ours(x, w):
        return mf.fft.irfft(mf.einsum("bcm,com->bom", mf.fft.rfft(x)[..., :modes], w), n=n)

    def theirs():
        return torch.fft.irfft(torch.einsum("bcm,com->bom", torch.fft.rfft(x)[..., :modes], w), n=n)

    plan = mf.plan(ours, x, w)
    plan.run(x, w, out=y)
    error = relative(y, theirs())
    times = gpu_us({"mathfuse": lambda i: plan.run(x, w, out=y), "torch": lambda i: theirs(), **copy_us(x, y)},
                   rounds=9, warmup=2)  # fmt: skip
    yield {"name": f"FNO layer, B{batch} C{channels} N{n} modes {modes}", "us": times, "error": error,
           "launches": plan.launches, "against": "torch", "baseline": ["torch"]}  # fmt: skip


def call_cost():
    a, b = random(64, 64), random(64)
    y = torch.empty_like(a)
    z = random(64, 64, dtype=torch.complex64)
    fz = torch.empty_like(z)
    gelu = mf.plan(mf.matmul, a, a, bias=b, activation="gelu")
    product, fft = mf.plan(mf.matmul, a, a), mf.plan(mf.fft.fft, z)
    candidates = {
        "plan.run, matmul": lambda: product.run(a, a, out=y),
        "plan.run, matmul + bias + gelu": lambda: gelu.run(a, a, b, out=y),
        "plan.run without out=": lambda: gelu.run(a, a, b),
        "mf.matmul": lambda: mf.matmul(a, a, out=y),
        "mf.matmul + bias + gelu": lambda: mf.matmul(a, a, bias=b, activation="gelu", out=y),
        "torch matmul": lambda: torch.matmul(a, a, out=y),
        "torch._addmm_activation": lambda: torch._addmm_activation(b, a, a, use_gelu=True),
        "torch addmm, gelu": lambda: F.gelu(torch.addmm(b, a, a), approximate="tanh"),
        "plan.run, fft": lambda: fft.run(z, out=fz),
        "mf.fft.fft": lambda: mf.fft.fft(z, out=fz),
        "torch.fft.fft": lambda: torch.fft.fft(z),
    }
    cupy = cupy_module()
    if cupy:
        ca, cz = cupy.from_dlpack(a.float()), cupy.from_dlpack(z)
        candidates["CuPy matmul, f32"] = lambda: cupy.matmul(ca, ca)
        candidates["CuPy fft"] = lambda: cupy.fft.fft(cz)
    yield {"name": "host cost of a call, 64×64", "us": host_us(candidates), "kind": "cost"}


def rows(smoke):
    direct, why = peer()
    if why:
        yield {"name": "cuBLASLt called directly", "skipped": why}
    if smoke:
        parts = [matmul_gelu(direct, 512, 256, 128), chain(direct, 512, 256, 128), ffts(1 << 18, [256, 1024], [128])]
    else:
        parts = [matmul_gelu(direct, 16384, 1024, 1024), matmul_gelu(direct, 8192, 512, 512), chain(direct, 16384, 1024, 1024),
                 chain(direct, 8192, 512, 512), ffts(1 << 26, [64, 256, 1024, 4096, 16384, 65536], [512, 1024]),
                 *(filtered(1 << 26, n) for n in (64, 256, 1024, 4096, 8192, 16384, 768, 1280, 32768)),
                 filtered(67_108_000, 1000), filtered(1013 << 16, 1013), filtered(1 << 26, 1024, 64),
                 real_filtered(1 << 27, 1024), real_filtered(1 << 27, 4096), spectrum(1 << 27, 1024),
                 spectral_layer(64, 64, 1024, 64), spectral_layer(512, 64, 4096, 128)]  # fmt: skip
    for part in [*parts, call_cost()]:
        yield from part
        torch.cuda.empty_cache()
