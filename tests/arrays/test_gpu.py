"""The arrays on CUDA against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit import arrays
from tests.arrays.helpers import matrix, same

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def cluster():
    with dt.Cluster(workers=1, device="cuda", timeout=120) as made:
        yield made


def test_shards_lie_on_the_device(cluster):
    x = dt.distribute(cluster, matrix(8, 3))
    assert cluster.run(lambda ctx, shard: shard.is_cuda, x) == [True]
    assert cluster.run(lambda ctx, shard: shard.is_cuda, x * 2 + 1) == [True]


def test_arithmetic_reductions_and_products(cluster):
    X, v = matrix(50, 4), matrix(50, 1, 1).ravel()
    x, d = dt.distribute(cluster, X, "cyclic"), dt.distribute(cluster, v, "cyclic")
    same(np.exp(x) / (1 + abs(x)), np.exp(X) / (1 + abs(X)))
    same(x * d[:, None] + np.arange(4.0), X * v[:, None] + np.arange(4.0))
    same(np.where(x > 0, x, -1), np.where(X > 0, X, -1))
    for axis in (None, 0, 1):
        same(x.sum(axis), X.sum(axis), rtol=1e-12)
        same(x.std(axis), X.std(axis), rtol=1e-12)
        same(x.argmax(axis), X.argmax(axis))
        same(np.linalg.norm(x, axis=axis), np.linalg.norm(X, axis=axis), rtol=1e-12)
    same(x @ np.ones((4, 2)), X @ np.ones((4, 2)))
    same(x.T @ x, X.T @ X, rtol=1e-12)
    same(x.T, X.T, exact=True)


def test_indexing_and_layouts(cluster):
    X = matrix(20, 3)
    x = dt.distribute(cluster, X)
    same(x[[3, 1, 1], :], X[[3, 1, 1]], exact=True)
    same(x[::-2, 0:2], X[::-2, 0:2], exact=True)
    same(x[:, [2, 0]], X[:, [2, 0]], exact=True)
    x[[4, 4, 2]] = [[1, 1, 1], [2, 2, 2], [3, 3, 3]]
    X[[4, 4, 2]] = [[1, 1, 1], [2, 2, 2], [3, 3, 3]]
    x[x < 0] = 0
    same(x, X.clip(0), exact=True)
    same(x.redistribute("cyclic"), X.clip(0), exact=True)
    np.testing.assert_array_equal(x.to_dask().compute(), X.clip(0))


def test_random_numbers_equal_those_of_a_cpu(cluster, cluster2):
    for shape in ((30, 5), 7):
        here = arrays.random(cluster2, shape, seed=3).to_numpy()
        same(arrays.random(cluster, shape, seed=3), here, exact=True)
        normal = arrays.standard_normal(cluster2, shape, seed=3).to_numpy()
        same(arrays.standard_normal(cluster, shape, seed=3), normal, rtol=1e-12)


def test_sparse_values(cluster):
    S = dt.data.uniform(40, 4, seed=0)
    A = dt.distribute(cluster, S)
    d = matrix(40, 1).ravel().astype(np.float32)
    same(A * d, S.toarray() * d, rtol=1e-6)
    same(A * d[:, None], S.toarray() * d[:, None], rtol=1e-6)
    same(A.sum(axis=0), S.sum(axis=0), rtol=1e-5)
    same(A.sum(), S.sum(), rtol=1e-5)
    same(A[[3, 1]], S[[3, 1]].toarray())


def test_stream(cluster):
    result = arrays.stream(cluster, lg=20, trials=5)
    assert result.exact
    assert (result.frame["GB/s"] > 0).all()
