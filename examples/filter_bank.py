"""Filters many signals with several filters: transform, multiply, inverse, rectify, as one plan."""

import mathfuse as mf
import numpy as np


@mf.fuse
def bank(x, h):
    """x is (signals, 1, n), h is (filters, n): circular convolutions, rectified."""
    return mf.relu(mf.fft.irfft(mf.fft.rfft(x) * mf.fft.rfft(h), n=x.shape[-1]))


def main():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 1, 1000)).astype(np.float32)
    h = rng.standard_normal((4, 1000)).astype(np.float32)
    y = bank(x, h)
    want = np.maximum(np.fft.irfft(np.fft.rfft(x.astype(float)) * np.fft.rfft(h.astype(float)), n=1000), 0)
    print("result", y.shape, y.dtype, "relative error", np.abs(y - want).max() / want.max())
    print(bank.explain(x, h))


if __name__ == "__main__":
    main()
