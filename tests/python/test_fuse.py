"""Tracing: operators, NumPy's functions, pytrees, statics, captured arrays, caching; traced and eager calls agree."""

import copy
import pickle
import warnings

import mathfuse as mf
import numpy as np
import pytest
from tools import BF16, assert_close, values, wide


@pytest.fixture
def xs(rng):
    return values(rng, (4, 6), np.float64), values(rng, (6, 6), np.float64), values(rng, (6,), np.float64)


CHAINS = {
    "operators": lambda x, w, b: (-x + 2 * x - x / 3 + 1 / (abs(x) + 1)) ** 2,
    "more operators": lambda x, w, b: (x // 0.5) + (x % 0.3) + 2.0 ** x + abs(x) ** 0.5 + (+x),
    "comparisons": lambda x, w, b: ((x > 0) & (x < 1)) | ~(x <= -1) ^ (x >= 0.5) & (x == x) | (x != x),
    "layer": lambda x, w, b: np.tanh(x @ w + b) + x,
    "right matmul": lambda x, w, b: np.matmul(x, w) @ b,
    "views": lambda x, w, b: (x.T[::-1, 1:3] + x[1:3, ::-1].T).reshape(3, 4)[None, ..., -1],
    "mT": lambda x, w, b: np.swapaxes(x.mT if hasattr(x, "mT") else x.T, 0, 1) - x[:, :1] + x[-1],
    "newaxis": lambda x, w, b: x[:, None, :] * w[None, :4] - b[np.newaxis, np.newaxis],
    "methods": lambda x, w, b: x.sum(0) + x.mean(axis=0) - x.max(0) + x.min(0) + x.astype(np.float32).astype(float).sum(),
    "numpy reductions": lambda x, w, b: np.sum(x, 1, keepdims=True) + np.mean(x) - np.max(x, axis=1, keepdims=True) * np.prod(b),
    "var": lambda x, w, b: np.var(x, axis=1, ddof=1) + np.std(x) + x.var(0)[0] + x.std(),
    "any all": lambda x, w, b: np.any(x > 1, axis=0) ^ np.all(x > -2, axis=0),
    "where clip": lambda x, w, b: np.where(x > 0, x, np.clip(x, -0.5, None)) + np.clip(x, -1, 1),
    "softmax": lambda x, w, b: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True),
    "fft": lambda x, w, b: np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(b), n=6),
    "fft shapes": lambda x, w, b: np.abs(np.fft.fftshift(np.fft.fft2(x, norm="ortho"))),
    "einsum": lambda x, w, b: np.einsum("ij,jk,k->i", x, w, b),
    "dots": lambda x, w, b: np.dot(x, b) + np.inner(x, b) + np.tensordot(x, b, 1) + np.vdot(b, b) + np.outer(b, b).sum(),
    "moves": lambda x, w, b: np.moveaxis(np.expand_dims(x, 1), 0, -1).squeeze() + np.broadcast_to(b[:, None], (6, 4)),
    "roll flip": lambda x, w, b: np.roll(np.flip(x, 1), (1, -2), (0, 1)) + np.roll(x, 3),
    "likes": lambda x, w, b: np.zeros_like(x) + np.ones_like(b) + np.full_like(x, 3),
    "complex": lambda x, w, b: np.real((x + 1j * x) * np.conj(1 - 2j * b)) + np.imag(1j * x) + np.abs(x + 1j),
    "complex powers": lambda x, w, b: np.abs((x + 1j) ** 3) + np.abs((x + 2j) ** -2),
    "ufunc methods": lambda x, w, b: np.add.reduce(x, axis=0) + np.maximum.reduce(x),
    "diagonal": lambda x, w, b: np.trace(w) + np.diagonal(w),
    "norm": lambda x, w, b: np.linalg.norm(x) + np.linalg.norm(x, axis=1),
    "trigonometry": lambda x, w, b: np.arctan2(np.sin(x), np.cos(b)) + np.hypot(x, 1) + np.deg2rad(x) + np.degrees(x),
    "rounding": lambda x, w, b: np.round(x, 1) + np.floor(x) + np.rint(x) + np.trunc(x),
    "divmod": lambda x, w, b: divmod(x, 0.7)[0] + np.divmod(x, 0.7)[1],
    "iteration": lambda x, w, b: sum(row * i for i, row in enumerate(x)) + len(x) + x.ndim + x.size + x.shape[0],
    "fmax": lambda x, w, b: np.fmax(x, 0) + np.fmin(b, 0) + np.copysign(1.5, x) + np.heaviside(x, 0.5) + np.positive(x),
    "logs": lambda x, w, b: np.log1p(abs(x)) + np.logaddexp(x, b) + np.expm1(x) + np.log2(abs(x) + 1) + np.cbrt(x),
    "scalars": lambda x, w, b: np.float64(2) * x + x * np.float32(0.5) + np.int64(3),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_numpy_code_traces(name, xs):
    chain = CHAINS[name]
    got, want = mf.fuse(chain)(*xs), chain(*xs)
    assert got.dtype == np.asarray(want).dtype
    assert_close(got, want, scale=50)


