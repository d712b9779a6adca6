"""Cholesky and the solution in one step: when it is one, and that it gives what two give."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec
DTYPES = {"f32": (np.float32, 2e-4), "f64": (np.float64, 1e-11), "c64": (np.complex64, 2e-4), "c128": (np.complex128, 1e-11)}


def chain(upper):
    def f(a, b):
        factor, info = mf.linalg.cholesky(a, upper=upper, check=False)
        return (*mf.linalg.cho_solve(factor, b, upper=upper, check=False), info)

    return f


def steps(plan):
    return [s["problem"] for s in json.loads(plan.explain("json"))["steps"]]


def systems(rng, batch, n, nrhs, dtype, triangle):
    kind = DTYPES[dtype][0]

    def normal(*shape):
        x = rng.standard_normal(shape)
        return x + 1j * rng.standard_normal(shape) if dtype[0] == "c" else x

    a = normal(*batch, n, n)
    a = (a @ np.conj(np.swapaxes(a, -1, -2)) + n * np.eye(n)).astype(kind)
    b = normal(*batch, n, nrhs).astype(kind)
    want = np.linalg.solve(a.astype(np.complex128 if dtype[0] == "c" else np.float64), b)
    other = np.tril(np.ones((n, n)), -1) if triangle == "upper" else np.triu(np.ones((n, n)), 1)
    return np.where(other, kind(np.nan), a), b, want  # only the named triangle is read


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "batch, n, nrhs", [((), 5, 1), ((7, 3), 6, 2), ((), 200, 3), ((3,), 150, 1), ((4,), 70, 1), ((), 1, 1)]
)
def test_one_step_gives_the_solution(rng, batch, n, nrhs, dtype, upper):
    a, b, want = systems(rng, batch, n, nrhs, dtype, "upper" if upper else "lower")
    plan = mf.plan(chain(upper), a, b)
    assert any(s.startswith("cholesky and solve") for s in steps(plan)) and not any(
        s.startswith("cho_solve") for s in steps(plan)
    )
    x, second, first = plan.run(a, b)
    np.testing.assert_allclose(x, want, rtol=0, atol=DTYPES[dtype][1] * np.abs(want).max())
    assert not first.any() and not second.any() and first.shape == batch
    alone = mf.linalg.solve(a, b, assume_a="pos", lower=not upper)
    np.testing.assert_array_equal(alone, x)


def test_a_matrix_that_fails_is_nan_and_named(rng):
    a, b, want = systems(rng, (6,), 9, 1, "f64", "lower")
    a[2, 4, 4] = -1
    a[5, 0, 0] = np.nan
    x, second, first = mf.plan(chain(False), a, b).run(a, b)
    assert first.tolist() == [0, 0, 5, 0, 0, 1] and not second.any()
    assert np.isnan(x[[2, 5]]).all()
    np.testing.assert_allclose(np.delete(x, (2, 5), 0), np.delete(want, (2, 5), 0), rtol=1e-11)
    with pytest.raises(np.linalg.LinAlgError, match="2 of 6 matrices failed"):
        mf.linalg.solve(a, b, assume_a="pos", lower=True)


def test_a_factor_that_is_wanted_is_made_apart(rng):
    def f(a, b):
        factor = mf.linalg.cholesky(a)
        return mf.linalg.cho_solve(factor, b), factor

    plan = mf.plan(f, S((4, 8, 8)), S((4, 8, 1)))
    assert not any(s.startswith("cholesky and solve") for s in steps(plan))


def test_a_factor_with_two_readers_or_another_triangle_is_made_apart():
    def twice(a, b):
        factor = mf.linalg.cholesky(a)
        return mf.linalg.cho_solve(factor, b) + mf.linalg.cho_solve(factor, b + 1)

    def mixed(a, b):
        return mf.linalg.cho_solve(mf.linalg.cholesky(a), b, upper=True)

    for f in (twice, mixed):
        plan = mf.plan(f, S((4, 8, 8)), S((4, 8, 1)))
        assert not any(s.startswith("cholesky and solve") for s in steps(plan)), f.__name__


def test_a_part_of_a_factor_fails_with_the_whole():
    """The matrix is not definite beyond the part that is solved with."""
    a = np.tile(4 * np.eye(8), (16, 1, 1))
    a[:, 7, 7] = -1
    b = np.ones((16, 4, 2))

    def leading(a, b):
        factor, info = mf.linalg.cholesky(a, check=False)
        return mf.linalg.cho_solve((factor[..., :4, :4], True), b, check=False)[0], info

    x, info = mf.plan(leading, a, b).run(a, b)
    assert (info == 8).all() and np.isnan(x).all()


@pytest.mark.parametrize("nrhs, provider", [(4, "lanes"), (512, "lanes"), (513, "lapack")])
def test_many_right_hand_sides_are_lapacks(nrhs, provider, rng):
    a, b, want = systems(rng, (2,), 100, nrhs, "f64", "lower")
    a = np.tril(a) + np.swapaxes(np.tril(a, -1), 1, 2)
    plan = mf.plan(mf.linalg.solve, a, b)
    found = json.loads(plan.explain("json"))["steps"][0]["provider"]
    assert found == provider or (found == "ref" and provider == "lapack")  # where there is no LAPACK
    np.testing.assert_allclose(plan.run(a, b), want, rtol=1e-9)


def test_right_hand_sides_that_broadcast_over_more_matrices(rng):
    a, _, _ = systems(rng, (), 6, 1, "f64", "lower")
    b = rng.standard_normal((5, 6, 2))
    full = np.tril(a) + np.tril(a, -1).T
    np.testing.assert_allclose(mf.linalg.solve(a, b, assume_a="pos", lower=True), np.linalg.solve(full, b), rtol=1e-10)


@pytest.mark.compiles
@pytest.mark.parametrize(
    "n, batch, provider",
    [(16, (1000,), "generated_solve"), (100, (50,), "generated_solve"), (150, (50,), "cusolver"), (500, (), "cusolver")],
)
def test_plans_for_gpus(n, batch, provider):
    plan = mf.plan(lambda a, b: mf.linalg.solve(a, b, assume_a="pos"), S((*batch, n, n)), S((*batch, n, 1)), target="sm_90a")
    (step,) = json.loads(plan.explain("json"))["steps"]
    assert step["provider"] == provider and step["problem"].startswith("cholesky and solve")


@pytest.mark.gpu
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "batch, n, nrhs", [((7, 3), 6, 2), ((), 300, 3), ((), 300, 1), ((3,), 150, 1), ((20,), 70, 4), ((20,), 100, 1)]
)
def test_results_on_a_gpu(rng, batch, n, nrhs, dtype, upper):
    torch = pytest.importorskip("torch")
    a, b, want = systems(rng, batch, n, nrhs, dtype, "upper" if upper else "lower")
    if a.ndim > 2:
        a.reshape(-1, n, n)[-1, 0, 0] = -1
    device = [torch.from_numpy(x).cuda() for x in (a, b)]
    plan = mf.plan(chain(upper), *device)
    assert any(s.startswith("cholesky and solve") for s in steps(plan))
    x, _, first = (y.cpu().numpy() for y in plan.run(*device))
    if a.ndim > 2:
        flat, info = x.reshape(-1, n, nrhs), first.reshape(-1)
        assert info[-1] == 1 and not info[:-1].any() and np.isnan(flat[-1]).all()
        x, want = flat[:-1], want.reshape(-1, n, nrhs)[:-1]
    np.testing.assert_allclose(x, want, rtol=0, atol=DTYPES[dtype][1] * np.abs(want).max())
    factor = torch.linalg.cholesky(torch.from_numpy(want @ np.conj(np.swapaxes(want, -1, -2)) + np.eye(n)).cuda())
    got = mf.linalg.cho_solve(factor.mH.contiguous() if upper else factor, torch.from_numpy(want).cuda(), upper=upper)
    np.testing.assert_allclose((factor @ factor.mH @ got).cpu().numpy(), want, rtol=0, atol=1e-8 * np.abs(want).max())
