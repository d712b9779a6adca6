"""Eigenvalues and singular values of small matrices in batches on a GPU, by Jacobi's method: plans and kernels anywhere, what kernels
give through the emulator, results where there is a GPU."""

import json

import mathfuse as mf
import numpy as np
import pytest

S = mf.spec
DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
STORAGE = {"float32": "float", "float64": "double", "complex64": "mf::c64", "complex128": "mf::c128", "int32": "int"}
OURS = "generated_solve,generated,ref"


def normal(rng, shape, dtype):
    return (rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype[0] == "c" else 0)).astype(DTYPES[dtype])


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def one_norm(a):
    return np.abs(a).sum(-2).max(-1)


def wide(a):
    return a.astype(np.complex128)


def bound(a):
    """LAPACK's of test ratios, for each matrix."""
    return np.finfo(a.dtype).eps * 30 * max(a.shape[-2:])


def check_eigh(a, w, v, info):
    n = a.shape[-1]
    a, v, limit, norm = wide(a), wide(v), bound(a), one_norm(wide(a))
    assert not info.any() and (np.diff(w) >= 0).all()
    assert (one_norm(a - (v * w[..., None, :]) @ adjoint(v)) <= limit * norm).all()
    assert (one_norm(adjoint(v) @ v - np.eye(n)) <= limit).all()
    assert (np.abs(w - np.linalg.eigvalsh(a)).max(-1) <= limit * norm).all()


def check_svd(a, u, s, vh, info):
    limit, norm, k = bound(a), one_norm(wide(a)), min(a.shape[-2:])
    a, u, vh = wide(a), wide(u), wide(vh)
    assert not info.any() and (s >= 0).all() and (np.diff(s) <= 0).all()
    assert (one_norm(a - (u * s[..., None, :]) @ vh) <= limit * norm).all()
    assert (one_norm(adjoint(u) @ u - np.eye(k)) <= limit).all()
    assert (one_norm(vh @ adjoint(vh) - np.eye(k)) <= limit).all()
    assert (np.abs(s - np.linalg.svd(a, compute_uv=False)).max(-1) <= limit * norm).all()


def eigh(a, uplo="L"):
    return tuple(mf.linalg.eigh(a, uplo, check=False))


def svd(a):
    return tuple(mf.linalg.svd(a, full_matrices=False, check=False))


def svdvals(a):
    return tuple(mf.linalg.svdvals(a, check=False))


def only_step(plan):
    (step,) = json.loads(plan.explain("json"))["steps"]
    return step


# ---- through the emulator ----


def emulated(function, a, results):
    """The kernel of the plan for a GPU, as a device function."""
    plan = mf.plan(function, S(a.shape, a.dtype.name), target="sm_90a", providers=OURS)
    assert only_step(plan)["provider"] == "generated_solve"
    header = plan.device_header("p")
    out = [np.zeros(shape, dtype) for shape, dtype in results]
    arrays = [a, *out]
    parameters = ", ".join(f"{STORAGE[x.dtype.name]} *x{i}" for i, x in enumerate(arrays))
    source = f"""
    #include "p.cuh"
    extern "C" __global__ void k({parameters}, unsigned char *work)
    {{
        MF_DYNAMIC_SHARED(unsigned char, shared);
        p::run_tile(p::args{{{", ".join(f"x{i}" for i in range(len(arrays)))}, work}}, blockIdx.x, shared);
    }}"""
    kernel = mf.Kernel(source, "k", headers={"p.cuh": header})
    kernel[header.tiles[0], header.block_sizes[0], 100 << 10](*arrays, np.zeros(256, np.uint8))
    return out


@pytest.mark.compiles
@pytest.mark.parametrize("dtype", ["f64", "c64"])
@pytest.mark.parametrize("uplo", "LU")
def test_emulated_eigh(uplo, dtype, rng):
    a = normal(rng, (3, 5, 7, 7), dtype)
    a = a + adjoint(a)
    triangle = np.tril(a) if uplo == "L" else np.triu(a)
    triangle[..., *np.triu_indices(7, 1)[:: 1 if uplo == "L" else -1]] = np.nan
    real = a.real.dtype
    w, v, info = emulated(lambda x: eigh(x, uplo), triangle, [((3, 5, 7), real), (a.shape, a.dtype), ((3, 5), "int32")])
    check_eigh(a, w, v, info)


