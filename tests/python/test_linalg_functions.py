"""The rest of mathfuse.linalg against NumPy and SciPy: structures, norms, exponentials, tensor equations, narrow dtypes."""

import inspect

import mathfuse as mf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tools import assert_close

scipy_linalg = pytest.importorskip("scipy.linalg")
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def normal(rng, shape, dtype=np.float64):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


# ---- solve ----


def structured(rng, structure, n, dtype, batch=()):
    """A matrix of that structure as the solver takes it, and what it stands for."""
    a = normal(rng, (*batch, n, n), dtype) + 3 * np.eye(n, dtype=dtype)
    if structure == "pos":
        a = a @ adjoint(a) + np.eye(n, dtype=dtype)
    if structure == "sym":
        a = a + np.swapaxes(a, -1, -2)
    if structure == "her":
        a = a + adjoint(a)
    if structure == "diagonal":
        a = a * np.eye(n, dtype=dtype)
    if structure == "tridiagonal":
        a = np.triu(np.tril(a, 1), -1)
    if structure == "upper triangular":
        a = np.triu(a)
    if structure == "lower triangular":
        a = np.tril(a)
    return a.astype(dtype)


STRUCTURES = ["gen", "pos", "sym", "her", "diagonal", "tridiagonal", "banded", "upper triangular", "lower triangular"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_solve_by_structure(structure, transposed, lower, dtype, batch, rng):
    n = 6
    a = structured(rng, structure, n, dtype, batch)
    given_a = a.copy()
    if structure in ("pos", "sym", "her"):
        given_a[..., np.tri(n, k=-1, dtype=bool).T if lower else np.tri(n, k=-1, dtype=bool)] = np.nan
    operator = np.swapaxes(a, -1, -2) if transposed else a
    for b in (normal(rng, (*batch, n, 2), dtype), normal(rng, (n,), dtype)):
        x = mf.linalg.solve(given_a, b, lower=lower, assume_a=structure, transposed=transposed)
        assert x.dtype == dtype
        got = np.matvec(operator, x) if b.ndim == 1 else operator @ x
        assert_close(got, np.broadcast_to(b, got.shape), scale=300)
        if not batch and not transposed and not (structure == "banded" and not hasattr(scipy_linalg, "bandwidth")):
            assert_close(x, scipy_linalg.solve(a, b, lower=lower, assume_a="gen"), scale=1000)


def test_structures_fail_by_name():
    b = np.ones(2)
    for structure, a, message in (
        ("pos", [[1.0, 2], [2, 1]], "positive definite: leading minor 2"),
        ("sym", [[1.0, 1], [1, 1]], "pivot . is exactly zero"),
        ("diagonal", [[1.0, 0], [0, 0]], "diagonal element 2 is exactly zero"),
        ("tridiagonal", [[0.0, 0], [0, 1]], "pivot 1"),
        ("upper triangular", [[0.0, 0], [0, 1]], "diagonal element 1"),
        ("diagonal", [[1.0, 0], [0, np.nan]], "NaN or infinity"),
    ):
        with pytest.raises(np.linalg.LinAlgError, match=message):
            mf.linalg.solve(a, b, assume_a=structure)
        x, info = mf.linalg.solve(np.asarray(a), b, assume_a=structure, check=False)
        assert info != 0 and np.isnan(x).all()
    with pytest.raises(ValueError, match="assume_a='dense'"):
        mf.linalg.solve(np.eye(2), b, assume_a="dense")
    with pytest.raises(ValueError, match="rows"):
        mf.linalg.solve(np.eye(3), b, assume_a="pos")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
def test_cho_factor(dtype, lower, rng):
    a, b = structured(rng, "pos", 5, dtype, (2,)), normal(rng, (2, 5, 3), dtype)
    factor = mf.linalg.cho_factor(a, lower=lower)
    assert factor[1] is lower
    for i in range(2):
        want, _ = scipy_linalg.cho_factor(a[i], lower)
        assert_close(factor[0][i], np.tril(want) if lower else np.triu(want), scale=50)
    assert_close(a @ mf.linalg.cho_solve(factor, b), b, scale=300)
    c, low, info = mf.linalg.cho_factor(a, lower, check=False)
    assert low is lower and info.shape == (2,)


def test_numpys_and_scipys_parameters_come_first():
    for name in ("norm", "vector_norm", "matrix_norm", "cond", "pinv", "matrix_rank", "qr", "eigh", "svd", "lstsq", "tensorsolve",
                 "tensorinv", "matrix_power", "multi_dot", "outer", "cross", "trace", "diagonal", "vecdot", "tensordot"):  # fmt: skip
        want = [p for p in inspect.signature(getattr(np.linalg, name)).parameters.values() if p.name not in ("out",)]
        got = inspect.signature(getattr(mf.linalg, name)).parameters
        for p in want:
            assert p.name in got, f"{name}: {p.name}"
            if p.default is not inspect.Parameter.empty and p.name not in ("rtol", "rcond"):
                assert got[p.name].default == p.default, f"{name}: {p.name}"


# ---- norms ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
@pytest.mark.parametrize("keepdims", [False, True])
def test_matrix_norms(ord, keepdims, dtype, rng):
    a = normal(rng, (3, 5, 4), dtype)
    for axis in ((1, 2), (2, 1), (0, 2), (-1, 0)):
        assert_close(mf.linalg.norm(a, ord, axis, keepdims), np.linalg.norm(a, ord, axis, keepdims), scale=30)
    assert_close(mf.linalg.norm(a[0], ord), np.linalg.norm(a[0], ord), scale=30)
    if ord is not None:
        assert_close(
            mf.linalg.matrix_norm(a, ord=ord, keepdims=keepdims), np.linalg.matrix_norm(a, ord=ord, keepdims=keepdims), scale=30
        )


@pytest.mark.parametrize("dtype", [*DTYPES, np.int32, np.float16])
@pytest.mark.parametrize("ord", [None, 1, 2, 3, 0.5, 0, -1, -2.5, np.inf, -np.inf])
def test_vector_norms(ord, dtype, rng):
    a = (normal(rng, (3, 5), np.float64) * 4).astype(dtype) if np.dtype(dtype).kind != "c" else normal(rng, (3, 5), dtype)
    a = np.where(a == 0, np.ones_like(a), a)
    for axis in (0, -1):
        for keepdims in (False, True):
            got, want = mf.linalg.norm(a, ord, axis, keepdims), np.linalg.norm(a, ord, axis, keepdims)
            assert got.dtype == want.dtype or dtype == np.float16
            assert_close(got, want, scale=30)
    if ord is not None and dtype != np.float16:
        for axis in (None, 1, (0, 1)):
            assert_close(mf.linalg.vector_norm(a, axis=axis, ord=ord), np.linalg.vector_norm(a, axis=axis, ord=ord), scale=30)
    if ord is None:
        assert_close(mf.linalg.norm(a, keepdims=True), np.linalg.norm(a, keepdims=True), scale=30)


def test_norms_that_are_not_defined():
    for call in (lambda m: m.norm(np.ones(3), "fro"), lambda m: m.norm(np.ones((2, 2)), 3), lambda m: m.norm(np.ones((2, 2, 2)), 2),
                 lambda m: m.norm(np.ones((2, 2)), "x"), lambda m: m.norm(np.ones((2, 2, 2)), None, (0, 1, 2))):  # fmt: skip
        with pytest.raises(ValueError):
            call(np.linalg)
        with pytest.raises(ValueError):
            call(mf.linalg)


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"])
def test_condition_numbers(p, rng):
    a = normal(rng, (4, 5, 5))
    assert_close(mf.linalg.cond(a, p), np.linalg.cond(a, p), tolerance=1e-10)
    singular = np.stack([np.eye(3), np.ones((3, 3)), np.zeros((3, 3))])
    got = mf.linalg.cond(singular, p)
    assert got[0] == pytest.approx(np.linalg.cond(np.eye(3), p))
    assert (got[1:] > 1e15).all() or p == -2


# ---- pinv and rank ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [0, 2, 5])
def test_hermitian_is_honoured(dtype, rank, rng):
    g = normal(rng, (3, 5, rank), dtype)
    a = g @ adjoint(g)
    np.testing.assert_array_equal(mf.linalg.matrix_rank(a, hermitian=True), np.linalg.matrix_rank(a, hermitian=True))
    assert_close(mf.linalg.pinv(a, hermitian=True), np.linalg.pinv(a, rtol=None, hermitian=True), scale=1e4)
    garbage = np.where(np.tri(5, dtype=bool), a, np.nan).astype(dtype)  # the lower triangle is what is read
    assert_close(mf.linalg.pinv(garbage, hermitian=True), mf.linalg.pinv(a, hermitian=True), scale=1e4)
    with pytest.raises(ValueError, match="square"):
        mf.linalg.pinv(np.ones((2, 3)), hermitian=True)


def test_limits_for_each_matrix(rng):
    a = np.stack([np.diag([1, 1e-3, 1e-6])] * 3)
    limits = np.array([1e-2, 1e-4, 1e-8])
    np.testing.assert_array_equal(mf.linalg.matrix_rank(a, rtol=limits), [1, 2, 3])
    np.testing.assert_array_equal(mf.linalg.matrix_rank(a, tol=limits), [1, 2, 3])
    assert_close(mf.linalg.pinv(a, rcond=limits), np.linalg.pinv(a, rcond=limits))
    assert mf.linalg.matrix_rank(np.zeros(3)) == 0 and mf.linalg.matrix_rank(np.ones(3)) == 1


def test_a_result_asked_for_twice_is_one_result(rng):
    a = normal(rng, (3, 4, 4))
    a = a + np.swapaxes(a, -1, -2)

    def both(a):
        first = mf.linalg.eigh(a)
        trace = first[1]._trace
        second = trace.wrap(trace.graph.result(first[0]._node, 2))
        return first[1] @ second.mT, second

    identity, v = mf.plan(both, a).run(a)
    assert_close(identity, np.broadcast_to(np.eye(4), a.shape), scale=30)
    assert_close(v, mf.linalg.eigh(a)[1])


# ---- powers and exponentials ----


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-9, 1e-2, 0.2, 0.9, 2.0, 5.0, 60.0])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 6, 6)])
def test_expm(size, shape, dtype, rng):
    a = normal(rng, shape, dtype)
    a = (a * (size / np.abs(a).sum(-2).max())).astype(dtype)
    want = scipy_linalg.expm(a.astype(np.complex128))
    tolerance = np.finfo(dtype).eps * 100 * max(1, size)
    for got in (mf.linalg.expm(a), mf.fuse(lambda a: mf.linalg.expm(a, max_squarings=6))(a)):
        assert got.dtype == dtype and got.shape == a.shape
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


