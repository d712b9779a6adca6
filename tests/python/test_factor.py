"""Decompositions: LAPACK and the reference against NumPy and SciPy; shapes, batches, failures, singular and empty matrices."""

import mathfuse as mf
import numpy as np
import pytest

scipy_linalg = pytest.importorskip("scipy.linalg")
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(4, 4), (6, 3), (3, 6), (1, 1), (33, 20)]


def matrix(rng, shape, dtype):
    a = rng.normal(size=shape)
    return (a + 1j * rng.normal(size=shape)).astype(dtype) if np.dtype(dtype).kind == "c" else a.astype(dtype)


def close(got, want, factor=1.0):
    """Within `factor` units of LAPACK's test ratios: 30 epsilons times the size."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if got.size:
        epsilon = np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 0
        limit = 30 * factor * epsilon * max(got.shape, default=1) * max(1.0, np.abs(want).max())
        assert np.abs(got - want).max() <= limit


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


@pytest.fixture(params=["lapack", "ref"])
def by(request):
    """A function, run by one provider."""

    def run(function, *arrays, **options):
        def traced(*arrays):
            return function(*arrays, **options)

        return mf.plan(traced, *arrays, providers=f"{request.param},generated,blas,ref").run(*arrays)

    return run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [(), (2, 3)])
class TestMatrices:
    def test_qr(self, by, dtype, shape, batch, rng):
        a = matrix(rng, (*batch, *shape), dtype)
        for mode in ("reduced", "complete"):
            q, r = by(mf.linalg.qr, a, mode=mode)
            want_q, want_r = np.linalg.qr(a, mode)
            assert (q.shape, r.shape) == (want_q.shape, want_r.shape)
            close(q @ r, a)
            close(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1], dtype=dtype), (*batch, q.shape[-1], q.shape[-1])))
            assert not np.tril(r, -1).any()

    def test_svd(self, by, dtype, shape, batch, rng):
        a = matrix(rng, (*batch, *shape), dtype)
        for full in (True, False):
            u, s, vh = by(mf.linalg.svd, a, full_matrices=full)
            want = np.linalg.svd(a, full_matrices=full)
            assert [x.shape for x in (u, s, vh)] == [x.shape for x in want]
            k = min(shape)
            close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
            close(s, want[1])
        close(by(mf.linalg.svdvals, a), want[1])

    def test_what_singular_values_give(self, by, dtype, shape, batch, rng):
        a = matrix(rng, (*batch, *shape), dtype)
        close(by(mf.linalg.pinv, a), np.linalg.pinv(a), 100)
        np.testing.assert_array_equal(by(mf.linalg.matrix_rank, a), np.linalg.matrix_rank(a))
        close(by(mf.linalg.cond, a), np.linalg.cond(a), 100)

    def test_lu(self, by, dtype, shape, batch, rng):
        a = matrix(rng, (*batch, *shape), dtype)
        lu, pivots = by(mf.linalg.lu_factor, a)
        for index in np.ndindex(*batch):
            want, places = scipy_linalg.lu_factor(a[index])
            close(lu[index], want, 10)
            np.testing.assert_array_equal(pivots[index], places)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("batch", [(), (3,)])
class TestSquare:
    def test_determinants_and_inverse(self, by, dtype, n, batch, rng):
        a = matrix(rng, (*batch, n, n), dtype) / np.asarray(n**0.5, dtype)
        close(by(mf.linalg.inv, a) @ a, np.broadcast_to(np.eye(n, dtype=dtype), a.shape), 1000)
        close(by(mf.linalg.det, a), np.linalg.det(a), 10)
        sign, log = by(mf.linalg.slogdet, a)
        close(sign, np.linalg.slogdet(a)[0], 10)
        close(log, np.linalg.slogdet(a)[1], 10)

    def test_eigh(self, by, dtype, n, batch, rng):
        a = matrix(rng, (*batch, n, n), dtype)
        for uplo in "LU":
            w, v = by(mf.linalg.eigh, a, UPLO=uplo)
            want = np.linalg.eigh(a, uplo)
            close(w, want[0])
            assert v.dtype == want[1].dtype
            half = np.tril(a, -1) if uplo == "L" else np.triu(a, 1)
            full = half + adjoint(half) + np.eye(n) * np.real(a)
            close(full.astype(dtype) @ v, v * w[..., None, :].astype(dtype))
            close(by(mf.linalg.eigvalsh, a, UPLO=uplo), want[0])

    def test_eig(self, by, dtype, n, batch, rng):
        a = matrix(rng, (*batch, n, n), dtype)
        w, v = by(mf.linalg.eig, a)
        close(a.astype(v.dtype) @ v, v * w[..., None, :], 30)
        close(np.sort_complex(by(mf.linalg.eigvals, a)), np.sort_complex(w), 100)

    def test_lu_solve(self, by, dtype, n, batch, rng):
        a, b = matrix(rng, (*batch, n, n), dtype), matrix(rng, (*batch, n, 2), dtype)
        lu, pivots = by(mf.linalg.lu_factor, a)
        for trans, operator in enumerate((a, np.swapaxes(a, -1, -2), adjoint(a))):
            x = by(lambda lu, pivots, b, t=trans: mf.linalg.lu_solve((lu, pivots), b, t), lu, pivots, b)
            close(operator @ x, b, 3000)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (5, 5)])
def test_least_squares(by, dtype, shape, rng):
    a = matrix(rng, shape, dtype)
    a[:, 1] = a[:, 0]
    for b in (matrix(rng, (shape[0],), dtype), matrix(rng, (shape[0], 3), dtype)):
        x, _, rank, s = by(mf.linalg.lstsq, a, b)
        want = np.linalg.lstsq(a, b, None)
        close(x, want[0], 300)
        assert rank == want[2]
        close(s, want[3])
    full = matrix(rng, (9, 4), dtype)
    b = matrix(rng, (9, 2), dtype)
    close(by(mf.linalg.lstsq, full, b)[1], np.linalg.lstsq(full, b, None)[1], 30)


def test_residuals_that_there_are_not(rng):
    """As NumPy's: empty unless the rank is full and m > n."""
    for m, n, rank in ((6, 3, 3), (6, 3, 2), (3, 6, 3), (3, 3, 3)):
        a = rng.normal(size=(m, rank)) @ rng.normal(size=(rank, n))
        for b in (rng.normal(size=m), rng.normal(size=(m, 2))):
            want = np.linalg.lstsq(a, b, None)
            for got in (mf.linalg.lstsq(a, b), mf.fuse(lambda a, b: mf.linalg.lstsq(a, b))(a, b)):
                assert len(got) == 4 and got[1].shape == want[1].shape
                np.testing.assert_allclose(got[1], want[1], rtol=1e-9)
            *_, info = mf.linalg.lstsq(a, b, check=False)
            assert info == 0
    total = mf.fuse(lambda a, b: mf.linalg.lstsq(a, b)[1].sum())(np.ones((3, 2)), np.array([0, 1, 2.0]))
    np.testing.assert_allclose(total, 2)


