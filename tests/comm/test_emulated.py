"""Emulated networks: messages are held back by the model, and arrive unchanged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.comm import occupancy
from dtoolkit.comm.network import Network
from dtoolkit.comm.occupancy import Occupancy
from dtoolkit.comm.pending import Interrupt, Pending
from tests import sockets

MB = 1_000_000
SOME_MORE = 10.0  # seconds that a busy machine may take on top: an upper bound must not be flaky
TWO_TIER = Network.two_tier(
    nodes=2,
    ranks_per_node=2,
    inter="40MB/s",
    intra="200MB/s",
    inter_latency="20ms",
    intra_latency="2ms",
)


# ------------------------------------------------------------------------- the table of links


START = 1000.0
"""What the clock of the tables says: it stands still, so that what the model adds is exact."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes tables of a network, all of one group, and forgets their file."""
    name, made = uuid.uuid4().hex, []
    monkeypatch.setattr(occupancy, "time", SimpleNamespace(perf_counter=lambda: START))

    def make(network: Network, rank: int = 0) -> Occupancy:
        made.append(Occupancy(network, name, rank))
        return made[-1]

    yield make
    for one in made:
        one.forget()


def ahead(times: list[tuple[float, float]]) -> list[float]:
    return [round(arrival - START, 6) for _, arrival in times]


def test_a_port_serves_messages_in_the_order_of_sending(table: Any) -> None:
    links = table(Network.flat(3, bandwidth=1 * MB, latency=0.25))
    times = links.send(0, [(1, 10 * MB), (2, 20 * MB)])
    assert ahead(times) == [10.25, 30.25]
    assert [round(arrival - through, 6) for through, arrival in times] == [0.25, 0.25]


def test_a_port_is_shared_by_the_tables_of_a_group(table: Any) -> None:
    network = Network.flat(3, bandwidth=1 * MB)
    first, second = table(network, 0), table(network, 1)
    first.send(0, [(2, 10 * MB)])
    assert ahead(second.send(1, [(2, 10 * MB)])) == [20.0], "the way in of rank 2 is busy"
    assert ahead(second.send(2, [(1, 10 * MB)])) == [10.0], "the other way is free"


def test_another_group_finds_the_links_free(table: Any) -> None:
    network = Network.flat(2, bandwidth=1 * MB)
    table(network).send(0, [(1, 50 * MB)])
    other = Occupancy(network, uuid.uuid4().hex, 0)
    try:
        assert ahead(other.send(0, [(1, 10 * MB)])) == [10.0]
    finally:
        other.forget()


def test_tiers_have_ports_of_their_own_and_a_node_its_uplink(table: Any) -> None:
    network = Network.two_tier(
        nodes=2, ranks_per_node=2, inter=2 * MB, intra=4 * MB, inter_latency=1.0, node=3 * MB
    )
    links = table(network)
    assert ahead(links.send(0, [(1, 40 * MB), (2, 12 * MB)])) == [10.0, 7.0]
    # 24 MB through the uplink of 3 MB/s by now, and rank 1's own way is free.
    assert ahead(links.send(1, [(3, 12 * MB)])) == [9.0]


def test_a_message_round_a_ring_loads_the_ranks_on_its_way(table: Any) -> None:
    links = table(Network.dims([("ring", 5, 1 * MB, 0.5)]))
    assert ahead(links.send(0, [(2, 10 * MB)])) == [11.0]
    assert ahead(links.send(1, [(2, 10 * MB)])) == [20.5], "rank 1 forwards rank 0's"


@pytest.mark.parametrize("latency", [0.0, 5.0])
@pytest.mark.parametrize("kind", ["ring", "fc", "switch"])
def test_a_dimension_of_one_rank_holds_nothing_back(table: Any, kind: str, latency: float) -> None:
    links = table(Network.dims([(kind, 1, 1 * MB, latency), ("ring", 2, 2 * MB, 0.5)]))
    assert ahead(links.send(0, [(1, 10 * MB)])) == [5.5]


