"""Products by small matrices and over the rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.arrays import RedistributionWarning
from dtoolkit.arrays.products import inner
from tests.arrays.helpers import few, laid_out, matrix, same


@few
@given(data=st.data())
def test_products_equal_numpy(cluster_of, data):
    cluster = cluster_of(3)
    n, layout = data.draw(laid_out(3))
    k, m = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 3))
    X, Y, W, v = matrix(n, k), matrix(n, m, 1), matrix(k, m, 2), matrix(n, 1, 3).ravel()
    x, y = dt.distribute(cluster, X, layout), dt.distribute(cluster, Y, layout)
    d = dt.distribute(cluster, v, layout)
    same(x @ W, X @ W)
    same(x @ torch.from_numpy(W[:, 0].copy()), X @ W[:, 0])
    same(x @ dt.distribute(cluster, W), X @ W)
    same(x.T @ y, X.T @ Y)
    same(x.T @ Y, X.T @ Y)
    same(x.T @ d, X.T @ v)
    same(d @ y, v @ Y)
    same(d @ d, v @ v)
    same(Y.T @ x, Y.T @ X)
    same(v @ x, v @ X)
    same(W.T @ x.T, W.T @ X.T)


def test_a_gram_matrix_is_one_small_all_reduce(cluster3):
    x = dt.arrays.standard_normal(cluster3, (3000, 4))
    cluster3.trace.clear()
    gram = x.T @ x
    assert isinstance(gram, np.ndarray)
    assert gram.shape == (4, 4)
    # An all-reduce of 128 bytes: each rank sends its parts and its share of the sum to two others.
    assert cluster3.trace.matrix(phase="inner").sum() == cluster3.trace.total
    assert cluster3.trace.total <= 2 * 3 * 128
    same(gram, x.to_numpy().T @ x.to_numpy(), rtol=1e-10)


def test_numpy_and_torch_functions(cluster2):
    X, W = matrix(6, 3), matrix(3, 2)
    x = dt.distribute(cluster2, X)
    for made in (np.dot(x, W), np.matmul(x, W), torch.matmul(x, torch.from_numpy(W)), x.dot(W)):
        same(made, X @ W)
    same(torch.mm(torch.ones(2, 6, dtype=torch.float64), x), np.ones((2, 6)) @ X)
    same(torch.ones(6, dtype=torch.float64) @ x, np.ones(6) @ X)
    same(np.dot(x, 2), X * 2)
    same(x.dot(2), X * 2)


def test_dtypes_promote(cluster2):
    x = dt.distribute(cluster2, np.ones((4, 3), np.float32))
    assert (x @ np.ones((3, 2), np.float32)).dtype == torch.float32
    assert (x @ np.ones((3, 2))).dtype == torch.float64
    assert (x @ (1j * np.ones(3))).dtype == torch.complex128
    assert (x.T @ x).dtype == np.float32


def test_layouts_that_differ_are_moved(cluster2):
    X = matrix(6, 2)
    x, y = dt.distribute(cluster2, X), dt.distribute(cluster2, X, "cyclic")
    with pytest.warns(RedistributionWarning):
        same(x.T @ y, X.T @ X)


def test_shapes_that_do_not_fit_are_refused(cluster2):
    x, v = dt.distribute(cluster2, np.ones((4, 3))), dt.distribute(cluster2, np.ones(4))
    for left, right in [(x, np.ones((4, 2))), (x, v), (v, np.ones(3)), (np.ones((2, 3)), x)]:
        with pytest.raises(ValueError, match="do not go together"):
            left @ right
    with pytest.raises(ValueError, match="number"):
        x @ 2
    with pytest.raises(TypeError, match="sparse"):
        x @ dt.data.uniform(3, 1, seed=0)


def test_functions_of_a_launch_can_sum_over_rows(cluster3):
    X = matrix(7, 2)
    x = dt.distribute(cluster3, X, "cyclic")
    grams = cluster3.run(lambda ctx, shard: inner(ctx, shard, shard).numpy(), x)
    for gram in grams:
        same(gram, grams[0], exact=True)
        same(gram, X.T @ X)