@pytest.mark.compiles
@pytest.mark.parametrize("shape, dtype", [((6, 6), "f32"), ((7, 4), "c128"), ((3, 8), "c64"), ((3, 8), "f64")])
def test_emulated_svd(shape, dtype, rng):
    a = normal(rng, (3, 5, *shape), dtype)
    a[1] = a[0, :, :, :1] * a[1, :, :1]  # of rank one
    k = min(shape)
    values, flags = ((3, 5, k), a.real.dtype), ((3, 5), "int32")
    u, s, vh, info = emulated(svd, a, [((3, 5, shape[0], k), a.dtype), values, ((3, 5, k, shape[1]), a.dtype), flags])
    check_svd(a, u, s, vh, info)
    alone, info = emulated(svdvals, a, [values, flags])
    assert not info.any() and (np.abs(alone - s) <= bound(a) * s[..., :1]).all()


# ---- kernels ----

EIGEN_LIMIT = {"f32": 64, "f64": 32, "c64": 32, "c128": 16}


@pytest.mark.compiles
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    "n, dtype",
    [(3, "f32"), (8, "f32"), (16, "f32"), (32, "f32"), (40, "f32"), (64, "f32"), (8, "f64"), (16, "f64"), (30, "f64"),
     (20, "c64"), (32, "c64"), (16, "c128")],
)  # fmt: skip
def test_eigh_is_one_kernel_without_local_memory(n, dtype, target):
    plan = mf.plan(eigh, S((50000, n, n), dtype), target=target)
    step = only_step(plan)
    allowed = 8 if (n, target) == (64, "sm_100a") else 0  # outside of the rounds
    assert step["provider"] == "generated_solve" and step["launches"] == 1 and step["spills"] <= allowed, step


@pytest.mark.compiles
def test_eigh_that_does_not_fit_is_the_librarys():
    for dtype, n in EIGEN_LIMIT.items():
        plan = mf.plan(eigh, S((50000, n + 1, n + 1), dtype), target="sm_90a")
        (step,) = json.loads(plan.explain("json"))["steps"]
        assert step["provider"] == "cusolver"
        assert f"up to {n} numbers" in {r["provider"]: r["detail"] for r in step["refusals"]}["generated_solve"]


SVD_CASES = [(svd, (3, 3), "f32"), (svd, (32, 32), "f32"), (svd, (8, 40), "f32"), (svd, (16, 16), "f64"), (svd, (16, 16), "c64"),
             (svd, (8, 8), "c128"), (svdvals, (64, 64), "f32"), (svdvals, (32, 32), "f64"), (svdvals, (9, 32), "c64")]  # fmt: skip


@pytest.mark.compiles
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize("function, shape, dtype", SVD_CASES)
def test_svd_is_one_kernel_without_local_memory(function, shape, dtype, target):
    step = only_step(mf.plan(function, S((50000, *shape), dtype), target=target))
    assert step["provider"] == "generated_solve" and step["launches"] == 1 and step["spills"] == 0, step


@pytest.mark.compiles
def test_svd_that_does_not_fit_is_the_librarys():
    def full(a):
        return tuple(mf.linalg.svd(a, check=False))

    for function, shape in ((svd, (33, 32)), (svdvals, (65, 3)), (full, (8, 7))):
        step = only_step(mf.plan(function, S((50000, *shape)), target="sm_90a"))
        assert step["provider"] == "cusolver"


# ---- results ----


def hermitian(rng, batch, n, dtype):
    a = normal(rng, (batch, n, n), dtype)
    a[1::4] = a[1::4] @ adjoint(a[1::4])
    q = np.linalg.qr(a[2::4])[0]
    a[2::4] = (q * np.logspace(0, -6, n)) @ adjoint(q)
    a = a + adjoint(a)
    a[3::8] = 0
    a[7::8] = np.eye(n)
    return a.astype(DTYPES[dtype])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 29, 32, 45, 64])