@pytest.mark.parametrize(
    "network",
    [
        Network.flat(4, bandwidth=3 * MB, latency=0.125),
        Network.two_tier(nodes=2, ranks_per_node=2, inter=1 * MB, intra=5 * MB, node=1.5 * MB),
        Network.dims([("ring", 4, 2 * MB, 0.25)]),
        Network.dims([("fc", 2, 2 * MB, 0.25), ("switch", 2, 1 * MB, 0.5)]),
    ],
    ids=lambda network: network.kind,
)
def test_what_sets_out_at_once_ends_when_the_busiest_link_does(table: Any, network: Any) -> None:
    sent = np.random.default_rng(0).integers(1, 200 * MB, (4, 4))
    np.fill_diagonal(sent, 0)
    links = table(network)
    last = max(
        arrival
        for source in range(4)
        for _, arrival in links.send(
            source, [(t, int(sent[source, t])) for t in range(4) if t != source]
        )
    )
    busiest = max(float(group.seconds.max()) for group in network.loads(sent))
    slowest = max(network.time(s, t, 0) for s in range(4) for t in range(4))
    assert busiest - slowest - 1e-6 <= last - START <= busiest + slowest + 1e-6


def test_hosts_of_a_measured_network_have_their_capacity(table: Any) -> None:
    network = Network.measured(
        latency=np.full((2, 2), 0.25), bandwidth=np.full((2, 2), 4 * MB), host_capacity=2 * MB
    )
    assert ahead(table(network).send(0, [(1, 8 * MB)])) == [4.25]


def test_ranks_that_do_not_share_the_file_are_noticed(table: Any) -> None:
    network = Network.flat(3, bandwidth=1 * MB)
    first = table(network, 0)
    table(network, 2)
    assert first.gathered(1)
    assert not first.gathered(3)


# ------------------------------------------------------------------- what waits for a message


def test_a_sleep_ends_when_there_is_a_reason() -> None:
    interrupt = Interrupt()
    assert not interrupt.sleep(0.001)
    interrupt.set(KeyError)
    assert interrupt.sleep(60)


