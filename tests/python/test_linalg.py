"""mathfuse.linalg: answers by residual, info, errors, triangles, NumPy 2's rule for vectors."""

import mathfuse as mf
import numpy as np
import pytest
from tools import LAYOUTS, assert_close, strided, values, wide

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def definite(rng, shape, dtype):
    g = values(rng, shape, dtype)
    return (g @ np.conj(np.swapaxes(g, -1, -2)) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def residual_is_small(a, x, b):
    eps = np.finfo(x.dtype).eps
    r = wide(a) @ wide(x) - wide(b)
    scale = np.abs(wide(a)).max(initial=1) * np.abs(wide(x)).max(initial=1) * a.shape[-1]
    assert np.abs(r).max(initial=0) <= 20 * eps * scale


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [((3, 3), (3, 2)), ((1, 1), (1, 1)), ((4, 4), (4,)), ((2, 5, 5), (2, 5, 3)), ((2, 5, 5), (5, 3)),
                                    ((5, 5), (2, 5, 1)), ((2, 1, 4, 4), (3, 4, 2)), ((65, 65), (65, 7))], ids=str)  # fmt: skip
def test_solve(shapes, dtype, rng):
    a, b = definite(rng, shapes[0], dtype), values(rng, shapes[1], dtype)
    x = mf.linalg.solve(a, b)
    assert x.dtype == dtype
    assert x.shape == np.linalg.solve(a, b).shape
    residual_is_small(a, x if b.ndim > 1 else x[..., None], b if b.ndim > 1 else b[..., None])


def test_vector_only_if_one_dimensional(rng):
    a, b = definite(rng, (3, 4, 4), np.float64), values(rng, (4,), np.float64)
    assert mf.linalg.solve(a, b).shape == (3, 4)
    square = values(rng, (4, 4), np.float64)
    assert_close(mf.linalg.solve(a, square), np.linalg.solve(a, square), scale=100)


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_layouts_and_inputs_kept(layout, rng):
    a, b = definite(rng, (2, 6, 6), np.float64), values(rng, (2, 6, 3), np.float64)
    va, vb = strided(a, layout), strided(b, layout)
    residual_is_small(a, mf.linalg.solve(va, vb), b)
    factor = mf.linalg.cholesky(va)
    assert_close(factor @ np.swapaxes(factor, -1, -2), a, scale=50)
    np.testing.assert_array_equal(va, a)
    np.testing.assert_array_equal(vb, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 5, 5), (70, 70)])