@pytest.mark.parametrize("name", ["layer", "softmax", "fft", "views", "var"])
@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32], ids=str)
def test_narrow_dtypes(name, dtype, xs):
    narrow = [x.astype(dtype) for x in xs]
    got = mf.fuse(CHAINS[name])(*narrow)
    assert_close(
        got,
        CHAINS[name](*map(wide, narrow)),
        scale=20,
        tolerance={"float16": 2e-3, "float32": 2e-6}.get(np.dtype(dtype).name, 1.6e-2),
    )


def test_unfused_and_fused_agree(xs):
    for name in ("layer", "operators", "softmax"):
        chain = CHAINS[name]
        plan = mf.plan(chain, *xs, no_fusion=True)
        assert_close(plan.run(*xs), mf.fuse(chain)(*xs), scale=4)
        assert plan.launches >= mf.plan(chain, *xs).launches


def test_match_unfused_rounds_between():
    x = np.array([1 + 2**-10], np.float16)
    chain = lambda a: (a * a - 1) * 1024  # noqa: E731
    assert mf.fuse(chain)(x)[0] == np.float16((float(x[0]) ** 2 - 1) * 1024)
    assert mf.fuse(match_unfused=True)(chain)(x)[0] == chain(x)[0]


def test_trees():
    def step(params, batch, *, scale=1.0, mode="add"):
        x, (y, extra) = batch
        value = x @ params["w"] + params["b"]
        value = value + y if mode == "add" else value - y
        return {"value": value * scale, "list": [x, (y + 1, "kept", extra)], "none": None}

    params = {"w": np.ones((3, 2)), "b": np.arange(2.0)}
    x, y = np.ones((4, 3)), np.full((4, 2), 2.0)
    fused = mf.fuse(step)
    for mode in ("add", "subtract"):
        got, want = fused(params, (x, [y, 7]), scale=2, mode=mode), step(params, (x, [y, 7]), scale=2, mode=mode)
        np.testing.assert_array_equal(got["value"], want["value"])
        np.testing.assert_array_equal(got["list"][1][0], y + 1)
        assert got["list"][1][1:] == ("kept", 7) and got["none"] is None
    assert fused.plans == 2


def test_named_tuples():
    from typing import NamedTuple

    class Pair(NamedTuple):
        a: object
        b: object

    got = mf.fuse(lambda p: Pair(p.a + p.b, p.a))(Pair(np.ones(2), np.arange(2.0)))
    assert isinstance(got, Pair)
    np.testing.assert_array_equal(got.a, [1, 2])
    np.testing.assert_array_equal(got.b, [1, 1])


def test_traced_once_per_signature():
    calls = []

    @mf.fuse
    def f(x, k=1):
        """What it does."""
        calls.append(k)
        return x * k

    x = np.ones((2, 3))
    for _ in range(3):
        f(x)
        f(x, 2)
        f(x, k=2)
        f(x, 2.0)
    assert calls == [1, 2, 2, 2.0]
    f(x.T.copy().T)
    f(x.astype(np.float32))
    f(np.ones((3, 2)))
    assert len(calls) == 7
    assert f.__doc__ == "What it does." and f.__name__ == "f" and f.__wrapped__ is not None
    f.forget()
    assert f.plans == 0
    assert f(x, True).dtype == np.float64
    np.testing.assert_array_equal(f(x, -0.0), f(x, -0.0))
    assert np.signbit(f(x, -0.0)).all() and not np.signbit(f(x, 0.0)).any()


