"""Gradients of layers against central differences and float64; what training's backward pass costs in launches on a GPU."""

import json

import mathfuse as mf
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special
from tools import BF16, E4M3, LAYOUTS, assert_close, strided, values, wide

ACTIVATIONS = {
    None: (lambda z: z),
    "relu": lambda z: np.maximum(z, 0),
    "gelu": lambda z: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
    "gelu_erf": lambda z: z / 2 * (1 + special.erf(z / np.sqrt(2))),
    "silu": lambda z: z * special.expit(z),
    "sigmoid": special.expit,
    "softplus": lambda z: np.logaddexp(z, 0),
    "tanh": np.tanh,
}


def slope(activation, z):
    """The derivative by central differences in float64, right to about 1e-9; relu's, whose kink they would blur, by its sign."""
    if activation == "relu":
        return (z > 0).astype(float)
    return (ACTIVATIONS[activation](z + 1e-5) - ACTIVATIONS[activation](z - 1e-5)) / 2e-5


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_activation_backward(activation, rng):
    z, dy = values(rng, (7, 9), np.float64, -4, 4), values(rng, (7, 9), np.float64)
    assert_close(mf.activation_backward(dy, z, activation), dy * slope(activation, z), tolerance=1e-8)


@given(st.sampled_from([(6,), (3, 5), (2, 1, 4), (0,)]), st.integers(1, 30), st.integers(1, 30),
       st.sampled_from([np.float16, BF16, np.float32, np.float64]), st.sampled_from(list(ACTIVATIONS)),
       st.sampled_from(LAYOUTS), st.integers(0, 2**31))  # fmt: skip
def test_linear_backward(lead, k, n, dtype, activation, layout, seed):
    rng = np.random.default_rng(seed)
    x, w = strided(values(rng, (*lead, k), dtype), layout), values(rng, (k, n), dtype)
    dy, z = values(rng, (*lead, n), dtype), values(rng, (*lead, n), dtype, -4, 4)
    dx, dw, db = mf.linear_backward(dy, x, w, z, activation=activation)
    dz = wide(dy) * slope(activation, wide(z))
    rows = dz.reshape(-1, n)
    assert dx.dtype == dw.dtype == db.dtype == dtype
    room = 2e-8 if dtype == np.float64 else None
    assert_close(dx, dz @ wide(w).T, scale=8, tolerance=room)
    assert_close(dw, wide(x).reshape(-1, k).T @ rows, scale=8, tolerance=room)
    assert_close(db, rows.sum(0), scale=8, tolerance=room)


def test_errors(rng):
    x, w, dy = (values(rng, s, np.float32) for s in ((4, 3), (3, 5), (4, 5)))
    with pytest.raises(ValueError, match="needs z"):
        mf.linear_backward(dy, x, w, activation="gelu")
    with pytest.raises(ValueError, match=r"dy \(4, 3\)"):
        mf.linear_backward(x, x, w)
    with pytest.raises(ValueError, match="is not known; it is of relu, gelu"):
        mf.activation_backward(dy, dy, "floor")


# ---- on GPUs: products that end in derivatives, sums and largest values beside them ----


def backward(activation):
    """A layer with an activation and one after it, as an MLP has."""

    def gradients(dy, x, z, h, w1, w2):
        dh, dw2, db2 = mf.linear_backward(dy, h, w2)
        dx, dw1, db1 = mf.linear_backward(dh, x, w1, z, activation=activation)
        return dx, dw1, db1, dw2, db2

    return gradients


def written_out(dy, x, z, h, w1, w2):
    dz = (dy @ w2.T) * mf.gelu_grad(z)
    return dz @ w1.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)


def shapes(batch, inner, hidden, outer):
    return (batch, outer), (batch, inner), (batch, hidden), (batch, hidden), (inner, hidden), (hidden, outer)


def kernels(plan):
    return [step["kernel"] for step in json.loads(plan.explain("json"))["steps"]]


