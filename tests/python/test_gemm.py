"""Generated matrix products on sm_90a: plans and kernels anywhere, results on a GPU."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec


def silu_residual(x, w, b, r):
    return mf.silu(x @ w + b) + r


CHAINS = {
    "bias, silu, residual": (silu_residual, lambda m, n: [(n,), (m, n)]),
    "tanh": (lambda x, w: mf.tanh(x @ w), lambda m, n: []),
    "two residuals": (lambda x, w, r, s: x @ w * r + s, lambda m, n: [(m, n), (m, n)]),
    "row scale, scalar": (lambda x, w, r, s: x @ w * r * s, lambda m, n: [(m, 1), ()]),
    "three rows of bias": (lambda x, w, a, b, c: mf.relu(x @ w + a) * b - c, lambda m, n: [(n,), (n,), (n,)]),
}


def steps(plan):
    return json.loads(plan.explain("json"))["steps"]


@pytest.mark.compiles
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_one_kernel_without_local_memory(chain, dtype):
    function, more = CHAINS[chain]
    specs = [S((4096, 1024), dtype), S((1024, 2048), dtype), *(S(shape, dtype) for shape in more(4096, 2048))]
    (step,) = steps(mf.plan(function, *specs, target="sm_90a"))
    assert step["provider"] == "generated_gemm" and step["launches"] == 1 and step["spills"] == 0
    assert step["registers"] <= 168


PAIRS = {
    "gate": (lambda x, w, v: mf.silu(x @ w) * (x @ v), lambda m, n: []),
    "gate with biases, residual": (
        lambda x, w, v, b, c, r: mf.tanh(x @ w + b) * mf.relu(x @ v + c) + r,
        lambda m, n: [(n,), (m, 1), (m, n)],
    ),
    "f32": (lambda x, w, v: mf.cast(x @ w, "f32") - mf.cast(x @ v, "f32"), lambda m, n: []),
    "the first one kept": (lambda x, w, v: (lambda h: (h, h * (x @ v)))(mf.silu(x @ w)), lambda m, n: []),
}


def pair_specs(m, n, k, more):
    return [S((m, k), "bf16"), S((k, n), "bf16"), S((k, n), "bf16"), *(S(shape, "bf16") for shape in more(m, n))]


@pytest.mark.compiles
@pytest.mark.parametrize("chain", PAIRS)
def test_two_products_in_one_kernel(chain):
    function, more = PAIRS[chain]
    (step,) = steps(mf.plan(function, *pair_specs(4096, 1408, 512, more), target="sm_90a", providers="generated_gemm"))
    assert step["anchor"] == "matmul_pair" and step["provider"] == "generated_gemm" and step["launches"] == 1
    assert step["spills"] == 0 and step["registers"] <= 168


@pytest.mark.compiles
def test_products_that_stay_apart():
    def anchors(function, *specs, **options):
        return [s["anchor"] for s in steps(mf.plan(function, *specs, target="sm_90a", **options))]

    function, more = PAIRS["gate"]
    specs = pair_specs(4096, 1408, 512, more)
    assert anchors(function, *specs, no_fusion=True).count("matmul") == 2
    assert anchors(lambda x, y, w, v: mf.silu(x @ w) * (y @ v), specs[0], *specs) == ["matmul", "matmul"]
    assert anchors(lambda x, w, v: mf.silu(x @ w) * (x @ v.T), *specs[:2], S((1408, 512), "bf16")) == ["matmul", "matmul"]
    assert [s["anchor"] for s in steps(mf.plan(function, *specs, target="sm_80"))].count("matmul") == 2


@pytest.mark.compiles
def test_a_pair_rounds_between_where_it_was_asked_to():
    function, more = PAIRS["gate"]
    specs = pair_specs(4096, 1408, 512, more)
    assert "mf::cast<mf::bf16>" in "".join(mf.plan(function, *specs, target="sm_90a", match_unfused=True).sources().values())
    assert "mf::cast" not in "".join(mf.plan(function, *specs, target="sm_90a").sources().values())


@pytest.mark.compiles
def test_what_is_left_to_others():
    def provider(function, *specs, target="sm_90a"):
        return [s["provider"] for s in steps(mf.plan(function, *specs, target=target))]

    x, w = S((4096, 1024), "bf16"), S((1024, 2048), "bf16")
    assert provider(lambda x, w: x @ w, x, w) == ["cublaslt"]
    assert provider(lambda x, w, b: mf.gelu(x @ w + b), x, w, S(2048, "bf16")) == ["cublaslt"]
    assert "generated_gemm" not in provider(lambda x, w: mf.tanh(x @ w), x, w, target="sm_80")
    assert "generated_gemm" not in provider(lambda x, w: mf.tanh(x @ w), S((4096, 1024), "f32"), S((1024, 2048), "f32"))
    assert "generated_gemm" not in provider(lambda x, w: mf.tanh(x @ w), x, S((1024, 2047), "bf16"))  # ragged rows


# ---- on a GPU ----


def gpu_arrays(m, n, k, dtype, more, layout):
    torch = pytest.importorskip("torch")
    torch.manual_seed(m + n + k)
    t = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]

    def make(*shape):
        return torch.randn(shape, device="cuda").to(t)

    x = make(m, k) if layout[0] == "n" else make(k, m).T
    w = (make(k, n) if layout[1] == "n" else make(n, k).T) / k**0.5
    w = w if layout[1] == "n" else w.T.contiguous().T
    return [x, w, *(make(*shape) for shape in more(m, n))]


def check(function, arrays, **options):
    torch = pytest.importorskip("torch")
    plan = mf.plan(function, *arrays, **options)
    got = plan.run(*arrays)
    wide = [a.double() for a in arrays]
    names = {"silu": torch.nn.functional.silu, "tanh": torch.tanh, "relu": torch.relu}
    saved = {name: getattr(mf, name) for name in names}
    try:
        for name, f in names.items():
            setattr(mf, name, f)
        want = function(*wide)
    finally:
        for name, f in saved.items():
            setattr(mf, name, f)
    several = isinstance(want, tuple)
    for g, w in zip(got, want) if several else [(got, want)]:
        assert not torch.isnan(g).any()
        error = float((g.double() - w).abs().max() / w.abs().max())
        assert error < {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 2e-5}[g.dtype], error
    return plan


SHAPES = [(128, 256, 64), (256, 256, 512), (8192, 512, 512), (1000, 392, 200), (77, 8, 8), (1, 4096, 1024), (4097, 1288, 72)]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_results(chain, shape, dtype):
    function, more = CHAINS[chain]
    check(function, gpu_arrays(*shape, dtype, more, "nn"), providers="generated_gemm")


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("shape", [(512, 384, 128), (264, 1000, 72)])
def test_layouts(layout, shape):
    function, more = CHAINS["bias, silu, residual"]
    check(function, gpu_arrays(*shape, "bf16", more, layout), providers="generated_gemm")


def pair_arrays(m, n, k, more, layout="nn"):
    x, w, *others = gpu_arrays(m, n, k, "bf16", more, layout)
    return [x, w, w.flip(0) if layout == "nn" else w.flip(0).T.contiguous().T, *others]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chain", PAIRS)
def test_pairs(chain, shape):
    function, more = PAIRS[chain]
    check(function, pair_arrays(*shape, more), providers="generated_gemm")


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_every_configuration_of_a_pair_is_right(layout):
    function, more = PAIRS["gate with biases, residual"]
    arrays = pair_arrays(1000, 392, 200, more, layout)
    report = mf.plan(function, *arrays, providers="generated_gemm", tune="off").tune(seconds=20)
    results = [c["result"] for c in report["candidates"] if c["choice"].startswith("generated_gemm")]
    assert len(results) > 6 and set(results) <= {"won", "slower"}, str(report)


@pytest.mark.gpu
def test_f32_results_and_operands():
    torch = pytest.importorskip("torch")
    x, w, r = gpu_arrays(500, 264, 136, "bf16", lambda m, n: [(m, n)], "nn")
    r = r.float()
    check(lambda x, w, r: x @ w + r, [x, w, r], providers="generated_gemm")
    y = mf.plan(lambda x, w: mf.cast(x, "f32") @ mf.cast(w, "f32"), x, w).run(x, w)
    assert y.dtype == torch.float32


@pytest.mark.gpu
def test_every_configuration_is_right():
    """A wrong one would be found, and told, by the tuner's comparison with an unfused run."""
    chain, more = CHAINS["bias, silu, residual"]
    for m, n, k in ((1024, 768, 512), (1000, 392, 200)):
        x, w, b, r = gpu_arrays(m, n, k, "bf16", more, "nn")
        for function, arrays, count in ((chain, [x, w, b, r], 13), (lambda x, w, r: x @ w + r, [x, w, r.float()], 14)):
            report = mf.plan(function, *arrays, providers="generated_gemm", tune="off").tune(seconds=90)
            results = [c["result"] for c in report["candidates"] if c["choice"].startswith("generated_gemm")]
            assert len(results) == count and set(results) <= {"won", "slower"}, str(report)


@pytest.mark.gpu
def test_rows_beyond_the_result_are_not_written():
    torch = pytest.importorskip("torch")
    function, more = CHAINS["bias, silu, residual"]
    arrays = gpu_arrays(100, 72, 64, "bf16", more, "nn")
    room = torch.full((130, 128), 7.0, device="cuda", dtype=torch.bfloat16)
    out = room[10:110, 16:88]
    mf.plan(function, *arrays, providers="generated_gemm").run(*arrays, out=out)
    assert torch.equal(out, mf.plan(function, *arrays, providers="generated_gemm").run(*arrays))
    room[10:110, 16:88] = 7.0
    assert bool((room == 7.0).all())


def test_numpy_reference_of_the_chains():
    """The chains mean the same on the CPU."""
    rng = np.random.default_rng(0)
    for function, more in CHAINS.values():
        arrays = [rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 3), *more(5, 3))]
        assert np.asarray(mf.plan(function, *arrays).run(*arrays)).shape == (5, 3)
