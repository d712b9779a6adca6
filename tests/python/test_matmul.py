"""matmul: NumPy's shapes, bias, alpha and beta, activations, dtypes, empty sizes, out=."""

import ctypes
import json
import os
import subprocess
import sys
import threading

import mathfuse as mf
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tools import BF16, LAYOUTS, assert_close, strided, values, wide

SHAPES = [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
          ((1, 1), (1, 1)), ((5, 3, 4), (5, 4, 1)), ((7, 1), (1, 9)), ((4, 3, 4), (4,)), ((2, 1, 3, 4), (1, 3, 4, 2))]  # fmt: skip


@pytest.mark.parametrize(
    "dtype", [np.float16, BF16, np.float32, np.float64, np.complex64, np.complex128, np.int32, np.int64], ids=str
)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes, dtype, rng):
    a, b = (values(rng, s, dtype) for s in shapes)
    got = mf.matmul(a, b)
    assert got.dtype == dtype
    assert_close(got, np.matmul(wide(a), wide(b)), scale=4)


@pytest.mark.parametrize(
    "shapes",
    [((3, 0), (0, 4)), ((0, 3), (3, 4)), ((3, 4), (4, 0)), ((2, 3, 0), (2, 0, 4)), ((0, 2, 3), (0, 3, 4)), ((0,), (0,))],
)
def test_empty(shapes):
    a, b = (np.ones(s, np.float32) for s in shapes)
    want = np.matmul(a, b)
    np.testing.assert_array_equal(mf.matmul(a, b), want)
    if want.ndim == 2:
        bias = np.arange(want.shape[1], dtype=np.float32) - 1
        np.testing.assert_array_equal(mf.matmul(a, b, bias=bias, activation="relu"), np.maximum(want + bias, 0))


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(0, 40), st.sampled_from([np.float16, np.float32, np.float64, BF16]),
    st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.sampled_from([None, "relu", "gelu", "gelu_erf", "silu", "tanh"]),
    st.sampled_from([None, -1, -2]), st.sampled_from([1, 0.5, -2]), st.sampled_from([0, 1, 0.25]), st.integers(0, 2**31),
)  # fmt: skip
def test_everything(m, n, k, dtype, layout_a, layout_b, activation, bias_axis, alpha, beta, seed):
    rng = np.random.default_rng(seed)
    a, b = strided(values(rng, (m, k), dtype), layout_a), strided(values(rng, (k, n), dtype), layout_b)
    c = values(rng, (m, n), dtype)
    bias = None if bias_axis is None else values(rng, (n if bias_axis == -1 else m,), dtype)
    got = mf.matmul(a, b, c, alpha=alpha, beta=beta, bias=bias, bias_axis=bias_axis or -1, activation=activation)
    want = alpha * (wide(a) @ wide(b)) + beta * wide(c)
    if bias is not None:
        want = want + (wide(bias) if bias_axis == -1 else wide(bias)[:, None])
    if activation:
        want = wide(getattr(mf, activation)(want))
    assert got.dtype == dtype
    assert_close(got, want, scale=8)


def test_alpha_does_not_scale_the_bias():
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(mf.matmul(a, b, alpha=2, bias=np.array([1, 10], np.float32)), [[7, 16], [7, 16]])


def test_beta_zero_never_reads_c():
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    c = np.full((2, 2), np.nan, np.float32)
    np.testing.assert_array_equal(mf.matmul(a, b, c), [[3, 3], [3, 3]])
    np.testing.assert_array_equal(mf.matmul(a, b, c, beta=0.0), [[3, 3], [3, 3]])
    assert np.isnan(mf.matmul(a, b, c, beta=1)).all()
    with pytest.raises(ValueError, match="c is missing"):
        mf.matmul(a, b, beta=1)


def test_bias_axis_on_square_shapes():
    a, b, v = np.eye(8, dtype=np.float32), np.ones((8, 8), np.float32), np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(mf.matmul(a, b, bias=v), 1 + np.tile(v, (8, 1)))
    np.testing.assert_array_equal(mf.matmul(a, b, bias=v, bias_axis=0), 1 + np.tile(v, (8, 1)).T)
    np.testing.assert_array_equal(mf.matmul(a, b, bias=v, bias_axis=-2), 1 + np.tile(v, (8, 1)).T)


def test_bias_shapes(rng):
    a, b = values(rng, (3, 4, 6), np.float32), values(rng, (3, 6, 5), np.float32)
    v = values(rng, (3, 5), np.float32)
    plain = wide(a) @ wide(b)
    assert_close(mf.matmul(a, b, bias=v), plain + v[:, None, :], scale=4)
    rows = values(rng, (3, 4), np.float32)
    assert_close(mf.matmul(a, b, bias=rows, bias_axis=-2), plain + rows[:, :, None], scale=4)
    full = values(rng, (3, 4, 5), np.float32)
    assert_close(mf.matmul(a, b, bias=full), plain + full, scale=4)
    with pytest.raises(ValueError, match="bias has 4 elements; the result has 5 along axis -1"):
        mf.matmul(a, b, bias=np.ones(4, np.float32))


