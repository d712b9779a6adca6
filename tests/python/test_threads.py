"""Threads that share functions and plans, first calls at once, and a process that forks."""

import os
import threading

import mathfuse as mf
import numpy as np
import pytest
from tools import assert_close, values


def together(count, work):
    """Run work(i) on `count` threads that start at once; the first exception is raised here."""
    barrier, failures = threading.Barrier(count), []

    def body(i):
        try:
            barrier.wait()
            work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


def test_first_calls_at_once(rng):
    f = mf.fuse(lambda x, w: np.tanh(x @ w) + 1)
    x, w = values(rng, (16, 16), np.float64), values(rng, (16, 16), np.float64)
    want = np.tanh(x @ w) + 1
    together(16, lambda i: assert_close(f(x, w), want, scale=4))
    assert f.plans == 1


def test_one_plan_many_threads(rng):
    n = 512
    xs = [values(rng, (n,), np.complex128) for _ in range(8)]
    p = mf.plan(lambda x: np.fft.fft(x), xs[0])

    def work(i):
        want = np.fft.fft(xs[i])
        for _ in range(50):
            assert_close(p.run(xs[i]), want, scale=10)

    together(8, work)


def test_different_signatures_at_once(rng):
    f = mf.fuse(lambda x: (x * 2).sum(-1))

    def work(i):
        for n in range(1, 40):
            x = np.full((i + 1, n), 0.5)
            np.testing.assert_array_equal(f(x), np.full(i + 1, n))

    together(8, work)


def test_errors_belong_to_their_thread():
    def work(i):
        for _ in range(20):
            with pytest.raises(ValueError, match=rf"\({i + 1}, 7\)"):
                mf.matmul(np.ones((i + 1, 7)), np.ones((i + 2, 3)) if i != 5 else np.ones((9, 3)))

    together(8, work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork(rng):
    x = values(rng, (300, 300), np.float64)
    want = mf.matmul(x, x, activation="tanh")
    child = os.fork()
    if child == 0:
        same = np.array_equal(mf.matmul(x, x, activation="tanh"), want) and mf.exp(x).shape == x.shape
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
