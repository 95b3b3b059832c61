"""Ranks that give no sign of life are ended, those that do are left alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import PeerLost, WorkerLost


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=3, device="cpu", timeout=60) as one:
        yield one


def stops(ctx: Any) -> None:
    """The whole process stands still."""
    os.kill(os.getpid(), signal.SIGSTOP)


def spins(ctx: Any) -> None:
    """The rank computes and computes; its worker answers."""
    while True:
        torch.ones(100).sum()


def sleeps(ctx: Any) -> None:
    """The rank is in C, where nothing can be raised."""
    time.sleep(60)


@pytest.mark.parametrize("hang", [stops, spins, sleeps])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_hung_rank_ends_the_launch(cluster: dt.Cluster, hang: Any, rank: int) -> None:
    def work(ctx: Any) -> None:
        ctx.comm.barrier()
        if ctx.rank == rank:
            hang(ctx)
        ctx.comm.all_reduce(torch.ones(100))

    pids = cluster.pids
    with pytest.raises(WorkerLost, match=r"gave no sign for 0\.5 s") as caught:
        cluster.run(work, deadline=0.5, timeout=30)
    assert (caught.value.ranks, caught.value.hung) == ((rank,), (rank,))
    end = time.monotonic() + 10
    while psutil.pid_exists(pids[rank]) and time.monotonic() < end:
        time.sleep(0.01)
    assert not psutil.pid_exists(pids[rank])
    after = cluster.pids
    assert [r for r in range(3) if pids[r] != after[r]] == [rank]


@pytest.mark.parametrize("hang", [stops, sleeps])
def test_an_elastic_launch_goes_on_without_it(cluster: dt.Cluster, hang: Any) -> None:
    def work(ctx: Any) -> Any:
        lost = None
        if not ctx.joined:
            try:
                ctx.comm.barrier()
                if ctx.rank == 1:
                    hang(ctx)
                ctx.comm.all_reduce(torch.ones(100))
            except PeerLost as error:
                lost = error.ranks, error.hung, "gave no sign for 0.5 s" in str(error)
                ctx.rebuild(3)
        return ctx.joined, lost, float(ctx.comm.all_reduce(torch.ones(1)))

    answers = cluster.run(work, elastic=True, deadline=0.5, timeout=30)
    survived = (False, ((1,), (1,), True), 3.0)
    assert answers == [survived, (True, None, 3.0), survived]


def test_who_gives_signs_is_left_alone(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> int:
        comm = ctx.comm
        for turn in range(3):  # one works and says so, the others wait for it much longer
            if ctx.rank == turn:
                for _ in range(6):
                    time.sleep(0.25)
                    (ctx.step, ctx.log, ctx.expose)[turn](*((1,), (), ("a", dict))[turn])
            comm.barrier()
        for _ in range(5):  # operations are signs, however short
            if ctx.rank == 0:
                time.sleep(0.25)
                comm.send(torch.ones(1), 1)
            elif ctx.rank == 1:
                comm.recv()
        return os.getpid()

    assert cluster.run(work, deadline=1, timeout=30) == cluster.pids


def test_imports_and_loading_are_no_hang(cluster: dt.Cluster, tmp_path: Any) -> None:
    class Slow:
        def __reduce__(self) -> Any:
            return time.sleep, (1.2,)

    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(1.2)\n")

    def work(ctx: Any, argument: Any, folder: str) -> int:
        import sys

        sys.path.insert(0, folder)
        import slow_to_import  # noqa: F401

        return os.getpid()

    pids = cluster.pids
    assert cluster.run(work, Slow(), str(tmp_path), deadline=0.5) == pids


def test_a_client_that_stands_still_sees_no_hang(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> int:
        for step in range(30):
            time.sleep(0.1)
            ctx.step(step)
        return os.getpid()

    pids = cluster.pids
    launch = cluster.submit(work, deadline=0.5, timeout=30)
    time.sleep(0.4)
    for _ in range(2):
        cluster._gang.loop.call_soon_threadsafe(time.sleep, 1.0)
        time.sleep(1.2)
    assert launch.result(20) == pids


def test_a_rank_that_stops_for_a_moment(cluster: dt.Cluster) -> None:
    pids = cluster.pids
    launch = cluster.submit(lambda ctx: time.sleep(1.5), deadline=3, timeout=30)
    time.sleep(0.3)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(0.7)
    os.kill(pids[1], signal.SIGCONT)
    launch.result(20)
    assert cluster.pids == pids


def test_the_host_of_the_next_group_is_stopped(cluster: dt.Cluster) -> None:
    pids = cluster.pids
    cluster._gang.break_group()
    os.kill(pids[0], signal.SIGSTOP)
    # Nothing has begun yet: another takes its place.
    assert cluster.run(lambda ctx: ctx.size, deadline=0.5, timeout=8) == [3] * 3
    assert cluster.pids[0] != pids[0]


def test_one_that_is_stopped_before_the_launch(cluster: dt.Cluster) -> None:
    pids = cluster.pids
    os.kill(pids[2], signal.SIGSTOP)
    with pytest.raises(WorkerLost) as caught:
        cluster.run(lambda ctx: ctx.comm.barrier(), deadline=0.5, timeout=30)
    assert caught.value.hung == (2,)
    assert cluster.run(lambda ctx: ctx.size) == [3] * 3


def test_a_deadline_that_makes_no_sense(cluster: dt.Cluster) -> None:
    with pytest.raises(ValueError, match="deadline must be a positive number of seconds"):
        cluster.run(print, deadline=0)
    with pytest.raises(TypeError, match="deadline must be a number of seconds"):
        cluster.run(print, deadline="2s")  # type: ignore[arg-type]


def test_workers_of_others_are_ended_by_their_nannies() -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as workers,
        Client(workers, set_as_default=False) as client,
        dt.Cluster(client=client, workers=2, timeout=60) as cluster,
    ):
        pids = cluster.pids

        def work(ctx: Any) -> int:
            ctx.comm.barrier()
            if ctx.rank == 1:
                stops(ctx)
            ctx.comm.barrier()
            return 0

        with pytest.raises(WorkerLost) as caught:
            cluster.run(work, deadline=1, timeout=30)
        assert caught.value.hung == (1,)
        after = cluster.pids
        assert after[0] == pids[0]
        assert after[1] != pids[1]