def test_expm_scales_each_matrix_by_itself():
    small, large = np.array([[0.0, 1e-3], [0, 0]]), np.diag([-1e6, -2e3])
    got = mf.linalg.expm(np.stack([small, large]))
    np.testing.assert_allclose(got[0], np.eye(2) + small, rtol=1e-15)
    np.testing.assert_array_equal(got[1], 0)
    assert_close(mf.linalg.expm(1j * np.diag([np.pi, 2 * np.pi])), np.diag([-1.0 + 0j, 1]), scale=10)
    assert mf.linalg.expm(np.empty((0, 0))).shape == (0, 0)
    assert mf.linalg.expm(np.empty((0, 3, 3))).shape == (0, 3, 3)
    with pytest.raises(np.linalg.LinAlgError, match="NaN or infinity"):
        mf.linalg.expm(np.array([[np.nan]]))
    with pytest.raises(np.linalg.LinAlgError, match="the norm is above what 2 squarings reach"):
        mf.fuse(lambda a: mf.linalg.expm(a, max_squarings=2))(100 * np.eye(2))
    assert_close(mf.linalg.expm([[0, 1], [-1, 0]]), scipy_linalg.expm(np.array([[0.0, 1], [-1, 0]])), scale=10)


# ---- products and tensor equations ----


