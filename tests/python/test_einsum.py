"""einsum against NumPy."""

import mathfuse as mf
import numpy as np
import pytest
from hypothesis import given, strategies as st
from tools import assert_close, values

EXPRESSIONS = ["ij,jk->ik", "ij,jk", "ij,kj->ki", "i,i->", "i,j->ij", "ij->ji", "ij->", "ij->j", "ii->i", "ii", "iij->j", "ij,ij->ij",
               "bij,bjk->bik", "bij,bjk->ik", "bij,jk->bik", "ijk,ko->ijo", "ijo,ilo->jl", "abc,cd->abd", "ij,jk,kl->il",
               "ij,jk,kl,lm->im", "a,ab,b->", "abc,abd->abcd", "ij,k->ijk", "ab,b->a", "abcd,cdef->abef", "i,i,i->i",
               "...ij,...jk->...ik", "...ij,jk->...ik", "...i->...", "i...,i...->...", "ab,cd->", "aab,bcc->ac", "zy,yx"]  # fmt: skip


def operands(expression, rng, dtype=np.float64, sizes=None):
    sizes = sizes or {}
    terms = expression.partition("->")[0].split(",")
    shape = lambda t: tuple(sizes.get(c, 2 + "abcdefghijklmnopqrstuvwxyz".index(c) % 4) for c in t)  # noqa: E731
    parts = [t.split("...") for t in terms]
    return [
        values(rng, shape(p[0]) + ((3, 2) if len(p) == 2 else ()) + (shape(p[1]) if len(p) == 2 else ()), dtype) for p in parts
    ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int64])
def test_expressions(expression, dtype, rng):
    args = operands(expression, rng, dtype)
    assert_close(mf.einsum(expression, *args), np.einsum(expression, *args), scale=20)


@given(
    st.sampled_from(EXPRESSIONS),
    st.dictionaries(st.sampled_from("abcdijklmnozyx"), st.sampled_from([0, 1, 1, 5])),
    st.integers(0, 2**31),
)
def test_unit_and_empty_modes(expression, sizes, seed):
    args = operands(expression, np.random.default_rng(seed), sizes=sizes)
    assert_close(mf.einsum(expression, *args), np.einsum(expression, *args), scale=20)


def test_repeated_by_broadcasting(rng):
    a, b = values(rng, (1, 4), np.float64), values(rng, (3, 4), np.float64)
    assert_close(mf.einsum("ij,ij->j", a, b), np.einsum("ij,ij->j", a, b), scale=4)


def test_chain(rng):
    a, b, c = values(rng, (3, 2, 4), np.float32), values(rng, (4, 5), np.float32), values(rng, (3, 6, 5), np.float32)
    got = mf.einsum("ijo,ilo->jl", mf.einsum("ijk,ko->ijo", a, b), c)
    assert_close(got, np.einsum("ijk,ko,ilo->jl", a, b, c, dtype=np.float64), scale=10)


@pytest.mark.parametrize("bad", ["ij,jk->ikk", "ij->iz", "ij,jk,kl", "i3->i", "ijk->i", "i..j->i"])
def test_errors(bad):
    terms = bad.count(",") + 1 if bad != "ij,jk,kl" else 2
    with pytest.raises(ValueError, match="einsum"):
        mf.einsum(bad, *[np.ones((2, 2))] * terms)


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="'j' stands for 3 and for 4"):
        mf.einsum("ij,jk", np.ones((2, 3)), np.ones((4, 2)))


def test_integers_keep_their_dtype(rng):
    a, b = values(rng, (3, 4), np.int32), values(rng, (3, 4), np.int32)
    for terms in ("ij->i", "ij,ij", "ij,kj->ik"):
        x = (a, b)[: terms.count(",") + 1]
        got, want = mf.einsum(terms, *x), np.einsum(terms, *x)
        assert got.dtype == want.dtype == np.int32
        np.testing.assert_array_equal(got, want)
    assert mf.einsum("ij,ij", a, b.astype(np.int64)).dtype == np.int64


@pytest.mark.parametrize("axes", [1, 3, ([1], [1]), ([0, 0], [0, 1]), ([0], [0, 1]), ([0, 1], [0, 0])], ids=str)
def test_tensordot_refuses_what_does_not_match(axes):
    a, b = np.ones((2, 3)), np.ones((1, 2))
    with pytest.raises((ValueError, IndexError)):
        np.tensordot(a, b, axes)
    with pytest.raises(ValueError, match="tensordot"):
        mf.linalg.tensordot(a, b, axes=axes)


@pytest.mark.parametrize(
    "labels", [([0, 1], [1, 2], [0, 2]), ([0, 1], [1, 2]), ([0, 1], [2, 0], [2, 1]), ([Ellipsis, 1], [1, 3], [Ellipsis, 3])]
)
def test_arrays_and_lists_of_labels(labels, rng):
    a, b = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    given = (a, labels[0], b, labels[1], *labels[2:])
    np.testing.assert_allclose(mf.einsum(*given), np.einsum(*given))
    got = mf.fuse(lambda x, y: np.einsum(x, labels[0], y, labels[1], *labels[2:], dtype=np.float64))(a.astype(np.float32), b)
    np.testing.assert_allclose(got, np.einsum(a.astype(np.float32), labels[0], b, labels[1], *labels[2:]))
    assert mf.einsum("ij,jk", a, b, dtype="f32").dtype == np.float32


def test_labels_that_are_none_are_refused():
    for arguments in ((np.ones(3), ["i"]), (np.ones(3), [52]), (np.ones(3), 3)):
        with pytest.raises(mf.errors.InvalidError, match="label"):
            mf.einsum(*arguments)
