"""Sums, extremes, means and norms against NumPy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dtoolkit as dt
from tests.arrays.helpers import few, laid_out, layouts, matrix, same

AXES = [None, 0, 1, -1, -2, (0, 1)]


@few
@given(data=st.data())
def test_sums_and_products_equal_numpy(cluster_of, data):
    n, layout = data.draw(laid_out(3))
    X = matrix(n, data.draw(st.integers(0, 4)))
    x = dt.distribute(cluster_of(3), X, layout)
    name, axis = data.draw(st.sampled_from(["sum", "prod"])), data.draw(st.sampled_from(AXES))
    keep = data.draw(st.booleans())
    same(getattr(x, name)(axis, keepdims=keep), getattr(X, name)(axis, keepdims=keep))
    truth = data.draw(st.sampled_from(["any", "all"]))
    same(getattr(x > 1, truth)(axis=axis), getattr(X > 1, truth)(axis=axis))


@few
@given(data=st.data())
def test_means_and_deviations_equal_numpy(cluster_of, data):
    n, layout = data.draw(laid_out(3))
    n, layout = (n, layout) if n else (5, layouts(5, 3)[1])
    X = matrix(n, 3) + 1000
    x = dt.distribute(cluster_of(3), X, layout)
    axis, keep = data.draw(st.sampled_from(AXES)), data.draw(st.booleans())
    same(x.mean(axis, keepdims=keep), X.mean(axis, keepdims=keep))
    same(x.var(axis, keepdims=keep), X.var(axis, keepdims=keep), rtol=1e-10)
    same(x.std(axis, keepdims=keep), X.std(axis, keepdims=keep), rtol=1e-10)


@few
@given(data=st.data())
def test_extremes_and_their_first_positions_equal_numpy(cluster_of, data):
    n, layout = data.draw(laid_out(3))
    n, layout = (n, layout) if n else (7, layouts(7, 3)[3])
    # Few values, so that there are ties on several ranks; sometimes NaN, which wins.
    X = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 3, (n, 3)).astype(float)
    if data.draw(st.booleans()):
        X[X == 2] = np.nan
    x = dt.distribute(cluster_of(3), X, layout)
    axis = data.draw(st.sampled_from([None, 0, 1]))
    for name in ("min", "max", "argmin", "argmax"):
        same(getattr(x, name)(axis), getattr(X, name)(axis), exact=True)


def test_vectors(cluster3):
    v = matrix(11, 1).ravel()
    for layout in layouts(11, 3):
        d = dt.distribute(cluster3, v, layout)
        same(d.sum(), v.sum())
        same(d.sum(axis=0, keepdims=True), v.sum(axis=0, keepdims=True))
        same(d.max(axis=-1), v.max())
        assert d.argmin() == v.argmin()
        same(d.std(), v.std())
        assert isinstance(d.sum(), np.float64)


def test_norms_equal_numpy(cluster3):
    X = matrix(9, 4)
    x, v = dt.distribute(cluster3, X, "cyclic"), dt.distribute(cluster3, X[:, 0])
    norm = np.linalg.norm
    for order in (None, "fro", 1, np.inf):
        same(x.norm(order), norm(X, order))
    for order in (None, 0, 1, 2, 3, np.inf, -np.inf):
        for axis in (0, 1):
            same(norm(x, order, axis=axis), norm(X, order, axis=axis))
        same(norm(v, order), norm(X[:, 0], order))
    same(x.norm(axis=1, keepdims=True), norm(X, axis=1, keepdims=True))
    with pytest.raises(ValueError, match="nuc"):
        x.norm("nuc")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "complex64", "complex128"])
def test_dtypes_of_reductions(cluster2, name):
    dtype = getattr(torch, name)
    X = torch.arange(1.0, 13).reshape(6, 2).to(dtype)
    x = dt.distribute(cluster2, X)
    for made, want in [
        (x.sum(dim=0), X.sum(0)),
        (x.mean(dim=0), X.mean(0)),
        (x.prod(dim=1), X.prod(1)),
        (x.std(dim=0), X.std(0)),
        (x.norm(dim=0), torch.linalg.vector_norm(X, dim=0)),
    ]:
        assert made.dtype == want.dtype
        got = made.to_torch() if hasattr(made, "to_torch") else made
        torch.testing.assert_close(got, want)
    if dtype.is_complex:
        with pytest.raises(TypeError, match="complex"):
            x.max()
        with pytest.raises(TypeError, match="complex"):
            x.argmax(axis=0)


def test_booleans_are_counted(cluster3):
    X = matrix(10, 3)
    mask = dt.distribute(cluster3, X) > 0
    assert mask.sum() == (X > 0).sum()
    assert mask.sum().dtype == np.int64
    same(mask.sum(axis=0), (X > 0).sum(axis=0), exact=True)
    same(mask.sum(axis=1), (X > 0).sum(axis=1), exact=True)
    same(mask.mean(), (X > 0).mean())
    same(mask.max(axis=0), (X > 0).max(axis=0))
    assert np.count_nonzero(mask) == (X > 0).sum()


def test_torch_words_bring_torch_kinds_and_defaults(cluster3):
    X = torch.from_numpy(matrix(8, 3))
    x = dt.distribute(cluster3, X)
    assert isinstance(x.sum(dim=0), torch.Tensor)
    torch.testing.assert_close(x.std(dim=0), X.std(dim=0))
    torch.testing.assert_close(x.var(dim=0, correction=0), X.var(dim=0, correction=0))
    torch.testing.assert_close(torch.std(x), torch.std(X))
    values, places = x.max(dim=0)
    torch.testing.assert_close(values, X.max(dim=0).values)
    torch.testing.assert_close(places, X.max(dim=0).indices)
    values, places = torch.min(x, dim=1, keepdim=True)
    same(values, X.min(dim=1, keepdim=True).values)
    same(places, X.min(dim=1, keepdim=True).indices)
    torch.testing.assert_close(torch.amax(x, 0), torch.amax(X, 0))
    torch.testing.assert_close(torch.norm(x), torch.norm(X))


def test_results_repeat_bit_for_bit_and_travel_once(cluster4):
    x = dt.arrays.standard_normal(cluster4, (1000, 5), dtype="float32")
    cluster4.trace.clear()
    first = x.sum(axis=0)
    # A reduce-scatter and an all-gather of 20 bytes; nothing that grows with the rows.
    assert cluster4.trace.matrix(phase="reduce").sum() == cluster4.trace.total <= 2 * 4 * 20
    for _ in range(3):
        assert x.sum(axis=0).tobytes() == first.tobytes()
    cluster4.trace.clear()
    x.sum(axis=1)
    assert cluster4.trace.total == 0


def test_nothing_to_reduce(cluster2):
    x = dt.distribute(cluster2, np.ones((0, 3)))
    same(x.sum(axis=0), np.zeros(3))
    same(x.prod(), 1.0)
    same(x.norm(), 0.0)
    assert np.isnan(x.mean())
    with pytest.raises(ValueError, match="no elements"):
        x.max()
    with pytest.raises(ValueError, match="no elements"):
        x.argmin(axis=0)
    assert x.max(axis=1).shape == (0,)
    for wrong in (2, -3, "rows", 0.5):
        with pytest.raises(ValueError, match="axis="):
            x.sum(axis=wrong)
    with pytest.raises(TypeError, match="no argument 'weights'"):
        x.sum(weights=1)
    with pytest.raises(TypeError, match="not both"):
        x.sum(axis=0, dim=0)
