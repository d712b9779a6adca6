"""linear, mlp, swiglu, geglu, scaled_matmul, grouped_matmul, normalisations, softmax, dropout: against float64."""

import json

import mathfuse as mf
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import special
from tools import BF16, E4M3, E5M2, LAYOUTS, assert_close, strided, values, wide

FLOATS = st.sampled_from([np.float16, BF16, np.float32, np.float64])
LEAD = st.sampled_from([(), (3,), (2, 3), (1, 2, 2), (0,)])
ACTIVATIONS = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: x / 2 * (1 + special.erf(x / np.sqrt(2))),
    "silu": lambda x: x * special.expit(x),
}


def both(function, *args, **kwargs):
    """The result of a call; the same inside a traced function."""
    got = function(*args, **kwargs)
    traced = mf.fuse(lambda *a: function(*a, **kwargs))(*args)
    for x, y in zip(got if isinstance(got, tuple) else (got,), traced if isinstance(traced, tuple) else (traced,)):
        np.testing.assert_array_equal(wide(x), wide(y))
    return got


# ---- products ----


@given(LEAD, st.integers(1, 40), st.integers(1, 40), FLOATS, st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS),
       st.booleans(), st.sampled_from(list(ACTIVATIONS)), st.integers(0, 2**31))  # fmt: skip
def test_linear(lead, k, n, dtype, layout_x, layout_w, biased, activation, seed):
    rng = np.random.default_rng(seed)
    x, w = strided(values(rng, (*lead, k), dtype), layout_x), strided(values(rng, (k, n), dtype), layout_w)
    b = values(rng, (n,), dtype) if biased else None
    got = mf.linear(x, w, b, activation=activation)
    assert got.dtype == dtype
    assert_close(got, ACTIVATIONS[activation](wide(x) @ wide(w) + (wide(b) if biased else 0)), scale=8)


@given(LEAD, st.lists(st.integers(1, 24), min_size=2, max_size=4), FLOATS, st.booleans(), st.integers(0, 2**31))
def test_mlp(lead, sizes, dtype, biased, seed):
    rng = np.random.default_rng(seed)
    x = values(rng, (*lead, sizes[0]), dtype, -1, 1)
    weights = [values(rng, s, dtype, -0.5, 0.5) for s in zip(sizes, sizes[1:])]
    biases = [values(rng, s, dtype, -1, 1) for s in sizes[1:]] if biased else None
    got = mf.mlp(x, weights, biases, activation="silu", output_activation="relu")
    want = wide(x)
    for i, w in enumerate(weights):
        want = ACTIVATIONS["silu" if i < len(weights) - 1 else "relu"](want @ wide(w) + (wide(biases[i]) if biased else 0))
    assert got.dtype == dtype
    assert_close(got, want, scale=10)


@given(LEAD, st.integers(1, 24), st.integers(1, 24), FLOATS, st.booleans(), st.integers(0, 2**31))
def test_gated(lead, k, hidden, dtype, down, seed):
    rng = np.random.default_rng(seed)
    x, gate, up = (values(rng, s, dtype, -1, 1) for s in ((*lead, k), (k, hidden), (k, hidden)))
    last = values(rng, (hidden, 5), dtype, -1, 1) if down else None
    bias = values(rng, (hidden,), dtype)
    for function, activation in ((mf.swiglu, "silu"), (mf.geglu, "gelu")):
        want = ACTIVATIONS[activation](wide(x) @ wide(gate) + wide(bias)) * (wide(x) @ wide(up))
        got = function(x, gate, up, last, gate_bias=bias)
        assert got.dtype == dtype
        assert_close(got, want @ wide(last) if down else want, scale=20)


def test_geglu_with_the_error_function(rng):
    x, gate, up = (values(rng, s, np.float64) for s in ((4, 6), (6, 5), (6, 5)))
    assert_close(mf.geglu(x, gate, up, approximate="none"), ACTIVATIONS["gelu_erf"](x @ gate) * (x @ up), scale=8)
    with pytest.raises(ValueError, match='"tanh" or "none"'):
        mf.geglu(x, gate, up, approximate="erf")


