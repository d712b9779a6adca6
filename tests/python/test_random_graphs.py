"""Random graphs: chains of elementwise functions, broadcasting, reductions, matmul and views, against NumPy in float64."""

import mathfuse as mf
import numpy as np
from hypothesis import given, strategies as st
from tools import BF16, LAYOUTS, assert_close, strided, values, wide

UNARY = [
    np.tanh,
    np.negative,
    np.abs,
    lambda x: np.exp(-np.abs(x)),
    lambda x: np.sqrt(np.abs(x) + 1),
    np.sin,
    lambda x: 1 / (np.abs(x) + 1),
]
BINARY = [
    np.add,
    np.subtract,
    np.multiply,
    np.maximum,
    np.minimum,
    lambda x, y: np.where(x > y, x, y * 0.5),
    lambda x, y: np.clip(x, -1, 1) + y,
]
REDUCE = [np.sum, np.mean, np.max, np.min]
VIEWS = [lambda x: x.T, lambda x: x[::-1], lambda x: x[..., ::2] if x.shape[-1] > 1 else x, lambda x: x.reshape(-1), lambda x: x[None],
         lambda x: np.broadcast_to(x, (2, *x.shape)), lambda x: x[..., 1:] if x.shape[-1] > 1 else x]  # fmt: skip


def fit(a, b):
    """Two values that broadcast: b, or a scalar made of it."""
    try:
        np.broadcast_shapes(a.shape, b.shape)
        return b
    except ValueError:
        return b.sum()


def run(steps, inputs):
    """Interpret a program; the same for arrays and traced values. Magnitudes are held near 1 by tanh."""
    stack = list(inputs)
    for kind, which, i, j in steps:
        x, y = stack[i % len(stack)], stack[j % len(stack)]
        if kind == "unary":
            z = UNARY[which % len(UNARY)](x)
        elif kind == "binary":
            z = BINARY[which % len(BINARY)](x, fit(x, y))
        elif kind == "reduce" and x.ndim and x.size:
            z = REDUCE[which % len(REDUCE)](x, axis=(which // 4) % x.ndim, keepdims=which % 3 == 0)
        elif kind == "view" and 0 < x.ndim < 4:
            z = VIEWS[which % len(VIEWS)](x)
        elif kind == "matmul" and x.ndim == 2 and y.ndim == 2 and x.shape[1] == y.shape[0]:
            z = np.tanh(np.matmul(x, y))
        elif kind == "matmul" and x.ndim == 2:
            z = np.matmul(x, x.T) * 0.1
        else:
            z = x + 1
        stack.append(z)
    return tuple(stack[len(inputs) :][-3:])


steps = st.lists(
    st.tuples(st.sampled_from(["unary", "binary", "binary", "reduce", "view", "matmul"]), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    min_size=1, max_size=12,
)  # fmt: skip
shapes = st.sampled_from(
    [
        ((4, 5), (5,), (4, 1)),
        ((3, 3), (3, 3), ()),
        ((2, 3, 4), (3, 4), (4,)),
        ((1, 7), (7, 1), (7, 7)),
        ((17, 33), (33,), (17, 33)),
    ]
)


@given(steps, shapes, st.sampled_from(LAYOUTS), st.integers(0, 2**31))
def test_float64(program, shapes, layout, seed):
    rng = np.random.default_rng(seed)
    inputs = [strided(values(rng, s, np.float64, -1, 1), layout) for s in shapes]
    want = run(program, inputs)
    got = mf.fuse(lambda *a: run(program, a))(*inputs)
    for g, w in zip(got, want):
        assert g.dtype == np.asarray(w).dtype
        assert_close(g, w, tolerance=1e-10)


@given(steps, shapes, st.sampled_from([np.float32, np.float16, BF16]), st.integers(0, 2**31))
def test_narrow(program, shapes, dtype, seed):
    rng = np.random.default_rng(seed)
    inputs = [values(rng, s, dtype, -1, 1) for s in shapes]
    want = run(program, [wide(x) for x in inputs])
    got = mf.fuse(lambda *a: run(program, a))(*inputs)
    for g, w in zip(got, want):
        assert g.dtype == dtype
        assert_close(g, w, tolerance={"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}[np.dtype(dtype).name])


@given(steps, shapes, st.integers(0, 2**31))
def test_fusion_changes_nothing_but_rounding(program, shapes, seed):
    rng = np.random.default_rng(seed)
    inputs = [values(rng, s, np.float64, -1, 1) for s in shapes]
    function = lambda *a: run(program, a)  # noqa: E731
    fused, unfused = mf.plan(function, *inputs), mf.plan(function, *inputs, no_fusion=True)
    for g, w in zip(fused.run(*inputs), unfused.run(*inputs)):
        assert_close(g, w, tolerance=1e-10)
    reference = mf.plan(function, *inputs, providers="ref").run(*inputs)
    for g, w in zip(fused.run(*inputs), reference):
        assert_close(g, w, tolerance=1e-10)