@pytest.mark.parametrize("power", [0, 1, 2, 5, -1, -3])
def test_matrix_power(power, rng):
    a = rng.normal(size=(2, 4, 4))
    np.testing.assert_allclose(mf.linalg.matrix_power(a, power), np.linalg.matrix_power(a, power), rtol=1e-9)


def test_views_and_orders(rng):
    a = rng.normal(size=(3, 7, 7))
    for view in (a[::-1], a[:, ::-1, ::-1], np.asfortranarray(a), a.transpose(0, 2, 1), np.broadcast_to(a[:1], a.shape)):
        np.testing.assert_allclose(mf.linalg.inv(view), np.linalg.inv(view), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(mf.linalg.svdvals(view), np.linalg.svd(view, compute_uv=False), rtol=1e-12)


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (0, 4, 4), (2, 0, 0)])
def test_empty(shape):
    a = np.empty(shape)
    assert mf.linalg.svdvals(a).shape == np.linalg.svd(a, compute_uv=False).shape
    assert [x.shape for x in mf.linalg.qr(a)] == [x.shape for x in np.linalg.qr(a)]
    if shape[-1] == shape[-2]:
        np.testing.assert_array_equal(mf.linalg.det(a), np.linalg.det(a))
        assert mf.linalg.inv(a).shape == shape


