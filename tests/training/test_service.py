"""The service of a launch: answers, order, failures, and that nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.errors import LaunchCancelled, RankError, WorkerLost
from dtoolkit.training.message import Message, pack, unpack
from dtoolkit.training.service import Service

IN_TIME = 2.0

dtypes = st.sampled_from([torch.float64, torch.float32, torch.int64, torch.bool, torch.bfloat16])
shapes = st.lists(st.integers(0, 3), max_size=3)


@given(
    st.integers(0, 9),
    st.lists(st.floats(allow_nan=False), max_size=4),
    st.lists(st.tuples(dtypes, shapes), max_size=4),
)
def test_messages_come_as_they_were(
    kind: int, numbers: list[float], tensors: list[tuple[torch.dtype, list[int]]]
) -> None:
    made = tuple(
        torch.arange(50)[: int(torch.Size(s).numel())].reshape(s).to(d)
        for d, s in tensors
        if torch.Size(s).numel() <= 50
    )
    read = unpack(pack(Message(kind, tuple(numbers), made)))
    assert (read.kind, read.numbers, len(read.tensors)) == (kind, tuple(numbers), len(made))
    for one, other in zip(read.tensors, made, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    """A cluster of this module: its workers are killed."""
    with dt.Cluster(workers=3, device="cpu", timeout=60) as one:
        yield one


def together(size: int) -> Any:
    """Answer all ranks once all have asked: the sum of what they sent, and who came first."""
    waiting: dict[int, Message] = {}

    def answer(source: int, message: Message) -> list[tuple[int, Message]]:
        waiting[source] = message
        if len(waiting) < size:
            return []
        total = sum(m.tensors[0] for m in waiting.values())
        replies = [(rank, Message(1, (float(len(waiting)),), (total,))) for rank in waiting]
        waiting.clear()
        return replies

    return answer


def rounds(ctx: Any, count: int, length: int) -> bool:
    """Rounds of a service, beside collectives in the ranks' own threads."""
    service = Service(ctx.comm, together(ctx.size))
    right = True
    for n in range(count):
        reply = service.ask(Message(0, (), (torch.full((length,), float(ctx.rank + n)),)))
        want = sum(range(ctx.size)) + n * ctx.size
        right &= bool((reply.tensors[0] == want).all()) and reply.numbers == (float(ctx.size),)
        right &= float(ctx.comm.all_reduce(torch.ones(3))[0]) == ctx.size
    service.close()
    return right


def left_over(ctx: Any) -> int:
    """Threads of services in this process, once what ends has ended."""

    def count() -> int:
        return sum(t.name == "dtoolkit-service" for t in threading.enumerate())

    end = time.monotonic() + 2
    while count() and time.monotonic() < end:
        time.sleep(0.01)
    return count()


@pytest.mark.parametrize("length", [0, 1, 5000])
def test_all_are_answered(cluster: dt.Cluster, length: int) -> None:
    assert cluster.run(rounds, 20, length, timeout=60) == [True] * 3
    assert cluster.run(left_over) == [0] * 3


def test_one_rank_asks_itself(cluster1: dt.Cluster) -> None:
    assert cluster1.run(rounds, 5, 10, timeout=60) == [True]
    assert cluster1.run(left_over) == [0]


