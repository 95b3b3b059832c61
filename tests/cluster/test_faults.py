"""Ranks that are killed, stopped, raise, hang: the right error in time, then work goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import LaunchTimeout, RankError, ShardLost, WorkerLost
from tests.cluster import kills

IN_TIME = 2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    """A cluster of this module: its workers are killed."""
    with dt.Cluster(workers=4, device="cpu", timeout=60) as one:
        yield one


def gone(cluster: dt.Cluster, pid: int) -> None:
    """Wait until the process of a cluster of one is gone, and the cluster knows."""
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) or cluster.pids == [pid]:
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def works(cluster: dt.Cluster) -> None:
    assert cluster.run(kills.total, timeout=30) == [6.0] * 4


@pytest.mark.parametrize(
    ("situation", "ranks"),
    [
        ("all-reduce of 10", (1,)),
        ("all-reduce of 1M", (3,)),
        ("all-to-all, 5 MB a peer", (2,)),
        ("all-to-all, 5 MB a peer", (0,)),
        ("while the group forms", (1,)),
        ("while the group forms", (0,)),
        ("in a subgroup", (2,)),
        ("no communication", (1,)),
        ("between launches", (2,)),
        ("two at once", (0, 3)),
    ],
)
def test_a_killed_worker(cluster: dt.Cluster, situation: str, ranks: tuple[int, ...]) -> None:
    before = cluster.pids
    trial = kills.kill(cluster, situation, ranks, 0.0)
    assert not trial.faults, trial
    after = cluster.pids
    assert [r for r in range(4) if before[r] != after[r]] == list(ranks)


@pytest.mark.slow
def test_kills_in_a_row_leave_nothing(cluster: dt.Cluster) -> None:
    count = int(os.environ.get("DTOOLKIT_KILLS", "10"))
    trials, leftovers = kills.campaign(cluster, count, seed=1)
    assert [t for t in trials if t.faults] == []
    assert leftovers == []


def test_a_worker_that_ends_itself(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        ctx.comm.barrier()
        if ctx.rank == 1:
            os._exit(3)
        ctx.comm.barrier()

    start = time.monotonic()
    with pytest.raises(WorkerLost, match=r"rank 1 \(tcp://") as caught:
        cluster.run(work)
    assert time.monotonic() - start < IN_TIME
    assert caught.value.ranks == (1,)
    assert "work" in caught.value.operation
    works(cluster)


HANGS = {
    "in a collective": lambda ctx: ctx.comm.barrier(),
    "in a large exchange": lambda ctx: ctx.comm.all_gather(torch.ones(2_000_000)),
    "in recv": lambda ctx: ctx.comm.recv(1, tag=3),
    "in a spin": lambda ctx: exec("while True: pass"),
    "asleep in C": lambda ctx: time.sleep(60),
}


@pytest.mark.parametrize("hang", HANGS)
def test_a_rank_raises_while_the_others_hang(cluster: dt.Cluster, hang: str) -> None:
    def work(ctx: Any, others: Any) -> None:
        if ctx.rank == 1:
            time.sleep(0.05)
            raise KeyError("what went wrong")
        others(ctx)

    pids = cluster.pids
    start = time.monotonic()
    with pytest.raises(RankError) as caught:
        cluster.run(work, HANGS[hang])
    assert time.monotonic() - start < IN_TIME
    error = caught.value
    assert error.rank == 1
    assert error.address == cluster.workers[1].address
    assert error.cause == "KeyError: 'what went wrong'"
    assert "in work" in error.traceback
    assert isinstance(error.__cause__, KeyError)
    works(cluster)
    assert cluster.pids == pids, "no process was lost or replaced"


def test_a_rank_that_exits_the_interpreter(cluster: dt.Cluster) -> None:
    with pytest.raises(RankError, match="SystemExit: 3"):
        cluster.run(lambda ctx: exec("import sys; sys.exit(3)"))
    works(cluster)


def test_an_exception_that_cannot_be_pickled(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        import threading

        class Odd(Exception):
            def __init__(self, a: Any, b: Any) -> None:
                super().__init__("odd words")
                self.lock = threading.Lock()

        raise Odd(1, 2)

    with pytest.raises(RankError, match="Odd: odd words") as caught:
        cluster.run(work)
    assert caught.value.__cause__ is None
    works(cluster)


def test_a_stop_is_not_for_the_functions_own_except(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        if ctx.rank == 0:
            raise ValueError("first")
        while True:
            try:
                ctx.comm.barrier()
            except Exception:
                pass

    start = time.monotonic()
    with pytest.raises(RankError, match="ValueError: first"):
        cluster.run(work)
    assert time.monotonic() - start < IN_TIME
    works(cluster)


def test_a_rank_that_never_comes(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        if ctx.rank == 2:
            time.sleep(60)
        ctx.comm.barrier()

    start = time.monotonic()
    with pytest.raises(LaunchTimeout, match="did not end within 1 s") as caught:
        cluster.run(work, timeout=1)
    assert 1 <= time.monotonic() - start < 2
    assert 2 in caught.value.ranks
    assert isinstance(caught.value, TimeoutError)
    works(cluster)


@pytest.mark.parametrize("function", [kills.small_all_reduces, kills.large_all_to_alls])
def test_a_stopped_worker_goes_on_when_it_is_woken(cluster: dt.Cluster, function: Any) -> None:
    pids = cluster.pids
    launch = cluster.submit(function, timeout=1.5)
    time.sleep(0.3)
    os.kill(pids[1], signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(LaunchTimeout) as caught:
            launch.result(10)
        assert time.monotonic() - start < 1.5 + 1
        assert caught.value.ranks == (1,)
    finally:
        os.kill(pids[1], signal.SIGCONT)
    works(cluster)
    assert cluster.pids == pids


@pytest.mark.parametrize("rank", [0, 2])
def test_a_stopped_worker_is_replaced(cluster: dt.Cluster, rank: int) -> None:
    pids = cluster.pids
    os.kill(pids[rank], signal.SIGSTOP)
    cluster._gang.break_group()  # rank 0 has to host a store, and cannot
    start = time.monotonic()
    with pytest.raises(LaunchTimeout) as caught:
        cluster.run(kills.total, timeout=1)
    assert 1 <= time.monotonic() - start < 2
    assert caught.value.ranks == (rank,)
    works(cluster)
    after = cluster.pids
    assert [r for r in range(4) if pids[r] != after[r]] == [rank]
    assert not psutil.pid_exists(pids[rank])


def test_data_of_a_lost_worker(cluster: dt.Cluster) -> None:
    made: list[list[int]] = []
    source = cluster.keep(lambda ctx: torch.full((10,), float(ctx.rank)))

    def restore(ranks: list[int]) -> None:
        made.append(ranks)
        cluster.put(again, {r: torch.full((10,), float(r)) for r in ranks})

    again = cluster.keep(lambda ctx: torch.full((10,), float(ctx.rank)), restore=restore)
    os.kill(cluster.pids[2], signal.SIGKILL)
    time.sleep(0.3)
    with pytest.raises(ShardLost, match=r"rank\(s\) \[2\]"):
        cluster.run(lambda ctx, x: x, source)
    assert [x[0] for x in cluster.run(lambda ctx, x: x.tolist(), again)] == [0.0, 1.0, 2.0, 3.0]
    assert made == [[2]]
    with pytest.raises((WorkerLost, ShardLost)):
        cluster.fetch(source, 2)


def test_threads_left_behind_do_not_touch_what_comes_after(cluster: dt.Cluster) -> None:
    def late(ctx: Any) -> None:
        if ctx.rank == 0:
            raise ValueError("stop the others")
        time.sleep(1.0)  # in C: its thread is left behind, and wakes up in a later launch

    with pytest.raises(RankError):
        cluster.run(late)

    def work(ctx: Any) -> int:
        end = time.monotonic() + 1.5
        turns = 0
        while ctx.comm.broadcast(torch.tensor(time.monotonic() < end)):
            turns += 1
        return turns

    assert min(cluster.run(work)) > 10


def test_a_stop_leaves_compilers_whole(cluster: dt.Cluster) -> None:
    def compiles(ctx: Any) -> None:
        import numba

        def long(x):  # type: ignore[no-untyped-def]
            return np.sort(np.cumsum(x))[0] * np.sqrt(np.abs(x))[0]

        ctx.comm.barrier()
        if ctx.rank == 0:
            raise ValueError("stop the others")
        numba.njit(long).compile("(float64[::1],)")
        numba.was_here = ctx.rank  # a stop in the middle would not come here
        while True:
            pass

    with pytest.raises(RankError, match="stop the others"):
        cluster.run(compiles)

    def compiled(ctx: Any) -> tuple[int, int]:
        import numba

        end = time.monotonic() + 20  # whoever took longer was left behind, and comes to its end
        while ctx.rank and not hasattr(numba, "was_here") and time.monotonic() < end:
            time.sleep(0.01)
        return getattr(numba, "was_here", 0), numba.njit(lambda x: x + 1)(1)

    assert cluster.run(compiled) == [(0, 2), (1, 2), (2, 2), (3, 2)]


def test_the_only_worker() -> None:
    with dt.Cluster(workers=1, device="cpu") as cluster:
        (pid,) = cluster.pids
        launch = cluster.submit(kills.computing)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            launch.result(10)
        assert cluster.run(lambda ctx: ctx.rank, timeout=20) == [0]


def test_a_worker_that_dies_again_a_while_later() -> None:
    import dask

    # So long after a loss, Dask closes the nanny of a worker that is not there at that moment.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "600ms"}),
        dt.Cluster(workers=1, device="cpu") as cluster,
    ):
        for _ in range(3):
            (pid,) = cluster.pids
            os.kill(pid, signal.SIGKILL)
            lost = time.monotonic()
            gone(cluster, pid)
            time.sleep(max(0.0, lost + 0.55 - time.monotonic()))
            (again,) = cluster.pids
            os.kill(again, signal.SIGKILL)
            gone(cluster, again)
            assert cluster.run(lambda ctx: ctx.rank, timeout=20) == [0]


def test_a_worker_that_dask_ends_for_its_memory_is_lost_and_says_so():
    def eat(ctx):
        held = []
        for _ in range(200 if ctx.rank == 1 else 0):
            held.append(np.ones(1 << 22))  # 32 MiB
            time.sleep(0.02)
        ctx.comm.barrier()

    with dt.Cluster(workers=2, device="cpu", memory_limit="900 MiB") as cluster:
        with pytest.raises(
            WorkerLost, match=r"ended by Dask, since [89]\d\d MiB of memory"
        ) as lost:
            cluster.run(eat)
        assert lost.value.ranks == (1,)
        assert cluster.run(lambda ctx: ctx.rank) == [0, 1]
