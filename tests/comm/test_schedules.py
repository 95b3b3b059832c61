"""Schedules as data: what the policies choose, what that moves, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.comm import Network, Schedule, schedule
from dtoolkit.comm.themis import Baseline, Themis, cite

KINDS = st.sampled_from(["ring", "fc", "switch"])
DIMENSION = st.tuples(
    KINDS, st.integers(1, 9), st.sampled_from([25e9, 50e9, 1e11, 175e9, 2e11]), st.just(0.0)
)
NETWORK = st.lists(DIMENSION, min_size=1, max_size=4).map(Network.dims)
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather")


def test_worked_by_hand() -> None:
    """Two dimensions of 2 ranks, the first twice as fast: loads in units of chunk / speed."""
    network = Network.dims([("switch", 2, 2.0), ("switch", 2, 1.0)])
    # chunk 0: loads equal: default; loads 1/4, 1/4 (half a chunk at 2, a quarter at 1).
    # chunk 1: equal again. So it stays, for ever.
    assert schedule(network, "themis", chunks=3).orders == ((0, 1),) * 3
    network = Network.dims([("switch", 2, 1.0), ("switch", 2, 1.0)])
    # chunk 0: default: 1/2, 1/4. chunk 1: room is 1/4 * 1 * 2 = 1/2 of a chunk: the other first:
    # 3/4, 3/4. Then it begins anew.
    assert schedule(network, "themis", chunks=4).orders == ((0, 1), (1, 0)) * 2


def test_all_gather_takes_the_largest_load_first() -> None:
    network = Network.dims([("switch", 2, 1.0), ("switch", 2, 1.0)])
    # chunk 0 of one unit: default 1, 0: loads 2, 1. chunk 1: 0 first: 3, 3. And so on.
    orders = schedule(network, "themis", chunks=4, operation="all_gather").orders
    assert orders == ((1, 0), (0, 1)) * 2


def test_under_a_sixteenth_the_default_order_stays() -> None:
    network = Network.dims([("switch", 2, 32.0), ("switch", 2, 17.0)])
    # After chunk 0: 1/64 and 1/68; the room of dimension 1 is (1/64 - 1/68) * 17 * 2 = 1/32.
    assert schedule(network, "themis", chunks=2).orders == ((0, 1), (0, 1))
    assert schedule(network, Themis(fineness=33), chunks=2).orders == ((0, 1), (1, 0))


@dataclass(frozen=True)
class SmallestBandwidth:
    """The wrong turn: the room is taken with the smallest bandwidth of all, not the dimension's."""

    name: str = "smallest bandwidth"

    def orders(self, dimensions: Any, chunks: int, operation: str) -> list[list[int]]:
        load = [Fraction(0)] * len(dimensions)
        made = []
        for _ in range(chunks):
            least = min(range(len(load)), key=lambda k: load[k])
            p, slowest = dimensions[least].ranks, min(int(d.bandwidth) for d in dimensions)
            room = (max(load) - load[least]) * slowest * p / (p - 1)
            order = sorted(range(len(load)), key=lambda k: load[k])
            if room < Fraction(1, 16):
                order = list(range(len(load)))
            left = Fraction(1)
            for k in order:
                p = dimensions[k].ranks
                load[k] += left * (p - 1) / p / int(dimensions[k].bandwidth)
                left /= p
            made.append(order)
        return made


def test_a_users_own_policy_and_the_wrong_turn_that_the_reference_names() -> None:
    gains = []
    for name in ("3D-FC_Ring_SW", "4D-Ring_SW_SW_SW"):
        network = dt.comm.topology(name)
        plain = dt.comm.simulate(network, "1GB")
        own = dt.comm.simulate(network, "1GB", SmallestBandwidth(), "scf")
        assert own.policy == "smallest bandwidth"
        assert "no source is known" in own.cite()
        gains.append(round(plain.time / own.time, 3))
    assert gains == [1.583, 1.778]