def test_relu_of_nan_is_nan():
    a = np.array([[np.nan, 1], [1, 1]], np.float32)
    y = mf.matmul(a, np.ones((2, 3), np.float32), activation="relu")
    assert np.isnan(y[0]).all() and (y[1] == 2).all()


def test_activation_function_and_unknown_name(rng):
    a, b = values(rng, (4, 6), np.float32), values(rng, (6, 5), np.float32)
    assert_close(
        mf.matmul(a, b, activation=lambda x: x * mf.sigmoid(1.702 * x)),
        (lambda z: z / (1 + np.exp(-1.702 * z)))(wide(a) @ wide(b)),
        scale=4,
    )
    assert_close(mf.matmul(a, b, activation="gelu_tanh"), mf.gelu(wide(a) @ wide(b)), scale=4)
    with pytest.raises(ValueError, match="'softsign' is not known"):
        mf.matmul(a, b, activation="softsign")


def test_out_dtype_rounds_once(rng):
    a, b = values(rng, (8, 584), np.float16), values(rng, (584, 8), np.float16)
    got = mf.matmul(a, b, out_dtype="float32")
    assert got.dtype == np.float32
    assert_close(got, wide(a) @ wide(b), scale=8)


def test_long_sums_keep_precision():
    a, b = np.ones((2, 65536), BF16), np.ones((65536, 2), BF16)
    np.testing.assert_array_equal(wide(mf.matmul(a, b)), 65536)


def test_out(rng):
    a, b = values(rng, (3, 4), np.float32), values(rng, (4, 5), np.float32)
    buffer = np.full((6, 12), 7, np.float32)
    out = buffer[::2, 1:11:2]
    assert mf.matmul(a, b, out=out) is out
    assert_close(out, wide(a) @ wide(b), scale=4)
    assert (buffer[1::2] == 7).all() and (buffer[:, ::2] == 7).all()


def test_linear(rng):
    x, w, b = values(rng, (2, 3, 4), np.float32), values(rng, (4, 5), np.float32), values(rng, (5,), np.float32)
    assert_close(mf.linear(x, w, b, activation="relu"), np.maximum(wide(x) @ wide(w) + b, 0), scale=4)


def test_shape_errors_say_what_was_given():
    with pytest.raises(ValueError, match=r"\(3, 4\).*\(3, 4\)"):
        mf.matmul(np.ones((3, 4)), np.ones((3, 4)))
    with pytest.raises(ValueError):
        mf.matmul(np.ones(()), np.ones((3, 4)))


def cpu_library():
    """The BLAS that mathfuse uses, opened here too; None without one."""
    for entry in json.loads(mf.info(json=True))["libraries"]:
        if "CBLAS" in entry["name"] and entry.get("path"):
            return ctypes.CDLL(entry["path"])
    return None


def test_products_leave_the_library_as_it_was(rng):
    library = cpu_library()
    if not hasattr(library, "openblas_get_num_threads"):
        pytest.skip("no OpenBLAS")
    before = library.openblas_get_num_threads()
    x, w = values(rng, (300, 200), np.float32), values(rng, (200, 300), np.float32)
    done = [threading.Thread(target=lambda: [mf.matmul(x, w, activation="gelu") for _ in range(20)]) for _ in range(3)]
    for thread in done:
        thread.start()
    for thread in done:
        thread.join()
    assert library.openblas_get_num_threads() == before


def test_explain_tells_whose_threads_work(rng):
    code = """if True:
        import mathfuse as mf
        print(mf.plan(lambda x, w: mf.gelu(x @ w), mf.spec((1024, 512)), mf.spec((512, 1024))).explain())
    """
    text = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MATHFUSE_NUM_THREADS": "4"}, check=True,
                          capture_output=True, text=True).stdout  # fmt: skip
    if "runs on blas" not in text:
        pytest.skip("no BLAS")
    assert "tiles shared by 4 threads" in text or "on the library's threads" in text


@pytest.mark.parametrize(
    "zero", [0, 0.0, False, np.float32(0), np.float64(0), np.int64(0), np.array(0.0)], ids=lambda z: type(z).__name__
)
def test_a_term_whose_coefficient_is_zero_is_not_read(zero):
    bad, one, c = np.full((3, 4), np.nan, np.float32), np.ones((4, 5), np.float32), np.full((3, 5), 2.0, np.float32)
    assert np.array_equal(mf.matmul(bad, one, c, alpha=zero, beta=1), c)
    assert np.array_equal(mf.matmul(bad, one, alpha=zero, bias=c[0]), c)
    good, nothing = np.ones((3, 4), np.float32), np.full((3, 5), np.inf, np.float32)
    assert np.array_equal(mf.matmul(good, one, nothing, beta=zero), good @ one)
    assert np.array_equal(mf.fuse(lambda a, b, c: mf.matmul(a, b, c, beta=zero))(good, one, nothing), good @ one)
    assert mf.matmul(bad.astype(np.float16), one.astype(np.float16), alpha=0).dtype == np.float16