@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (BF16, BF16), (np.float32, np.float32)], ids=str)
@pytest.mark.parametrize("scales", ["numbers", "arrays", "vectors", "columns"])
def test_scaled_matmul(dtypes, scales, rng):
    a, b = values(rng, (2, 16, 48), dtypes[0]), values(rng, (2, 48, 32), dtypes[1])
    shapes = {"arrays": ((), (1,)), "vectors": ((2, 16), (2, 32)), "columns": ((2, 16, 1), (2, 1, 32))}
    sa, sb = (0.5, 0.25) if scales == "numbers" else (values(rng, s, np.float32, 0.1, 2) for s in shapes[scales])
    bias = values(rng, (32,), BF16)
    got = both(mf.scaled_matmul, a, b, sa, sb, bias, activation="gelu")
    rows = wide(sa)[..., None] if scales == "vectors" else wide(sa)
    columns = wide(sb)[:, None, :] if scales == "vectors" else wide(sb)
    assert got.dtype == (BF16 if np.dtype(dtypes[0]).itemsize == 1 else dtypes[0])
    assert_close(got, ACTIVATIONS["gelu"]((wide(a) @ wide(b)) * rows * columns + wide(bias)), scale=4)


@pytest.mark.parametrize("shape", [(5, 7, 3), (64, 32, 48), (2, 16, 64, 32)], ids=str)
def test_int8_products(shape, rng):
    *lead, m, k, n = shape
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((*lead, m, k), (k, n)))
    want = a.astype(np.int64) @ b.astype(np.int64)
    got = both(mf.matmul, a, b)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, want)
    sa, sb = values(rng, (*lead, m), np.float32, 0.001, 0.01), values(rng, (n,), np.float32, 0.001, 0.01)
    scaled = both(mf.scaled_matmul, a, b, sa, sb, activation="relu")
    assert scaled.dtype == np.float32
    assert_close(scaled, np.maximum(want * wide(sa)[..., None] * wide(sb), 0))
    half = mf.scaled_matmul(a, b, sa, sb, out_dtype="bfloat16")
    assert_close(half, want * wide(sa)[..., None] * wide(sb))
    again = mf.scaled_matmul(a, b, np.float32(2e-4), out_dtype="int8")
    np.testing.assert_array_equal(again, np.clip(np.rint(np.float32(want) * np.float32(2e-4)), -128, 127).astype(np.int8))


def test_scaled_matmul_saturates_fp8_results():
    a, b = np.full((2, 16), 8, E4M3), np.full((16, 3), 8, E4M3)
    assert (wide(mf.scaled_matmul(a, b, out_dtype=E4M3)) == 448).all()
    assert (wide(mf.scaled_matmul(a, b, 0.5, 0.25, scale_result=0.5, out_dtype=E4M3)) == 64).all()
    assert (wide(mf.scaled_matmul(a, b, out_dtype=np.float32)) == 1024).all()
    with pytest.raises(ValueError, match=r"scale_a has shape \(3,\).*\(2,\) or \(2, 1\)"):
        mf.scaled_matmul(a, b, np.ones(3, np.float32))


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=5), FLOATS,
       st.booleans(), st.integers(0, 2**31))  # fmt: skip
def test_grouped_matmul(shapes, dtype, biased, seed):
    rng = np.random.default_rng(seed)
    a = [values(rng, (m, k), dtype) for m, k, _ in shapes]
    b = [values(rng, (k, n), dtype) for _, k, n in shapes]
    bias = [values(rng, (n,), dtype) for _, _, n in shapes] if biased else None
    got = mf.grouped_matmul(a, b, bias=bias, activation="relu")
    assert len(got) == len(shapes)
    for g, (x, w) in enumerate(zip(a, b)):
        assert_close(got[g], np.maximum(wide(x) @ wide(w) + (wide(bias[g]) if biased else 0), 0), scale=8)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.booleans(), st.integers(0, 2**31))
def test_ragged_rows(rows, array, seed):
    rng = np.random.default_rng(seed)
    a, b = values(rng, (sum(rows), 7), np.float32), values(rng, (len(rows), 7, 5), np.float32)
    ends = np.cumsum(rows)
    out = np.full((sum(rows), 5), np.nan, np.float32)
    starts = ends - rows
    slices = tuple(out[s:e] for s, e in zip(starts, ends))
    got = mf.grouped_matmul(a, b, ends if array else [0, *map(int, ends)], out=slices)
    for g, (s, e) in enumerate(zip(starts, ends)):
        assert_close(got[g], wide(a[s:e]) @ wide(b[g]), scale=4)
    assert not np.isnan(out).any()