def test_joining_raises_what_the_messages_ended_in() -> None:
    pending = Pending(Interrupt())
    pending.complete(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        pending.join()


# ------------------------------------------------------------------------------ real messages


@pytest.fixture(scope="module")
def slow() -> Iterator[dt.Cluster]:
    """Two nodes of two ranks, on this machine."""
    with dt.Cluster(workers=4, device="cpu", timeout=120, emulate=TWO_TIER) as one:
        yield one


def span(ctx: Any, work: Any) -> tuple[float, float]:
    """When this rank began, after all had come, and when it was done; on the clock of all."""
    ctx.comm.barrier()
    start = time.perf_counter()
    work()
    return start, time.perf_counter()


def whole(spans: list[tuple[float, float]]) -> float:
    """Seconds from the first rank's start to the last one's end."""
    return max(end for _, end in spans) - min(start for start, _ in spans)


def test_an_all_to_all_takes_what_the_model_says(slow: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[float, float]:
        own = [torch.full((MB,), float(ctx.rank)) for _ in range(ctx.size)]
        got: list[Any] = []
        times = span(ctx, lambda: got.extend(ctx.comm.all_to_all(own)))
        assert all(bool((t == r).all()) and len(t) == MB for r, t in enumerate(got))
        return times

    spans = slow.run(work)
    # Two messages of 4 MB leave each rank for the other node, and as many come from there.
    assert 8 * MB / (40 * MB) + 0.020 <= whole(spans) <= 8 * MB / (40 * MB) + SOME_MORE
    assert all(end - start >= 0.2 for start, end in spans)


@pytest.mark.parametrize(("peer", "least"), [(1, 0.002), (2, 0.020)])
def test_small_messages_pay_the_latency(slow: dt.Cluster, peer: int, least: float) -> None:
    def work(ctx: Any) -> tuple[float, float]:
        def ping() -> None:
            if ctx.rank == 0:
                ctx.comm.send(torch.ones(1), peer)
                ctx.comm.recv(peer)
            elif ctx.rank == peer:
                value, source = ctx.comm.recv()
                ctx.comm.send(value, source)

        return span(ctx, ping)

    start, end = slow.run(work)[0]
    assert 2 * least <= end - start <= 2 * least + SOME_MORE


def test_a_barrier_pays_the_longest_latency(slow: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[float, float]:
        return span(ctx, lambda: [ctx.comm.barrier() for _ in range(5)])

    assert 5 * 0.020 <= whole(slow.run(work)) <= SOME_MORE


def test_a_large_message_takes_its_bytes(slow: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[float, float]:
        def move() -> None:
            if ctx.rank == 0:
                ctx.comm.send(torch.arange(MB, dtype=torch.float32), 3, tag=5)
            elif ctx.rank == 3:
                value, source = ctx.comm.recv(tag=5)
                assert source == 0
                assert torch.equal(value, torch.arange(MB, dtype=torch.float32))

        return span(ctx, move)

    spans = slow.run(work)
    began, left = spans[0]
    assert 0.1 <= left - began <= SOME_MORE, "the sender is done when the last link is"
    assert 0.12 <= spans[3][1] - began <= SOME_MORE


def test_a_rank_computes_while_a_message_is_on_its_way(slow: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[bool, bool, float]:
        ctx.comm.barrier()
        start = time.perf_counter()
        call = ctx.comm.all_to_all(
            [torch.ones(MB)] * ctx.size,
            out=[torch.empty(MB) for _ in range(ctx.size)],
            agreed=True,
            wait=False,
        )
        early = call.done()
        returned = time.perf_counter() - start
        result = call.wait()
        took = time.perf_counter() - start
        assert all(bool((t == 1).all()) for t in result)
        return early, returned < took, took

    for early, returned, took in slow.run(work):
        assert not early
        assert returned
        assert took >= 0.2


def test_inside_a_node_it_is_faster(slow: dt.Cluster) -> None:
    def work(ctx: Any) -> dict[str, tuple[float, float]]:
        near, far = ctx.comm.split(ctx.rank // 2), ctx.comm.split(ctx.rank % 2)
        return {
            name: span(ctx, lambda part=part: part.all_gather(torch.ones(MB)))
            for name, part in (("near", near), ("far", far))
        }

    for spans in slow.run(work):
        for name, least in (("near", 4 / 200), ("far", 4 / 40)):
            start, end = spans[name]
            assert least <= end - start <= least + SOME_MORE


@pytest.mark.parametrize("size", [1, 17, 200, 5_000])
def test_any_source_tags_and_order(slow: dt.Cluster, size: int) -> None:
    def work(ctx: Any) -> Any:
        if ctx.rank:
            for n in range(3):
                ctx.comm.send(torch.full((size,), 10 * ctx.rank + n), 0, tag=7)
            ctx.comm.send(torch.full((size,), 99), 0, tag=ctx.rank)
            return []
        calls = [ctx.comm.recv(tag=7, wait=False) for _ in range(9)]
        last = [int(ctx.comm.recv(r, tag=r)[0][-1]) for r in (3, 1, 2)]
        return [(s, int(t[0])) for t, s in (call.wait() for call in calls)], last

    got, last = slow.run(work)[0]
    assert last == [99] * 3
    for rank in (1, 2, 3):
        assert [value for source, value in got if source == rank] == [
            10 * rank + n for n in range(3)
        ]


def test_the_same_bits_as_without(slow: dt.Cluster, cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        torch.manual_seed(ctx.rank)
        values = torch.randn(10_001)
        calls = [
            ctx.comm.all_reduce(values, wait=False),
            ctx.comm.all_gather(values[:5], wait=False),
            ctx.comm.reduce_scatter(values, wait=False),
            ctx.comm.all_to_all_v(values, [0, 1, 10_000, 0], wait=False),
        ]
        return [call.wait().tolist() for call in calls]

    assert slow.run(work) == cluster4.run(work)


def test_stamps_are_no_payload(slow: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        ctx.comm.all_to_all([torch.ones(MB // 2)] * ctx.size)
        if ctx.rank == 0:
            ctx.comm.send(torch.ones(MB // 2), 1)
        elif ctx.rank == 1:
            ctx.comm.recv(0)

    slow.run(work)
    moved = sockets.counted(slow, lambda: slow.run(work))
    traced = slow.trace.matrix()
    assert traced.sum() == 13 * 2 * MB
    assert (traced > sockets.LARGE).sum() == 12
    sockets.hold(moved, traced)
