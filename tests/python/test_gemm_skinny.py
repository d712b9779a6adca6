"""Generated products of few rows or columns: plans and kernels anywhere, results on a GPU."""

import json

import mathfuse as mf
import pytest

S = mf.spec

CHAINS = {
    "bare": (lambda x, w: x @ w, lambda m, n: []),
    "bias, gelu": (lambda x, w, b: mf.gelu(x @ w + b), lambda m, n: [(n,)]),
    "bias, silu, residual": (lambda x, w, b, r: mf.silu(x @ w + b) + r, lambda m, n: [(n,), (m, n)]),
    "row scale, scalar": (lambda x, w, r, s: x @ w * r * s, lambda m, n: [(m, 1), ()]),
}


def along_k(function):
    """The same with the large factor's transpose."""
    return lambda x, w, *rest: function(x, w.T, *rest)


def steps(plan):
    return json.loads(plan.explain("json"))["steps"]


@pytest.mark.compiles
@pytest.mark.parametrize("m", [1, 16, 64])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("transposed", [False, True])
def test_one_kernel_where_one_pass_is_all(m, chain, transposed):
    function, more = CHAINS[chain]
    n = k = 8192
    specs = [S((m, k), "bf16"), S((n, k) if transposed else (k, n), "bf16"), *(S(s, "bf16") for s in more(m, n))]
    function = along_k(function) if transposed else function
    (step,) = steps(mf.plan(function, *specs, target="sm_90a", providers="generated_skinny"))
    assert step["provider"] == "generated_skinny" and step["launches"] == 1 and step["spills"] == 0
    assert step["registers"] <= 255


@pytest.mark.compiles
@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90a", "sm_100a"])
def test_targets(target):
    """Clusters from sm_90 on only."""
    function, more = CHAINS["bias, silu, residual"]
    specs = [S((16, 4096), "f16"), S((4096, 4096), "f16"), *(S(s, "f16") for s in more(16, 4096))]
    plan = mf.plan(function, *specs, target=target, providers="generated_skinny,generated")
    (step,) = steps(plan)
    (source,) = plan.sources().values()
    assert step["provider"] == "generated_skinny" and step["spills"] == 0
    assert ("__cluster_dims__" in source) <= (target not in ("sm_80", "sm_86"))


@pytest.mark.compiles
def test_what_is_left_to_others():
    def refusal(function, *specs):
        (step,) = steps(mf.plan(function, *specs, target="sm_90a"))
        (own,) = [r for r in step["refusals"] if r["provider"] == "generated_skinny"]
        return own["reason"], own["detail"]

    x, w = S((8, 4096), "bf16"), S((4096, 4096), "bf16")

    def product(x, w):
        return x @ w

    assert refusal(product, S((65, 4096), "bf16"), w)[0] == "SIZE"
    assert refusal(product, S((8, 4096), "f32"), S((4096, 4096), "f32"))[0] == "DTYPE"
    assert refusal(product, x, S((4096, 4095), "bf16"))[0] == "LAYOUT"
    assert refusal(lambda x, w: x.T @ w, S((4096, 8), "bf16"), w)[0] == "LAYOUT"
    assert refusal(product, S((8, 12), "bf16"), S((12, 4096), "bf16"))[0] == "LAYOUT"


@pytest.mark.compiles
def test_few_columns_and_vectors():
    own = {"target": "sm_90a", "providers": "generated_skinny"}
    (step,) = steps(mf.plan(lambda w, x: mf.relu(w @ x.T), S((8192, 8192), "bf16"), S((4, 8192), "bf16"), **own))
    assert step["provider"] == "generated_skinny"
    (step,) = steps(mf.plan(lambda w, x: w @ x, S((8192, 8192), "bf16"), S((8192,), "bf16"), **own))
    assert step["provider"] == "generated_skinny"


@pytest.mark.compiles
def test_the_library_is_taken_where_it_was_faster():
    """M = 1 to 64 with N = K = 8192 on one H200: 35 to 38 us, one pass over the large factor 33 us."""
    for m in (1, 16, 64):
        for chain in ("bare", "bias, gelu"):
            function, more = CHAINS[chain]
            specs = [S((m, 8192), "bf16"), S((8192, 8192), "bf16"), *(S(s, "bf16") for s in more(m, 8192))]
            assert [s["provider"] for s in steps(mf.plan(function, *specs, target="sm_90a"))][0] == "cublaslt"


