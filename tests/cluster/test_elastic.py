"""Elastic launches: losses, the next group, newcomers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import PeerLost, RankError, WorkerLost

STEPS = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=60) as one:
        yield one


def train(ctx: Any, elements: int, size: int | None) -> dict[str, Any]:
    """Count steps together; whoever is behind learns the state from the one that is ahead."""
    state, step = torch.zeros(3), 0
    lost: list[tuple[int, ...]] = []
    agreed = not ctx.joined
    while True:
        try:
            if not agreed:
                steps = ctx.comm.all_gather(torch.tensor([step])).flatten()
                ahead = int(steps.argmax())
                state = ctx.comm.broadcast(state if ctx.rank == ahead else None, ahead)
                step, agreed = int(steps.max()), True
            while step < STEPS:
                ctx.step(step)
                total = ctx.comm.all_reduce(torch.ones(elements))
                state, step = state + total[:3] / ctx.size, step + 1
                time.sleep(0.005)
            return {
                "rank": ctx.rank,
                "size": ctx.size,
                "joined": ctx.joined,
                "state": state.tolist(),
                "lost": lost,
            }
        except PeerLost as error:
            lost.append(error.ranks)
            ctx.rebuild(size, timeout=10)
            agreed = False


def started(launch: Any, steps: int = 3) -> None:
    end = time.monotonic() + 20
    while len(launch.events) < 4 * steps:
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("elements", [10, 300_000])
@pytest.mark.parametrize("victim", [0, 2], ids=["owner of the store", "another"])
def test_survivors_go_on(cluster: dt.Cluster, elements: int, victim: int) -> None:
    pids = cluster.pids
    launch = cluster.submit(train, elements, None, elastic=True)
    started(launch)
    os.kill(pids[victim], signal.SIGKILL)
    answers = launch.result(40)
    # The replacement may be there before all have asked for the next group; then it is in it.
    assert len(answers) in (3, 4)
    assert [a["rank"] for a in answers] == list(range(len(answers)))
    for answer in answers:
        assert answer["state"] == [float(STEPS)] * 3
        assert answer["size"] == len(answers)
        if not answer["joined"]:
            assert answer["lost"] == [(victim,)]
    assert cluster.run(lambda ctx: ctx.size) == [4] * 4


def test_newcomers_take_the_free_ranks(cluster: dt.Cluster) -> None:
    pids = cluster.pids
    launch = cluster.submit(train, 100, 4, elastic=True)
    started(launch)
    for victim in (1, 3):
        os.kill(pids[victim], signal.SIGKILL)
    answers = launch.result(40)
    assert [a["size"] for a in answers] == [4] * 4
    assert [a["joined"] for a in answers] == [False, True, False, True]
    assert all(a["state"] == [float(STEPS)] * 3 for a in answers)
    assert {r for a in answers[::2] for lost in a["lost"] for r in lost} <= {1, 3}
    assert cluster.trace.filter(launch=launch.number).matrix().shape == (4, 4)


def test_a_loss_during_rebuild(cluster: dt.Cluster) -> None:
    pids = cluster.pids

    def work(ctx: Any) -> tuple[int, int]:
        import os as system

        if ctx.joined:
            return ctx.comm.all_reduce(torch.ones(1)).item(), ctx.size
        try:
            while True:
                ctx.step(0)
                ctx.comm.barrier()
        except PeerLost:
            if ctx.rank == 2:
                system._exit(1)
            ctx.rebuild(4, timeout=15)
        while True:
            try:
                return ctx.comm.all_reduce(torch.ones(1)).item(), ctx.size
            except PeerLost:
                ctx.rebuild(4, timeout=15)

    launch = cluster.submit(work, elastic=True)
    started(launch)
    os.kill(pids[0], signal.SIGKILL)
    assert launch.result(40) == [(4.0, 4)] * 4


def test_subgroups_are_cut_too_and_locals_stay(cluster: dt.Cluster) -> None:
    pids = cluster.pids

    def work(ctx: Any) -> Any:
        mine = [ctx.rank]
        if not ctx.joined:
            pair = ctx.comm.split(ctx.rank % 2)
            ctx.step(0)
            try:
                while True:
                    pair.all_reduce(torch.ones(10))
            except PeerLost as error:
                mine.append(error.ranks)
                ctx.rebuild()
        try:
            again = ctx.comm.split(0)
            return mine, again.all_reduce(torch.ones(1)).item() == ctx.size
        except PeerLost:
            return mine, "lost again"

    launch = cluster.submit(work, elastic=True)
    started(launch, steps=1)
    time.sleep(0.1)
    os.kill(pids[3], signal.SIGKILL)
    answers = launch.result(40)
    assert [a[0] for a in answers[:3]] == [[r, (3,)] for r in range(3)]
    assert all(a[1] is True for a in answers)


def test_a_size_that_never_comes(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> int:
        ctx.rebuild(size=9, timeout=0.5)
        return ctx.size

    start = time.monotonic()
    assert cluster.run(work, elastic=True) == [4] * 4
    assert time.monotonic() - start < 5


def test_rebuild_without_a_loss(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> float:
        for _ in range(3):
            ctx.comm.all_reduce(torch.ones(1000))
            ctx.rebuild()
        return ctx.comm.all_reduce(torch.ones(1)).item()

    assert cluster.run(work, elastic=True, timeout=30) == [4.0] * 4


def test_an_exception_ends_an_elastic_launch(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        if ctx.rank == 2:
            raise ValueError("mine")
        while True:
            try:
                ctx.comm.barrier()
            except PeerLost:
                ctx.rebuild()

    with pytest.raises(RankError, match="ValueError: mine") as caught:
        cluster.run(work, elastic=True, timeout=20)
    assert caught.value.rank == 2
    assert cluster.run(lambda ctx: ctx.comm.all_reduce(torch.ones(1)).item()) == [4.0] * 4


def test_all_are_lost() -> None:
    with dt.Cluster(workers=2, device="cpu") as pair:
        pids = pair.pids
        launch = pair.submit(train, 10, 2, elastic=True)
        time.sleep(0.2)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLost) as caught:
            launch.result(30)
        assert set(caught.value.ranks) == {0, 1}
        assert pair.run(lambda ctx: ctx.size) == [2, 2]


def test_rebuild_needs_an_elastic_launch(cluster: dt.Cluster) -> None:
    with pytest.raises(RankError, match="elastic=True"):
        cluster.run(lambda ctx: ctx.rebuild())
