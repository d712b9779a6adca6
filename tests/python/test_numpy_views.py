"""NumPy's functions that are views or short formulas, traced, against themselves on arrays."""

import mathfuse as mf
import numpy as np
import pytest

CALLS = {
    "tril": [lambda x: np.tril(x), lambda x: np.tril(x, -1), lambda x: np.tril(x, 2)],
    "triu": [lambda x: np.triu(x), lambda x: np.triu(x, 1), lambda x: np.triu(x[0, 0])],
    "diag": [lambda x: np.diag(x[0]), lambda x: np.diag(x[0], 1), lambda x: np.diag(x[0, 0])],
    "atleast": [lambda x: np.atleast_1d(x[0, 0, 0]), lambda x: np.atleast_2d(x[0, 0]), lambda x: np.atleast_3d(x[0, 0]), lambda x: np.atleast_3d(x[0])],
    "flips": [np.fliplr, np.flipud],
    "rot90": [lambda x, k=k: np.rot90(x, k, (0, 2)) for k in (0, 1, 2, 3, -1)],
    "axes": [lambda x: np.rollaxis(x, 2), lambda x: np.rollaxis(x, 0, 3), lambda x: np.rollaxis(x, 1, 1), lambda x: np.permute_dims(x, (2, 0, 1))],
    "broadcast": [lambda x: np.broadcast_arrays(x, x[:, :1])[1]],
    "diff": [np.diff, lambda x: np.diff(x, 2), lambda x: np.diff(x, axis=0), lambda x: np.diff(x, 0)],
    "average": [np.average, lambda x: np.average(x, axis=1), lambda x: np.average(x, axis=1, weights=[1.0, 2, 3, 4]), lambda x: np.average(x, weights=x * x + 1)],
    "close": [lambda x: np.isclose(x, x + 1e-9), lambda x: np.isclose(x, 1), lambda x: np.allclose(x, x), lambda x: np.allclose(x, x + 1)],
    "equal": [lambda x: np.array_equal(x, x), lambda x: np.array_equal(x, x[:1]), lambda x: np.array_equal(x, x + 1)],
    "split": [lambda x: tuple(np.split(x, 2, axis=1)), lambda x: tuple(np.array_split(x, 3, axis=2)), lambda x: tuple(np.split(x, [1, 3], axis=1))],
    "repeat": [lambda x: np.repeat(x, 3), lambda x: np.repeat(x, 2, axis=1), lambda x: np.repeat(x, 0, axis=0)],
    "outer": [lambda x: np.add.outer(x[0, 0], x[0, 1]), lambda x: np.maximum.outer(x[0], x[0, 0])],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("call", [c for calls in CALLS.values() for c in calls])
def test_traced_as_on_arrays(call, dtype, rng):
    x = rng.integers(-5, 6, (2, 4, 5)).astype(dtype)
    want, got = call(x), mf.fuse(call)(x)
    for g, w in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        assert g.dtype == np.asarray(w).dtype and g.shape == np.shape(w)
        np.testing.assert_allclose(g, w, rtol=1e-6)


@pytest.mark.parametrize(
    "function", [np.nanvar, np.nanstd, np.isposinf, np.isneginf, np.fix, lambda x: np.isclose(x, x, equal_nan=True)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_and_infinity(function, dtype):
    x = np.array([[1.5, np.nan, -2.5, 7], [np.nan, 3, 4, 5]], dtype)
    if function not in (np.nanvar, np.nanstd):
        x[0, 0], x[1, 3] = np.inf, -np.inf
    got, want = mf.fuse(lambda v: function(v))(x), function(x)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_spread_of_rows_with_too_few_values():
    x = np.array([[np.nan, 1.0], [2.0, 5.0]])
    with pytest.warns(RuntimeWarning):
        want = np.nanstd(x, axis=1, ddof=1)
    np.testing.assert_allclose(mf.fuse(lambda v: np.nanstd(v, axis=1, ddof=1))(x), want)


def test_what_cannot_be_traced_is_told():
    x = np.ones((3, 4))
    for call, words in [(lambda v: np.diff(v, append=1), "append"), (lambda v: np.repeat(v, [1, 2, 3], axis=0), "repeats"),
                        (lambda v: np.split(v, 3, axis=1), "array_split"), (lambda v: np.diag(v[0], 1), "diagonal")]:  # fmt: skip
        with pytest.raises(mf.Error, match=words):
            mf.fuse(call)(x)
