"""Chains of small batched solvers, products and maps as one kernel: planned anywhere, run where there is a GPU."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec


def ridge(a, b, shift):
    return mf.linalg.solve(np.swapaxes(a, -1, -2) @ a + shift, np.swapaxes(a, -1, -2) @ b, assume_a="pos")


def mahalanobis(x, mu, s):
    d = x - mu
    return (d * mf.linalg.solve(s, d[..., None], assume_a="pos")[..., 0]).sum(-1)


def log_determinant(a, shift):
    factor = mf.linalg.cholesky(np.swapaxes(a, -1, -2) @ a + shift)
    return 2 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def kalman(x, p, f, q, h, r, z):
    """One step of n states and m measurements: the new state and its covariance."""
    x, p = f @ x, f @ p @ np.swapaxes(f, -1, -2) + q
    cross = p @ np.swapaxes(h, -1, -2)
    innovation = h @ cross + r
    gain = np.swapaxes(mf.linalg.solve(innovation, np.swapaxes(cross, -1, -2), assume_a="pos"), -1, -2)
    return x + gain @ (z - h @ x), p - gain @ np.swapaxes(cross, -1, -2)


CASES = {
    "ridge": (ridge, [(20000, 64, 16), (20000, 64, 1), (16, 16)], "f32"),
    "ridge f64": (ridge, [(20000, 20, 8), (20000, 20, 2), (8, 8)], "f64"),
    "mahalanobis": (mahalanobis, [(50000, 12), (12,), (50000, 12, 12)], "f32"),
    "kalman": (kalman, [(10000, 6, 1), (10000, 6, 6), (10000, 6, 6), (6, 6), (3, 6), (3, 3), (10000, 3, 1)], "f32"),
    "log determinant": (log_determinant, [(30000, 32, 12), (12, 12)], "f32"),
}


def steps(plan):
    return json.loads(plan.explain("json"))["steps"]


@pytest.mark.compiles
@pytest.mark.parametrize("name", CASES)
def test_one_launch(name):
    function, shapes, dtype = CASES[name]
    plan = mf.plan(function, *[S(shape, dtype) for shape in shapes], target="sm_90a")
    found = steps(plan)
    if name != "mahalanobis":
        (step,) = found
        assert plan.launches == 1 and step["provider"] == "generated_together" and step["anchor"] == "together"
        assert step["problem"].startswith("together: matmul") and "cholesky" in step["problem"]
    for step in found:
        assert step["provider"] != "generated_together" or step["spills"] <= 16


@pytest.mark.compiles
def test_device_header_does_without():
    function, shapes, dtype = CASES["ridge"]
    plan = mf.plan(function, *[S(shape, dtype) for shape in shapes], target="sm_90a")
    assert plan.launches == 1 and "steps = 3" in plan.device_header("ridge")


@pytest.mark.compiles
def test_excluded_or_apart():
    function, shapes, dtype = CASES["ridge"]
    specs = [S(shape, dtype) for shape in shapes]
    assert mf.plan(function, *specs, target="sm_90a", providers="-generated_together").launches == 3
    few = [S((3, 64, 16), dtype), S((3, 64, 1), dtype), specs[2]]
    assert all(step["launches"] for step in steps(mf.plan(function, *few, target="sm_90a")))


def arrays(shapes, dtype, rng):
    made = []
    for shape in shapes:
        x = rng.standard_normal(shape)
        if len(shape) >= 2 and shape[-1] == shape[-2]:
            x = 4 * np.eye(shape[-1]) + (0.1 * (x @ np.swapaxes(x, -1, -2)) if len(shape) == 3 else 0)
        made.append(x.astype({"f32": np.float32, "f64": np.float64}[dtype]))
    return made


def several(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_results(name, rng):
    torch = pytest.importorskip("torch")
    function, shapes, dtype = CASES[name]
    host = arrays([(shapes[0][0] - 7, *s[1:]) if s[0] == shapes[0][0] else s for s in shapes], dtype, rng)
    device = [torch.from_numpy(x).cuda() for x in host]
    plan = mf.plan(function, *device)
    want = several(mf.fuse(function)(*[x.astype(np.float64) for x in host]))
    got = [x.cpu().numpy() for x in several(plan.run(*device))]
    again = [x.cpu().numpy() for x in several(plan.run(*device))]
    for a, b, c in zip(got, want, again):
        assert np.abs(a - b).max() <= {"f32": 1e-4, "f64": 1e-12}[dtype] * np.abs(b).max()
        assert np.array_equal(a, c)


@pytest.mark.gpu
def test_failures_are_told(rng):
    torch = pytest.importorskip("torch")
    a, b, shift = (torch.from_numpy(x).cuda() for x in arrays([(5000, 24, 8), (5000, 24, 1), (8, 8)], "f32", rng))
    a[17] = float("nan")
    with pytest.raises(np.linalg.LinAlgError, match="17"):
        mf.fuse(ridge)(a, b, shift)
