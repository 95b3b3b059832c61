"""The queue model: the reference figures, an independent simulation, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.comm import Network, simulate, topology
from dtoolkit.comm.serving import call_order, steps
from dtoolkit.comm.topologies import TOPOLOGIES
from tests.comm.test_schedules import NETWORK, OPERATIONS

# Themis over the baseline (FIFO), 64 chunks, no latency: arXiv 2110.04478 as a queue model.
SCF = {
    "2D-SW_SW": 1.533,
    "3D-homo": 2.758,
    "3D-hetero": 1.622,
    "3D-FC_Ring_SW": 1.556,
    "4D-Ring_SW_SW_SW": 1.753,
    "4D-Ring_FC_Ring_SW": 1.552,
}


def gain(network: Network, size: Any, order: str = "scf", **options: Any) -> float:
    plain = simulate(network, size, **options)
    return plain.time / simulate(network, size, "themis", order, **options).time


@pytest.mark.parametrize("size", ["1GB", "100MB", 1024, 7, 123_456_789])
def test_reference_figures(size: Any) -> None:
    """To all digits that are stated, whatever the size: nothing but ratios counts."""
    gains = {name: gain(topology(name), size) for name in TOPOLOGIES}
    assert {name: round(value, 3) for name, value in gains.items()} == SCF
    assert round(np.mean(list(gains.values())), 2) == 1.80
    assert round(max(gains.values()), 2) == 2.76


def test_reference_figures_first_come_first_served() -> None:
    gains = [gain(topology(name), "1GB", "fifo") for name in TOPOLOGIES]
    assert round(np.mean(gains), 2) == 1.62
    assert round(max(gains), 2) == 2.41


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_ideal(name: str) -> None:
    network = topology(name, latency="1us")
    ideal = simulate(network, 10**9, "ideal")
    want = 2e9 * (1 - 1 / 1024) / sum(d.bandwidth for d in network.dimensions)
    assert ideal.time == pytest.approx(want, rel=1e-12)
    assert ideal.utilisation == 1.0
    assert ideal.bytes_sent.sum() == pytest.approx(2e9 * (1 - 1 / 1024))
    np.testing.assert_allclose(ideal.by_dimension["utilisation"], 1.0)
    half = simulate(network, 10**9, "ideal", operation="all_gather")
    assert half.time == pytest.approx(want / 2)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("order", ["fifo", "scf"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_never_slower_than_the_baseline_at_64_chunks_without_latency(
    name: str, order: str, operation: str
) -> None:
    assert gain(topology(name), "1GB", order, operation=operation) > 1


def test_with_4_chunks_it_can_be_slower() -> None:
    gains = [gain(topology(name), "1GB", chunks=4) for name in TOPOLOGIES]
    assert round(min(gains), 2) == 0.64
    assert sum(value < 1 for value in gains) == 3


def test_with_latency_it_can_be_slower() -> None:
    network = topology("3D-FC_Ring_SW", latency="0.3us")
    assert round(gain(network, "100MB"), 2) == 0.87
    assert round(gain(network, "100MB", latency=False), 3) == SCF["3D-FC_Ring_SW"]


def test_with_latency_the_gain_falls() -> None:
    def mean(size: str, latency: str) -> float:
        return float(np.mean([gain(topology(n, latency=latency), size) for n in TOPOLOGIES]))

    assert round(mean("1GB", "0.3us"), 2) == 1.77
    assert round(mean("100MB", "2us"), 2) == 1.20
    assert mean("1GB", "0.3us") > mean("1GB", "2us") > mean("100MB", "2us")


@pytest.mark.parametrize(
    ("kind", "ranks", "wanted"),
    [
        ("ring", 1, 0), ("ring", 2, 1), ("ring", 16, 15),
        ("fc", 1, 0), ("fc", 8, 1),
        ("switch", 1, 0), ("switch", 2, 1), ("switch", 8, 3), ("switch", 64, 6), ("switch", 6, 3),
    ],
)  # fmt: skip
def test_latencies_of_a_stage(kind: str, ranks: int, wanted: int) -> None:
    network = Network.dims([(kind, ranks, 1e9, 1.0)])
    assert steps(network.dimensions[0]) == wanted
    assert simulate(network, 0, chunks=1).time == 2 * wanted
    assert simulate(network, 0, chunks=3, operation="all_gather").time == 3 * wanted


def test_one_dimension_by_hand() -> None:
    network = Network.dims([("ring", 4, 1e9, 1e-3)])
    one = simulate(network, 4_000_000, chunks=1)
    assert one.time == pytest.approx(2 * (3e6 / 1e9 + 3e-3), rel=1e-12)
    assert one.utilisation == pytest.approx(0.5, rel=1e-12)
    assert one.bars["operation"].tolist() == ["reduce_scatter", "all_gather"]
    np.testing.assert_allclose(one.bars["bytes"], 3e6)
    np.testing.assert_allclose(one.bars["end"], [6e-3, 12e-3])


def test_two_dimensions_by_hand() -> None:
    """Chunks a and b of 4 bytes on 2 x 2 ranks, 1 byte a second each: RS 2 then 1, AG 1 then 2."""
    network = Network.dims([("switch", 2, 1.0), ("switch", 2, 1.0)])
    served = simulate(network, 8, chunks=2).bars
    assert list(zip(served["dimension"], served["chunk"], served["start"], strict=True)) == [
        (0, 0, 0.0),  # a: 2 s
        (0, 1, 2.0),  # b: 2 s
        (1, 0, 2.0),  # a scatters, 1 s
        (1, 0, 3.0),  # a gathers, 1 s
        (0, 0, 4.0),  # a gathers, 2 s
        (1, 1, 4.0),
        (1, 1, 5.0),
        (0, 1, 6.0),
    ]
    assert simulate(network, 8, chunks=2).time == 8.0
    themis = simulate(network, 8, "themis", chunks=2)
    assert themis.schedule is not None
    assert themis.schedule.orders == ((0, 1), (1, 0))
    assert themis.time == 6.0
    assert themis.utilisation == 1.0


def slowly(
    network: Network, size: int, orders: Any, queue: str, operation: str, latency: bool
) -> Fraction:
    """The same model without events: at each moment look at everything."""
    p = [d.ranks for d in network.dimensions]
    jobs = []
    for order in orders:
        part = Fraction(size, len(orders))
        job: list[tuple[int, Fraction, Fraction]] = []
        halves = {"all_reduce": "sg", "reduce_scatter": "s", "all_gather": "g"}[operation]
        if halves == "g":
            part /= prod(p)
        for half in halves:
            for k in order if half == "s" or halves == "g" else order[::-1]:
                moved = part * (p[k] - 1) / (p[k] if half == "s" else 1)
                part = part / p[k] if half == "s" else part * p[k]
                d = network.dimensions[k]
                hops = {"ring": p[k] - 1, "fc": 1, "switch": int(np.ceil(np.log2(p[k])))}[d.kind]
                wait = hops * Fraction(repr(d.latency)) if latency and p[k] > 1 else 0
                if p[k] > 1:
                    job.append((k, moved, moved / Fraction(repr(d.bandwidth)) + wait))
        jobs.append(job)
    now, stage = Fraction(0), [0] * len(jobs)
    came = [Fraction(0)] * len(jobs)
    free: list[Any] = [None] * len(p)  # (end, job) of what is served
    while any(s < len(job) for s, job in zip(stage, jobs, strict=True)):
        for k in range(len(p)):
            if free[k] is not None and free[k][0] == now:
                job = free[k][1]
                stage[job], came[job], free[k] = stage[job] + 1, now, None
        for k in range(len(p)):
            busy = {entry[1] for entry in free if entry is not None}
            here = [
                (jobs[j][stage[j]][1] if queue == "scf" else 0, came[j], j)
                for j in range(len(jobs))
                if j not in busy and stage[j] < len(jobs[j]) and jobs[j][stage[j]][0] == k
            ]
            if free[k] is None and here:
                job = min(here)[2]
                free[k] = (now + jobs[job][stage[job]][2], job)
        ends = [entry[0] for entry in free if entry is not None]
        now = min(ends, default=now)
    return now


@settings(max_examples=60)
@given(
    NETWORK,
    st.integers(0, 5000),
    st.integers(1, 9),
    st.sampled_from(["fifo", "scf"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(["baseline", "themis"]),
    st.sampled_from([0.0, 1e-7, 3e-9]),
)
def test_against_a_slow_simulation(
    network: Network,
    size: int,
    chunks: int,
    order: str,
    operation: str,
    policy: str,
    latency: float,
) -> None:
    network = Network.dims([(d.kind, d.ranks, d.bandwidth, latency) for d in network.dimensions])
    made = simulate(network, size, policy, order, chunks, operation=operation)
    assert made.schedule is not None
    want = slowly(network, size, made.schedule.orders, order, operation, latency > 0)
    assert made.time == pytest.approx(float(want), rel=1e-12, abs=0)
    assert 0 <= made.utilisation <= 1
    check_bars(made, chunks)


def check_bars(made: dt.comm.Simulation, chunks: int) -> None:
    """No dimension serves two at once, no chunk is in two places, and all bytes are there."""
    bars = made.bars
    assert list(bars.columns) == ["chunk", "dimension", "operation", "start", "end", "bytes"]
    for by in ("dimension", "chunk"):
        for _, lane in bars.groupby(by):
            ordered = lane.sort_values(["start", "end"])
            assert (ordered["start"].to_numpy()[1:] >= ordered["end"].to_numpy()[:-1]).all()
    times = 2 if made.operation == "all_reduce" else 1
    ranks = prod(d.ranks for d in made.dimensions)
    assert bars["bytes"].sum() == pytest.approx(times * made.size * (1 - 1 / ranks))
    assert made.time == bars["end"].max() if len(bars) else made.time == 0
    assert set(bars["chunk"]) == (set(range(chunks)) if len(bars) else set())


@given(NETWORK, st.integers(1, 12), st.sampled_from(["fifo", "scf"]))
def test_calls_keep_each_chunks_order_and_miss_none(
    network: Network, chunks: int, order: str
) -> None:
    plan = dt.comm.schedule(network, "themis", chunks=chunks)
    calls = call_order(plan, order)
    for chunk in range(chunks):
        stages = [stage for number, stage in calls if number == chunk]
        assert stages == list(range(len(plan.stages(chunk))))


def test_utilisation_is_weighted_by_bandwidth() -> None:
    made = simulate(topology("3D-hetero", latency="1us"), "100MB", "themis", "scf")
    table = made.by_dimension
    weighted = (table["utilisation"] * table["bandwidth"]).sum() / table["bandwidth"].sum()
    assert made.utilisation == pytest.approx(weighted)
    assert made.utilisation == pytest.approx(made.ideal / made.time)
    assert (table["busy"] > table["bytes"] / table["bandwidth"]).all()  # latencies
    assert (table["busy"] <= made.time * (1 + 1e-12)).all()


def test_a_schedule_is_taken_as_it_is() -> None:
    network = topology("3D-hetero")
    plan = dt.comm.schedule(network, "themis", chunks=16)
    assert (
        simulate(network, "1GB", plan, "scf").time
        == simulate(network, "1GB", "themis", "scf", chunks=16).time
    )
    with pytest.raises(
        ValueError, match=r"the schedule is for 16 x 8 x 8 ranks, the network has 16 x 64 ranks"
    ):
        simulate(topology("2D-SW_SW"), "1GB", plan)
    with pytest.raises(ValueError, match="the schedule is for all_reduce"):
        simulate(network, "1GB", plan, operation="all_gather")


def test_flat_and_two_tier() -> None:
    flat = Network.flat(16, bandwidth="10GB/s", latency="1us")
    assert (
        simulate(flat, "1MB").time
        == simulate(Network.dims([("switch", 16, 10e9, 1e-6)]), "1MB").time
    )
    tiers = Network.two_tier(nodes=128, ranks_per_node=8, inter="50GB/s", intra="450GB/s")
    # The eighth that is left between nodes takes longer than all inside: nothing is to be gained.
    assert gain(tiers, "1GB") == pytest.approx(1.0, abs=0.02)
    even = Network.two_tier(nodes=128, ranks_per_node=8, inter="50GB/s", intra="100GB/s")
    assert gain(even, "1GB") > 1.2


@pytest.mark.parametrize("latency", [0.0, 1e-3])
@pytest.mark.parametrize("kind", ["ring", "fc", "switch"])
@pytest.mark.parametrize("policy", ["baseline", "themis", "ideal"])
def test_a_dimension_of_one_rank_takes_no_time(kind: str, latency: float, policy: str) -> None:
    other = ("switch", 4, 1e9, 1e-6)
    for dimensions in ([(kind, 1, 5e9, latency), other], [other, (kind, 1, 5e9, latency)]):
        made = simulate(Network.dims(dimensions), "1MB", policy, chunks=4)
        assert made.time == simulate(Network.dims([other]), "1MB", policy, chunks=4).time


def test_nothing_to_do() -> None:
    for made in (
        simulate(Network.flat(1, bandwidth=1e9), "1GB"),
        simulate(Network.flat(1, bandwidth=1e9), "1GB", "ideal"),
        simulate(Network.flat(4, bandwidth=1e9), 0),
    ):
        assert made.time == 0
        assert made.utilisation == 0
        assert made.ideal == 0
        assert repr(made).endswith(": 0 s, nothing moves>")
        assert (made.by_dimension["utilisation"] == 0).all()
        made._repr_html_()
    late = simulate(Network.flat(4, bandwidth=1e9, latency=1e-3), 0, chunks=1)
    assert repr(late).endswith(
        "on 4 ranks, baseline, FIFO, 1 chunk: 4 ms, 0.0% of the bandwidth used>"
    )
    alone = simulate(Network.flat(1, bandwidth=1e9), "1GB", "ideal")
    assert "of 1 GB on 1 rank, ideal" in repr(alone)


def test_the_ideal_can_be_reached_where_a_dimension_has_one_rank() -> None:
    """8 bytes on 4 ranks, 1 byte a second: 2 * 8 * 3/4 seconds, whatever another could carry."""
    network = Network.dims([("ring", 1, 1000.0), ("switch", 4, 1.0)])
    made = simulate(network, 8, "baseline", chunks=1)
    assert made.time == made.ideal == simulate(network, 8, "ideal").time == 12.0
    assert made.utilisation == 1.0
    bound = simulate(network, 8, "ideal")
    assert bound.bars["dimension"].tolist() == [1, 1]
    assert bound.by_dimension["bytes"].tolist() == [0.0, 12.0]
    assert bound.by_dimension["utilisation"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("policy", ["baseline", "themis"])
def test_more_chunks_than_can_be_simulated(policy: str) -> None:
    """Four stages a chunk of an all-reduce in two dimensions, two of an all-gather."""
    network = topology("2D-SW_SW")
    with pytest.raises(ValueError, match=r"chunks=1000000 makes 4,000,000 stages: .* 500,000"):
        simulate(network, "1MB", policy, chunks=10**6)
    with pytest.raises(ValueError, match=r"chunks=125001 makes 500,004 stages"):
        simulate(network, "1MB", policy, chunks=125_001)
    with pytest.raises(ValueError, match=r"chunks=250001 makes 500,002 stages"):
        simulate(network, "1MB", policy, chunks=250_001, operation="all_gather")
    with pytest.raises(ValueError, match=r"chunks=1000000000 makes"):
        dt.comm.schedule(Network.flat(1, bandwidth=1), policy, chunks=10**9)
    own = dt.comm.Schedule(network.dimensions, ((0, 1),) * 125_001)
    with pytest.raises(ValueError, match=r"chunks=125001 makes 500,004 stages"):
        simulate(network, "1MB", own)
    assert simulate(network, "1MB", "ideal", chunks=10**6).chunks == 10**6


def test_as_many_chunks_as_it_says() -> None:
    made = simulate(Network.flat(2, bandwidth=1e9), "1MB", chunks=20_000)
    assert len(made.bars) == 40_000
    assert made.time == pytest.approx(1e-3)


def test_errors_in_words() -> None:
    network = topology("2D-SW_SW")
    with pytest.raises(ValueError, match="size"):
        simulate(network, "100Mb")
    with pytest.raises(ValueError, match="size"):
        simulate(network, -1)
    with pytest.raises(ValueError, match="order must be 'fifo'"):
        simulate(network, "1MB", order="lifo")
    with pytest.raises(ValueError, match="policy must be one of"):
        simulate(network, "1MB", "fifo")
    with pytest.raises(ValueError, match="chunks must be"):
        simulate(network, "1MB", "ideal", chunks=0)
    with pytest.raises(ValueError, match="latency must be True or False"):
        simulate(network, "1MB", latency="2us")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="operation must be one of"):
        simulate(network, "1MB", operation="gather")
    with pytest.raises(ValueError, match="network must be"):
        simulate("2D-SW_SW", "1MB")  # type: ignore[arg-type]


def test_words() -> None:
    made = simulate(topology("3D-hetero", latency="0.3us"), "100MB", "themis", "scf")
    assert repr(made) == (
        "<Simulation (modelled): all-reduce of 100 MB on 16 x 8 x 8 ranks, themis, SCF, 64 chunks: "
        "721 µs, 79.2% of the bandwidth used>"
    )
    assert "without latency" in repr(simulate(topology("3D-homo"), "1MB", latency=False))
    assert "2110.04478" in made.cite()
