"""Chains whose results are rounded to 16 bits use quick functions: which chains, and how right they are on a GPU."""

import mathfuse as mf
import pytest

S = mf.spec
FUNCTIONS = ["exp", "exp2", "sigmoid", "silu", "gelu", "tanh", "reciprocal", "sqrt"]


def source(function, *specs, **options):
    return "\n".join(mf.plan(function, *specs, target="sm_90a", **options).sources().values())


@pytest.mark.compiles
@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_what_is_rounded_is_quick(name):
    f = getattr(mf, name)
    narrow, wide = S((64, 1024), "bf16"), S((64, 1024), "f32")
    assert f"mf::quick::{name}(" in source(f, narrow)
    assert "quick::" not in source(f, wide)
    assert "quick::" not in source(lambda x: mf.cast(f(mf.cast(x, "f32")), "f32"), narrow)
    assert "quick::" not in source(lambda x: mf.floor(8 * f(x)), narrow)  # a step magnifies what is slightly off
    assert "quick::" not in source(lambda x: mf.where(f(x) > 1, x, -x), narrow)
    assert "quick::" not in source(lambda x: mf.sum(f(x), axis=-1), narrow)  # sums are of full values


@pytest.mark.compiles
def test_each_value_goes_by_its_own_uses():
    text = source(lambda x, y: (mf.silu(x), mf.tanh(y)), S((64, 1024), "bf16"), S((64, 1024), "f32"))
    assert "mf::quick::silu(" in text and "mf::tanh(" in text
    text = source(lambda x: mf.cast(mf.cast(mf.exp(mf.cast(x, "f32")), "bf16"), "f32") * 2, S((64, 1024), "f16"))
    assert "mf::quick::exp(" in text
    text = source(lambda x, w: mf.silu(x @ w), S((4096, 1024), "bf16"), S((1024, 1024), "bf16"), providers="generated_gemm")
    assert "mf::quick::silu(" in text


def exact(torch, name):
    """In double precision, without 1 + tanh, which has no digits left where gelu is tiny."""
    gelu = lambda x: x * torch.sigmoid((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))  # noqa: E731
    return {"silu": lambda x: x * torch.sigmoid(x), "gelu": gelu}.get(name) or getattr(torch, name)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_value(name, dtype):
    """Off by half a unit of the last place, and at most a hundredth of one."""
    torch = pytest.importorskip("torch")
    t, digits, lowest = {"bf16": (torch.bfloat16, 7, -126), "f16": (torch.float16, 10, -14)}[dtype]
    x = torch.arange(-32768, 32768, device="cuda").to(torch.int16).view(t)
    got, want = mf.plan(getattr(mf, name), x).run(x).double(), exact(torch, name)(x.double())
    assert torch.equal(torch.isnan(got), torch.isnan(want))
    unit = torch.exp2(torch.floor(torch.log2(want.abs())).clamp(min=lowest) - digits)
    finite = torch.isfinite(want) & (want.abs() <= torch.finfo(t).max)
    assert float(((got - want).abs() / unit)[finite].max()) < 0.51
    beyond = ~finite & ~torch.isnan(want) & (want.abs() > 1.01 * torch.finfo(t).max)
    assert torch.equal(got[beyond], want[beyond].sign() * float("inf"))
