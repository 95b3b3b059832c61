"""Dask arrays in and out; elements stay on the workers."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dtoolkit as dt
from dtoolkit.arrays import Layout
from tests.arrays.helpers import layouts, matrix, same


def test_round_trip_over_layouts_and_chunks(cluster3):
    X = matrix(11, 4)
    for layout in layouts(11, 3):
        for chunks in ((3, 2), (11, 4), ((1, 10), (4,))):
            x = dt.distribute(cluster3, da.from_array(X, chunks=chunks), layout)
            assert x.layout == layout
            same(x, X, exact=True)
        back = x.to_dask()
        assert isinstance(back, da.Array)
        np.testing.assert_array_equal(back.compute(), X)
        assert back.dtype == X.dtype


def test_chunks_lie_on_the_ranks_workers(cluster3):
    x = dt.distribute(cluster3, np.arange(9.0))
    array = x.to_dask()
    assert array.chunks == ((3, 3, 3),)
    assert (array * 2).sum().compute() == 72
    where = cluster3.client.who_has(array)
    found = {workers[0] for workers in where.values() if workers}
    assert found == {member.address for member in cluster3.workers}
    x += 1  # a chunk is a copy
    np.testing.assert_array_equal(array.compute(), np.arange(9.0))


def test_chunks_that_lie_on_workers_go_from_worker_to_worker(cluster3):
    array = cluster3.client.persist(da.random.default_rng(1).random((300, 4), chunks=(70, 4)))
    want = cluster3.client.compute(array).result()
    for layout in ("block", "cyclic"):
        same(dt.distribute(cluster3, array, layout), want, exact=True)


def test_dtypes_and_edges(cluster3):
    assert dt.distribute(cluster3, da.arange(7, chunks=2)).dtype.is_floating_point
    same(dt.distribute(cluster3, da.arange(7, chunks=2)), np.arange(7.0))
    same(dt.distribute(cluster3, da.ones(2, chunks=1)), np.ones(2))
    empty = dt.distribute(cluster3, da.zeros((0, 3)))
    assert empty.shape == (0, 3)
    assert empty.to_dask().compute().shape == (0, 3)
    half = dt.arrays.ones(cluster3, 4, dtype="bfloat16").to_dask()
    assert half.dtype == np.float32
    with pytest.raises(ValueError, match="3 dimensions"):
        dt.distribute(cluster3, da.zeros((2, 2, 2)))
    masked = da.from_array(np.arange(6.0), chunks=3)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        dt.distribute(cluster3, masked[masked > 2])


def test_as_a_right_operand(cluster3):
    A = dt.data.uniform(20, 3, seed=0)
    plan = dt.plan(A, parts=3, partition="cyclic")
    B = da.from_array(matrix(20, 2), chunks=7)
    dB = dt.distribute(cluster3, B, plan)
    assert dB.layout == Layout.cyclic(20, 3)
    same(dt.distribute(cluster3, A, plan) @ dB, A @ matrix(20, 2))


def test_sparse_chunks_become_a_sparse_matrix(cluster3):
    S = sparse.random(20, 12, 0.2, random_state=0, format="csr")
    array = da.from_array(S.toarray(), chunks=(7, 12)).map_blocks(sparse.csr_array)
    A = dt.distribute(cluster3, array)
    assert isinstance(A, dt.DistSparse)
    assert A.nnz == S.nnz
    same(A, S.toarray(), exact=True)