def test_grouped_errors(rng):
    a, b = values(rng, (6, 3), np.float32), values(rng, (2, 3, 4), np.float32)
    for offsets, message in (([4, 2], "must not decrease"), ([2, 4], "end at 4; a has 6 rows"), ([1, 2, 6], "3 offsets"),
                             ([2, 9], "must not decrease")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            mf.grouped_matmul(a, b, offsets)
    with pytest.raises(ValueError, match="a has 1 entries for 2 groups"):
        mf.grouped_matmul([a], b)
    with pytest.raises(ValueError, match="known when the plan is made"):
        mf.fuse(lambda x, w, o: mf.grouped_matmul(x, w, o))(a, b, np.array([2, 6]))


def test_product_errors(rng):
    x, w = values(rng, (4, 6), np.float32), values(rng, (5, 6), np.float32)
    with pytest.raises(ValueError, match=r"weight.T"):
        mf.linear(x, w)
    with pytest.raises(ValueError, match="2 weights and 1 biases"):
        mf.mlp(x, [w.T, w], [None])
    with pytest.raises(ValueError, match="at least one"):
        mf.mlp(x, [])


# ---- normalisations ----


@given(LEAD, st.integers(1, 70), FLOATS, st.sampled_from(LAYOUTS), st.integers(-2, -1), st.booleans(), st.integers(0, 2**31))
def test_norms(lead, n, dtype, layout, axis, weighted, seed):
    rng = np.random.default_rng(seed)
    x = strided(values(rng, (*lead, 4, n), dtype), layout)
    extent = x.shape[axis]
    w, b = (values(rng, (extent,), dtype) if weighted else None for _ in range(2))
    along = (extent,) if axis == -1 else (extent, 1)
    scale, shift = (wide(v).reshape(along) if weighted else d for v, d in ((w, 1), (b, 0)))
    z = wide(x)
    rms = mf.rms_norm(x, w, axis=axis)
    assert rms.dtype == dtype
    assert_close(rms, z / np.sqrt((z * z).mean(axis, keepdims=True) + 1e-6) * scale, scale=8)
    d = z - z.mean(axis, keepdims=True)
    got = mf.layer_norm(x, w, b, axis=axis, eps=1e-3)
    assert got.dtype == dtype
    assert_close(got, d / np.sqrt((d * d).mean(axis, keepdims=True) + 1e-3) * scale + shift, scale=60)


@given(LEAD, st.integers(1, 70), FLOATS, st.sampled_from(LAYOUTS), st.integers(-2, -1), st.sampled_from([1, 30]),
       st.integers(0, 2**31))  # fmt: skip
def test_softmax(lead, n, dtype, layout, axis, spread, seed):
    rng = np.random.default_rng(seed)
    x = strided(values(rng, (*lead, 4, n), dtype, -2 * spread, 2 * spread), layout)
    for function, oracle in ((mf.softmax, special.softmax), (mf.log_softmax, special.log_softmax)):
        got = function(x, axis)
        assert got.dtype == dtype
        if x.size:
            assert_close(got, oracle(wide(x), axis=axis), scale=8)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,)])
def test_of_nothing(shape):
    x = np.ones(shape, np.float32)
    for function in (mf.softmax, mf.log_softmax, mf.rms_norm, mf.layer_norm):
        got = function(x)
        assert got.shape == shape and got.dtype == np.float32
    with pytest.raises(IndexError):
        mf.softmax(x, axis=2)


def test_norms_over_several_axes(rng):
    x, w = values(rng, (3, 4, 5), np.float64), values(rng, (4, 5), np.float64)
    d = x - x.mean((1, 2), keepdims=True)
    want = d / np.sqrt((d * d).mean((1, 2), keepdims=True) + 1e-5) * w
    assert_close(both(mf.layer_norm, x, w, normalized_shape=(4, 5)), want, scale=8)
    assert_close(both(mf.layer_norm, x, w, axis=(1, 2)), want, scale=8)
    with pytest.raises(ValueError, match="is not how the shape"):
        mf.rms_norm(x, normalized_shape=(3, 4))
    with pytest.raises(ValueError, match="weight has shape"):
        mf.rms_norm(x, w)
    with pytest.raises(TypeError, match="needs floating point"):
        mf.rms_norm(np.ones((2, 3), np.int32))


def test_matmul_then_norm_is_one_pass(rng):
    x, w, r = values(rng, (64, 32), BF16), values(rng, (32, 48), BF16), values(rng, (64, 48), BF16)
    z = wide(x) @ wide(w) + wide(r)
    got = mf.fuse(lambda x, w, r: mf.rms_norm(x @ w + r, out_dtype="float32"))(x, w, r)
    assert got.dtype == np.float32
    assert_close(got, z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-6), scale=8)