def test_many_signatures_do_not_pile_up():
    f = mf.fuse(lambda x, k: x + k)
    for k in range(1100):
        assert f(np.float64(1), k) == 1 + k
    assert f.plans <= 1024


def test_methods_and_captured_arrays():
    table = np.arange(3.0)

    class Model:
        def __init__(self, scale):
            self.scale = np.full(3, scale)

        @mf.fuse
        def __call__(self, x):
            return x * self.scale + table

    model, other = Model(2.0), Model(3.0)
    np.testing.assert_array_equal(model(np.ones(3)), [2, 3, 4])
    np.testing.assert_array_equal(other(np.ones(3)), [3, 4, 5])
    table[0] = 10  # captured by reference
    np.testing.assert_array_equal(model(np.ones(3)), [12, 3, 4])


def test_fused_functions_nest(xs):
    x, w, b = xs
    inner = mf.fuse(lambda x, w: x @ w)
    outer = mf.fuse(lambda x, w, b: mf.gelu(inner(x, w) + b))
    assert_close(outer(x, w, b), mf.gelu(x @ w + b), scale=4)
    assert outer.plans == 1 and inner.plans == 0


def test_eager_and_traced_calls_agree(xs):
    x, w, b = xs
    for call in (lambda x, w, b: mf.matmul(x, w, bias=b, activation="silu"), lambda x, w, b: mf.softmax(x),
                 lambda x, w, b: mf.fft.rfft(x), lambda x, w, b: mf.var(x, 0), lambda x, w, b: mf.linalg.solve(w, b)):  # fmt: skip
        np.testing.assert_array_equal(call(x, w, b), mf.fuse(call)(x, w, b))


def test_results_that_are_arguments():
    x = np.arange(4.0)
    y = mf.fuse(lambda a: a)(x)
    assert y is not x
    np.testing.assert_array_equal(x, y)
    a, b = mf.fuse(lambda a: (a, a[::-1]))(x)
    np.testing.assert_array_equal(b, x[::-1])
    np.testing.assert_array_equal(mf.fuse(lambda a: np.broadcast_to(3.0, (2, 2)) + 0 * a.sum())(x), np.full((2, 2), 3.0))


def test_several_outputs_and_out(xs):
    x, w, b = xs
    f = mf.fuse(lambda x, w: (x @ w, x.sum()))
    y, s = f(x, w)
    out = (np.empty_like(y), None)
    got = f(x, w, out=out)
    assert got[0] is out[0]
    assert_close(got[0], x @ w, scale=4)
    assert_close(got[1], x.sum(), scale=4)
    with pytest.raises(ValueError, match="3 arrays; there are 2"):
        f(x, w, out=(None, None, None))


def test_in_place_elementwise():
    x = np.arange(6.0).reshape(2, 3)
    assert mf.add(x, 1, out=x) is x
    np.testing.assert_array_equal(x, np.arange(6.0).reshape(2, 3) + 1)
    with pytest.raises(ValueError, match="overlaps"):
        mf.add(x[:, :2], 1, out=x[:, 1:])
    with pytest.raises(ValueError, match="overlaps"):
        mf.matmul(a := np.eye(3), a, out=a)


def test_forbidden_inside_a_trace():
    x = np.ones((2, 3))

    def refuse(function, error, text):
        with pytest.raises(error, match=text):
            mf.fuse(function)(x)

    refuse(lambda a: a if a.sum() > 0 else -a, TypeError, "no contents")
    refuse(lambda a: float(a[0, 0]), TypeError, "no contents")
    refuse(lambda a: np.concatenate([a, a]), NotImplementedError, "concatenate")
    refuse(lambda a: np.argsort(a), NotImplementedError, "argsort")
    refuse(lambda a: np.add.accumulate(a), NotImplementedError, "accumulate")
    refuse(lambda a: np.add(a, a, out=np.ones((2, 3))), ValueError, "out=")
    refuse(lambda a: np.add(a, a, where=np.ones((2, 3), bool)), ValueError, "where=")
    refuse(lambda a: a[a > 0], TypeError, "mf.where")
    refuse(lambda a: a[[0, 1]], TypeError, "integers, slices")
    refuse(lambda a: a[5], IndexError, "out of range")
    refuse(lambda a: a[0, 0, 0], IndexError, "too many")
    refuse(lambda a: a.__setitem__(0, 1), TypeError, "assigned")
    refuse(lambda a: np.asarray(a), TypeError, "cannot be traced")
    refuse(lambda a: 3, TypeError, "holds no array")
    refuse(lambda a: a.reshape(4), ValueError, "reshape|elements")
    refuse(lambda a: mf.add(a, a, out=x), TypeError, "out=")


