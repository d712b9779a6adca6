"""`initial` and `where` of reductions against NumPy, eagerly and traced."""

import mathfuse as mf
import numpy as np
import pytest

FUNCTIONS = ["sum", "prod", "max", "min", "mean", "any", "all"]


def compare(got, want):
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5 if want.dtype.itemsize == 4 else 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, bool])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("keywords", ["initial", "where", "both"])
def test_initial_and_where_are_numpys(keywords, name, keepdims, axis, dtype, rng):
    x = rng.integers(-3, 4, (4, 5)).astype(dtype)
    mask = rng.integers(0, 2, (5,)).astype(bool)
    mask[0] = True
    given = {"initial": {"initial": 2}, "where": {"where": mask}, "both": {"initial": 2, "where": mask}}[keywords]
    if name in ("mean", "any", "all"):
        if keywords == "initial":
            pytest.skip("has no initial")
        given.pop("initial", None)
    if dtype is bool and "initial" in given:
        given["initial"] = True
    numpys = getattr(np, name)
    if name in ("max", "min") and keywords == "where":
        with pytest.raises(ValueError):
            numpys(x, axis, keepdims=keepdims, **given)
        with pytest.raises(mf.errors.InvalidError, match="initial"):
            getattr(mf, name)(x, axis, keepdims=keepdims, **given)
        return
    want = numpys(x, axis, keepdims=keepdims, **given)
    compare(getattr(mf, name)(x, axis, keepdims=keepdims, **given), want)
    compare(mf.fuse(lambda v: numpys(v, axis, keepdims=keepdims, **given))(x), want)


def test_a_mask_may_be_computed_and_hide_nan():
    x = np.array([[1.0, np.nan, 3.0], [np.nan, 5.0, 6.0]])
    compare(mf.fuse(lambda v: np.sum(v, axis=1, where=np.isfinite(v)))(x), np.sum(x, axis=1, where=np.isfinite(x)))
    compare(mf.mean(x, 0, where=np.isfinite(x)), np.mean(x, 0, where=np.isfinite(x)))
    compare(mf.fuse(lambda v: np.add.reduce(v, 0, initial=1.0, where=v > 2))(x), np.add.reduce(x, 0, initial=1.0, where=x > 2))


def test_the_largest_of_nothing_is_initial():
    x = np.zeros((0, 3), np.float32)
    compare(mf.max(x, 0, initial=-7), np.max(x, 0, initial=-7))
    compare(mf.min(x, initial=4, keepdims=True), np.min(x, initial=4, keepdims=True))
    with pytest.raises(mf.errors.ShapeError, match="where has shape"):
        mf.sum(np.ones(3), where=np.ones((2, 3), bool))
