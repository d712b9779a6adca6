"""Trains a network of two layers: forward and backward are one plan each. On a GPU the backward plan is one launch for each
product: gelu's derivative and the biases' gradients come with them."""

import mathfuse as mf
import numpy as np


@mf.fuse
def forward(x, w1, b1, w2, b2):
    z = x @ w1 + b1
    h = mf.gelu(z)
    return h @ w2 + b2, z, h


@mf.fuse
def backward(dy, x, z, h, w1, w2):
    dh, dw2, db2 = mf.linear_backward(dy, h, w2)
    _, dw1, db1 = mf.linear_backward(dh, x, w1, z, activation="gelu")
    return dw1, db1, dw2, db2


def main():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (512, 2)).astype(np.float32)
    want = np.sin(3 * x[:, :1]) * np.cos(2 * x[:, 1:])
    shapes = (2, 64), (64,), (64, 1), (1,)
    parameters = [(rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for s in shapes]
    momentum = [np.zeros_like(p) for p in parameters]
    for step in range(601):
        w1, b1, w2, b2 = parameters
        y, z, h = forward(x, w1, b1, w2, b2)
        gradients = backward((y - want) / len(x), x, z, h, w1, w2)
        for p, m, g in zip(parameters, momentum, gradients):
            m *= 0.9
            m += g
            p -= 0.1 * m
        if step % 200 == 0:
            print(f"step {step}: mean squared error {np.square(y - want).mean():.5f}")
    print(backward.explain((y - want) / len(x), x, z, h, w1, w2))


if __name__ == "__main__":
    main()
