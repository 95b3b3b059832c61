"""Recovery policies compared for a network, by closed forms and by simulation."""

from __future__ import annotations

import math

import pytest

from dtoolkit.comm import Network
from dtoolkit.training import plan_recovery
from dtoolkit.training.stacked import cost

POLICIES = ["restart", "shrink", "replica", "stacked"]


@pytest.fixture(scope="module")
def plan():
    network = Network.flat(16, bandwidth="1GB/s", latency="1ms")
    return plan_recovery(network, "10min", gradient="160MB", restart="2min", steps=3000)


def test_times_follow_from_network_disk_and_bytes(plan):
    assert plan.mtbf == 600
    assert plan.reduce == pytest.approx(2 * 15 * (10e6 / 1e9 + 1e-3))  # a ring of 16
    assert plan.state == 3 * 160_000_000
    assert plan.catch_up == pytest.approx(0.48 + 1e-3)
    assert plan.save == pytest.approx(0.48)
    assert plan.restart == 120
    given = plan_recovery(plan.network, 600.0, state="1GB", disk="100MB/s", simulated=False)
    assert given.save == 10
    assert given.restart == 1 + 10 + 10
    assert plan_recovery(plan.network, 600.0, groups=1, simulated=False).reduce == 0


def test_policies_are_compared_by_formula_and_simulation(plan):
    assert [policy.name for policy in plan.policies] == POLICIES
    assert plan.best.name == "replica"
    assert plan.best.simulated == min(policy.simulated for policy in plan.policies)
    for policy in plan.policies:
        assert policy.expected >= 1
        assert policy.simulated == pytest.approx(policy.expected, rel=0.2)
    assert plan["stacked"].endured > plan["restart"].endured
    assert plan["replica"].endured == plan["replica"].period == math.inf
    with pytest.raises(KeyError, match="'abort'"):
        plan["abort"]


def test_stacked_is_the_papers_cost_where_nothing_is_reduced():
    network = Network.flat(200, bandwidth=1e15)
    found = plan_recovery(
        network, 300.0, gradient=0, save=60, restart=3600, compute=64, detect=0, simulated=False
    )["stacked"]
    assert found.redundancy == 8
    assert found.expected == pytest.approx(cost(200, 8))
    assert found.simulated is None
    assert found.ratio == found.expected


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_few_groups(groups):
    found = plan_recovery(Network.flat(groups, bandwidth="1GB/s"), "5min", steps=200)
    assert all(1 <= policy.ratio < 10 for policy in found.policies)
    assert found["stacked"].redundancy == (2 if groups > 2 else 1)


def test_a_thousand_groups_take_the_policies_apart():
    """With an hour to restart, no checkpoint is often enough: what masks losses wins."""
    network = Network.flat(1000, bandwidth="50GB/s")
    found = plan_recovery(
        network, "5min", compute=64, restart="60min", save="60s", replace="60min", steps=300
    )
    assert found["restart"].ratio > 5 * found["stacked"].ratio
    assert found.best.name == "stacked"


def test_table_words_and_source(plan):
    table = plan.table()
    assert list(table.index) == POLICIES
    assert table.loc["stacked", "simulated"] == plan["stacked"].simulated
    assert "best is replica" in repr(plan)
    assert "a failure every: 10 min" in repr(plan)
    assert "2603.00357" in plan.cite()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mtbf": "soon"}, "mtbf"),
        ({"mtbf": 0}, "mtbf=0"),
        ({"compute": 0}, "compute=0"),
        ({"gradient": "4 apples"}, "gradient"),
        ({"disk": "fast"}, "disk"),
        ({"groups": 0}, "groups=0"),
        ({"redundancy": 5}, "r=5 shards a stack for n=16"),
        ({"steps": 0}, "steps=0"),
    ],
)
def test_what_is_refused(plan, arguments, words):
    with pytest.raises(ValueError, match=words):
        plan_recovery(plan.network, **{"mtbf": 600.0, **arguments})


def test_a_number_is_no_network():
    with pytest.raises(TypeError, match=r"network=8: wanted a dt\.comm\.Network"):
        plan_recovery(8, "60min")