def test_products(rng):
    a, b, c, d = (normal(rng, s) for s in ((5, 3), (3, 7), (7, 2), (2, 9)))
    v, w = normal(rng, 5), normal(rng, 9)
    for chain in ([a, b], [a, b, c], [a, b, c, d], [v, a, b, c, d, w], [v, a, b], [a, b, c, d, w], [v, v]):
        assert_close(mf.linalg.multi_dot(chain), np.linalg.multi_dot(chain), scale=30)
    x, y = normal(rng, (4, 3), np.complex128), normal(rng, (4, 3))
    assert_close(mf.linalg.cross(x, y), np.linalg.cross(x, y))
    assert_close(mf.linalg.cross(x.T, y.T, axis=0), np.linalg.cross(x.T, y.T, axis=0))
    assert_close(mf.linalg.vecdot(x, y), np.linalg.vecdot(x, y))
    assert_close(mf.linalg.outer(v, w), np.linalg.outer(v, w))
    assert_close(mf.linalg.tensordot(a, b, axes=1), a @ b, scale=5)
    assert_close(mf.linalg.matrix_transpose(a), a.T)
    stack = normal(rng, (2, 4, 6))
    for offset in (-5, -4, -2, 0, 1, 5, 7):
        np.testing.assert_array_equal(mf.linalg.diagonal(stack, offset=offset), np.linalg.diagonal(stack, offset=offset))
        assert_close(mf.linalg.trace(stack, offset=offset), np.linalg.trace(stack, offset=offset))


def test_frobenius_by_either_name(rng):
    x = normal(rng, (2, 3, 4))
    for name in ("f", "fro"):
        assert_close(mf.linalg.matrix_norm(x, ord=name), np.linalg.matrix_norm(x), scale=4)