def test_failures_name_the_matrix_and_the_reason():
    a = np.array([np.eye(2), [[1, 2], [2, 4.0]]])
    with pytest.raises(np.linalg.LinAlgError, match=r"1 of 2.*matrix \(1,\): pivot 2 is exactly zero"):
        mf.linalg.inv(a)
    x, info = mf.linalg.inv(a, check=False)
    np.testing.assert_array_equal(info, [0, 2])
    np.testing.assert_array_equal(x[0], np.eye(2))
    assert np.isnan(x[1]).all()
    np.testing.assert_array_equal(mf.linalg.det(a), [1, 0])
    assert mf.linalg.slogdet(a)[1][1] == -np.inf
    bad = np.eye(3)
    bad[1, 1] = np.nan
    for function in (mf.linalg.svd, mf.linalg.eigh, mf.linalg.qr, mf.linalg.eig, mf.linalg.inv):
        with pytest.raises(np.linalg.LinAlgError, match="NaN or infinity"):
            function(bad)


def test_refusals():
    with pytest.raises(mf.errors.ShapeError, match="square"):
        mf.linalg.eigh(np.ones((2, 3)))
    with pytest.raises(mf.errors.ShapeError, match="UPLO"):
        mf.linalg.eigh(np.eye(2), "X")
    with pytest.raises(mf.errors.ShapeError, match="mode"):
        mf.linalg.qr(np.eye(2), "full")
    with pytest.raises(mf.errors.ShapeError, match="two axes"):
        mf.linalg.svd(np.ones(3))


def test_inside_a_trace(rng):
    a, b = rng.normal(size=(5, 5)), rng.normal(size=5)

    @mf.fuse
    def both(a, b):
        u, s, vh = mf.linalg.svd(a)
        return vh.T @ ((u.T @ b) / s), mf.linalg.det(a) * 2

    x, d = both(a, b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-9)
    np.testing.assert_allclose(d, 2 * np.linalg.det(a), rtol=1e-9)


def test_reruns_are_the_same_to_the_bit(rng):
    a = rng.normal(size=(6, 12, 12))
    for function in (mf.linalg.svd, mf.linalg.qr, mf.linalg.eig):
        for x, y in zip(function(a), function(a), strict=True):
            assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (7, 3), (3, 7), (1, 4), (2, 33, 33), (2, 3, 6, 2), (0, 3, 3)])
def test_lu_has_scipys_three_forms(shape, dtype, rng):
    a = rng.normal(size=shape) + (1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else 0)
    a = np.asarray(a).astype(dtype)
    m, k = shape[-2], min(shape[-2:])
    p, l, u = mf.linalg.lu(a)
    rows, same_l, same_u = mf.linalg.lu(a, p_indices=True)
    pl, _ = mf.linalg.lu(a, permute_l=True)
    assert (p.shape, l.shape, u.shape) == ((*shape[:-2], m, m), (*shape[:-2], m, k), (*shape[:-2], k, shape[-1]))
    assert rows.shape == shape[:-1] and np.array_equal(l, same_l) and np.array_equal(u, same_u)
    tolerance = 50 * np.finfo(dtype).eps * m
    np.testing.assert_allclose(p @ l @ u, a, atol=tolerance)
    np.testing.assert_allclose(pl @ u, a, atol=tolerance)
    np.testing.assert_allclose(np.take_along_axis(l, rows[..., None].astype(int), -2) @ u, a, atol=tolerance)
    assert np.array_equal(np.tril(l, -1) + np.eye(m, k, dtype=dtype), l) and np.array_equal(np.triu(u), u)


def test_lu_of_a_singular_matrix_is_no_error():
    p, l, u, info = mf.linalg.lu(np.ones((2, 3, 3)), check=False)
    assert info.tolist() == [2, 2]
    assert np.array_equal(p @ l @ u, np.ones((2, 3, 3)))
    assert len(mf.linalg.lu(np.zeros((2, 2)))) == 3
    with pytest.raises(np.linalg.LinAlgError):
        mf.linalg.lu(np.array([[np.nan, 1], [1, 1]]))
