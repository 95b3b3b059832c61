"""A worker that is lost, raises or stops inside a product, and the same product afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit.errors import LaunchTimeout, RankError, WorkerLost

PROMPT = 2.0  # seconds


@pytest.fixture(scope="module")
def own():
    """A cluster that these tests may hurt, with a matrix and its product."""
    A = dt.data.uniform(20_000, 8, seed=0, values="normal", dtype=np.float64)
    B = np.random.default_rng(0).standard_normal((20_000, 64))
    with dt.Cluster(workers=4) as cluster:
        plan = dt.plan(A, parts=4)
        yield cluster, dt.distribute(cluster, A, plan), dt.distribute(cluster, B, plan), A @ B


def many_products(ctx, A, B, seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        dt.spmm.product(ctx, A, B)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a_killed_worker_is_named_and_the_product_runs_again(own, rank):
    cluster, dA, dB, wanted = own
    pid = cluster.pids[rank]
    launch = cluster.submit(many_products, dA, dB, 60.0)
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    killed = time.perf_counter()
    with pytest.raises(WorkerLost, match=f"rank {rank}") as caught:
        launch.result(30)
    assert time.perf_counter() - killed < PROMPT
    assert caught.value.rank == rank
    np.testing.assert_allclose((dA @ dB).to_numpy(), wanted, atol=1e-10)
    np.testing.assert_allclose((dA.T @ (dA @ dB)).to_numpy(), dA.to_scipy().T @ wanted, atol=1e-8)


@pytest.mark.parametrize("rank", [0, 3])
def test_a_worker_killed_half_way_through_one_large_product(own, rank):
    cluster, dA, _, _ = own
    dB = dt.arrays.full(cluster, (20_000, 1024), 1.0, layout=dA.columns, dtype="float64")
    dA @ dB
    start = time.perf_counter()
    wanted = (dA @ dB)[:, :3].to_numpy()
    half = (time.perf_counter() - start) / 2
    killed = []

    def kill(pid):
        killed.append(time.perf_counter())
        os.kill(pid, signal.SIGKILL)

    def products():
        while not killed or time.perf_counter() - killed[0] < PROMPT:
            dA @ dB

    threading.Timer(half, kill, [cluster.pids[rank]]).start()
    with pytest.raises(WorkerLost, match=f"rank {rank}"):
        products()
    assert time.perf_counter() - killed[0] < PROMPT
    assert (dA @ dB)[:, :3].to_numpy().tobytes() == wanted.tobytes()


def test_a_result_is_computed_again_where_its_shard_was_lost(own):
    cluster, dA, dB, wanted = own
    C = dA @ dB
    before = cluster.pids
    os.kill(before[2], signal.SIGKILL)
    end = time.perf_counter() + 10
    while cluster.pids == before and time.perf_counter() < end:
        time.sleep(0.02)  # a launch in this moment would still find the worker, and lose it
    np.testing.assert_allclose((C + 0.0).to_numpy(), wanted, atol=1e-10)


def test_a_rank_that_raises_leaves_the_others_usable(own):
    cluster, dA, dB, wanted = own

    def broken(ctx, A, B):
        if ctx.rank == 1:
            raise ArithmeticError("on purpose")
        return dt.spmm.product(ctx, A, B)

    before = cluster.pids
    start = time.perf_counter()
    with pytest.raises(RankError, match="on purpose") as caught:
        cluster.run(broken, dA, dB)
    assert time.perf_counter() - start < PROMPT
    assert caught.value.rank == 1
    assert cluster.pids == before
    np.testing.assert_allclose((dA @ dB).to_numpy(), wanted, atol=1e-10)


def test_a_stopped_worker_ends_the_launch_at_its_deadline(own):
    cluster, dA, dB, wanted = own
    os.kill(cluster.pids[3], signal.SIGSTOP)
    start = time.perf_counter()
    with pytest.raises(LaunchTimeout) as caught:
        cluster.run(many_products, dA, dB, 0.5, timeout=2.0)
    assert 2.0 <= time.perf_counter() - start < 3.0
    assert caught.value.ranks == (3,)
    # It does not answer: it is replaced, and its shards are made again.
    np.testing.assert_allclose((dA @ dB).to_numpy(), wanted, atol=1e-10)


def test_ranks_that_disagree_on_the_operand_are_told(own):
    cluster, dA, dB, _ = own

    def uneven(ctx, A, B):
        return dt.spmm.product(ctx, A, B[:, : 8 + ctx.rank])

    with pytest.raises(RankError, match="MessageMismatch"):
        cluster.run(uneven, dA, dB)
