"""Small systems in batches on a GPU: plans and kernels anywhere, results where there is one."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec
DTYPES = {"f32": (np.float32, 2e-3), "f64": (np.float64, 1e-10), "c64": (np.complex64, 2e-3), "c128": (np.complex128, 1e-10)}
FUNCTIONS = {
    "solve": lambda a, b: mf.linalg.solve(a, b),
    "cholesky": lambda a, b: mf.linalg.cholesky(a),
    "upper": lambda a, b: mf.linalg.cholesky(a, upper=True),
    "lower triangle": lambda a, b: mf.linalg.solve_triangular(a, b, lower=True),
    "upper triangle": lambda a, b: mf.linalg.solve_triangular(a, b, lower=False),
}


@pytest.mark.compiles
@pytest.mark.parametrize(
    "n, nrhs, dtype, target, names",
    [
        *((n, 2, dtype, "sm_90a", list(FUNCTIONS)) for n in (3, 17) for dtype in DTYPES),
        (32, 1, "f32", "sm_80", ["solve", "cholesky"]),
        (40, 1, "f32", "sm_90a", ["solve", "cholesky"]),
        (40, 1, "f64", "sm_100a", ["solve", "cholesky"]),
        (24, 1, "c128", "sm_100a", ["solve"]),
        (32, 1, "c128", "sm_90a", ["solve"]),
    ],
)
def test_one_kernel_without_local_memory(n, nrhs, dtype, target, names):
    for name in names:
        function = FUNCTIONS[name]
        plan = mf.plan(function, S((1000, n, n), dtype), S((1000, n, nrhs), dtype), target=target)
        (step,) = json.loads(plan.explain("json"))["steps"]
        if step["provider"] != "generated_solve":
            reasons = {r["provider"]: r["detail"] for r in step["refusals"]}
            assert dtype == "c128" and "registers" in reasons["generated_solve"], (name, reasons["generated_solve"])
            continue
        called = 16 if dtype in ("f64", "c128") else 0  # the frame of double precision's slow division
        assert step["launches"] == 1 and step["spills"] <= called, (name, step["spills"])


def arrays(batch, n, nrhs, dtype, seed=0):
    rng = np.random.default_rng(seed)
    kind = DTYPES[dtype][0]
    a = rng.standard_normal((*batch, n, n)) + (1j * rng.standard_normal((*batch, n, n)) if dtype[0] == "c" else 0)
    b = rng.standard_normal((*batch, n, nrhs)) + (1j * rng.standard_normal((*batch, n, nrhs)) if dtype[0] == "c" else 0)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + n * np.eye(n)).astype(kind), a.astype(kind), b.astype(kind)


def on_gpu(function, *host):
    torch = pytest.importorskip("torch")
    device = [torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in host]
    plan = mf.plan(function, *device)
    assert json.loads(plan.explain("json"))["steps"][0]["provider"] == "generated_solve"
    result = plan.run(*device)
    return result.cpu().numpy()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n, nrhs", [(1, 1), (3, 1), (8, 3), (16, 2), (31, 1), (32, 16), (33, 1), (40, 4)])
def test_results(n, nrhs, dtype):
    definite, general, b = arrays((7, 5), n, nrhs, dtype)
    if dtype == "c128" and n + nrhs > 24:
        pytest.skip("rows of so many numbers do not fit a thread's registers")
    tolerance = DTYPES[dtype][1]
    for name, function in FUNCTIONS.items():
        a = general if name == "solve" else definite
        got = on_gpu(function, a, b)
        if name in ("cholesky", "upper"):
            want = np.linalg.cholesky(a.astype(np.complex128 if dtype[0] == "c" else np.float64))
            want = want if name == "cholesky" else np.conj(np.swapaxes(want, -1, -2))
        elif name == "solve":
            want = np.linalg.solve(a.astype(np.complex128), b)
        else:
            part = np.tril(a) if name.startswith("lower") else np.triu(a)
            want = np.linalg.solve(part.astype(np.complex128), b)
        assert np.abs(got - want).max() <= tolerance * max(1, np.abs(want).max()), name


@pytest.mark.gpu
@pytest.mark.parametrize(
    "dtype, n, nrhs",
    [
        ("f32", 64, 1),
        ("f32", 48, 16),
        ("f32", 72, 2),
        ("f32", 100, 3),
        ("f32", 128, 1),
        ("f64", 64, 1),
        ("f64", 99, 2),
        ("f64", 128, 1),
        ("c64", 64, 1),
        ("c64", 128, 1),
        ("c128", 40, 1),
        ("c128", 64, 1),
    ],
)
def test_results_of_tiles(dtype, n, nrhs):
    torch = pytest.importorskip("torch")
    definite, general, b = arrays((301,), n, nrhs, dtype)
    wide = np.complex128 if dtype[0] == "c" else np.float64
    eps = np.finfo(DTYPES[dtype][0]).eps
    for a, options in ((general, {}), (definite, {"assume_a": "pos"})):
        for turned in (False, True):
            device = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
            stored = device[0].mT.contiguous().mT if turned else device[0]
            plan = mf.plan(lambda a, b, o=options: mf.linalg.solve(a, b, check=False, **o), stored, device[1])
            assert json.loads(plan.explain("json"))["steps"][0]["provider"] == "generated_solve"
            x, info = plan.run(stored, device[1])
            again, _ = plan.run(stored, device[1])
            assert not info.any() and torch.equal(x, again), "reruns are bit-identical"
            x = x.cpu().numpy().astype(wide)
            scale = np.abs(a).sum(2).max(1) * np.abs(x).max((1, 2))
            assert (np.abs(a.astype(wide) @ x - b).max((1, 2)) / scale).max() < 10 * eps, options
    got = on_gpu(FUNCTIONS["cholesky"], definite, b)
    assert np.abs(got - np.linalg.cholesky(definite.astype(wide))).max() < 100 * eps * np.abs(definite).max()
    bad = definite.copy()
    bad[7, n // 2, n // 2] = -1
    bad[9, n - 1, n - 1] = np.nan
    _, info = mf.linalg.solve(torch.from_numpy(bad).cuda(), device[1], assume_a="pos", check=False)
    assert {int(i): int(info[i]) for i in info.nonzero()[:, 0]} == {7: n // 2 + 1, 9: n}


@pytest.mark.gpu
def test_pivoting_and_failures():
    torch = pytest.importorskip("torch")
    a = np.zeros((3, 4, 4), np.float32)
    a[0] = np.fliplr(np.eye(4))  # only pivoting helps
    a[1] = np.eye(4)
    a[1, 2, 2] = 0
    a[2] = 2 * np.eye(4)
    b = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    x, info = mf.linalg.solve(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), check=False)
    assert info.tolist() == [0, 3, 0] and torch.isnan(x[1]).all()
    assert x[0, :, 0].tolist() == [3, 2, 1, 0] and x[2, :, 0].tolist() == [4, 4.5, 5, 5.5]
    with pytest.raises(np.linalg.LinAlgError, match="1"):
        mf.linalg.solve(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda())
    factor, info = mf.linalg.cholesky(torch.from_numpy(-a[2:]).cuda(), check=False)
    assert info.tolist() == [1]


@pytest.mark.gpu
def test_views_and_reruns():
    torch = pytest.importorskip("torch")
    definite, general, b = arrays((64,), 20, 2, "f32")
    at, bt = torch.from_numpy(general).cuda().mT, torch.from_numpy(b).cuda().flip(0)
    got = mf.linalg.solve(at, bt)
    want = np.linalg.solve(np.swapaxes(general.astype(np.float64), 1, 2), b[::-1])
    assert np.abs(got.cpu().numpy() - want).max() < 1e-2 * np.abs(want).max()
    assert torch.equal(got, mf.linalg.solve(at, bt)), "reruns are bit-identical"


# ---- QR ----


def qr(mode):
    return lambda a: tuple(mf.linalg.qr(a, mode, check=False))


@pytest.mark.compiles
@pytest.mark.parametrize(
    "shape, dtype, target",
    [((16, 16), "f32", "sm_80"), ((64, 20), "f32", "sm_90a"), ((9, 31), "f64", "sm_90a"), ((28, 28), "c64", "sm_100a"),
     ((20, 24), "c128", "sm_90a"), ((56, 56), "f64", "sm_90a")],
)  # fmt: skip
def test_qr_is_one_kernel_without_local_memory(shape, dtype, target):
    plan = mf.plan(qr("reduced"), S((1000, *shape), dtype), target=target)
    (step,) = json.loads(plan.explain("json"))["steps"]
    called = 16 if dtype in ("f64", "c128") else 0  # the frame of double precision's slow division
    assert step["provider"] == "generated_solve" and step["launches"] == 1 and step["spills"] <= called, step


@pytest.mark.compiles
def test_qr_that_does_not_fit_is_the_librarys():
    for shape, mode in (((65, 8), "reduced"), ((8, 65), "reduced"), ((8, 8), "raw")):
        plan = mf.plan(qr(mode), S((10, *shape)), target="sm_90a")
        assert json.loads(plan.explain("json"))["steps"][0]["provider"] == "cusolver"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (16, 16), (20, 7), (5, 20), (33, 32), (40, 40)], ids=str)
def test_qr_results(shape, mode, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    a = rng.standard_normal((37, *shape)) + (1j * rng.standard_normal((37, *shape)) if dtype[0] == "c" else 0)
    a = a.astype(DTYPES[dtype][0])
    eps = np.finfo(a.dtype).eps * 20 * max(shape)
    if mode == "r":
        r = mf.linalg.qr(torch.from_numpy(a).cuda(), "r").cpu().numpy()
        np.testing.assert_allclose(np.abs(r), np.abs(np.linalg.qr(a.astype(np.complex128), "r")), rtol=0, atol=eps * max(shape))
        return
    q, r = (x.cpu().numpy() for x in mf.linalg.qr(torch.from_numpy(a).cuda(), mode))
    np.testing.assert_allclose(q @ r, a, rtol=0, atol=eps * np.abs(a).max())
    eye = np.eye(q.shape[-1])
    np.testing.assert_allclose(np.conj(np.swapaxes(q, -1, -2)) @ q, np.broadcast_to(eye, (37, *eye.shape)), rtol=0, atol=eps)
    assert not np.tril(r, -1).any()


@pytest.mark.gpu
def test_qr_of_what_is_not_finite():
    torch = pytest.importorskip("torch")
    a = np.random.default_rng(2).standard_normal((5, 6, 6)).astype(np.float32)
    a[1, 2, 3], a[4, 0, 0] = np.nan, np.inf
    q, r, info = (x.cpu().numpy() for x in mf.linalg.qr(torch.from_numpy(a).cuda(), check=False))
    assert info.tolist() == [0, -1, 0, 0, -1]
    assert np.isnan(q[[1, 4]]).all() and np.isnan(r[[1, 4], 0]).all() and np.isfinite(q[[0, 2, 3]]).all()
