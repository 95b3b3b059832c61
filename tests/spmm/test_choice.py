"""What ``strategy="auto"`` chooses on a network: the fastest by prediction, with the losers."""

from __future__ import annotations

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit.comm import Network
from dtoolkit.errors import PlanError
from dtoolkit.spmm import Plan

A = dt.data.rmat(2**11, 16, seed=0)
TIERS = Network.two_tier(
    nodes=4, ranks_per_node=4, inter="5GB/s", intra="100GB/s", inter_latency="5us"
)
FLAT = Network.flat(16, bandwidth="5GB/s")


def test_auto_takes_the_least_predicted_time_and_shows_what_lost():
    plan = dt.plan(A, parts=16, strategy="auto", network=TIERS)
    names = [one.strategy for one in plan.candidates]
    flat = ("oblivious", "column", "row", "joint")
    over = ("hier-column", "hier-row", "hier-joint", "node-pair")
    assert sorted(names) == sorted((*flat, *over, "1.5d"))  # 2d is the same grid at 16 ranks
    assert plan.strategy == names[0]
    seconds = [one.seconds for one in plan.candidates]
    assert seconds == sorted(seconds)
    for one in plan.candidates:
        alone = dt.plan(A, parts=16, strategy=one.strategy, nodes=TIERS.nodes)
        assert alone.predict(TIERS).seconds == one.seconds
    assert "modelled" in repr(plan)
    for one in plan.candidates:
        assert one.strategy in repr(plan)
        assert one.strategy in plan._repr_html_()
    table = plan.compare()["predicted_seconds"]
    assert table[plan.strategy] == seconds[0]


def test_slow_links_between_nodes_ask_for_fewer_crossings():
    plan = dt.plan(A, parts=16, strategy="auto", network=TIERS)
    assert plan.strategy == "node-pair"
    assert plan.volume_between_nodes == min(
        dt.plan(A, parts=16, strategy=one.strategy, nodes=TIERS.nodes).volume_between_nodes
        for one in plan.candidates
    )


def test_a_flat_network_has_no_nodes_to_go_by():
    plan = dt.plan(A, parts=16, strategy="auto", network=FLAT)
    assert plan.strategy == "joint"
    assert not [one for one in plan.candidates if one.strategy.startswith(("hier", "node"))]


def test_where_latency_is_all_one_stage_beats_three():
    slow = Network.two_tier(
        nodes=4,
        ranks_per_node=4,
        inter="500GB/s",
        intra="500GB/s",
        inter_latency="1ms",
        intra_latency="1ms",
    )
    plan = dt.plan(A, parts=16, strategy="auto", network=slow)
    assert len(plan.stages) == 1


def test_k_decides_between_latency_and_bytes():
    network = Network.two_tier(
        nodes=4,
        ranks_per_node=4,
        inter="1GB/s",
        intra="100GB/s",
        inter_latency="20us",
        intra_latency="20us",
    )
    few = dt.plan(A, parts=16, strategy="auto", network=network, k=1)
    many = dt.plan(A, parts=16, strategy="auto", network=network, k=512)
    assert len(few.stages) == 1
    assert many.strategy == "node-pair"


def test_wide_results_are_weighed_and_predicted_as_such():
    plan = dt.plan(
        A, parts=16, strategy="auto", network=TIERS, b_dtype="float32", c_dtype="float64"
    )
    alone = dt.plan(
        A,
        parts=16,
        strategy=plan.strategy,
        nodes=TIERS.nodes,
        b_dtype="float32",
        c_dtype="float64",
    )
    said = dt.comm.predict(alone, TIERS, dtype="float32", c_dtype="float64")
    assert plan.candidates[0].seconds == said.seconds


def test_candidates_are_saved_and_loaded(tmp_path):
    plan = dt.plan(A, parts=16, strategy="auto", network=TIERS)
    plan.save(tmp_path / "plan.npz")
    assert Plan.load(tmp_path / "plan.npz").candidates == plan.candidates


def test_a_network_says_which_ranks_share_a_node():
    plan = dt.plan(A, parts=16, strategy="hier-joint", network=TIERS)
    assert np.array_equal(plan.nodes, TIERS.nodes)
    assert plan.candidates == ()
    stated = dt.plan(A, parts=16, network=TIERS, ranks_per_node=8)
    assert len(np.unique(stated.nodes)) == 2


def test_replication_is_that_of_the_candidate():
    plan = dt.plan(A, parts=16, strategy="auto", network=TIERS, replication=2)
    found = {one.strategy: one.seconds for one in plan.candidates}
    alone = dt.plan(A, parts=16, strategy="1.5d", replication=2, network=TIERS)
    assert found["1.5d"] == alone.predict(TIERS).seconds
    assert "2d" in found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"network": 5}, "network=5"),
        ({"network": Network.flat(4, bandwidth=1e9)}, "network= has 4 ranks"),
        ({"network": TIERS, "replication": 3}, "replication=3"),
        ({"network": TIERS, "k": -1}, "k=-1"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(PlanError, match=said):
        dt.plan(A, parts=16, strategy="auto", **options)
