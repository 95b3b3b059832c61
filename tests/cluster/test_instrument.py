"""Instruments on launches: what they are told, what they can do, what they say on the client."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.cluster import Site
from dtoolkit.comm.standing import StandingGather, StandingSum
from dtoolkit.errors import PeerLost, RankError, WorkerLost


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=3, device="cpu", timeout=60) as one:
        yield one


class Told:
    """Does on each rank what it is given, and keeps what its copies say."""

    def __init__(self, work: Callable[[Site], object] = lambda site: None) -> None:
        self.work = work
        self.messages: list[dict[str, Any]] = []

    def attach(self, site: Site) -> None:
        self.work(site)

    def heard(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def of(self, rank: int) -> list[Any]:
        return [m["said"] for m in self.messages if m["rank"] == rank]


def saying(site: Site, *said: Any) -> None:
    site.announce({"rank": site.rank, "said": list(said)})


def watches(site: Site) -> None:
    site.on_step(lambda step: saying(site, "step", step))
    site.on_operation(lambda operation, phase, number: saying(site, operation, phase, number))


def test_steps_and_operations_in_their_order(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        ctx.step(5)
        ctx.comm.all_reduce(torch.ones(2))
        with ctx.comm.phase("halo"):
            ctx.comm.all_gather(torch.ones(2), wait=False).wait()
        ctx.step(6, report=False)
        ctx.comm.all_reduce(torch.ones(2))

    told = Told(watches)
    launch = cluster.submit(work, instruments=[told])
    launch.result()
    seen = [
        ["step", 5],
        ["all_reduce", "", 0],
        ["all_gather", "halo", 0],
        ["step", 6],
        ["all_reduce", "", 1],
    ]
    assert [told.of(rank) for rank in range(3)] == [seen] * 3
    assert [event["step"] for event in launch.events] == [5] * 3


def test_every_kind_of_operation_is_told(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        comm = ctx.comm
        part = comm.split(0)
        part.barrier()
        if ctx.rank < 2:
            comm.send(torch.ones(1), 1) if ctx.rank == 0 else comm.recv(0)
        StandingSum(comm, torch.ones(3)).start().wait()
        StandingGather(comm, torch.ones(3)).run()
        rows, out = torch.ones(3, 2), torch.empty(3, 2)
        comm.all_to_all_v(rows, [1] * 3, [1] * 3, out=out, agreed=True)
        comm.twin().broadcast(torch.ones(1))

    told = Told(watches)
    cluster.run(work, instruments=[told])
    names = [name for name, *_ in told.of(0)]
    standing = ["all_gather", "all_reduce", "all_gather", "all_gather"]  # each compares sizes once
    assert names == ["split", "barrier", "send", *standing, "all_to_all_v", "split", "broadcast"]
    assert [name for name, *_ in told.of(1)][2] == "recv"
    numbers = [number for name, _, number in told.of(2) if name == "all_gather"]
    assert numbers == [0, 1, 2]


def test_who_dies_next_has_been_heard(cluster: dt.Cluster) -> None:
    def dies(site: Site) -> None:
        def before(operation: str, phase: str, number: int) -> None:
            if site.rank == 1 and number == 3:
                saying(site, "last words")
                os.kill(os.getpid(), signal.SIGKILL)

        site.on_operation(before)

    def work(ctx: Any) -> None:
        while True:
            ctx.comm.barrier()

    for _ in range(5):
        told = Told(dies)
        with pytest.raises(WorkerLost) as caught:
            cluster.run(work, instruments=[told])
        assert caught.value.ranks == (1,)
        assert told.of(1) == [["last words"]]


def test_what_a_site_tells(cluster: dt.Cluster) -> None:
    def tells(site: Site) -> None:
        saying(site, site.size, site.joined, site.launch, site.clock() >= site.started)
        site.on_rebuild(lambda: saying(site, "rebuilt", site.size, site.comm.size))

    def work(ctx: Any) -> None:
        ctx.rebuild()

    told = Told(tells)
    launch = cluster.submit(work, elastic=True, instruments=[told])
    launch.result()
    assert told.of(2) == [[3, False, launch.number, True], ["rebuilt", 3, 3]]
    assert launch.events == []


def test_state_that_is_shown_can_be_changed(cluster: dt.Cluster) -> None:
    def spoils(site: Site) -> None:
        def state(name: str, get: Callable[[], dict[str, torch.Tensor]]) -> None:
            if site.rank == 1 and name == "gradients":
                get()["weight"][2] = float("nan")

        site.on_state(state)

    def work(ctx: Any) -> list[bool]:
        weight = torch.zeros(3)
        ctx.expose("gradients", lambda: {"weight": weight})
        ctx.expose("parameters", lambda: 1 / 0)  # nobody asks for them
        return weight.isnan().tolist()

    clean = [False] * 3
    assert cluster.run(work) == [clean] * 3
    assert cluster.run(work, instruments=[Told(spoils)]) == [clean, [False, False, True], clean]


def test_timers_ring_until_the_launch_ends(cluster: dt.Cluster) -> None:
    def rings(site: Site) -> None:
        site.at(0.01, lambda: saying(site, threading.current_thread().name))
        site.at(0.6, lambda: saying(site, "too late"))

    told = Told(rings)
    cluster.run(lambda ctx: time.sleep(0.2), instruments=[told])
    cluster.run(lambda ctx: time.sleep(0.6))
    assert [told.of(rank) for rank in range(3)] == [[["dtoolkit-timer"]]] * 3


def test_all_launches_inside_a_block(cluster: dt.Cluster) -> None:
    outer, inner = Told(watches), Told(watches)
    with cluster.instrumented(outer):
        kept = cluster.keep(lambda ctx: ctx.comm.barrier())
        with cluster.instrumented(inner):
            cluster.run(lambda ctx, _: ctx.comm.barrier(), kept)
    cluster.run(lambda ctx: ctx.comm.barrier())
    assert (outer.of(0), inner.of(0)) == ([["barrier", "", 0]] * 2, [["barrier", "", 0]])


def test_what_is_raised_in_a_hook_comes_out_where_it_was_called(cluster: dt.Cluster) -> None:
    def refuses(site: Site) -> None:
        def step(number: int) -> None:
            if number == 2 and site.rank == 0:
                raise ZeroDivisionError("by an instrument")

        site.on_step(step)

    def work(ctx: Any) -> None:
        for step in range(4):
            ctx.step(step)
            ctx.comm.barrier()

    with pytest.raises(RankError, match="by an instrument") as caught:
        cluster.run(work, instruments=[Told(refuses)])
    assert caught.value.rank == 0


def test_one_that_fails_to_hear_does_no_harm(cluster: dt.Cluster) -> None:
    class Deaf(Told):
        def heard(self, message: dict[str, Any]) -> None:
            raise ValueError("what?")

    told = Told(watches)
    assert cluster.run(lambda ctx: ctx.comm.barrier(), instruments=[Deaf(watches), told])
    assert len(told.messages) == 3


def test_what_cannot_be_attached(cluster: dt.Cluster) -> None:
    with pytest.raises(TypeError, match=r"instruments\[1\] must have attach\(site\)"):
        cluster.run(print, instruments=[Told(), "no"])  # type: ignore[list-item]
    unpicklable = Told()
    unpicklable.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="cannot be pickled"):
        cluster.submit(print, instruments=[unpicklable])
    with (
        pytest.raises(TypeError, match="must have attach"),
        cluster.instrumented(Told),  # type: ignore[arg-type]
    ):
        raise AssertionError
    unplain = Told(lambda site: site.announce({"a": torch.ones(1)}))
    with pytest.raises(RankError, match="announce: message\\['a'\\] is Tensor"):
        cluster.run(lambda ctx: None, instruments=[unplain])
    wrong = Told(lambda site: site.cut(site.rank))
    with pytest.raises(RankError, match="cut: peer must be another rank of 0 to 2"):
        cluster.run(lambda ctx: None, instruments=[wrong])


@pytest.mark.parametrize(("source", "target"), [(0, 2), (2, 0)])
def test_a_link_that_is_cut(cluster: dt.Cluster, source: int, target: int) -> None:
    def cuts(site: Site) -> None:
        def step(number: int) -> None:
            if number == 2 and site.rank == source:
                saying(site, site.cut(target))

        site.on_step(step)

    def work(ctx: Any) -> tuple[Any, float]:
        lost = None
        try:
            for step in range(1000):
                ctx.step(step)
                ctx.comm.all_reduce(torch.ones(1000))
        except PeerLost as error:
            lost = error.ranks, error.hung, str(error)
            ctx.rebuild()
        return lost, float(ctx.comm.all_reduce(torch.ones(1)))

    pids = cluster.pids
    told = Told(cuts)
    answers = cluster.run(work, elastic=True, instruments=[told], timeout=20)
    assert told.of(source) == [[1]]
    assert [total for _, total in answers] == [3.0] * 3
    for lost, _ in answers:
        assert lost[:2] == ((), ())
        assert "a connection between living workers broke" in lost[2]
    with pytest.raises(RankError, match="connection broke"):
        cluster.run(work, instruments=[Told(cuts)], timeout=20)
    assert cluster.pids == pids


def test_a_link_that_is_slow_holds_messages_back(cluster: dt.Cluster) -> None:
    def slow(site: Site) -> None:
        def step(number: int) -> None:
            if site.rank == 0:
                how = {"seconds": "0.1s"} if number == 1 else {"bandwidth": 2e5}
                assert site.delay(1, **({} if number == 3 else how))

        site.on_step(step)

    def work(ctx: Any) -> list[list[float]]:  # when each message was begun, and the last ended
        one, many = torch.ones(1), torch.ones(25_000)
        pair = ctx.comm.split(0 if ctx.rank < 2 else 1)
        at = []
        for step in range(4):
            if step:
                ctx.step(step)
            ctx.comm.barrier()
            times = [time.perf_counter()]
            for tensor in (one, many):
                pair.broadcast(tensor)
                times.append(time.perf_counter())
            if ctx.rank == 0:
                ctx.comm.send(many, 1)
            elif ctx.rank == 1:
                assert ctx.comm.recv()[0].equal(many)
            times.append(time.perf_counter())
            at.append(times)
        return at

    sender, receiver, _ = cluster.run(work, instruments=[Told(slow)])
    # From when it was sent: the receiver may have been late to wait for it.
    spent = [
        [came - sent for sent, came in zip(a[:-1], b[1:], strict=True)]
        for a, b in zip(sender, receiver, strict=True)
    ]
    # What is held back cannot be quicker than the link: its latency, or 100,000 bytes at 0.2 MB/s.
    assert min(spent[1]) >= 0.1
    assert min(spent[2][1:]) >= 0.5
    assert spent[2][0] < 0.5  # a few bytes
    assert cluster.run(lambda ctx: float(ctx.comm.all_reduce(torch.ones(1)))) == [3.0] * 3