def test_cholesky(shape, upper, dtype, rng):
    a = definite(rng, shape, dtype)
    read = np.triu(a) if upper else np.tril(a)
    poisoned = np.where(np.tri(shape[-1], dtype=bool).T if upper else np.tri(shape[-1], dtype=bool), read, np.nan)
    factor = mf.linalg.cholesky(poisoned.astype(dtype), upper=upper)
    assert_close(
        factor,
        np.linalg.cholesky(wide(a)) if not upper else np.conj(np.swapaxes(np.linalg.cholesky(wide(a)), -1, -2)),
        scale=100,
    )
    other = np.tril(factor, -1) if upper else np.triu(factor, 1)
    assert not other.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cho_solve(dtype, rng):
    a, b = definite(rng, (2, 5, 5), dtype), values(rng, (2, 5, 3), dtype)
    for upper in (False, True):
        residual_is_small(a, mf.linalg.cho_solve(mf.linalg.cholesky(a, upper=upper), b, upper=upper), b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("trans", [0, 1, 2])
def test_solve_triangular(dtype, lower, unit, trans, rng):
    full = definite(rng, (2, 5, 5), dtype)
    triangle = np.tril(full) if lower else np.triu(full)
    if unit:
        triangle[..., np.arange(5), np.arange(5)] = 1
        full = np.where(np.eye(5, dtype=bool), np.nan, full).astype(dtype)
    full = np.where(np.tri(5, dtype=bool) if lower else np.tri(5, dtype=bool).T, full, np.nan).astype(dtype)
    b = values(rng, (2, 5, 3), dtype)
    x = mf.linalg.solve_triangular(full, b, lower=lower, unit_diagonal=unit, trans=trans)
    t = np.swapaxes(triangle, -1, -2) if trans else triangle
    residual_is_small(np.conj(t) if trans == 2 else t, x, b)


def test_info_and_errors():
    a = np.stack([np.eye(2), [[1, 2], [2, 1]], 2 * np.eye(2), [[-1, 0], [0, 1]]]).astype(np.float32)
    factor, info = mf.linalg.cholesky(a, check=False)
    assert info.dtype == np.int32
    np.testing.assert_array_equal(info, [0, 2, 0, 1])
    np.testing.assert_array_equal(factor[[0, 2]], np.linalg.cholesky(a[[0, 2]]))
    with pytest.raises(mf.linalg.LinAlgError, match=r"2 of 4 matrices failed: matrix \(1,\): leading minor 2") as caught:
        mf.linalg.cholesky(a)
    np.testing.assert_array_equal(caught.value.info, [0, 2, 0, 1])
    assert isinstance(caught.value, np.linalg.LinAlgError) and isinstance(caught.value, mf.Error)


def test_singular_solve():
    a = np.zeros((2, 2))
    x, info = mf.linalg.solve(a, np.ones((2, 1)), check=False)
    assert info.shape == () and info == 1
    with pytest.raises(mf.linalg.LinAlgError, match="singular") as caught:
        mf.linalg.solve(np.stack([np.eye(2), a]), np.ones((2, 2, 1)))
    np.testing.assert_array_equal(caught.value.info, [0, 1])


def test_nan_ends_in_nan_info_or_error():
    a = np.array([[np.nan, 1], [1, 2]], np.float32)
    factor, info = mf.linalg.cholesky(a, check=False)
    assert info != 0 or np.isnan(factor).any()
    x, info = mf.linalg.solve(a, np.ones((2, 1), np.float32), check=False)
    assert info != 0 or np.isnan(x).any()


def test_empty():
    assert mf.linalg.cholesky(np.ones((0, 3, 3))).shape == (0, 3, 3)
    assert mf.linalg.solve(np.ones((0, 3, 3)), np.ones((0, 3, 2))).shape == (0, 3, 2)
    assert mf.linalg.solve(np.ones((0, 0)), np.ones((0, 2))).shape == (0, 2)
    assert mf.linalg.solve(np.eye(3), np.ones((3, 0))).shape == (3, 0)


def test_integers_and_mixed_dtypes(rng):
    a = np.array([[2, 1], [1, 3]])
    assert_close(mf.linalg.solve(a, np.array([3, 5])), np.linalg.solve(a, np.array([3, 5])))
    x = mf.linalg.solve(a.astype(np.float32), np.array([3, 5j]))
    assert x.dtype == np.complex128


def test_wrong_shapes():
    with pytest.raises(ValueError, match="square"):
        mf.linalg.cholesky(np.ones((2, 3)))
    with pytest.raises(ValueError, match="rows"):
        mf.linalg.solve(np.eye(3), np.ones((2, 1)))


def test_inside_a_fused_function(rng):
    a, b = definite(rng, (2, 4, 4), np.float64), values(rng, (2, 4, 3), np.float64)
    chain = mf.fuse(lambda a, b: {"x": np.linalg.solve(a, b) * 2, "l": np.linalg.cholesky(a)})
    result = chain(a, b)
    assert_close(result["x"], 2 * np.linalg.solve(a, b), scale=100)
    assert_close(result["l"], np.linalg.cholesky(a), scale=100)
    with pytest.raises(mf.linalg.LinAlgError):
        chain(-a, b)
    out = np.empty_like(b)
    assert mf.fuse(np.linalg.solve)(a, b, out=out) is out