# ---- on a GPU ----


def gpu_arrays(m, n, k, dtype, more, transposed, batch=()):
    torch = pytest.importorskip("torch")
    torch.manual_seed(m + n + k)
    t = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]

    def make(*shape):
        return torch.randn(shape, device="cuda").to(t)

    w = make(*batch, *((n, k) if transposed else (k, n))) / k**0.5
    return [make(*batch, m, k), w.mT if transposed else w, *(make(*shape) for shape in more(m, n))]


def check(function, arrays, **options):
    torch = pytest.importorskip("torch")
    plan = mf.plan(function, *arrays, **options)
    got = plan.run(*arrays)
    named = {
        "silu": torch.nn.functional.silu,
        "relu": torch.relu,
        "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    }
    saved = {name: getattr(mf, name) for name in named}
    try:
        for name, f in named.items():
            setattr(mf, name, f)
        want = function(*[a.double() for a in arrays])
    finally:
        for name, f in saved.items():
            setattr(mf, name, f)
    assert got.shape == want.shape and not torch.isnan(got).any()
    error = float((got.double() - want).abs().max() / want.abs().max())
    assert error < {torch.bfloat16: 1e-2, torch.float16: 2e-3}[got.dtype], error
    return plan, got


SHAPES = [(1, 8192, 8192), (16, 8192, 8192), (64, 4096, 1024), (33, 392, 200), (5, 8, 8), (7, 1288, 4104), (48, 14336, 512)]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("transposed", [False, True])
def test_results(chain, shape, transposed):
    function, more = CHAINS[chain]
    dtype = "f16" if shape[0] % 2 else "bf16"
    arrays = gpu_arrays(*shape, dtype, more, transposed)
    plan, got = check(function, arrays, providers="generated_skinny")
    torch = pytest.importorskip("torch")
    assert torch.equal(got, plan.run(*arrays)), "sums come in one order"


@pytest.mark.gpu
def test_odd_columns():
    function, more = CHAINS["bias, gelu"]
    check(function, gpu_arrays(9, 1237, 1024, "bf16", more, True), providers="generated_skinny")


@pytest.mark.gpu
@pytest.mark.parametrize("m", [3, 40])
def test_few_columns(m):
    torch = pytest.importorskip("torch")
    x, w = gpu_arrays(m, 4096, 2048, "bf16", lambda m, n: [], True)
    b = torch.randn(4096, 1, device="cuda").to(x.dtype)
    check(lambda w, x, b: mf.gelu(w @ x + b), [w.T, x.T, b], providers="generated_skinny")


@pytest.mark.gpu
@pytest.mark.parametrize("transposed", [False, True])
def test_batches_and_repeated_factors(transposed):
    x, w = gpu_arrays(6, 264, 520, "bf16", lambda m, n: [], transposed, batch=(5,))
    for a, b in ((x, w), (x, w[:1].expand(5, -1, -1)), (x[:1].expand(5, -1, -1), w)):
        check(lambda a, b: mf.relu(a @ b), [a, b], providers="generated_skinny,generated")


@pytest.mark.gpu
@pytest.mark.parametrize("m", [20, 64])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_configuration_is_right(m, transposed):
    """A wrong one would be found, and told, by the tuner's comparison with an unfused run."""
    function, more = CHAINS["bias, silu, residual"]
    arrays = gpu_arrays(m, 2056, 4104, "bf16", more, transposed)
    report = mf.plan(function, *arrays, providers="generated_skinny", tune="off").tune(seconds=60)
    results = [c["result"] for c in report["candidates"] if c["choice"].startswith("generated_skinny")]
    assert len(results) == 10 and set(results) <= {"won", "slower"}, str(report)


@pytest.mark.gpu
def test_rows_beyond_the_result_are_not_written():
    torch = pytest.importorskip("torch")
    function, more = CHAINS["bias, silu, residual"]
    arrays = gpu_arrays(20, 72, 64, "bf16", more, False)
    room = torch.full((40, 128), 7.0, device="cuda", dtype=torch.bfloat16)
    out = room[10:30, 16:88]
    plan = mf.plan(function, *arrays, providers="generated_skinny")
    plan.run(*arrays, out=out)
    assert torch.equal(out, plan.run(*arrays))
    room[10:30, 16:88] = 7.0
    assert bool((room == 7.0).all())
