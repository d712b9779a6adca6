"""int8 and fp8 operands on GPUs: what of them is the library's own work, its limits, and its results."""

import json

import mathfuse as mf
import numpy as np
import pytest
from tools import assert_close, values, wide


def providers(function, *args):
    return [step["provider"] for step in json.loads(mf.plan(function, *args, target="sm_90a").explain("json"))["steps"]]


def bytes_of(*shape):
    return mf.spec(shape, "int8")


@pytest.mark.compiles
def test_what_the_library_takes():
    assert providers(mf.matmul, bytes_of(256, 512), bytes_of(512, 128)) == ["cublaslt"]
    assert providers(lambda a, b: mf.matmul(a, b.T), bytes_of(256, 512), bytes_of(128, 512)) == ["cublaslt"]
    assert providers(mf.matmul, bytes_of(25, 51), bytes_of(51, 12)) == ["generated"]
    assert providers(mf.matmul, bytes_of(70000, 64), bytes_of(64, 64)) == ["generated"]
    assert providers(mf.matmul, bytes_of(3, 64, 64), bytes_of(3, 64, 64)) == ["generated"]


@pytest.mark.compiles
def test_scales_follow_in_one_pass():
    def scaled(a, b, s):
        return mf.scaled_matmul(a, b.T, s, out_dtype="int8")

    assert providers(scaled, bytes_of(8192, 512), bytes_of(512, 512), mf.spec((8192,))) == ["cublaslt", "generated"]


def fp8_by_vectors(a, b, row, column, bias=None):
    return mf.scaled_matmul(a, b.T, row, column, bias)


@pytest.mark.compiles
def test_vectors_of_fp8_scales():
    a, b, bias = mf.spec((256, 512), "float8_e4m3fn"), mf.spec((128, 512), "float8_e4m3fn"), mf.spec((128,), "bfloat16")
    row, column = mf.spec((256,)), mf.spec((128,))

    def kernels(function, *args, target="sm_90a"):
        return [step["kernel"] for step in json.loads(mf.plan(function, *args, target=target).explain("json"))["steps"]]

    assert kernels(fp8_by_vectors, a, b, row, column) == ["cublasLtMatmul DEFAULT, scaled by vectors"]
    assert kernels(fp8_by_vectors, a, b, row, column, bias) == ["cublasLtMatmul BIAS, scaled by vectors"]
    assert not any("vectors" in k for k in kernels(fp8_by_vectors, a, b, row, column, target="sm_100a"))
    for refused in (lambda a, b, r, c: mf.scaled_matmul(a, b.T, r), lambda a, b, r, c: mf.scaled_matmul(a, b.T, r, c) + r[:, None],
                    lambda a, b, r, c: mf.scaled_matmul(a, b.T, r, c, activation="gelu"),
                    lambda a, b, r, c: mf.scaled_matmul(a, b.T, r, c, out_dtype="float32"),
                    lambda a, b, r, c: mf.scaled_matmul(a, b.T, r, c, scale_result=c[:1].reshape(()))):  # fmt: skip
        assert not any("vectors" in k for k in kernels(refused, a, b, row, column))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(64, 96, 32), (1024, 512, 256), (4096, 1024, 1024)], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_gpu_vectors_of_fp8_scales(size, biased, rng):
    torch = pytest.importorskip("torch")
    m, k, n = size
    a, b = (torch.from_numpy(values(rng, s, np.float32)).cuda().to(torch.float8_e4m3fn) for s in ((m, k), (n, k)))
    row, column = (torch.from_numpy(values(rng, (s,), np.float32, 0.1, 3)).cuda() for s in (m, n))
    extra = [torch.from_numpy(values(rng, (n,), np.float32)).to("cuda", torch.bfloat16)] if biased else []
    plan = mf.plan(fp8_by_vectors, a, b, row, column, *extra)
    got = plan.run(a, b, row, column, *extra).float().cpu().numpy()
    want = (a.double() @ b.double().T * row.double()[:, None] * column.double() + (extra[0].double() if biased else 0)).cpu()
    assert_close(got, want.numpy(), tolerance=1e-2)
    assert "scaled by vectors" in plan.explain(), plan.explain()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 64, 64), (256, 512, 128), (8192, 512, 512), (25, 51, 12), (16, 4096, 16), (3, 48, 32, 80)],
                         ids=str)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_gpu_int8_products(shape, turned, rng):
    torch = pytest.importorskip("torch")
    *lead, m, k, n = shape
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((*lead, m, k), (*lead, n, k) if turned else (*lead, k, n)))
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    y, b = (y.mT, b.swapaxes(-1, -2)) if turned else (y, b)
    want = a.astype(np.int64) @ b.astype(np.int64)
    got = mf.matmul(x, y)
    assert got.dtype == torch.int32
    np.testing.assert_array_equal(got.cpu().numpy(), want)
    sa, sb = values(rng, (*lead, m), np.float32, 0.001, 0.01), values(rng, (*lead, n), np.float32, 0.001, 0.01)
    scaled = mf.scaled_matmul(x, y, torch.from_numpy(sa).cuda(), torch.from_numpy(sb).cuda(), out_dtype="float32")
    assert_close(scaled.cpu().numpy(), want * wide(sa)[..., :, None] * wide(sb)[..., None, :])
    again = mf.scaled_matmul(x, y, torch.tensor(2e-4, device="cuda"), out_dtype="int8").cpu().numpy()
    np.testing.assert_array_equal(again, np.clip(np.rint(np.float32(want) * np.float32(2e-4)), -128, 127))
    if len(shape) == 3 and m % 16 == 0:
        assert "cublasLtMatmul" in mf.plan(mf.matmul, x, y).explain()


@pytest.mark.gpu
def test_gpu_int8_elementwise(rng):
    torch = pytest.importorskip("torch")
    x = rng.integers(-128, 128, (37, 53)).astype(np.int8)
    on = torch.from_numpy(x).cuda()
    for function in (lambda x: x + x, lambda x: mf.cast(x * 3, "int8"), lambda x: mf.cast(x * 3, "int8", saturate=True),
                     lambda x: mf.cast(x * 1.7, "int8"), lambda x: mf.max(x, axis=1), lambda x: mf.sum(x, axis=0), lambda x: x.T):  # fmt: skip
        made = mf.fuse(function)
        got, want = made(on).cpu().numpy(), made(x)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