@pytest.mark.compiles
def test_norm_after_a_product_passes_over_its_result_once():
    def block(x, w, r, g):
        h = x @ w + r
        return h, mf.rms_norm(h, g)

    specs = [mf.spec(shape, "bf16") for shape in ((4096, 1024), (1024, 1024), (4096, 1024), (1024,))]
    for f, anchors in ((block, ["matmul", "reduce"]), (lambda *a: block(*a)[1], ["matmul"])):
        steps = json.loads(mf.plan(f, *specs, target="sm_90a").explain("json"))["steps"]
        assert [s["anchor"] for s in steps] == anchors and sum(s["launches"] for s in steps) == len(anchors)
    whole = mf.plan(block, *specs, target="sm_90a")
    assert "temporary" not in whole.explain()  # h is read back as it was stored


def test_norm_of_an_output_reads_what_was_stored(rng):
    x, w, r = values(rng, (64, 32), BF16), values(rng, (32, 48), BF16), values(rng, (64, 48), BF16)

    def block(x, w, r):
        h = x @ w + r
        return h, mf.rms_norm(h, out_dtype="float32")

    h, got = mf.fuse(block)(x, w, r)
    z = wide(h)
    assert_close(got, z / np.sqrt((z * z).mean(-1, keepdims=True) + 1e-6), scale=8)


def test_log_softmax_keeps_small_differences():
    got = mf.log_softmax(np.array([0, 1000, -40], np.float32))
    assert_close(got, [-1000, 0, -1040])


# ---- dropout ----

KNOWN = 0x6627E8D5  # Random123's known answer for philox4x32, 10 rounds, counter and key 0


def philox(counter, key):
    """Word 0 of Philox4x32-10, written out from the paper, for an array of counters."""
    c = [counter & 0xFFFFFFFF, counter >> np.uint64(32), counter * np.uint64(0), counter * np.uint64(0)]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & np.uint64(0xFFFFFFFF),
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & np.uint64(0xFFFFFFFF)]  # fmt: skip
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def dropped(x, p, seed, offset=0):
    bits = philox(np.arange(x.size, dtype=np.uint64).reshape(x.shape) + np.uint64(offset % 2**64), seed % 2**64)
    return np.where(bits >= round(p * 2**32), wide(x) / (1 - p), 0)


def test_philox_known_answer():
    assert mf.philox(np.array(0), np.array(0)) & 0xFFFFFFFF == KNOWN
    assert philox(np.array(0, np.uint64), 0) == KNOWN


@given(st.sampled_from([(), (7,), (5, 9), (2, 3, 4), (1, 1, 6), (0, 3)]), FLOATS, st.sampled_from(LAYOUTS),
       st.floats(0.05, 0.95), st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**62), st.integers(0, 2**31))  # fmt: skip
def test_dropout(shape, dtype, layout, p, seed, offset, values_seed):
    x = strided(values(np.random.default_rng(values_seed), shape, dtype), layout)
    got = mf.dropout(x, p, seed=seed, offset=offset)
    assert got.dtype == dtype
    assert_close(got, dropped(x, p, seed, offset), scale=2)


def test_dropout_bits_do_not_depend_on_the_plan(rng):
    x, w = values(rng, (37, 20), np.float32), values(rng, (20, 37), np.float32)
    seed, offset = np.array(5), np.array(2**33)
    keep = dropped(np.ones((37, 37)), 0.4, 5, 2**33) != 0
    product = wide(x) @ wide(w)
    assert_close(mf.fuse(lambda x, w, s, o: mf.dropout(x @ w, 0.4, seed=s, offset=o))(x, w, seed, offset),
                 np.where(keep, product / 0.6, 0), scale=8)  # fmt: skip
    assert_close(mf.fuse(lambda x, w, s, o: mf.dropout((x @ w).T, 0.4, seed=s, offset=o))(x, w, seed, offset),
                 np.where(keep, product.T / 0.6, 0), scale=8)  # fmt: skip
    kept = np.where(keep, wide(product) / 0.6, 0)
    assert_close(mf.fuse(lambda x, w, s, o: mf.softmax(mf.dropout(x @ w, 0.4, seed=s, offset=o)))(x, w, seed, offset),
                 special.softmax(kept, axis=-1), scale=20)  # fmt: skip
    assert_close(mf.fuse(lambda x, w, s, o: mf.dropout(x @ w, 0.4, seed=s, offset=o).sum(0))(x, w, seed, offset),
                 kept.sum(0), scale=20)  # fmt: skip


