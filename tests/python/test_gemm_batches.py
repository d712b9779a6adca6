"""Generated batches of matrix products on sm_90a."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec


def chain(x, w, b, r, s):
    return (mf.silu(x @ w + b) + r) * s


def two(x, w, b):
    h = x @ w + b
    return h, mf.silu(h)


def heads(x, w):
    """They lie beside each other in memory: products along the middle axis."""
    return mf.silu(np.transpose(x, (1, 0, 2)) @ np.transpose(w, (1, 2, 0)))


# name: function, shapes of the left factor, the right one and others, for a batch of c products
CASES = {
    "silu": (lambda x, w: mf.silu(x @ w), lambda c, m, n, k: [(c, m, k), (c, k, n)]),
    "one left factor": (lambda x, w: mf.silu(x @ w), lambda c, m, n, k: [(m, k), (c, k, n)]),
    "operands of each and of all": (chain, lambda c, m, n, k: [(c, m, k), (c, k, n), (c, 1, n), (m, n), (c, 1, 1)]),
    "a residual of each, scales of rows": (chain, lambda c, m, n, k: [(c, m, k), (c, k, n), (n,), (c, m, n), (c, m, 1)]),
    "transposed": (lambda x, w: mf.silu(x.mT @ w.mT), lambda c, m, n, k: [(c, k, m), (c, n, k)]),
    "heads": (heads, lambda c, m, n, k: [(m, c, k), (n, c, k)]),
    "f32": (lambda x, w: mf.cast(mf.silu(x @ w), "f32"), lambda c, m, n, k: [(c, m, k), (c, k, n)]),
    "two results": (two, lambda c, m, n, k: [(c, m, k), (c, k, n), (n,)]),
}


def steps(plan):
    return json.loads(plan.explain("json"))["steps"]


@pytest.mark.compiles
@pytest.mark.parametrize("case", CASES)
def test_one_kernel_without_local_memory(case):
    function, shapes = CASES[case]
    specs = [S(shape, "bf16") for shape in shapes(6, 1024, 512, 64)]
    (step,) = steps(mf.plan(function, *specs, target="sm_90a", providers="generated_gemm"))
    assert step["provider"] == "generated_gemm" and step["launches"] == 1
    assert step["spills"] == 0 and step["registers"] <= 168


@pytest.mark.compiles
def test_what_is_refused():
    def refusal(*specs):
        (step, *_) = steps(mf.plan(lambda x, w: mf.silu(x @ w), *specs, target="sm_90a"))
        return next(r for r in step["refusals"] if r["provider"] == "generated_gemm")

    assert "aligned to 16 bytes" in refusal(S((6, 512, 100), "bf16"), S((6, 100, 512), "bf16"))["detail"]
    assert "one dim" in refusal(S((2, 1, 512, 64), "bf16"), S((1, 3, 64, 512), "bf16"))["detail"]


# ---- on a GPU ----

PRODUCTS = {
    "transposed": lambda x, w: x.mT @ w.mT,
    "heads": lambda x, w: x.transpose(0, 1) @ w.transpose(0, 1).mT,
}
SHAPES = [(3, 128, 256, 64), (5, 1000, 392, 200), (64, 256, 256, 256), (2, 4097, 1288, 72), (7, 77, 8, 16)]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_results(case, shape):
    torch = pytest.importorskip("torch")
    torch.manual_seed(sum(shape))
    function, shapes = CASES[case]
    c, m, n, k = shape
    if case == "transposed":  # then lines along m have to be of 16 bytes, too
        m += -m % 8
    arrays = [torch.randn(s, device="cuda") for s in shapes(c, m, n, k)]
    arrays[1] /= k**0.5
    arrays = [a.bfloat16() for a in arrays]
    x, w, *others = (a.double() for a in arrays)
    got = mf.plan(function, *arrays, providers="generated_gemm").run(*arrays)
    got = got if isinstance(got, (list, tuple)) else [got]
    silu = torch.nn.functional.silu
    if function is chain:
        want = [(silu(x @ w + others[0]) + others[1]) * others[2]]
    elif function is two:
        want = [x @ w + others[0], silu(x @ w + others[0])]
    else:
        want = [silu(PRODUCTS.get(case, torch.matmul)(x, w))]
    for g, t in zip(got, want):
        error = float((g.double() - t).abs().max() / t.abs().max())
        assert error < (2e-5 if g.dtype == torch.float32 else 1e-2), error


@pytest.mark.gpu
def test_every_configuration_is_right():
    torch = pytest.importorskip("torch")
    arrays = [torch.randn(s, device="cuda").bfloat16() for s in CASES["operands of each and of all"][1](5, 500, 392, 200)]
    report = mf.plan(chain, *arrays, providers="generated_gemm", tune="off").tune(seconds=60)
    results = [c["result"] for c in report["candidates"] if c["choice"].startswith("generated_gemm")]
    assert len(results) > 6 and set(results) <= {"won", "slower"}, str(report)