@pytest.mark.parametrize("share", [0.002, 0.05, 0.6])
def test_truth_values(share, rng):
    """By bits: sizes around words and blocks, strides, batches; the result is a truth value to what follows it."""
    for m, k, n in (
        (1, 1, 1),
        (5, 63, 64),
        (64, 65, 63),
        (3, 511, 512),
        (200, 513, 513),
        (7, 1100, 1030),
        (33, 32, 5),
        (2, 0, 3),
    ):
        a, b = rng.random((m, k)) < share, rng.random((k, n)) < share
        want = a.astype(np.int64) @ b.astype(np.int64) > 0
        for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b)), (a[::-1], b[:, ::-1])):
            got = mf.matmul(x, y)
            assert got.dtype == bool
            np.testing.assert_array_equal(got, x.astype(np.int64) @ y.astype(np.int64) > 0)
        out = np.zeros((m, 2 * n), bool)[:, ::2]
        np.testing.assert_array_equal(mf.matmul(a, b, out=out), want)
        total = mf.fuse(lambda a, b: ((a @ b) + 1, (a @ b) & True, (a @ b) * 0.5))(a, b)
        np.testing.assert_array_equal(total[0], want + 1)
        np.testing.assert_array_equal(total[1], want)
        np.testing.assert_array_equal(total[2], want * 0.5)
    a, b = rng.random((40, 6, 70)) < share, rng.random((40, 70, 9)) < share
    np.testing.assert_array_equal(mf.matmul(a, b), np.matmul(a, b))
    np.testing.assert_array_equal(mf.matmul(a, b[0]), np.matmul(a, b[0]))
    np.testing.assert_array_equal(mf.matmul(a, b[0, :, 0]), np.matmul(a, b[0, :, 0]))
    np.testing.assert_array_equal(mf.einsum("bij,bjk->k", a, b), np.einsum("bij,bjk->k", a, b))


@pytest.mark.gpu
def test_truth_values_on_a_gpu(rng):
    cupy = pytest.importorskip("cupy")
    a, b = rng.random((70, 90)) < 0.05, rng.random((90, 40)) < 0.05
    want = a.astype(np.int64) @ b.astype(np.int64) > 0
    got = mf.fuse(lambda a, b: (a @ b, (a @ b) + 1))(cupy.asarray(a), cupy.asarray(b))
    np.testing.assert_array_equal(got[0].get(), want)
    np.testing.assert_array_equal(got[1].get(), want + 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("n, k", [(40, 900), (64, 64), (65, 300), (129, 70), (200, 1), (300, 40), (513, 33)])
def test_a_matrix_by_its_own_transpose(n, k, dtype, rng):
    """Half of it is computed: both halves, views, chains and batches; NaN in the result's memory does not show."""
    a = values(rng, (k, n), dtype)
    want = wide(a).T @ wide(a)
    for x in (a, np.asfortranarray(a), a[::-1], values(rng, (k, 2 * n), dtype)[:, n:]):
        gram = mf.fuse(lambda x: (x.T @ x, (x.T @ x) * 0.5 + 1, x @ x.T))(x)
        square = wide(x).T @ wide(x)
        assert_close(gram[0], square, scale=10 * k**0.5)
        assert_close(gram[1], square * 0.5 + 1, scale=10 * k**0.5)
        assert_close(gram[2], wide(x) @ wide(x).T, scale=10 * n**0.5)
        assert_close(mf.matmul(x.T, x), square, scale=10 * k**0.5)
    out = np.full((n, n + 3), np.nan, dtype)[:, :n]
    assert_close(mf.matmul(a.T, a, out=out), want, scale=10 * k**0.5)
    b = a.copy()
    b[0, 0] += 1  # of the same layout, but another matrix
    assert_close(mf.matmul(a.T, b), wide(a).T @ wide(b), scale=10 * k**0.5)
    batch = values(rng, (3, k, n), dtype)
    grams = mf.fuse(lambda x: x.mT @ x)(batch)
    assert_close(grams, wide(batch).swapaxes(1, 2) @ wide(batch), scale=10 * k**0.5)
    both = mf.fuse(lambda x, d: x.T @ x + d)(a, np.eye(n, dtype=dtype))
    assert_close(both, want + np.eye(n), scale=10 * k**0.5)


def test_a_matrix_by_its_own_transpose_is_symmetric_and_told(rng):
    a = values(rng, (900, 300), "float32")
    plan = mf.plan(lambda x: x.T @ x, a)
    if "cblas" in plan.explain():
        gram = plan.run(a)
        np.testing.assert_array_equal(gram, gram.T)
        assert (
            "half of it by squares" in plan.explain()
            or "on the library's threads" in plan.explain()
            or "tiles" not in plan.explain()
        )
    bad = a.copy()
    bad[3, 4] = np.nan
    gram = plan.run(bad)
    assert np.isnan(gram[4]).all() and np.isnan(gram[:, 4]).all() and np.isnan(gram).sum() == 599