def test_tensor_equations(rng):
    a, b = normal(rng, (2 * 3, 4, 2, 3, 4)), normal(rng, (6, 4))
    assert_close(mf.linalg.tensorsolve(a, b), np.linalg.tensorsolve(a, b), scale=1e4)
    moved = normal(rng, (2, 6, 4, 3, 4))
    assert_close(mf.linalg.tensorsolve(moved, b, axes=(0, 3, 4)), np.linalg.tensorsolve(moved, b, axes=(0, 3, 4)), scale=1e4)
    t = normal(rng, (4, 6, 8, 3))
    assert_close(mf.linalg.tensorinv(t, ind=2), np.linalg.tensorinv(t, ind=2), scale=1e4)
    with pytest.raises(ValueError):
        mf.linalg.tensorinv(t, ind=1)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        mf.linalg.tensorinv(np.zeros((2, 2)), ind=1)


def test_numpys_functions_trace(rng):
    a, b = normal(rng, (3, 4, 4)) + 3 * np.eye(4), normal(rng, (3, 4, 2))
    chain = mf.fuse(
        lambda a, b: (np.linalg.inv(a) @ b, np.linalg.det(a), np.linalg.norm(a, 2, (-2, -1)), np.linalg.eigh(a).eigenvalues)
    )
    x, d, size, w = chain(a, b)
    assert_close(x, np.linalg.solve(a, b), scale=1000)
    assert_close(d, np.linalg.det(a), scale=100)
    assert_close(size, np.linalg.norm(a, 2, (-2, -1)), scale=100)
    assert_close(w, np.linalg.eigvalsh(a), scale=100)


def test_named_results(rng):
    a = normal(rng, (4, 4))
    assert_close(mf.linalg.svd(a).S, np.linalg.svd(a).S, scale=10)
    assert_close(np.abs(mf.linalg.qr(a).R), np.abs(np.linalg.qr(a).R), scale=30)
    assert_close(mf.linalg.slogdet(a).logabsdet, np.linalg.slogdet(a).logabsdet, scale=30)
    assert mf.linalg.eig(a).eigenvectors.shape == (4, 4)


# ---- dtypes ----


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_compute_in_f32(dtype, rng):
    a = (normal(rng, (2, 5, 5)) + 4 * np.eye(5)).astype(dtype)
    b = normal(rng, (2, 5, 2)).astype(dtype)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for got, want in (
        (mf.linalg.solve(a, b), np.linalg.solve(wide_a, wide_b)),
        (mf.linalg.inv(a), np.linalg.inv(wide_a)),
        (mf.linalg.svdvals(a), np.linalg.svd(wide_a, compute_uv=False)),
        (mf.linalg.expm(a * dtype(0.25)), scipy_linalg.expm((a * dtype(0.25)).astype(np.float32))),
        (mf.linalg.det(a), np.linalg.det(wide_a)),
        (mf.linalg.cholesky(a @ np.swapaxes(a, -1, -2)), None),
    ):
        assert got.dtype == np.float32
        if want is not None:
            assert_close(got, want, tolerance=2e-4)


@given(
    n=st.integers(0, 9),
    batch=st.lists(st.integers(0, 3), max_size=2),
    columns=st.integers(0, 4),
    dtype=st.sampled_from(DTYPES),
    structure=st.sampled_from(STRUCTURES),
    seed=st.integers(0, 99),
)
def test_any_shape(n, batch, columns, dtype, structure, seed):
    rng = np.random.default_rng(seed)
    a = structured(rng, structure, n, dtype, tuple(batch))
    b = normal(rng, (*batch, n, columns), dtype)
    x, info = mf.linalg.solve(a, b, assume_a=structure, check=False)
    assert x.shape == b.shape and info.shape == tuple(batch) and x.dtype == dtype
    assert not info.any()
    if n and x.size:
        residual = np.abs(a @ x - b).max()
        assert residual <= 200 * n * np.finfo(dtype).eps * (np.abs(a).max() * np.abs(x).max() * n + np.abs(b).max())


def test_cross_products_of_any_layout(rng):
    for dtype in (np.float32, np.float64, np.complex128, np.int64):
        for shape, axis in (((3,), 0), ((40, 3), -1), ((3, 5000), 0), ((2, 3, 7), 1), ((1, 3), 1), ((0, 3), 1)):
            a, b = (rng.normal(size=(2, *shape)) * 10).astype(dtype)
            for x, y in ((a, b), (a[::-1], b) if shape[0] != 3 else (a, b), (np.asfortranarray(a), b)):
                want = np.moveaxis(np.cross(x, y, axisa=axis, axisb=axis), -1, axis)
                np.testing.assert_allclose(mf.linalg.cross(x, y, axis=axis), want, rtol=1e-5 if dtype == np.float32 else 1e-12)
    inf = np.array([np.inf, 1, 2])
    np.testing.assert_array_equal(mf.linalg.cross(inf, np.ones(3)), np.cross(inf, np.ones(3)))