@given(NETWORK, st.integers(1, 40), st.sampled_from(OPERATIONS), st.randoms())
def test_bytes_in_all_do_not_depend_on_the_order(
    network: Network, chunks: int, operation: str, random: Any
) -> None:
    times = 2 if operation == "all_reduce" else 1
    want = times * (1 - Fraction(1, network.ranks))
    dimensions = network.dimensions
    orders = [random.sample(range(len(dimensions)), len(dimensions)) for _ in range(chunks)]
    plans = [
        schedule(network, p, chunks=chunks, operation=operation) for p in ("baseline", "themis")
    ]
    plans.append(Schedule(dimensions, tuple(map(tuple, orders)), operation))
    for plan in plans:
        assert sum(plan.shares) == want
        moved = plan.bytes_sent(network.ranks * chunks, 4)
        assert moved.shape == (network.ranks, len(dimensions))
        np.testing.assert_array_equal(moved.sum(axis=1), int(want * network.ranks * chunks * 4))


@given(NETWORK, st.integers(1, 12), st.integers(0, 300), st.randoms())
def test_bytes_in_all_where_sizes_do_not_divide(
    network: Network, chunks: int, elements: int, random: Any
) -> None:
    """Over all ranks: every element but a rank's own is sent once, whatever the order."""
    dimensions = network.dimensions
    orders = [random.sample(range(len(dimensions)), len(dimensions)) for _ in range(chunks)]
    plan = Schedule(dimensions, tuple(map(tuple, orders)))
    assert plan.bytes_sent(elements, 1).sum() == 2 * elements * (network.ranks - 1)


@given(NETWORK, st.integers(1, 40), st.sampled_from(["baseline", "themis"]))
def test_the_same_schedule_on_every_rank(network: Network, chunks: int, policy: str) -> None:
    one = schedule(network, policy, chunks=chunks)
    other = schedule(Network.from_json(network.to_json()), policy, chunks=chunks)
    assert one == other
    assert one.digest == other.digest < 2**62
    assert one.orders == schedule(network, policy, chunks=chunks).orders
    again = Schedule.from_json(one.to_json())
    assert again == one
    assert again.digest == one.digest


@given(NETWORK, st.sampled_from([3.0, 1e-9, 0.1, 1e9]))
def test_orders_do_not_depend_on_the_unit_of_bandwidth(network: Network, scale: float) -> None:
    exact = [Fraction(str(d.bandwidth)) * Fraction(str(scale)) for d in network.dimensions]
    scaled = Network.dims(
        [(d.kind, d.ranks, float(b)) for d, b in zip(network.dimensions, exact, strict=True)]
    )
    assert schedule(network, "themis").orders == schedule(scaled, "themis").orders


@settings(max_examples=40)
@given(NETWORK, st.integers(1, 8), st.sampled_from(OPERATIONS))
def test_stages_follow_the_order_and_its_reverse(
    network: Network, chunks: int, operation: str
) -> None:
    plan = schedule(network, "themis", chunks=chunks, operation=operation)
    for chunk, order in enumerate(plan.orders):
        visits = [k for k in order if plan.shape[k] > 1]
        stages = plan.stages(chunk)
        scatter = [s.dimension for s in stages if s.operation == "reduce_scatter"]
        gather = [s.dimension for s in stages if s.operation == "all_gather"]
        assert scatter == ([] if operation == "all_gather" else visits)
        wanted = {"all_reduce": visits[::-1], "reduce_scatter": [], "all_gather": visits}
        assert gather == wanted[operation]
        if operation == "all_reduce":  # what a dimension gives, it takes back
            assert [s.moved for s in stages] == [s.moved for s in stages][::-1]


def test_dimensions_of_one_rank_move_nothing() -> None:
    network = Network.dims([("ring", 1, 1e9), ("switch", 4, 1e9), ("fc", 1, 1e12), ("fc", 4, 1e9)])
    plan = schedule(network, "themis", chunks=6)
    assert plan.shares[0] == plan.shares[2] == 0
    slim = schedule(Network.dims([("switch", 4, 1e9), ("fc", 4, 1e9)]), "themis", chunks=6)
    assert [s.moved for s in plan.stages(1)] == [s.moved for s in slim.stages(1)]
    assert schedule(Network.dims([("ring", 1, 1e9)]), "themis", chunks=2).stages(0) == ()


def test_flat_and_two_tier_networks_have_dimensions() -> None:
    flat = schedule(Network.flat(16, bandwidth="10GB/s"), "themis")
    assert flat.shape == (16,)
    tiers = Network.two_tier(nodes=4, ranks_per_node=8, inter="50GB/s", intra="450GB/s")
    assert schedule(tiers).shape == (8, 4)
    slow = Network.two_tier(
        nodes=4, ranks_per_node=8, inter="50GB/s", intra="450GB/s", node="100GB/s"
    )
    assert [d.bandwidth for d in schedule(slow).dimensions] == [450e9, 12.5e9]


