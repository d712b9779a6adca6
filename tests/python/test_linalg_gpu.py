"""mathfuse.linalg on CUDA: every decomposition by residual, batches, views, failures; plans for GPUs that are not here."""

import mathfuse as mf
import numpy as np
import pytest

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
SHAPES = [(4, 4), (12, 5), (5, 12), (1, 1), (40, 33), (33, 70)]
BATCHES = [(), (2,), (3, 2)]


def normal(rng, shape, dtype):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def limit(a, factor):
    return factor * np.finfo(a.dtype).eps * max(a.shape[-2:], default=1)


def near(got, want, a, factor=30.0):
    """Within LAPACK's test ratio of 30, or `factor`, of units of n epsilons of the matrix `a`."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    size = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.abs(got - want).max(initial=0) <= limit(a, factor) * size


def orthonormal(q):
    eye = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1]))
    assert np.abs(adjoint(q) @ q - eye).max(initial=0) <= limit(q, 30)


class Device:
    """Arrays to and from the device, and calls in between."""

    def __init__(self):
        self.torch = pytest.importorskip("torch")

    def put(self, x):
        return self.torch.from_numpy(np.ascontiguousarray(x)).cuda() if isinstance(x, np.ndarray) else x

    def get(self, x):
        return tuple(map(self.get, x)) if isinstance(x, tuple) else x.cpu().numpy()

    def __call__(self, function, *arrays, **options):
        return self.get(function(*map(self.put, arrays), **options))


@pytest.fixture
def gpu():
    return Device()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", BATCHES)
class TestMatrices:
    def test_lu(self, gpu, dtype, shape, batch, rng):
        a = normal(rng, (*batch, *shape), dtype)
        lu, pivots = gpu(mf.linalg.lu_factor, a)
        assert pivots.dtype == np.int32
        k = min(shape)
        lower = np.tril(lu[..., :k], -1) + np.eye(shape[0], k, dtype=dtype)
        product = lower @ np.triu(lu[..., :k, :])
        for index in np.ndindex(*batch):
            rows = np.arange(shape[0])
            for i, p in enumerate(pivots[index]):
                rows[[i, p]] = rows[[p, i]]
            near(product[index], a[index][rows], a)

    def test_qr(self, gpu, dtype, shape, batch, rng):
        a = normal(rng, (*batch, *shape), dtype)
        for mode in ("reduced", "complete"):
            q, r = gpu(mf.linalg.qr, a, mode=mode)
            want = np.linalg.qr(a, mode)
            assert (q.shape, r.shape) == (want[0].shape, want[1].shape)
            orthonormal(q)
            near(q @ r, a, a)
            assert not np.tril(r, -1).any()
        near(np.abs(gpu(mf.linalg.qr, a, mode="r")), np.abs(np.linalg.qr(a, "r")), a, 300)

    def test_svd(self, gpu, dtype, shape, batch, rng):
        a = normal(rng, (*batch, *shape), dtype)
        k = min(shape)
        for full in (True, False):
            u, s, vh = gpu(mf.linalg.svd, a, full_matrices=full)
            want = np.linalg.svd(a, full_matrices=full)
            assert [x.shape for x in (u, s, vh)] == [x.shape for x in want]
            assert s.dtype == want[1].dtype
            orthonormal(u)
            orthonormal(adjoint(vh))
            near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, a)
            near(s, want[1], a)
        near(gpu(mf.linalg.svdvals, a), want[1], a)

    def test_least_squares(self, gpu, dtype, shape, batch, rng):
        a = normal(rng, (*batch, *shape), dtype)
        b = normal(rng, (*batch, shape[0], 3), dtype)
        x, _, rank, s = gpu(mf.linalg.lstsq, a, b)
        near(x, np.linalg.pinv(a.astype(np.complex128)) @ b, a, 3000)
        assert (rank == min(shape)).all()
        near(s, np.linalg.svd(a, compute_uv=False), a)
        if not batch:
            assert gpu(mf.linalg.lstsq, a, b[:, 0])[0].shape == shape[1:]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 40, 130])
@pytest.mark.parametrize("batch", [(), (2,), (5,)])
class TestSquare:
    def test_inverse_and_determinants(self, gpu, dtype, n, batch, rng):
        a = normal(rng, (*batch, n, n), dtype) / np.asarray(2 * n**0.5, dtype) + np.eye(n, dtype=dtype)
        near(gpu(mf.linalg.inv, a) @ a, np.broadcast_to(np.eye(n), a.shape), a)
        near(gpu(mf.linalg.det, a) / np.linalg.det(a), np.ones(batch), a)
        sign, log = gpu(mf.linalg.slogdet, a)
        near(sign, np.linalg.slogdet(a)[0], a)
        near(log, np.linalg.slogdet(a)[1], a)

    def test_solve_from_factors(self, gpu, dtype, n, batch, rng):
        a = normal(rng, (*batch, n, n), dtype) / np.asarray(n**0.5, dtype) + 2 * np.eye(n, dtype=dtype)
        b = normal(rng, (*batch, n, 3), dtype)
        lu, pivots = gpu(mf.linalg.lu_factor, a)
        for trans, operator in enumerate((a, np.swapaxes(a, -1, -2), adjoint(a))):
            near(operator @ gpu(lambda lu, p, b, t=trans: mf.linalg.lu_solve((lu, p), b, t), lu, pivots, b), b, a, 300)

    def test_eigh(self, gpu, dtype, n, batch, rng):
        a = normal(rng, (*batch, n, n), dtype)
        for uplo in "LU":
            half = np.tril(a, -1) if uplo == "L" else np.triu(a, 1)
            full = half + adjoint(half) + np.eye(n) * np.real(a)
            outside = np.tri(n, k=-1, dtype=bool)
            poisoned = np.where(outside.T if uplo == "L" else outside, np.nan, a).astype(dtype)
            w, v = gpu(mf.linalg.eigh, poisoned, UPLO=uplo)
            near(w, np.linalg.eigvalsh(full), a)
            orthonormal(v)
            near(full @ v, v * w[..., None, :], a)
            near(gpu(mf.linalg.eigvalsh, poisoned, UPLO=uplo), w, a)

    def test_eig(self, gpu, dtype, n, batch, rng):
        a = normal(rng, (*batch, n, n), dtype)
        w, v = gpu(mf.linalg.eig, a)
        assert w.dtype == v.dtype == np.result_type(dtype, np.complex64)
        near(a @ v, v * w[..., None, :], a, 100)
        near(np.linalg.norm(v, axis=-2), np.ones((*batch, n)), a)
        near(np.sort_complex(gpu(mf.linalg.eigvals, a)), np.sort_complex(w), a, 1000)


@pytest.mark.gpu
def test_views_on_the_device(gpu, rng):
    a = gpu.put(normal(rng, (6, 9, 9), np.float64))
    for view in (
        a.mT,
        a[::2],
        a[:, :7, 1:8],
        a.permute(1, 0, 2)[:6, :, :6].contiguous().permute(1, 2, 0),
        a[:1].expand(6, 9, 9),
    ):
        host = view.cpu().numpy()
        near(gpu.get(mf.linalg.svdvals(view)), np.linalg.svd(host, compute_uv=False), host)
        if host.shape[-1] == host.shape[-2]:
            near(gpu.get(mf.linalg.inv(view)) @ host, np.broadcast_to(np.eye(host.shape[-1]), host.shape), host, 3000)


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [3, 8])
def test_bad_matrices_do_not_touch_good_ones(gpu, batch, rng):
    a = normal(rng, (batch, 6, 6), np.float64)
    good, _ = mf.linalg.inv(gpu.put(a), check=False)
    a[1, 3, 2] = np.nan  # in the triangle that eigh reads
    a[2] = 0
    x, info = gpu(mf.linalg.inv, a, check=False)
    assert info[0] == 0 and info[1] == -1 and info[2] == 1
    assert np.isnan(x[1:3]).all()
    np.testing.assert_array_equal(x[0], gpu.get(good)[0])
    for function in (mf.linalg.eigh, mf.linalg.svd, mf.linalg.qr, mf.linalg.eig):
        *results, info = gpu(function, a, check=False)
        np.testing.assert_array_equal(info[:3], [0, -1, 0])
        for result in results:
            assert np.isnan(result[1]).any() and np.isfinite(result[0]).all() and np.isfinite(result[2]).all()
    with pytest.raises(np.linalg.LinAlgError, match=r"matrix \(1,\): it holds NaN or infinity"):
        mf.linalg.svd(gpu.put(a))
    lu, pivots, info = gpu(mf.linalg.lu_factor, a, check=False)
    assert info[2] == 1 and np.isfinite(lu[2]).all()
    np.testing.assert_array_equal(gpu(mf.linalg.det, a)[2], 0)


@pytest.mark.gpu
def test_reruns_are_the_same_to_the_bit(gpu, rng):
    a = gpu.put(normal(rng, (7, 20, 20), np.float32))
    for function in (mf.linalg.svd, mf.linalg.qr, mf.linalg.eigh, mf.linalg.lu_factor):
        for x, y in zip(gpu.get(function(a)), gpu.get(function(a)), strict=True):
            assert x.tobytes() == y.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (0, 4, 4), (2, 0, 0)])
def test_empty(gpu, shape):
    a = np.empty(shape)
    assert gpu(mf.linalg.svdvals, a).shape == np.linalg.svd(a, compute_uv=False).shape
    for got, want in zip(gpu(mf.linalg.qr, a, mode="complete"), np.linalg.qr(a, "complete"), strict=True):
        np.testing.assert_array_equal(got, want)
    if shape[-1] == shape[-2]:
        np.testing.assert_array_equal(gpu(mf.linalg.det, a), np.linalg.det(a))


# ---- without a device ----

CALLS = {
    "lu_factor": (lambda a: mf.linalg.lu_factor(a), "getrf"),
    "inv": (lambda a: mf.linalg.inv(a), "getr"),
    "qr": (lambda a: mf.linalg.qr(a), "mf_qr"),
    "eigh": (lambda a: mf.linalg.eigh(a), {"float32": "mf_eigen", "complex128": "syev"}),
    "eig": (lambda a: mf.linalg.eig(a), "geev"),
    "svd": (lambda a: mf.linalg.svd(a), {"float32": "mf_svd", "complex128": "gesvd"}),
    "lstsq": (lambda a: mf.linalg.lstsq(a, a), "gesvd"),
    "pinv": (lambda a: mf.linalg.pinv(a), {"float32": "mf_svd", "complex128": "gesvd"}),
    "slogdet": (lambda a: mf.linalg.slogdet(a), "getrf"),
}


@pytest.mark.compiles
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("batch", [(), (50,)])
def test_plans_for_a_gpu_that_is_not_here(name, dtype, batch):
    function, routine = CALLS[name]
    plan = mf.plan(function, mf.spec((*batch, 24, 24), dtype), target="sm_90a")
    routine = routine[dtype] if isinstance(routine, dict) else routine
    assert routine in plan.explain() and "cusolver" in plan.explain()
    assert plan.cubins()


@pytest.mark.compiles
@pytest.mark.parametrize("batch", [(), (50,)])
def test_qr_through_the_library(batch):
    for shape in ((24, 24), (100, 30)):
        plan = mf.plan(mf.linalg.qr, mf.spec((*batch, *shape)), target="sm_90a", providers="-generated_solve")
        assert "geqrf" in plan.explain() and plan.cubins()


@pytest.mark.compiles
def test_batched_routines_are_taken_where_there_are_any():
    def kernel(function, *shapes):
        specs = [mf.spec(s, "float32") for s in shapes]
        return mf.plan(function, *specs, target="sm_90a", providers="-generated_solve").explain()

    assert "getrfBatched + getriBatched" in kernel(mf.linalg.inv, (50, 24, 24))
    assert "XsyevBatched" in kernel(mf.linalg.eigh, (50, 24, 24))
    assert "gesvdjBatched" in kernel(mf.linalg.svd, (50, 24, 24))
    assert "cusolverDnXgesvd," in kernel(mf.linalg.svd, (50, 64, 24))
