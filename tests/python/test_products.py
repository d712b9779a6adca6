"""NumPy's products of arrays, eagerly and traced, against NumPy: values, dtypes, shapes and what is refused."""

import mathfuse as mf
import numpy as np
import pytest

DTYPES = [np.float32, np.float64, np.complex64, np.complex128, np.int32, np.int64]
SHAPES = {
    "dot": [((4, 5), (5, 3)), ((5,), (5,)), ((), (5,)), ((2, 4, 5), (5,)), ((5,), (2, 5, 3)), ((2, 4, 5), (3, 5, 2)), ((0, 5), (5, 3))],
    "inner": [((4, 5), (3, 5)), ((5,), (5,)), ((), (2, 5)), ((2, 4, 5), (5,)), ((2, 4, 5), (3, 2, 5)), ((4, 0), (3, 0))],
    "outer": [((4, 5), (3,)), ((5,), (2, 3)), ((), (3,)), ((0,), (3,))],
    "vdot": [((4, 5), (4, 5)), ((4, 5), (20,)), ((0,), (0,)), ((), ())],
    "kron": [((4, 5), (2, 3)), ((5,), (2, 3)), ((2, 3), (5,)), ((2, 3, 2), (5, 2)), ((), (3,)), ((2, 0), (3, 3)), ((2, 1, 1, 1, 3), (1, 2, 1, 1, 2))],
    "vecdot": [((2, 4, 5), (5,)), ((4, 5), (4, 5)), ((4, 5), (2, 1, 5)), ((3, 0), (0,))],
    "matvec": [((2, 4, 5), (5,)), ((4, 5), (3, 5)), ((2, 4, 5), (2, 5))],
    "vecmat": [((5,), (2, 5, 3)), ((2, 5), (5, 3)), ((2, 5), (2, 5, 3))],
}  # fmt: skip


def draw(rng, shape, dtype):
    x = rng.integers(-6, 7, shape) + (1j * rng.integers(-6, 7, shape) if np.dtype(dtype).kind == "c" else 0)
    return np.asarray(x).astype(dtype)


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    assert np.array_equal(got, want)  # small integers: every order of summation is exact


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "shapes"), [(n, s) for n, all in SHAPES.items() for s in all])
def test_products_are_numpys(name, shapes, dtype, rng):
    a, b = (draw(rng, s, dtype) for s in shapes)
    numpys = getattr(np, name)
    want = np.asarray(numpys(a, b))
    same(getattr(mf, name)(a, b), want)
    same(mf.fuse(lambda x, y: numpys(x, y))(a, b), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_vecdot_takes_the_axis_of_each_operand(axis, dtype, rng):
    a, b = draw(rng, (4, 5), dtype), draw(rng, (4, 5, 5) if axis == 1 else (4, 4, 5), dtype)
    if axis == 1:
        b = draw(rng, (3, 5, 4), dtype)
    want = np.vecdot(a, b, axis=axis)
    for got in (
        mf.vecdot(a, b, axis=axis),
        mf.linalg.vecdot(a, b, axis=axis),
        mf.fuse(lambda x, y: np.vecdot(x, y, axis=axis))(a, b),
    ):
        same(got, want)


def test_vecdot_of_bools_is_whether_any_pair_holds():
    a, b = np.array([[True, True, False], [False, False, True]]), np.array([True, True, False])
    same(mf.vecdot(a, b), np.vecdot(a, b))
    same(mf.vdot(b, b), np.asarray(np.vdot(b, b)))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("vecdot", ((4, 5), (4, 1))), ("vecdot", ((), (3,))), ("vdot", ((4,), (5,))), ("inner", ((4, 5), (3, 4))), ("dot", ((2, 3), (2, 4, 2))),
     ("matvec", ((2, 3), ())), ("vecmat", ((), (2, 3)))],
)  # fmt: skip
def test_products_refuse_what_numpy_refuses(name, shapes):
    a, b = (np.ones(s) for s in shapes)
    with pytest.raises(ValueError):
        getattr(np, name)(a, b)
    with pytest.raises(mf.errors.ShapeError):
        getattr(mf, name)(a, b)


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1])
@pytest.mark.parametrize("function", [np.round, np.around])
def test_rounded_integers_stay_integers(function, decimals):
    x = np.array([15, 25, -25, 149, 151, 0], np.int32)
    same(mf.fuse(lambda v: function(v, decimals))(x), function(x, decimals))