def narrow_with_largest(a, b, scale_a, scale_b, scale):
    v = mf.gelu(mf.scaled_matmul(a, b.T, scale_a, scale_b, out_dtype="float32"))
    return mf.cast(v * scale, "float8_e4m3fn", saturate=True), mf.max(mf.abs(v))


def product_with_largest(a, b, scale_a, scale):
    v = mf.scaled_matmul(a, b.T, scale_a, out_dtype="float32")
    return mf.cast(v * scale, "float8_e4m3fn", saturate=True), mf.max(mf.abs(v))


@pytest.mark.compiles
@pytest.mark.parametrize("function", [backward("gelu"), written_out], ids=["linear_backward", "written out"])
def test_backward_of_an_mlp_is_four_launches(function):
    specs = [mf.spec(s, "bfloat16") for s in shapes(4096, 512, 2048, 512)]
    plan = mf.plan(function, *specs, target="sm_90a")
    assert plan.launches == 4
    assert sorted(kernels(plan)) == [f"cublasLtMatmul {name}" for name in ("BGRADA", "DEFAULT", "DEFAULT", "DGELU_BGRAD")]
    whole = mf.plan(function, *specs, target="sm_90a", match_unfused=True)
    assert not any("BGRAD" in kernel for kernel in kernels(whole))


@pytest.mark.compiles
def test_other_activations_sum_beside_the_next_product():
    specs = [mf.spec(s, "bfloat16") for s in shapes(4096, 512, 2048, 512)]
    assert sum("BGRADA" in kernel for kernel in kernels(mf.plan(backward("silu"), *specs, target="sm_90a"))) == 2


@pytest.mark.compiles
def test_column_major_results_sum_the_other_operand():
    specs = [mf.spec(s, "bfloat16") for s in ((4096, 512), (4096, 256))]

    def gradients(x, dy):
        return dy.T @ x, dy.sum(0)

    assert kernels(mf.plan(gradients, *specs, target="sm_90a")) == ["cublasLtMatmul BGRADB"]


@pytest.mark.compiles
@pytest.mark.parametrize("case", ["batch", "float32", "other sum", "used", "bias"])
def test_what_is_not_joined(case):
    dtype = "float32" if case == "float32" else "bfloat16"
    x, w = mf.spec((2, 256, 64) if case == "batch" else (256, 64), dtype), mf.spec((64, 128), dtype)
    z = mf.spec((2, 256, 128) if case == "batch" else (256, 128), dtype)

    def gradients(x, w, z):
        dz = (x @ w) * mf.gelu_grad(z)
        if case == "other sum":
            return dz, dz.sum(-1)
        if case == "used":
            return dz, dz.sum(0) + 1
        if case == "bias":
            return x @ w, (x @ w + 1).sum(0)
        return dz, dz.sum(-2)

    assert not any("BGRAD" in kernel for kernel in kernels(mf.plan(gradients, x, w, z, target="sm_90a")))


@pytest.mark.compiles
def test_fp8_store_with_its_largest_value_is_one_call():
    a, b, one = mf.spec((256, 512), "float8_e4m3fn"), mf.spec((128, 512), "float8_e4m3fn"), mf.spec((), "float32")
    plan = mf.plan(narrow_with_largest, a, b, one, one, one, target="sm_90a")
    assert kernels(plan) == ["cublasLtMatmul GELU, scaled, largest value"]
    plan = mf.plan(product_with_largest, a, b, one, one, target="sm_90a")
    assert kernels(plan) == ["cublasLtMatmul DEFAULT, scaled, largest value"]


