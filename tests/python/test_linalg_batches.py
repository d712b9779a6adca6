"""Batches of small systems on the CPU: LAPACK's matrix kinds by its test ratios, bad members, layouts, reruns."""

import json

import mathfuse as mf
import numpy as np
import pytest
from tools import LAYOUTS, strided

ORDERS = [1, 2, 4, 7, 8, 13, 16, 32, 33, 64, 100]
KINDS = ["random", "diagonal", "well", "ill", "graded", "large", "tiny", "triangular"]
DTYPES = [np.float32, np.float64]


def orthogonal(rng, batch, n):
    return np.linalg.qr(rng.normal(size=(batch, n, n)))[0]


def spectrum(kind, n, dtype):
    """The singular values of a kind of LAPACK's test matrices."""
    eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
    condition = {"well": 2.0, "ill": 0.1 / eps}.get(kind, 1 / np.sqrt(0.1 * eps))
    values = condition ** (-np.arange(n) / max(n - 1, 1))
    return values * {"large": eps / tiny, "tiny": tiny / eps}.get(kind, 1.0)


def general(rng, kind, batch, n, dtype):
    a = rng.normal(size=(batch, n, n))
    if kind == "diagonal":
        a = a * np.eye(n) + np.eye(n)
    elif kind == "triangular":
        a = np.triu(a) + n * np.eye(n)
    elif kind == "graded":
        a = a * 10.0 ** np.linspace(0, -6, n)[:, None]
    elif kind != "random":
        a = (orthogonal(rng, batch, n) * spectrum(kind, n, dtype)) @ orthogonal(rng, batch, n)
    return a.astype(dtype)


def definite(rng, kind, batch, n, dtype):
    q = orthogonal(rng, batch, n)
    d = np.sqrt(10.0 ** np.linspace(0, -6, n)) if kind == "graded" else 1.0
    values = np.ones(n) if kind in ("random", "graded", "triangular") else spectrum("well" if kind == "ill" else kind, n, dtype)
    a = (q * values) @ np.swapaxes(q, 1, 2)
    a = np.eye(n) * values if kind == "diagonal" else a * np.multiply.outer(d, d) if kind == "graded" else a
    return np.broadcast_to((a + np.swapaxes(a, -1, -2)) / 2, (batch, n, n)).astype(dtype)


def norm(a):
    return np.abs(a).sum(axis=-2).max(axis=-1)


def solve_ratio(a, x, b):
    """LAPACK's: |b - a x| / (|a| |x| eps), of each matrix."""
    a, wx, b = a.astype(np.longdouble), x.astype(np.longdouble), b.astype(np.longdouble)
    return norm(b - a @ wx) / (norm(a) * norm(wx) * np.finfo(x.dtype).eps)


def factor_ratio(a, factor):
    """LAPACK's: |a - l l^T| / (n |a| eps), of each matrix."""
    wide = factor.astype(np.longdouble)
    return norm(a - wide @ np.swapaxes(wide, -1, -2)) / (
        a.shape[-1] * norm(a.astype(np.longdouble)) * np.finfo(factor.dtype).eps
    )


def lanes(function, *arrays, **options):
    """By the provider under test alone."""
    plan = mf.plan(lambda *a: function(*a, **options), *arrays, providers="lanes,generated,ref")
    assert {
        step["provider"] for step in json.loads(plan.explain("json"))["steps"] if step["anchor"] in ("solve", "factor")
    } == {"lanes"}
    return plan.run(*arrays)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", ORDERS)
def test_ratios(n, kind, dtype, rng):
    a, b = general(rng, kind, 19, n, dtype), rng.normal(size=(19, n, 2)).astype(dtype)
    x, info = lanes(mf.linalg.solve, a, b, check=False)
    assert not info.any()
    assert solve_ratio(a, x, b).max() <= 30
    s = definite(rng, kind, 19, n, dtype)
    factor, info = lanes(mf.linalg.cholesky, s, check=False)
    assert not info.any()
    assert factor_ratio(s, factor).max() <= 30
    y, info = lanes(mf.linalg.solve, s, b, assume_a="pos", check=False)
    assert not info.any()
    assert solve_ratio(s, y, b).max() <= 30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 8, 16, 33])