def test_one_plan_serves_all_seeds(rng):
    x = values(rng, (50, 40), np.float32)
    for seed in (0, 1, 2**62):
        assert_close(mf.dropout(x, 0.5, seed=np.array(seed)), dropped(x, 0.5, seed))
    flips = [mf.dropout(x, 0.5, seed=1, offset=o) != 0 for o in (0, x.size)]
    assert 0.4 < (flips[0] == flips[1]).mean() < 0.6


def test_dropout_edges(rng):
    x = values(rng, (4, 5), np.float32)
    np.testing.assert_array_equal(mf.dropout(x, 0, seed=1), x)
    np.testing.assert_array_equal(mf.dropout(x, 0.7, training=False, seed=1), x)
    np.testing.assert_array_equal(mf.dropout(x, 1, seed=1), np.zeros_like(x))
    out = np.empty_like(x)
    assert mf.dropout(x, 0.5, seed=3, out=out) is out
    with pytest.raises(ValueError, match="from 0 to 1"):
        mf.dropout(x, 1.5, seed=1)
    with pytest.raises(ValueError, match="64 bits"):
        mf.dropout(x, 0.5, seed=2**64)
    with pytest.raises(ValueError, match="an array of one int64"):
        mf.dropout(x, 0.5, seed=np.array([1, 2]))


@pytest.mark.gpu
def test_gpu_products_use_the_library_whole(rng):
    """fp8's scales, and gelu with the value before it, are one call of cuBLASLt."""
    torch = pytest.importorskip("torch")
    a, b = (values(rng, s, np.float32) for s in ((64, 96), (32, 96)))
    bias = torch.from_numpy(values(rng, (32,), np.float32)).to("cuda", torch.bfloat16)
    narrow = [torch.from_numpy(v).cuda().to(torch.float8_e4m3fn) for v in (a, b)]
    scales = [torch.tensor(v, device="cuda") for v in (0.5, 0.125)]

    def scaled(a, b, sa, sb, bias):
        return mf.scaled_matmul(a, b.T, sa, sb, bias, activation="gelu")

    def kept(a, b, bias):
        z = a @ b.T + bias
        return mf.gelu(z), z

    shift = bias.float().cpu().numpy().astype(float)
    wide_fp8 = [v.float().cpu().numpy().astype(float) for v in narrow]
    want = ACTIVATIONS["gelu"](wide_fp8[0] @ wide_fp8[1].T / 16 + shift)
    assert "cublasLtMatmul GELU_BIAS, scaled" in mf.plan(scaled, *narrow, *scales, bias).explain()
    got = mf.fuse(scaled)(*narrow, *scales, bias).float().cpu().numpy()
    assert_close(got, want, tolerance=1.6e-2)
    half = [torch.from_numpy(v).to("cuda", torch.bfloat16) for v in (a, b)]
    assert "cublasLtMatmul GELU_AUX_BIAS" in mf.plan(kept, *half, bias).explain()
    y, z = (v.float().cpu().numpy() for v in mf.fuse(kept)(*half, bias))
    product = half[0].double().cpu().numpy() @ half[1].double().cpu().numpy().T + shift
    assert_close(z, product, tolerance=1.6e-2)
    assert_close(y, ACTIVATIONS["gelu"](product), tolerance=1.6e-2)


@pytest.mark.gpu
def test_gpu_dropout_has_the_same_bits(rng):
    torch = pytest.importorskip("torch")
    x, w = values(rng, (129, 70), np.float32), values(rng, (70, 65), np.float32)
    on = [torch.from_numpy(v).cuda() for v in (x, w)]
    for function in (lambda x, w: mf.dropout(x, 0.3, seed=11), lambda x, w: mf.dropout(x.T, 0.3, seed=11),
                     lambda x, w: mf.dropout(x @ w, 0.3, seed=11, offset=9), lambda x, w: mf.softmax(mf.dropout(x, 0.3, seed=11))):  # fmt: skip
        made = mf.fuse(function)
        assert_close(made(*on).cpu().numpy(), wide(made(x, w)), scale=20)
        np.testing.assert_array_equal(made(*on).cpu().numpy() == 0, made(x, w) == 0)
