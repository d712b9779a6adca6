"""What several test files use."""

import ml_dtypes
import numpy as np

BF16, E4M3, E5M2 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)

# Relative rounding error of one operation, with room for a short chain.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14, "complex64": 3e-6, "complex128": 2e-14}


def wide(x):
    """The same values in the widest type of their kind."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def assert_close(got, want, scale=1.0, tolerance=None):
    """Equal to rounding of got's dtype, relative to the largest entry; NaN and infinities must match."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, wanted {want.shape}"
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    tolerance = tolerance or TOLERANCE[got.dtype.name]
    a, b = wide(got), wide(want)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    size = max(1.0, float(np.abs(b[finite]).max())) if finite.any() else 1.0
    np.testing.assert_allclose(a[finite], b[finite], rtol=tolerance * scale, atol=tolerance * scale * size)
    infinite = ~finite & ~np.isnan(b)
    np.testing.assert_array_equal(a[infinite], b[infinite])


def values(rng, shape, dtype, low=-2.0, high=2.0):
    """Random values of any dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape)) < 0.5
    if dtype.kind in "iu":
        return rng.integers(int(low), int(high) + 1, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def strided(x, how):
    """The same values in another memory layout."""
    x = np.asarray(x)
    if x.ndim == 0:
        return x
    if how == "reversed":
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1] if x.ndim else x
    if how == "padded":
        buffer = np.zeros(tuple(n + 3 for n in x.shape), x.dtype)
        view = buffer[tuple(slice(1, n + 1) for n in x.shape)]
        view[...] = x
        return view
    if how == "stepped":
        buffer = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
        view = buffer[(slice(None, None, 2),) * x.ndim]
        view[...] = x
        return view
    if how == "fortran":
        return np.asfortranarray(x)
    if how == "repeated" and x.ndim:
        return np.broadcast_to(x[:1], x.shape)
    return x


LAYOUTS = ["contiguous", "reversed", "padded", "stepped", "fortran", "repeated"]