def test_leaked_values():
    kept = []
    mf.fuse(lambda a: (kept.append(a), a)[1])(np.ones(2))
    with pytest.raises(RuntimeError, match="after its trace ended"):
        kept[0] + 1
    with pytest.raises(RuntimeError, match="another trace"):
        mf.fuse(lambda a: a + kept[0])(np.ones(2))


def test_an_error_does_not_stay():
    f = mf.fuse(lambda a, b: a @ b)
    with pytest.raises(ValueError):
        f(np.ones((2, 3)), np.ones((2, 3)))
    np.testing.assert_array_equal(f(np.ones((2, 3)), np.ones((3, 2))), np.full((2, 2), 3.0))


def test_weak_references_and_collection():
    import gc
    import weakref

    f = mf.fuse(lambda x: x + 1)
    f.cycle = f
    f(np.ones(2))
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "count_nonzero"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_past_nan(name, dtype, axis, rng):
    x = (3 * rng.normal(size=(4, 6))).astype(dtype)
    if dtype != np.int32:
        x[1, 2] = x[3] = np.nan
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = getattr(np, name)(x, axis=axis)
    got = mf.fuse(lambda x: getattr(np, name)(x, axis=axis))(x)
    assert got.dtype == np.asarray(want).dtype
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("name", ["angle", "sinc", "nan_to_num", "signbit", "rint", "fabs"])
def test_real_functions_by_composition(name):
    x = np.array([0.0, -0.0, 0.5, -2.5, 3.0, 1e-8, np.nan])
    np.testing.assert_allclose(mf.fuse(getattr(np, name))(x), getattr(np, name)(x), rtol=1e-12)
    n = np.array([-2, 0, 3])
    got, want = mf.fuse(getattr(np, name))(n), getattr(np, name)(n)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_complex_powers(rng):
    x, y = (rng.normal(size=8) + 1j * rng.normal(size=8) for _ in range(2))
    x[0] = y[1] = 0
    y[0] = 2
    np.testing.assert_allclose(mf.fuse(lambda x, y: x**y)(x, y), x**y, rtol=1e-12)
    single = x.astype(np.complex64)
    assert mf.fuse(lambda x: x**2.5)(single).dtype == np.complex64
    np.testing.assert_allclose(mf.fuse(lambda y: 2**y)(y), 2**y, rtol=1e-12)


def test_plans_of_ever_new_lengths_do_not_fill_the_memory():
    transform, small = mf.fuse(lambda x: mf.fft.fft(x)), mf.fuse(lambda x: mf.fft.fft(x))
    x = np.ones(1 << 20, np.complex128)
    assert mf.plan(mf.fft.fft, x).memory > 16 << 20
    for i in range(20):
        assert abs(transform(x[i:])[0] - (len(x) - i)) < 1e-6
        small(x[: i + 1])
    assert transform.plans < 20
    assert small.plans == 20


def test_functions_are_pickled_and_copied_by_name():
    for function in (mf.exp, mf.matmul, mf.fft.rfft, mf.linalg.solve):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(mf.fuse(lambda x: x))


def test_a_choice_names_what_there_is():
    with pytest.raises(mf.errors.InvalidError, match='"tf33" is not known; it is one of "default".*"tf32"'):
        mf.matmul(np.ones((2, 2)), np.ones((2, 2)), compute="tf33")
    with pytest.raises(ValueError, match="extents are 0 or more"):
        mf.spec((2, -3))


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "float32", "float64", "complex128"])
def test_short_lines(width, dtype, rng):
    """Rows of a few elements, repeated, reversed and apart, from memory and back."""
    a = (rng.normal(size=(7, 333, width)) * 4).astype(dtype)
    spread = np.zeros((7, 333, 2 * width), dtype)[..., ::2]
    for x in (a, a[:, ::-1], a[:, :, ::-1], a[::-1, ::3], a.swapaxes(0, 1)):
        one = x[..., :1]
        got = mf.fuse(lambda x, one: (np.where(True, x, one), np.where(False, x, one)))(x, one)
        np.testing.assert_array_equal(got[0], x)
        np.testing.assert_array_equal(got[1], np.broadcast_to(one, x.shape))
    np.testing.assert_array_equal(mf.fuse(lambda x: np.where(True, x, x))(a, out=spread), a)