def test_eigh_results(n, dtype):
    torch = pytest.importorskip("torch")
    if n > EIGEN_LIMIT[dtype]:
        pytest.skip("does not fit a thread's registers")
    a = hermitian(np.random.default_rng(n), 531, n, dtype)
    outside = np.tri(n, k=-1, dtype=bool)
    for upper in (False, True):
        poisoned = torch.from_numpy(np.where(outside if upper else outside.T, np.nan, a).astype(a.dtype)).cuda()
        for x in (poisoned, poisoned.mT.contiguous().mT):
            plan = mf.plan(lambda x, u=upper: eigh(x, "U" if u else "L"), x, providers=OURS)
            assert only_step(plan)["provider"] == "generated_solve"
            w, v, info = (r.cpu().numpy() for r in plan.run(x))
            check_eigh(a, w, v, info)
            again = plan.run(x)
            assert all(np.array_equal(r.cpu().numpy(), s) for r, s in zip(again, (w, v, info), strict=True))
        values = mf.linalg.eigvalsh(poisoned, "U" if upper else "L")
        assert (np.abs(values.cpu().numpy() - w).max(1) <= bound(a) * one_norm(wide(a))).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, sizes", [("f32", (1e-42, 1e-30, 1e30, 1e36)), ("f64", (1e-310, 1e-200, 1e200, 1e306))])
def test_eigh_near_the_ends_of_the_range(dtype, sizes):
    torch = pytest.importorskip("torch")
    a = hermitian(np.random.default_rng(5), 64, 12, "f64")
    for size in sizes:
        x = (a * size).astype(DTYPES[dtype])
        plan = mf.plan(eigh, torch.from_numpy(x).cuda(), providers=OURS)
        w, v, info = (r.cpu().numpy().astype(np.float64) for r in plan.run(torch.from_numpy(x).cuda()))
        want = np.linalg.eigvalsh(x.astype(np.float64) / size)
        tiny = np.finfo(x.dtype).smallest_subnormal / size
        assert not info.any() and np.abs(w / size - want).max() <= 1e3 * np.finfo(x.dtype).eps * np.abs(want).max() + tiny
        assert np.abs(np.swapaxes(v, 1, 2) @ v - np.eye(12)).max() <= 1e3 * np.finfo(x.dtype).eps


@pytest.mark.gpu
def test_eigh_of_what_is_not_finite():
    torch = pytest.importorskip("torch")
    a = hermitian(np.random.default_rng(2), 5, 6, "f32")
    a[1, 3, 2], a[4, 0, 0] = np.nan, np.inf
    plan = mf.plan(eigh, torch.from_numpy(a).cuda(), providers=OURS)
    w, v, info = (x.cpu().numpy() for x in plan.run(torch.from_numpy(a).cuda()))
    assert info.tolist() == [0, -1, 0, 0, -1]
    assert np.isnan(w[[1, 4]]).all() and np.isnan(v[[1, 4]]).all()
    assert np.isfinite(w[[0, 2, 3]]).all() and np.isfinite(v[[0, 2, 3]]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (7, 4), (3, 9), (8, 8), (16, 16), (24, 24), (32, 32), (20, 40)], ids=str)
def test_svd_results(shape, dtype):
    torch = pytest.importorskip("torch")
    if sum(shape) > 64 // (np.dtype(DTYPES[dtype]).itemsize // 4):
        pytest.skip("does not fit a thread's registers")
    rng = np.random.default_rng(shape[0])
    a = normal(rng, (531, *shape), dtype)
    a[1::4] = a[0:1, :, :1] * a[0:1, :1]
    u, s, vh = np.linalg.svd(a[2::4], full_matrices=False)
    a[2::4] = (u * np.logspace(0, -6, min(shape))) @ vh
    a[3::8] = 0
    on_device = torch.from_numpy(a).cuda()
    for x in (on_device, on_device.mT.contiguous().mT):
        plan = mf.plan(svd, x, providers=OURS)
        assert only_step(plan)["provider"] == "generated_solve"
        got = [r.cpu().numpy() for r in plan.run(x)]
        check_svd(a, *got)
        assert all(np.array_equal(r.cpu().numpy(), s) for r, s in zip(plan.run(x), got, strict=True))
        plan = mf.plan(svdvals, x, providers=OURS)
        alone = plan.run(x)[0].cpu().numpy()
        assert (np.abs(alone - got[1]).max(1) <= bound(a) * one_norm(wide(a))).all()