def test_bad_members_leave_the_others_alone(n, dtype, rng):
    a, b = general(rng, "random", 50, n, dtype), rng.normal(size=(50, n, 1)).astype(dtype)
    s = definite(rng, "well", 50, n, dtype)
    good, factors = lanes(mf.linalg.solve, a, b), lanes(mf.linalg.cholesky, s)
    want, wanted = np.zeros(50, int), np.zeros(50, int)
    for item in range(1, 50, 3):
        bad = item % n
        a[item, :, bad] = 0
        s[item, bad, bad] = -1 if item % 2 else np.nan
        want[item] = wanted[item] = bad + 1
    a[2, 1, 1] = np.nan
    x, info = lanes(mf.linalg.solve, a, b, check=False)
    np.testing.assert_array_equal(info, want)
    fine = (want == 0) & (np.arange(50) != 2)
    np.testing.assert_array_equal(x[fine], good[fine])
    assert np.isnan(x[want > 0]).all()
    assert np.isnan(x[2]).any()
    factor, info = lanes(mf.linalg.cholesky, s, check=False)
    np.testing.assert_array_equal(info, wanted)
    np.testing.assert_array_equal(factor[wanted == 0], factors[wanted == 0])
    with pytest.raises(mf.linalg.LinAlgError):
        mf.linalg.solve(a, b)


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
@pytest.mark.parametrize("n", [3, 8, 17])
def test_layouts(n, layout, rng):
    a, b = general(rng, "random", 20, n, np.float32), rng.normal(size=(20, n, 3)).astype(np.float32)
    s = definite(rng, "well", 20, n, np.float32)
    np.testing.assert_array_equal(lanes(mf.linalg.solve, strided(a, layout), strided(b, layout)), lanes(mf.linalg.solve, a, b))
    np.testing.assert_array_equal(lanes(mf.linalg.cholesky, strided(s, layout)), lanes(mf.linalg.cholesky, s))
    by_batch = np.ascontiguousarray(np.moveaxis(a, 0, -1))  # matrices interleaved as the lanes are
    np.testing.assert_array_equal(lanes(mf.linalg.solve, np.moveaxis(by_batch, -1, 0), b), lanes(mf.linalg.solve, a, b))


def test_broadcasting(rng):
    a, b = general(rng, "random", 6, 5, np.float64), rng.normal(size=(4, 1, 5, 2))
    x = lanes(mf.linalg.solve, a, b)
    assert x.shape == (4, 6, 5, 2)
    np.testing.assert_array_equal(x[2, 3], lanes(mf.linalg.solve, np.stack([a[3]] * 2), np.stack([b[2, 0]] * 2))[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_reruns_are_the_same_to_the_bit(dtype, rng):
    a, b = general(rng, "random", 500, 16, dtype), rng.normal(size=(500, 16, 1)).astype(dtype)
    first = mf.linalg.solve(a, b)
    for _ in range(5):
        np.testing.assert_array_equal(mf.linalg.solve(a, b), first)
    np.testing.assert_array_equal(mf.linalg.solve(a[100:103], b[100:103]), first[100:103])


def test_who_runs_what(rng):
    def provider(shape, dtype=np.float64):
        p = mf.plan(mf.linalg.solve, mf.spec(shape, dtype), mf.spec((*shape[:-1], 1), dtype))
        return json.loads(p.explain("json"))["steps"][0]["provider"]

    assert provider((1000, 16, 16)) == "lanes"
    assert provider((1000, 16, 16), np.float32) == "lanes"
    assert provider((16, 16)) == "lapack"
    assert provider((4, 300, 300)) == "lapack"
    assert provider((1000, 16, 16), np.complex128) == "ref"
    for shape, name in (((1000, 4, 4), "lanes"), ((16, 128, 128), "lanes"), ((4, 4), "lapack"), ((10, 300, 300), "lapack")):
        for function in (mf.linalg.inv, mf.linalg.lu_factor):
            steps = json.loads(mf.plan(function, mf.spec(shape, "f64")).explain("json"))["steps"]
            assert steps[0]["provider"] == name


def unpacked(lu, pivots):
    """(l, u, order of the rows)"""
    n = lu.shape[-1]
    order = np.broadcast_to(np.arange(n), pivots.shape).copy()
    for k in range(n):
        for item in range(len(lu)):
            order[item, [k, pivots[item, k]]] = order[item, [pivots[item, k], k]]
    return np.tril(lu, -1) + np.eye(n), np.triu(lu), order


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", ORDERS)
def test_factors_and_inverses(n, kind, dtype, rng):
    a, eps = general(rng, kind, 19, n, dtype), np.finfo(dtype).eps
    lu, pivots, info = lanes(mf.linalg.lu_factor, a, check=False)
    assert not info.any() and (pivots >= np.arange(n)).all()
    lower, upper, order = unpacked(lu.astype(np.longdouble), pivots)
    assert np.abs(lower).max() <= 1
    rows = np.take_along_axis(a, order[..., None], 1).astype(np.longdouble)
    assert (norm(lower @ upper - rows) / (n * norm(rows) * eps)).max() <= 30
    sign, log = lanes(mf.linalg.slogdet, a)
    with np.errstate(all="ignore"):
        want = np.linalg.slogdet(a.astype(np.float64))
    if kind not in ("ill", "graded", "large", "tiny"):
        np.testing.assert_array_equal(sign, want[0])
        np.testing.assert_allclose(log, want[1], rtol=1e4 * eps, atol=1e4 * n * eps)
    inverse, info = lanes(mf.linalg.inv, a, check=False)
    assert not info.any()
    wide = inverse.astype(np.longdouble)
    ratio = norm(wide @ a - np.eye(n)) / (n * norm(wide) * norm(a.astype(np.longdouble)) * eps)
    assert ratio.max() <= 30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 8, 12, 13, 33])
