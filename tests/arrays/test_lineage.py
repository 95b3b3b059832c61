"""Shards of killed workers are made again where their source is known; memory is freed."""

from __future__ import annotations

import gc
import os
import signal
import time

import dask.array as da
import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit import arrays
from tests.arrays.helpers import matrix, same


@pytest.fixture(scope="module")
def cluster():
    with dt.Cluster(workers=3, device="cpu", timeout=60) as made:
        yield made


def kill(cluster: dt.Cluster, rank: int) -> None:
    """End a worker as a crash would, and wait until another has its rank."""
    pid = cluster.pids[rank]
    os.kill(pid, signal.SIGKILL)
    end = time.perf_counter() + 30
    while cluster.pids[rank] == pid and time.perf_counter() < end:
        time.sleep(0.02)


def test_what_has_a_source_is_made_again(cluster):
    X = matrix(20, 3)
    S = dt.data.uniform(20, 3, seed=0).astype(np.float64)
    x = dt.distribute(cluster, X, "cyclic")
    A = dt.distribute(cluster, S)
    B = A * 2
    made = arrays.random(cluster, (20, 3), seed=5)
    numbers = made.to_numpy()
    turned, chosen, product, back = x.T, x[3:17:2], A @ X, A.T @ X
    chain = np.exp((x * 2 + X) @ np.ones((3, 2)) / 4)  # what it was computed from is freed
    loop = x
    for _ in range(50):
        loop = loop * 0.5 + 1  # more links than are remembered
    orphan = dt.distribute(cluster, X) + 1  # its source is freed
    kill(cluster, 1)
    same(x, X, exact=True)
    same(made, numbers, exact=True)
    same(turned, X.T, exact=True)
    same(chosen, X[3:17:2], exact=True)
    same(product, S @ X)
    same(back, S.T @ X)
    same(B, 2 * S.toarray())
    same(chain, np.exp((3 * X) @ np.ones((3, 2)) / 4))
    for lost in (loop, orphan):
        with pytest.raises(dt.errors.ShardLost, match="freed or changed"):
            lost.to_numpy()
    same(x.sum(axis=0), X.sum(axis=0))
    same(A @ x.redistribute("block"), S @ X)


def test_changes_in_place_are_not_undone(cluster):
    X = matrix(9, 2)
    x = dt.distribute(cluster, X)
    y, z = x + 1, x * 2 + 1
    x += 1
    w = (x + 1) * 2
    kill(cluster, 0)
    for lost in (x, y, z, w):
        with pytest.raises(dt.errors.ShardLost, match="rank"):
            lost.to_numpy()
    with pytest.raises(dt.errors.ShardLost):
        x * 2
    same(dt.distribute(cluster, X) + 1, X + 1)  # the cluster is whole again


def test_dask_arrays_are_a_source(cluster):
    X = matrix(10, 2)
    x = dt.distribute(cluster, da.from_array(X, chunks=4), "cyclic")
    kill(cluster, 2)
    same(x, X, exact=True)


def test_functions_that_write_into_shards_say_so(cluster):
    x = dt.distribute(cluster, np.ones(6))
    y = x * 2
    cluster.run(lambda ctx, shard: shard.add_(1) is None, x)
    x.changed()
    assert x.version == 1
    kill(cluster, 1)
    for lost in (x, y):
        with pytest.raises(dt.errors.ShardLost):
            lost.sum()


def test_memory_is_freed_with_the_handle(cluster):
    # Without help from the garbage collector: nothing holds a handle in a cycle.
    gc.collect()
    gc.disable()
    try:
        before = sum(cluster.held)
        x = arrays.ones(cluster, (50_000, 4))
        y, z = x + 1, dt.distribute(cluster, np.ones(1000))
        A = dt.distribute(cluster, dt.data.uniform(1000, 3, seed=0))
        assert sum(cluster.held) > before + 2 * 50_000 * 4 * 8
        del x, y, z, A
        end = time.perf_counter() + 10
        while sum(cluster.held) > before and time.perf_counter() < end:
            time.sleep(0.02)
        assert sum(cluster.held) == before
    finally:
        gc.enable()
