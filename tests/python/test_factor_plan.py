"""Factor plans: one factorisation, right-hand sides of changing width, refactoring, refinement, what fails and how it says so."""

import mathfuse as mf
import numpy as np
import pytest

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
BATCHES = [(), (1,), (2, 3)]


def normal(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def definite(rng, shape, dtype=np.float64):
    g = normal(rng, shape, dtype)
    return (g @ np.conj(np.swapaxes(g, -1, -2)) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def with_condition(rng, n, condition):
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return (q * np.geomspace(1, 1 / condition, n)) @ q.T


def error(a, x, b):
    """The residual in units of epsilon times the size."""
    a, x, b = (np.asarray(y, np.result_type(y, np.float64)) for y in (a, x, b))
    if b.ndim == 1:
        x, b = x[..., None], b[:, None]
    size = np.abs(a).sum(-1).max() * max(np.abs(x).max(), 1e-300)
    return np.abs(a @ x - b).max() / size


PLANS = [mf.linalg.cholesky_plan, mf.linalg.lu_plan]


@pytest.mark.parametrize("make", PLANS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", BATCHES)
def test_widths(make, dtype, batch, rng):
    a = definite(rng, (*batch, 9, 9), dtype)
    plan = make(a)
    assert not plan.info.any() and plan.info.shape == batch
    for shape in ((9,), (9, 1), (9, 7), (*batch, 9, 3), (9, 7), (9, 0), (4, *batch, 9, 2)):
        b = normal(rng, shape, dtype)
        x = plan.solve(b)
        assert x.dtype == dtype and x.shape == mf.linalg.solve(a, b).shape
        if b.size:
            assert error(a, x, b) < 30 * np.finfo(dtype).eps
    out = np.empty((*batch, 9, 7), dtype)
    assert plan.solve(normal(rng, (9, 7), dtype), out=out) is out


@pytest.mark.parametrize("n", [1, 5, 150])
def test_transposes_and_determinants(n, rng):
    for dtype in (np.float64, np.complex128):
        a, b = normal(rng, (3, n, n), dtype), normal(rng, (n, 2), dtype)
        plan = mf.linalg.lu_plan(a)
        for trans, matrix in ((0, a), ("T", a.swapaxes(1, 2)), (2, a.conj().swapaxes(1, 2))):
            assert error(matrix, plan.solve(b, trans), b) < 1e-12
        sign, log = plan.slogdet()
        want = np.linalg.slogdet(a)
        np.testing.assert_allclose(sign, want[0], rtol=1e-10)
        np.testing.assert_allclose(log, want[1], rtol=1e-10, atol=1e-12)
        a = definite(rng, (3, n, n), dtype)
        np.testing.assert_allclose(mf.linalg.cholesky_plan(a).logdet(), np.linalg.slogdet(a)[1], rtol=1e-12)
        for make in PLANS:
            np.testing.assert_allclose(make(a).inv() @ a, np.broadcast_to(np.eye(n), a.shape), atol=1e-10)


@pytest.mark.parametrize("upper", [False, True])
def test_only_one_triangle_is_read(upper, rng):
    a, b = definite(rng, (6, 6)), rng.standard_normal(6)
    half = np.where(np.tri(6, k=-1).T if not upper else np.tri(6, k=-1), np.nan, a)
    for refine in (0, 3):
        x = mf.linalg.cholesky_plan(half, upper=upper, refine=refine).solve(b)
        np.testing.assert_allclose(a @ x, b, rtol=1e-12)
    factor = mf.linalg.cholesky_plan(half, upper=upper).factors
    np.testing.assert_allclose(factor.T @ factor if upper else factor @ factor.T, a, rtol=1e-12)


@pytest.mark.parametrize("make", PLANS)
def test_another_matrix_goes_into_the_same_memory(make, rng):
    b = rng.standard_normal((7, 2))
    plan = make(mf.spec((3, 7, 7), "f64"))
    with pytest.raises(mf.errors.StateError, match="nothing is factored"):
        plan.solve(b)
    places = set()
    for _ in range(3):
        a = definite(rng, (3, 7, 7))
        assert plan.factor(a) is plan
        factors = plan.factors if make is mf.linalg.cholesky_plan else plan.factors[0]
        places.add(factors.__array_interface__["data"][0])
        assert error(a, plan.solve(b), b) < 1e-14
    assert len(places) == 1
    turned = np.asfortranarray(definite(rng, (3, 7, 7)).T).T[::-1]
    assert error(turned, plan.factor(turned).solve(b), b) < 1e-14
    with pytest.raises(mf.errors.ShapeError, match=r"f64\[3, 7, 7\], not f64\[7, 7\]"):
        plan.factor(np.eye(7))
    with pytest.raises(mf.errors.ShapeError, match="not f32"):
        plan.factor(a.astype(np.float32))


@pytest.mark.parametrize("make", PLANS)
def test_other_dtypes(make, rng):
    a = np.diag(np.arange(1, 6))
    np.testing.assert_allclose(make(a).solve([5, 5, 5, 5, 5]), 5 / np.arange(1, 6))
    single = make(a.astype(np.float32))
    assert single.solve(np.ones(5, np.float32)).dtype == np.float32
    assert single.solve(np.ones(5)).dtype == np.float64
    assert make(a.astype(np.float16)).dtype == "f32"


@pytest.mark.parametrize("make", PLANS)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_refinement_reaches_f64(make, dtype, batch, rng):
    a = definite(rng, (*batch, 40, 40), dtype)
    plan = make(a, refine=4)
    factor = plan.factors if make is mf.linalg.cholesky_plan else plan.factors[0]
    assert factor.dtype == (np.float32 if dtype is np.float64 else np.complex64)
    for shape in ((40,), (40, 3), (2, *batch, 40, 1), (40, 0)):
        b = normal(rng, shape, dtype)
        x = plan.solve(b)
        assert x.dtype == dtype and x.shape == mf.linalg.solve(a, b).shape
        if b.size:
            assert error(a, x, b) < 1e-15 * 40**0.5
            rough = make(a.astype(factor.dtype)).solve(b.astype(factor.dtype))
            assert error(a, rough, b) > 1e-9
    np.testing.assert_allclose(plan.inv() @ a, np.broadcast_to(np.eye(40), a.shape), atol=1e-12)


def test_refinement_of_any_size(rng):
    """Residuals lie below f32's range, right-hand sides beyond it."""
    a = definite(rng, (8, 8))
    plan = mf.linalg.lu_plan(a, refine=4)
    for scale in (1e-200, 1e-45, 1.0, 1e45, 1e200):
        b = rng.standard_normal((8, 2)) * scale
        np.testing.assert_allclose(plan.solve(b), np.linalg.solve(a, b), rtol=1e-12)
    b[:, 1] = 0
    np.testing.assert_array_equal(plan.solve(b)[:, 1], 0)
    for trans in ("T", 2):
        c = a + np.triu(np.ones((8, 8)))
        b = rng.standard_normal(8)
        np.testing.assert_allclose(mf.linalg.lu_plan(c, refine=4).solve(b, trans), np.linalg.solve(c.T, b), rtol=1e-12)


def test_refinement_that_does_not_converge_is_told(rng):
    a = np.stack([np.eye(30), with_condition(rng, 30, 1e12)])
    b = rng.standard_normal((30, 2))
    plan = mf.linalg.lu_plan(a, refine=3, check=False)
    x, info = plan.solve(b)
    assert info.tolist() == [0, 3] and np.isnan(x[1]).all()
    np.testing.assert_allclose(x[0], b, rtol=1e-15)
    with pytest.raises(np.linalg.LinAlgError, match=r"1 of 2.*matrix \(1,\): 3 refinements did not reach"):
        mf.linalg.lu_plan(a, refine=3).solve(b)
    assert error(a[1], mf.linalg.lu_plan(a[1]).solve(b), b) < 1e-13


def test_failures():
    a = np.array([np.eye(2), [[1, 2], [2, 1.0]]])
    with pytest.raises(np.linalg.LinAlgError, match=r"1 of 2.*matrix \(1,\): leading minor 2 is not positive definite"):
        mf.linalg.cholesky_plan(a)
    plan = mf.linalg.cholesky_plan(a, check=False)
    assert plan.info.tolist() == [0, 2]
    x, _ = plan.solve(np.ones(2))
    np.testing.assert_array_equal(x[0], 1)
    assert np.isnan(x[1]).all()
    a[1] = [[1, 2], [2, 4]]
    later = mf.linalg.lu_plan(mf.spec((2, 2, 2), "f64"))
    with pytest.raises(np.linalg.LinAlgError, match="pivot 2 is exactly zero"):
        later.factor(a)
    with pytest.raises(mf.errors.StateError, match="could not be factored"):
        later.solve(np.ones(2))
    assert later.info.tolist() == [0, 2]
    later.factor(np.stack([np.eye(2)] * 2))
    np.testing.assert_array_equal(later.solve(np.ones(2)), np.ones((2, 2)))
    a[1, 0, 0] = np.nan
    for make in PLANS:
        with pytest.raises(np.linalg.LinAlgError, match="NaN|minor"):
            make(a)


def test_refusals():
    with pytest.raises(mf.errors.ShapeError, match="square matrices"):
        mf.linalg.lu_plan(np.ones((2, 3)))
    with pytest.raises(mf.errors.ShapeError, match="square matrices"):
        mf.linalg.cholesky_plan(mf.spec(3))
    with pytest.raises(mf.errors.DtypeError, match="refine makes factors in f32 of f64"):
        mf.linalg.lu_plan(np.eye(3, dtype=np.float32), refine=2)
    with pytest.raises(mf.errors.InvalidError, match="refine is -1"):
        mf.linalg.lu_plan(np.eye(3), refine=-1)
    plan = mf.linalg.lu_plan(np.eye(3))
    with pytest.raises(mf.errors.ShapeError, match=r"b has shape \(4,\); it is \(3,\) or"):
        plan.solve(np.ones(4))
    with pytest.raises(mf.errors.ShapeError, match="trans 3 is not known"):
        plan.solve(np.ones(3), 3)


def test_plans_are_kept_and_bounded(rng):
    plan = mf.linalg.cholesky_plan(definite(rng, (5, 5)))
    first = plan.solve_plan(mf.spec((5, 3), "f64"))
    assert plan.solve_plan(np.ones((5, 3))) is first
    assert "cho_solve" in plan.explain(mf.spec((5, 3), "f64")) and "cholesky" in plan.explain()
    for k in range(4, 40):
        plan.solve(np.ones((5, k)))
    assert len(plan._solvers) == 16
    assert plan.solve_plan(np.ones((5, 39))) is plan.solve_plan(np.ones((5, 39)))
    assert plan.solve_plan(np.ones((5, 3))) is not first


def test_empty():
    for make in PLANS:
        for refine in (0, 2):
            assert make(np.ones((0, 0)), refine=refine).solve(np.ones((0, 2))).shape == (0, 2)
            assert make(np.ones((0, 3, 3)), refine=refine).solve(np.ones(3)).shape == (0, 3)


def test_a_matrix_may_be_overwritten(rng):
    for make in PLANS:
        for n in (6, 100):
            a, b = definite(rng, (4, n, n)), rng.standard_normal((n, 2))
            before = a.copy()
            plan = make(a, overwrite_a=True)
            assert error(before, plan.solve(b), b) < 1e-14
            factor = plan.factors if make is mf.linalg.cholesky_plan else plan.factors[0]
            assert factor is a
            plan = make(before)
            np.testing.assert_array_equal(factor, plan.factors if make is mf.linalg.cholesky_plan else plan.factors[0])
            x = np.ascontiguousarray(np.broadcast_to(b, (4, n, 2)))
            assert plan.solve(x, out=x) is x and error(before, x, b) < 1e-14
    with pytest.raises(mf.errors.AliasError):
        mf.linalg.solve(before, before[0], out=before)
    view = before.copy().swapaxes(1, 2)  # another plan: the factors have their own order
    plan = mf.linalg.lu_plan(view, overwrite_a=True)
    assert error(before.swapaxes(1, 2), plan.solve(b), b) < 1e-14


@pytest.mark.compiles
def test_for_a_gpu_that_is_not_here():
    plan = mf.linalg.cholesky_plan(mf.spec((100, 16, 16), "f32"), target="sm_90a")
    assert plan.plan.target == "sm_90a" and "generated_solve" in plan.explain(mf.spec((100, 16, 4), "f32"))


@pytest.mark.gpu
@pytest.mark.parametrize("make", PLANS)
def test_on_a_gpu(make, rng):
    torch = pytest.importorskip("torch")
    for batch, n, refine in (((), 200, 0), ((50,), 16, 0), ((3,), 150, 0), ((), 200, 4), ((50,), 16, 4)):
        for dtype in (np.float64, np.complex128):
            plan = make(mf.spec((*batch, n, n), dtype), target="cuda", refine=refine)
            for _ in range(2):
                a = definite(rng, (*batch, n, n), dtype)
                plan.factor(torch.from_numpy(a).cuda())
                for shape in ((n,), (n, 5), (*batch, n, 1)):
                    b = normal(rng, shape, dtype)
                    x = plan.solve(torch.from_numpy(b).cuda())
                    assert x.is_cuda and error(a, x.cpu().numpy(), b) < 1e-14
    cupy = pytest.importorskip("cupy")
    bad = np.stack([np.eye(4), np.zeros((4, 4))])
    plan = make(cupy.asarray(bad), check=False)
    assert isinstance(plan.info, cupy.ndarray) and plan.info.get().tolist() == [0, 1]
    x, info = plan.solve(cupy.ones(4))
    assert isinstance(x, cupy.ndarray) and np.isnan(x.get()[1]).all() and (x.get()[0] == 1).all()
    with pytest.raises(np.linalg.LinAlgError, match="1 of 2"):
        make(cupy.asarray(bad))


@pytest.mark.parametrize("providers", ["lapack,ref,generated", "lanes,ref,generated", "ref,generated"])
@pytest.mark.parametrize("n", [5, 40])
def test_solvers_over_their_input(providers, n, rng):
    a = definite(rng, (37, n, n))
    for function, places in (
        (lambda a: mf.linalg.cholesky(a, check=False), (0,)),
        (lambda a: mf.linalg.lu_factor(a, check=False), (0,)),
        (lambda a: mf.linalg.inv(a, check=False), (0,)),
        (lambda a: mf.linalg.eigh(a, check=False), (1,)),
        (lambda a: mf.linalg.svd(a, check=False), (0,)),
    ):
        plan = mf.plan(function, a, providers=providers)
        want = plan.run(a)
        for place in places:
            over = a.copy()
            out = [np.empty_like(x) for x in want]
            out[place] = over
            plan.run(over, out=tuple(out))
            for got, x in zip(out, want, strict=True):
                np.testing.assert_array_equal(got, x)