def test_errors_in_words() -> None:
    network = dt.comm.topology("2D-SW_SW")
    with pytest.raises(ValueError, match=r"network must be a dtoolkit.comm.Network, got list"):
        schedule([("switch", 4, 1e9)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="policy must be one of baseline, themis or an object"):
        schedule(network, "thetis")
    with pytest.raises(ValueError, match="'ideal' is a bound on time"):
        schedule(network, "ideal")
    with pytest.raises(ValueError, match=r"object with name and orders\(dimensions"):
        schedule(network, Themis)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="operation must be one of all_reduce"):
        schedule(network, operation="broadcast")
    for chunks in (0, -1, 1.5, True, "64"):
        with pytest.raises(ValueError, match="chunks must be a whole number of at least 1"):
            schedule(network, chunks=chunks)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fineness must be"):
        Themis(fineness=0)
    measured = Network.measured(
        latency=np.zeros((2, 2)), bandwidth=np.ones((2, 2)), host_capacity=1.0
    )
    with pytest.raises(ValueError, match="a measured network has no dimensions"):
        schedule(measured)


@dataclass(frozen=True)
class Broken:
    made: Any
    name: str = "broken"

    def orders(self, dimensions: Any, chunks: int, operation: str) -> Any:
        return self.made


def test_what_a_policy_gives_is_checked() -> None:
    network = dt.comm.topology("2D-SW_SW")
    with pytest.raises(ValueError, match="policy 'broken' gave 1 orders for 64 chunks"):
        schedule(network, Broken([(0, 1)]))
    with pytest.raises(ValueError, match=r"order of chunk 1 is \(0, 0\)"):
        schedule(network, Broken([(0, 1), (0, 0)]), chunks=2)
    with pytest.raises(ValueError, match="order of chunk 0 must list dimensions"):
        schedule(network, Broken([3]), chunks=1)
    with pytest.raises(ValueError, match="order of chunk 0 must list dimensions"):
        schedule(network, Broken([(0.5, 1)]), chunks=1)
    with pytest.raises(ValueError, match="orders must list an order for each chunk, got 5"):
        schedule(network, Broken(5))
    with pytest.raises(ValueError, match="at least one chunk"):
        Schedule(network.dimensions, ())
    with pytest.raises(ValueError, match="operation must be one of"):
        Schedule(network.dimensions, ((0, 1),), "gather")
    with pytest.raises(ValueError, match="this is no schedule"):
        Schedule.from_json("{}")
    with pytest.raises(ValueError, match="schedule of version 9"):
        Schedule.from_json('{"dtoolkit schedule": 9}')
    with pytest.raises(ValueError, match="this schedule is damaged"):
        Schedule.from_json('{"dtoolkit schedule": 1}')


def test_the_six_networks() -> None:
    for name in dt.comm.topologies.TOPOLOGIES:
        network = dt.comm.topology(name)
        assert network.ranks == prod(network.shape) == 1024
    hetero = dt.comm.topology("3D-hetero", latency="0.3us")
    assert {d.latency for d in hetero.dimensions} == {3e-7}
    each = dt.comm.topology("3D-hetero", latency=[0, "1us", 2e-6])
    assert [d.latency for d in each.dimensions] == [0.0, 1e-6, 2e-6]
    with pytest.raises(ValueError, match="name must be one of 2D-SW_SW, 3D-homo"):
        dt.comm.topology("5D")
    with pytest.raises(ValueError, match="latency has 2 entries for the 3 dimensions"):
        dt.comm.topology("3D-homo", latency=[0, 1])
    with pytest.raises(ValueError, match="latency"):
        dt.comm.topology("3D-homo", latency=-1)


def test_sources() -> None:
    assert "2110.04478" in cite() in Schedule.cite(schedule(dt.comm.topology("3D-homo")))
    assert "baseline" in cite("baseline")
    assert Baseline().name == "baseline"


def test_words_and_card() -> None:
    plan = schedule(dt.comm.topology("3D-hetero"))
    assert repr(plan) == (
        "<Schedule: themis, all_reduce over 16 x 8 x 8 ranks, 64 chunks in 6 orders>"
    )
    assert "planned" in plan._repr_html_()
