"""Generated matrix products on sm_90a that reduce along rows of the result and go on with it, in one kernel."""

import json

import mathfuse as mf
import pytest

S = mf.spec


def quantize(x, w):
    h = x @ w
    scale = mf.max(mf.abs(h), axis=-1, keepdims=True) / 448
    return mf.cast(h / scale, "e4m3", saturate=True), mf.cast(scale, "f32")


def quantized(t, x, w):
    h = x @ w
    scale = h.abs().amax(-1, keepdim=True) / 448
    return [h / scale, scale]


def rms_norm(t, h, g):
    return h * t.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * g


# name: function, other operands, results in double precision
CASES = {
    "a scale for each row of fp8": (quantize, lambda m, n: [], quantized),
    "rms_norm": (
        lambda x, w, g: mf.rms_norm(x @ w, g),
        lambda m, n: [(n,)],
        lambda t, x, w, g: [rms_norm(t, x @ w, g)],
    ),
    "bias, residual, rms_norm": (
        lambda x, w, b, r, g: mf.rms_norm(x @ w + b + r, g),
        lambda m, n: [(n,), (m, n), (n,)],
        lambda t, x, w, b, r, g: [rms_norm(t, x @ w + b + r, g)],
    ),
    "layer_norm": (
        lambda x, w, g, b: mf.layer_norm(x @ w, g, b),
        lambda m, n: [(n,), (n,)],
        lambda t, x, w, g, b: [t.nn.functional.layer_norm(x @ w, g.shape, g, b, 1e-5)],
    ),
    "softmax": (lambda x, w: mf.softmax(x @ w), lambda m, n: [], lambda t, x, w: [t.softmax(x @ w, -1)]),
    "masked softmax": (
        lambda x, w, r: mf.softmax(mf.where(r > 0, x @ w, float("-inf"))),
        lambda m, n: [(m, n)],
        lambda t, x, w, r: [t.softmax(t.where(r > 0, x @ w, -t.inf), -1)],
    ),
    "what is normalised, too": (
        lambda x, w, g: (lambda h: (h, mf.rms_norm(h, g)))(x @ w),
        lambda m, n: [(n,)],
        lambda t, x, w, g: [x @ w, rms_norm(t, x @ w, g)],
    ),
}
SHAPES = [(16384, 1024, 1024), (4097, 640, 512), (1000, 384, 200), (513, 1000, 64), (777, 128, 72), (300, 2048, 512)]


def steps(plan):
    return json.loads(plan.explain("json"))["steps"]


def specs(m, n, k, more):
    return [S((m, k), "bf16"), S((k, n), "bf16"), *(S(shape, "bf16") for shape in more(m, n))]


@pytest.mark.compiles
@pytest.mark.parametrize("case", CASES)
def test_one_kernel_without_local_memory(case):
    function, more, _ = CASES[case]
    plan = mf.plan(function, *specs(16384, 1024, 1024, more), target="sm_90a")
    (step,) = steps(plan)
    assert step["provider"] == "generated_gemm" and step["launches"] == 1
    assert step["spills"] == 0 and step["registers"] <= 168


@pytest.mark.compiles
@pytest.mark.parametrize("columns, blocks", [(1024, 8), (640, 5), (128, 1), (2048, 8)])
def test_blocks_that_share_rows(columns, blocks):
    function, more, _ = CASES["rms_norm"]
    plan = mf.plan(function, *specs(4096, columns, 512, more), target="sm_90a", providers="generated_gemm")
    (source,) = plan.sources().values()
    across = int(source.split("__cluster_dims__(")[1].split(",")[0])
    assert across <= blocks and across * 256 >= columns


@pytest.mark.compiles
def test_rows_that_are_too_long_take_two_steps():
    function, more, _ = CASES["rms_norm"]
    assert len(steps(mf.plan(function, *specs(4096, 4096, 512, more), target="sm_90a"))) == 2


@pytest.mark.compiles
def test_not_what_is_to_be_rounded_first():
    function, more, _ = CASES["rms_norm"]
    assert len(steps(mf.plan(function, *specs(4096, 1024, 512, more), target="sm_90a", match_unfused=True))) == 2


def test_what_others_read_between_them_is_kept():
    """A step between the product and its reduction that makes what the reduction reads."""

    def function(x, w, v):
        h = x @ w
        other = h @ v
        return mf.rms_norm(h * other)

    plan = mf.plan(function, S((4096, 256), "bf16"), S((256, 256), "bf16"), S((256, 256), "bf16"), target="sm_90a")
    first = steps(plan)[0]
    assert first["anchor"] == "matmul" and len(steps(plan)) >= 2


def assert_result(got, want):
    if got.element_size() == 1:
        allowed = want.abs() * 2.0**-4 + 2.0**-10 + want.abs().max() * 2.0**-21  # of sums in f32, next to a tie
    elif got.element_size() == 2:
        allowed = want.abs() * 2.0**-8 + want.abs().max() * 2.0**-11
    else:
        allowed = want.abs() * 1e-5
    wrong = ~((got.double() - want).abs() <= allowed * 1.02)
    assert not bool(wrong.any()), f"{int(wrong.sum())} of {wrong.numel()}"


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_results(case, shape):
    torch = pytest.importorskip("torch")
    torch.manual_seed(sum(shape))
    function, more, wanted = CASES[case]
    m, n, k = shape
    arrays = [torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n), *more(m, n))]
    arrays[1] /= k**0.5
    fits = "fp8" not in case or n % 16 == 0  # rows that are stored by bulk copies begin on 16 bytes
    plan = mf.plan(function, *arrays, providers="generated_gemm" if fits else None, tune="off")
    assert (len(steps(plan)) == 1) == fits
    got, again = (plan.run(*arrays) for _ in range(2))
    got, again = (r if isinstance(r, tuple) else (r,) for r in (got, again))
    for result, same, want in zip(got, again, wanted(torch, *(a.double() for a in arrays)), strict=True):
        assert_result(result, want)
        assert bool((result.view(torch.uint8) == same.view(torch.uint8)).all())


@pytest.mark.gpu
def test_nan_stays_in_its_row():
    torch = pytest.importorskip("torch")
    x, w = torch.randn(1000, 256, device="cuda").bfloat16(), torch.randn(256, 1024, device="cuda").bfloat16()
    x[517, 3] = float("nan")
    got, scale = mf.plan(quantize, x, w, providers="generated_gemm").run(x, w)
    assert bool(got[517].float().isnan().all()) and bool(scale[517].isnan().all())
    assert not bool(torch.cat([got[:517], got[518:]]).float().isnan().any())


@pytest.mark.gpu
def test_every_configuration():
    torch = pytest.importorskip("torch")
    torch.manual_seed(5)
    function, more, _ = CASES["bias, residual, rms_norm"]
    shape = (2000, 1024, 320)
    arrays = [torch.randn(s, device="cuda").bfloat16() for s in ((2000, 320), (320, 1024), *more(2000, 1024))]
    report = mf.plan(function, *arrays, providers="generated_gemm", tune="off").tune(seconds=4)
    assert shape and not [c for c in report["candidates"] if c["result"] == "wrong"]
