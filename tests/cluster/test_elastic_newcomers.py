"""Newcomers of elastic launches: told of, taken in, left waiting; spare workers."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import PeerLost, RankError


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=30) as one:
        yield one


def loses(ctx: Any, *ranks: int) -> None:
    """Some ranks end; the others have noticed when this returns."""
    ctx.comm.barrier()
    if ctx.rank in ranks:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            ctx.comm.barrier()
    except PeerLost:
        return


def waits_for(ctx: Any, count: int) -> None:
    """Until so many workers could join."""
    end = time.monotonic() + 20
    while ctx.newcomers != count:
        assert time.monotonic() < end
        time.sleep(0.01)


def total(ctx: Any) -> float:
    """A sum over all ranks, as the number of them."""
    return float(ctx.comm.all_reduce(torch.ones(10))[0])


def test_survivors_alone_and_newcomers_later(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> list[Any]:
        if ctx.joined:
            return ["joined", ctx.rank, total(ctx)]
        seen: list[Any] = [ctx.newcomers]
        loses(ctx, 1, 2)
        waits_for(ctx, 2)
        ctx.rebuild(newcomers=False)
        seen += [ctx.rank, total(ctx)]
        waits_for(ctx, 2)  # they wait still
        ctx.rebuild()
        return [*seen, ctx.rank, total(ctx), ctx.newcomers]

    answers = cluster.run(work, elastic=True)
    assert answers[:2] == [[0, 0, 2.0, 0, 4.0, 0], [0, 1, 2.0, 1, 4.0, 0]]
    assert answers[2:] == [["joined", 2, 4.0], ["joined", 3, 4.0]]


def test_one_that_does_not_want_them_is_enough(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[int, float]:
        loses(ctx, 3)
        waits_for(ctx, 1)
        ctx.rebuild(newcomers=ctx.rank != 0)
        return ctx.size, total(ctx)

    assert cluster.run(work, elastic=True) == [(3, 3.0)] * 3


def test_newcomers_that_go_again_before_they_are_taken_in(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[int, float]:
        if not ctx.joined:
            loses(ctx, 0)
            waits_for(ctx, 1)
            ctx.log(ready=1)
            waits_for(ctx, 0)
            waits_for(ctx, 1)
            ctx.rebuild()
        return ctx.size, total(ctx)

    launch = cluster.submit(work, elastic=True)
    end = time.monotonic() + 20
    while len(launch.events) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    (newcomer,) = cluster._gang.drives[launch.number].state.waiting
    os.kill(cluster._gang.roster._known[newcomer].pid, signal.SIGKILL)
    assert launch.result(30) == [(4, 4.0)] * 4


def test_a_launch_that_is_whole_has_no_newcomers(cluster: dt.Cluster) -> None:
    assert cluster.run(lambda ctx: ctx.newcomers, elastic=True) == [0] * 4
    assert cluster.run(lambda ctx: ctx.newcomers) == [0] * 4


def test_a_size_without_newcomers_is_refused(cluster: dt.Cluster) -> None:
    with pytest.raises(RankError, match="rebuild: size=4 waits for newcomers"):
        cluster.run(lambda ctx: ctx.rebuild(4, newcomers=False), elastic=True)


def test_a_spare_worker_takes_the_place() -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None
        ) as workers,
        Client(workers, set_as_default=False) as client,
        dt.Cluster(client=client, workers=2, timeout=30) as cluster,
    ):
        spare = set(client.scheduler_info()["workers"]) - {m.address for m in cluster.workers}
        # It has imported what it takes to join, else the replacement may be there before it.
        client.run(importlib.import_module, "dtoolkit.cluster.runtime", workers=list(spare))

        def work(ctx: Any) -> tuple[str, float]:
            if not ctx.joined:
                assert ctx.newcomers == 0
                loses(ctx, 0)
                waits_for(ctx, 1)  # the replacement is not needed, nor waited for
                ctx.rebuild()
            return ctx.address, total(ctx)

        answers = cluster.run(work, elastic=True)
        assert [total for _, total in answers] == [2.0, 2.0]
        assert {answers[0][0]} == spare
