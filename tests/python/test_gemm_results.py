"""Generated matrix products on sm_90a with several results, fp8 results, and fp8 factors."""

import json

import mathfuse as mf
import pytest

S = mf.spec
ULP = {"e4m3": (2.0**-3, 2.0**-9, 448), "e5m2": (2.0**-2, 2.0**-16, 57344)}


def gelu(torch, x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def kept(x, w, b):
    h = x @ w + b
    return h, mf.silu(h)


def masked(x, w, b):
    h = x @ w + b
    return h > 0, mf.relu(h)


def both_widths(x, w):
    h = x @ w
    return mf.cast(h, "f32"), mf.cast(h * 3, "e4m3", saturate=True)


def with_largest(x, w, s):
    h = mf.cast(mf.gelu(x @ w), "f32")
    return mf.cast(h * s, "e4m3", saturate=True), mf.max(mf.abs(h))


def narrow_with_largest(x, w, a, s):
    h = mf.scaled_matmul(x, w.T, a, out_dtype="f32")
    return mf.cast(h * s, "e4m3", saturate=True), mf.max(mf.abs(h))


# name: function, other operands, results in double precision
CASES = {
    "gelu, scaled fp8": (
        lambda x, w, s: mf.cast(mf.gelu(x @ w) * s, "e4m3", saturate=True),
        lambda m, n: [((), "f32")],
        lambda t, x, w, s: [gelu(t, x @ w) * s],
    ),
    "fp8 that does not saturate": (
        lambda x, w: mf.cast(x @ w * 256, "e4m3"),
        lambda m, n: [],
        lambda t, x, w: [x @ w * 256],
    ),
    "e5m2 by rows, residual": (
        lambda x, w, s, r: mf.cast(x @ w * s + r, "e5m2", saturate=True),
        lambda m, n: [((m, 1), "f32"), ((m, n), "bf16")],
        lambda t, x, w, s, r: [x @ w * s + r],
    ),
    "the value before silu": (
        kept,
        lambda m, n: [((n,), "bf16")],
        lambda t, x, w, b: [x @ w + b, t.nn.functional.silu(x @ w + b)],
    ),
    "a mask": (masked, lambda m, n: [((n,), "bf16")], lambda t, x, w, b: [None, t.relu(x @ w + b)]),
    "gelu, scaled fp8, the largest": (
        with_largest,
        lambda m, n: [((), "f32")],
        lambda t, x, w, s: [gelu(t, x @ w) * s, gelu(t, x @ w).abs().max()],
    ),
    "f32 and fp8": (both_widths, lambda m, n: [], lambda t, x, w: [x @ w, x @ w * 3]),
}

NARROW = {
    "scaled": (
        lambda x, w, a, b: mf.scaled_matmul(x, w.T, a, b, out_dtype="bf16"),
        lambda m, n: [((), "f32"), ((), "f32")],
        lambda t, x, w, a, b: [x @ w.T * a * b],
    ),
    "gelu, scaled fp8": (
        lambda x, w, a, s: mf.scaled_matmul(x, w.T, a, scale_result=s, activation="gelu", out_dtype="e4m3"),
        lambda m, n: [((), "f32"), ((), "f32")],
        lambda t, x, w, a, s: [gelu(t, x @ w.T * a) * s],
    ),
    "scaled fp8, the largest": (
        narrow_with_largest,
        lambda m, n: [((), "f32"), ((), "f32")],
        lambda t, x, w, a, s: [x @ w.T * a * s, (x @ w.T * a).abs().max()],
    ),
    "silu, f32": (
        lambda x, w, a, r: mf.cast(mf.silu(mf.scaled_matmul(x, w.T, a, out_dtype="f32")) + r, "f32"),
        lambda m, n: [((m, 1), "f32"), ((m, n), "f32")],
        lambda t, x, w, a, r: [t.nn.functional.silu(x @ w.T * a) + r],
    ),
}


def specs(m, n, k, more, dtype="bf16"):
    w = S((k, n), dtype) if dtype == "bf16" else S((n, k), dtype)
    return [S((m, k), dtype), w, *(S(shape, of) for shape, of in more(m, n))]


def steps(plan):
    return json.loads(plan.explain("json"))["steps"]


def refusal(function, *arguments):
    (step, *_) = steps(mf.plan(function, *arguments, target="sm_90a"))
    return next(r for r in step["refusals"] if r["provider"] == "generated_gemm")


@pytest.mark.compiles
@pytest.mark.parametrize("case", [*CASES, *(f"fp8: {name}" for name in NARROW)])
def test_one_kernel_without_local_memory(case):
    narrow = case.startswith("fp8: ")
    function, more, _ = NARROW[case[5:]] if narrow else CASES[case]
    plan = mf.plan(
        function, *specs(4096, 1024, 512, more, "e4m3" if narrow else "bf16"), target="sm_90a", providers="generated_gemm"
    )
    (step,) = steps(plan)
    # the largest value's place is set to zero first
    assert step["provider"] == "generated_gemm" and step["launches"] == (2 if "largest" in case else 1)
    assert step["spills"] == 0 and step["registers"] <= 168


@pytest.mark.compiles
def test_a_result_is_rounded_once():
    function, more, _ = CASES["gelu, scaled fp8"]
    (source,) = mf.plan(function, *specs(4096, 1024, 512, more), target="sm_90a").sources().values()
    assert "mf::pack2<mf::e4m3, true>(bits[0], r.r0, s.r0)" in source
    (stored,) = [line for line in source.splitlines() if "return {" in line]
    value = stored.split("{")[1].split("}")[0]
    assert f"const float {value} = mf::multiply" in source


@pytest.mark.compiles
def test_what_takes_more_than_one_kernel():
    def count(function, n):
        arrays = specs(4096, n, 512, lambda m, n: [])
        return len(steps(mf.plan(function, *arrays, target="sm_90a", providers="generated_gemm,generated")))

    def several(number):
        def function(x, w):
            h = x @ w
            return tuple(f(h) for f in (mf.silu, mf.tanh, mf.relu)[:number])

        return function

    assert count(lambda x, w: mf.cast(mf.silu(x @ w), "e4m3"), 1040) == 1
    assert count(lambda x, w: mf.cast(mf.silu(x @ w), "e4m3"), 1032) == 2  # rows of results are of 16 bytes
    assert count(several(2), 1024) == 1
    assert count(several(3), 1024) > 1  # there is no room to stage them


@pytest.mark.compiles
def test_fp8_factors_that_are_refused():
    left, right = S((4096, 512), "e4m3"), S((512, 1024), "e4m3")
    assert "contiguous along k" in refusal(lambda x, w: mf.silu(x @ w), left, right)["detail"]
    assert "one fp8 format" in refusal(lambda x, w: mf.silu(x @ w.T), left, S((1024, 512), "e5m2"))["detail"]


# ---- on a GPU ----

SHAPES = [(128, 256, 128), (8192, 512, 512), (1000, 400, 208), (77, 16, 16), (4097, 1280, 144), (2048, 1024, 4096)]


def gpu_arrays(m, n, k, more, narrow):
    torch = pytest.importorskip("torch")
    torch.manual_seed(m + n + k)
    types = {"bf16": torch.bfloat16, "f32": torch.float32, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    x, w = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda") / k**0.5
    if narrow:
        x, w = x.to(types[narrow]), (w.T * 4).contiguous().to(types[narrow])
    else:
        x, w = x.bfloat16(), w.bfloat16()
    others = [torch.randn(shape, device="cuda") if shape else torch.tensor(1.7, device="cuda") for shape, _ in more(m, n)]
    return [x, w, *(a.to(types[of]) for a, (_, of) in zip(others, more(m, n)))]


def assert_result(got, want, largest):
    torch = pytest.importorskip("torch")
    name = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}.get(got.dtype)
    if name is None:
        error = float((got.double() - want).abs().max()) / float(want.abs().max())
        assert error < {torch.bfloat16: 1e-2, torch.float32: largest}[got.dtype], error
        return
    relative, least, limit = ULP[name]
    want = want.clamp(-limit, limit)
    step = torch.maximum(want.abs() * relative, torch.tensor(least, device="cuda", dtype=torch.float64))
    error = (got.double() - want).abs()
    # the nearest, but for sums next to the middle between two
    assert float((error > step * 0.51 + 1e-4).double().mean()) < 1e-3
    assert bool((error <= step * 1.02 + 1e-3 * want.abs().max()).all())


def check(case, arrays, **options):
    torch = pytest.importorskip("torch")
    function, _, reference = case
    results = mf.plan(function, *arrays, providers="generated_gemm", **options).run(*arrays)
    results = results if isinstance(results, (list, tuple)) else [results]
    wants = reference(torch, *(a.double() for a in arrays))
    for got, want in zip(results, wants):
        if want is None:  # a mask: where the other result is positive, but for what rounds to zero
            assert bool(((wants[1] > 1e-4) <= got).all()) and bool((got <= (wants[1] > -1e-4)).all())
            assert float(got.float().mean()) < 0.9
            continue
        if got.dtype == torch.float8_e4m3fn and function is CASES["fp8 that does not saturate"][0]:
            assert bool(torch.isnan(got.float()[want.abs() > 470]).all())
            keep = want.abs() < 460
            got, want = torch.where(keep, got.float(), 0).to(got.dtype), torch.where(keep, want, 0)
        assert_result(got, want, 2e-3 if arrays[0].element_size() == 1 else 2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_results(case, shape):
    check(CASES[case], gpu_arrays(*shape, CASES[case][1], ""))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", NARROW)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_fp8_factors(case, shape, dtype):
    check(NARROW[case], gpu_arrays(*shape, NARROW[case][1], dtype))


@pytest.mark.gpu
def test_sums_of_fp8_products_keep_their_digits():
    """Of one sign, so that each addition's error would add up."""
    torch = pytest.importorskip("torch")
    x = torch.rand(256, 16384, device="cuda").to(torch.float8_e4m3fn)
    w = torch.rand(512, 16384, device="cuda").to(torch.float8_e4m3fn)
    got = mf.plan(lambda x, w: mf.scaled_matmul(x, w.T, out_dtype="f32"), x, w, providers="generated_gemm").run(x, w)
    want = x.double() @ w.double().T
    assert float(((got.double() - want) / want).abs().max()) < 1e-3  # cuBLASLt's is 5.5e-4


@pytest.mark.gpu
def test_the_largest_is_nan_where_anything_is():
    torch = pytest.importorskip("torch")
    x, w, s = gpu_arrays(300, 64, 128, lambda m, n: [((), "f32")], "")
    plan = mf.plan(with_largest, x, w, s, providers="generated_gemm")
    assert bool(torch.isfinite(plan.run(x, w, s)[1]))
    x[299, 7] = float("nan")
    result, largest = plan.run(x, w, s)
    assert bool(torch.isnan(largest)) and bool(torch.isnan(result[299].float()).all())
    assert not bool(torch.isnan(result[:299].float()).any())


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case", ["gelu, scaled fp8", "the value before silu", "e5m2 by rows, residual", "fp8: gelu, scaled fp8"]
)
def test_every_configuration_is_right(case):
    """A wrong one would be found, and told, by the tuner's comparison with an unfused run."""
    narrow = case.startswith("fp8: ")
    function, more, _ = NARROW[case[5:]] if narrow else CASES[case]
    arrays = gpu_arrays(1000, 400, 208, more, "e4m3" if narrow else "")
    report = mf.plan(function, *arrays, providers="generated_gemm", tune="off").tune(seconds=60)
    results = [c["result"] for c in report["candidates"] if c["choice"].startswith("generated_gemm")]
    assert len(results) >= 4 and set(results) <= {"won", "slower"}, str(report)