SIZES = [(256, 64, 128, 96), (1024, 512, 2048, 512), (48, 40, 24, 56), (4096, 256, 1024, 128)]


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_gpu_backward(sizes, dtype, activation, rng):
    torch = pytest.importorskip("torch")
    batch, inner, hidden, outer = sizes
    arrays = [values(rng, s, np.float32, -1, 1) for s in shapes(*sizes)]
    dy, x, z, h, w1, w2 = (torch.from_numpy(v).to("cuda", getattr(torch, dtype)) for v in arrays)
    plan = mf.plan(backward(activation), dy, x, z, h, w1, w2)
    results, again = plan.run(dy, x, z, h, w1, w2), plan.run(dy, x, z, h, w1, w2)
    assert all(torch.equal(a, b) for a, b in zip(results, again)), f"another run, other bits\n{plan.explain()}"
    got = [v.double().cpu().numpy() for v in results]
    dy, x, z, h, w1, w2 = (v.double().cpu().numpy() for v in (dy, x, z, h, w1, w2))
    dz = (dy @ w2.T) * slope(activation, z)
    want = dz @ w1.T, x.T @ dz, dz.sum(0), h.T @ dy, dy.sum(0)
    for name, a, b in zip(("dx", "dw1", "db1", "dw2", "db2"), got, want):
        error = np.abs(a - b).max() / np.abs(b).max()
        assert error < (1.2e-2 if dtype == "bfloat16" else 2e-3), f"{name}: {error:.3g}\n{plan.explain()}"
    if activation == "gelu" and batch % 8 == 0 and batch > 64:
        assert "DGELU_BGRAD" in plan.explain(), plan.explain()


@pytest.mark.gpu
def test_gpu_column_major_result_and_its_operand_sum(rng):
    torch = pytest.importorskip("torch")
    x, dy = (torch.from_numpy(values(rng, s, np.float32)).to("cuda", torch.bfloat16) for s in ((512, 96), (512, 64)))
    plan = mf.plan(lambda x, dy: (dy.T @ x, dy.sum(0)), x, dy)
    product, total = (v.double().cpu().numpy() for v in plan.run(x, dy))
    x, dy = (v.double().cpu().numpy() for v in (x, dy))
    assert_close(product.astype(np.float32), dy.T @ x, tolerance=1.2e-2)
    assert_close(total.astype(np.float32), dy.sum(0), tolerance=1.2e-2)
    assert "BGRADB" in plan.explain(), plan.explain()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(64, 96, 32), (1024, 512, 2048), (16384, 1024, 1024)], ids=str)
def test_gpu_fp8_store_with_its_largest_value(size, rng):
    torch = pytest.importorskip("torch")
    m, k, n = size
    a, b = (torch.from_numpy(values(rng, s, np.float32)).cuda().to(torch.float8_e4m3fn) for s in ((m, k), (n, k)))
    one = [torch.tensor(v, device="cuda") for v in (0.5, 0.125, 4.0)]
    for function, scales, name in ((narrow_with_largest, one, "GELU"), (product_with_largest, one[1:], "DEFAULT")):
        plan = mf.plan(function, a, b, *scales)
        got, largest = plan.run(a, b, *scales)
        z = (a.float() @ b.float().T).double().cpu().numpy() * (1 / 16 if name == "GELU" else 1 / 8)
        v = ACTIVATIONS["gelu"](z) if name == "GELU" else z
        want = np.clip(v * 4, -448, 448)
        assert_close(np.array(largest.cpu().numpy()), np.abs(v).max(), tolerance=1e-3)
        assert_close(got.float().cpu().numpy(), want, tolerance=0.07)
        assert "largest value" in plan.explain(), plan.explain()


def test_fp8_store_with_its_largest_value(rng):
    a, b = values(rng, (48, 64), E4M3), values(rng, (32, 64), E4M3)
    one = [np.float32(v) for v in (0.5, 0.125, 4.0)]
    got, largest = mf.fuse(narrow_with_largest)(a, b, *one)
    v = ACTIVATIONS["gelu"](wide(a) @ wide(b).T / 16)
    assert_close(largest, np.abs(v).max(), scale=4)
    assert_close(wide(got), np.clip(v * 4, -448, 448), tolerance=0.07)