def test_factors_of_bad_members(n, dtype, rng):
    a = general(rng, "random", 50, n, dtype)
    good, inverses = lanes(mf.linalg.lu_factor, a), lanes(mf.linalg.inv, a)
    want = np.zeros(50, int)
    for item in range(1, 50, 3):
        bad = item % n
        a[item, :, bad] = 0
        want[item] = bad + 1
        if item % 2:
            a[item, bad, n - 1 - bad] = np.inf if item % 4 == 1 else np.nan
            want[item] = -1
    lu, pivots, info = lanes(mf.linalg.lu_factor, a, check=False)
    np.testing.assert_array_equal(info, want)
    for got, x in zip((lu, pivots), good, strict=True):
        np.testing.assert_array_equal(got[want == 0], x[want == 0])
    assert np.isnan(lu[want < 0]).all() and (pivots[want < 0] == np.arange(n)).all()
    by_lapack = mf.plan(lambda a: mf.linalg.lu_factor(a, check=False), a, providers="ref,generated").run(a)
    singular = want > 0
    np.testing.assert_array_equal(pivots[singular], by_lapack[1][singular])
    np.testing.assert_allclose(
        lu[singular], by_lapack[0][singular], rtol=0, atol=1e3 * np.finfo(dtype).eps * np.abs(a[singular]).max()
    )
    assert (np.diagonal(lu, axis1=1, axis2=2)[singular, want[singular] - 1] == 0).all()
    assert (lanes(mf.linalg.det, a)[singular] == 0).all()
    inverse, info = lanes(mf.linalg.inv, a, check=False)
    np.testing.assert_array_equal(info, want)
    np.testing.assert_array_equal(inverse[want == 0], inverses[want == 0])
    assert np.isnan(inverse[want != 0]).all()


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
@pytest.mark.parametrize("n", [3, 8, 17])
def test_layouts_of_factors(n, layout, rng):
    a = general(rng, "random", 20, n, np.float32)
    for function in (mf.linalg.inv, mf.linalg.lu_factor, mf.linalg.slogdet):
        for got, want in zip(lanes(function, strided(a, layout)), lanes(function, a), strict=True):
            np.testing.assert_array_equal(got, want)
    tables = a.reshape(4, 5, n, n).swapaxes(0, 1)
    np.testing.assert_array_equal(lanes(mf.linalg.inv, tables), lanes(mf.linalg.inv, a).reshape(4, 5, n, n).swapaxes(0, 1))