def test_own_messages_cost_no_bytes(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> int:
        service = Service(ctx.comm, lambda source, message: [(source, message)])
        before = ctx.recorder.sent
        if ctx.rank == 0:
            for _ in range(5):
                service.ask(Message(0, (), (torch.ones(1000),)))
        sent = ctx.recorder.sent - before
        service.close()
        return sent

    assert cluster.run(work, timeout=60)[0] == 0


def test_over_an_emulated_network(cluster4: dt.Cluster) -> None:
    network = dt.comm.Network.flat(4, bandwidth="100MB/s", latency="1ms")
    sizes = (1, 17, 500, 600, 5_000)  # short ones and long ones travel in different ways

    def work(ctx: Any) -> list[float]:
        def answer(source: int, message: Message) -> list[tuple[int, Message]]:
            return [(source, Message(2, (), (message.tensors[0] + source,)))]

        service = Service(ctx.comm, answer)
        asked = [Message(1, (), (torch.full((size,), 100.0),)) for size in sizes]
        replies = [service.ask(one).tensors[0] for one in asked]
        service.close()
        assert [len(reply) for reply in replies] == list(sizes)
        return sorted({float(value) for reply in replies for value in reply})

    with dt.Cluster(client=cluster4.client, workers=4, emulate=network) as slow:
        assert slow.run(work, timeout=60) == [[100.0 + rank] for rank in range(4)]


@pytest.mark.parametrize("asks", [0, 1])
def test_what_an_answer_raises_is_raised_by_who_asks(cluster: dt.Cluster, asks: int) -> None:
    """Also where the hosting rank does not ask, and closes later."""

    def work(ctx: Any) -> None:
        def answer(source: int, message: Message) -> list[tuple[int, Message]]:
            raise ArithmeticError("no such sum")

        service = Service(ctx.comm, answer)
        if ctx.rank == asks:
            service.ask(Message(0))
        service.close()

    with pytest.raises(RankError, match="no such sum"):
        cluster.run(work, timeout=30)
    assert cluster.run(left_over) == [0] * 3


def waiting_for_ever(ctx: Any, raises: int | None = None) -> None:
    """All ask, but the answer never comes: one rank does not ask, it raises or computes."""
    service = Service(ctx.comm, together(ctx.size))
    for _ in range(3):
        service.ask(Message(0, (), (torch.ones(4),)))
    ctx.log(asked=1)
    if raises == ctx.rank:
        raise ArithmeticError("by itself")
    if raises is None and ctx.rank == 2:
        while True:
            time.sleep(0.01)
    service.ask(Message(0, (), (torch.ones(4),)))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises_leaves_no_thread(cluster: dt.Cluster, rank: int) -> None:
    start = time.perf_counter()
    with pytest.raises(RankError, match="by itself"):
        cluster.run(waiting_for_ever, rank, timeout=30)
    assert time.perf_counter() - start < IN_TIME
    assert cluster.run(left_over) == [0] * 3
    assert cluster.run(rounds, 3, 10, timeout=30) == [True] * 3


def under_way(cluster: dt.Cluster) -> Any:
    launch = cluster.submit(waiting_for_ever, timeout=60)
    end = time.monotonic() + 20
    while len([e for e in launch.events if "asked" in e]) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    return launch


def test_a_cancelled_launch_leaves_no_thread(cluster: dt.Cluster) -> None:
    launch = under_way(cluster)
    launch.cancel()
    with pytest.raises(LaunchCancelled):
        launch.result(10)
    assert cluster.run(left_over) == [0] * 3
    assert cluster.run(rounds, 3, 10, timeout=30) == [True] * 3


@pytest.mark.parametrize("rank", [1, 0])
def test_a_killed_worker_leaves_no_thread(cluster: dt.Cluster, rank: int) -> None:
    launch = under_way(cluster)
    start = time.perf_counter()
    os.kill(cluster.pids[rank], signal.SIGKILL)
    with pytest.raises(WorkerLost):
        launch.result(10)
    assert time.perf_counter() - start < IN_TIME
    assert cluster.run(left_over, timeout=60) == [0] * 3
    assert cluster.run(rounds, 3, 10, timeout=30) == [True] * 3


def test_an_abandoned_service_ends_though_others_ask(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> float:
        service = Service(ctx.comm, together(ctx.size))
        start = time.perf_counter()
        if ctx.rank == 0:
            time.sleep(0.1)
            service.abandon()
            service.abandon()
            took, left = time.perf_counter() - start, left_over(ctx)
            assert left == 0
            raise ArithmeticError(f"after {took:.1f} s")
        service.ask(Message(0, (), (torch.ones(4),)))
        return 0.0

    with pytest.raises(RankError, match=r"after 0\.1 s"):
        cluster.run(work, timeout=30)