@pytest.mark.parametrize("shape", [(3,), (4, 700), (700, 4), (3, 5, 7), (2, 3000)])
def test_positions(shape):
    """Indices along each axis, in blocks that begin anywhere."""
    from mathfuse._linalg import arange

    x = np.zeros(shape)
    for d, n in enumerate(shape):
        along = (1,) * d + (n,) + (1,) * (len(shape) - d - 1)
        got = mf.fuse(lambda x, n=n, along=along: x + arange(n).reshape(along))(x)
        np.testing.assert_array_equal(got, x + np.arange(n).reshape(along))


def test_results_that_are_reshaped_are_stored_so(rng):
    x, w = rng.normal(size=(6, 8)), rng.normal(size=(8, 10))
    cases = {
        "product": (lambda x, w: (x @ w).reshape(2, 3, 5, 2), (x @ w).reshape(2, 3, 5, 2)),
        "map": (lambda x, w: np.tanh(x).reshape(3, 16), np.tanh(x).reshape(3, 16)),
        "rows": (lambda x, w: x.sum(1).reshape(2, 3), x.sum(1).reshape(2, 3)),
        "turned": (lambda x, w: np.tanh(x).T.reshape(4, 2, 6), np.tanh(x).T.reshape(4, 2, 6)),
        "merged": (lambda x, w: np.tanh(x.reshape(2, 3, 8)).reshape(6, 8), np.tanh(x)),
    }
    for name, (function, want) in cases.items():
        plan = mf.plan(function, x, w)
        assert plan.launches == 1, name
        np.testing.assert_allclose(plan.run(x, w), want, rtol=1e-12)
        out = np.empty((*want.shape, 2))[..., 0]
        np.testing.assert_allclose(plan.run(x, w, out=out), want, rtol=1e-12)
    heads = mf.fuse(lambda x, w: np.tanh(x).reshape(2, 3, 4, 2).transpose(2, 0, 1, 3))
    np.testing.assert_allclose(heads(x, w), np.tanh(x).reshape(2, 3, 4, 2).transpose(2, 0, 1, 3))
    both = mf.fuse(lambda x, w: ((x @ w).reshape(60), x @ w, (x @ w).sum()))
    for got, want in zip(both(x, w), ((x @ w).reshape(60), x @ w, (x @ w).sum()), strict=True):
        np.testing.assert_allclose(got, want)


@pytest.mark.gpu
def test_results_that_are_reshaped_on_a_gpu(rng):
    torch = pytest.importorskip("torch")
    x, w = (torch.from_numpy(rng.normal(size=s).astype(np.float32)).cuda() for s in ((64, 256), (256, 512)))
    y = (x.double() @ w.double()).float()
    for function, want, launches in (
        (lambda x, w: (x @ w).reshape(4, 16, 8, 64), y.reshape(4, 16, 8, 64), 1),
        (lambda x, w: np.tanh(x @ w).reshape(4, 16, 512), torch.tanh(y).reshape(4, 16, 512), 2),
        (lambda x, w: np.tanh(x).reshape(4, 4096), torch.tanh(x).reshape(4, 4096), 1),
        (lambda x, w: mf.softmax(x).reshape(8, 8, 256), torch.softmax(x, -1).reshape(8, 8, 256), 1),
        (lambda x, w: x.sum(1).reshape(8, 8), x.sum(1).reshape(8, 8), 1),
        (lambda x, w: mf.fft.fftshift(x), torch.fft.fftshift(x), 1),
    ):
        plan = mf.plan(function, x, w)
        torch.testing.assert_close(plan.run(x, w), want, rtol=1e-4, atol=1e-3)
        assert plan.launches <= launches
    bf = mf.plan(lambda x, w: mf.gelu(x @ w).reshape(4, 16, 512), x.bfloat16(), w.bfloat16())
    want = torch.nn.functional.gelu(x.bfloat16().float() @ w.bfloat16().float(), approximate="tanh").reshape(4, 16, 512)
    torch.testing.assert_close(bf.run(x.bfloat16(), w.bfloat16()).float(), want, rtol=2e-2, atol=5e-2)
