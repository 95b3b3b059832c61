"""Designs for a budget: what they take, the search over them, and the score."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit.spmm.design import Budget, Design, Offer, designs, evaluate, score, search

THIN = Offer("thin", price=1.0, ranks_per_node=2, inter="1GB/s", intra="20GB/s")
FAT = Offer("fat", price=4.0, ranks_per_node=4, inter="25GB/s", intra="200GB/s")
BUDGET = Budget(products=36_000_000, k=32)


@pytest.fixture(scope="module")
def A():
    return dt.data.block_model([32] * 4, (0.4, 0.01), seed=0, permute=True)


@pytest.fixture(scope="module")
def outcome(A):
    return evaluate(A, Design(THIN, 4), BUDGET)


def test_an_outcome_is_that_of_its_plan_on_its_network(A, outcome):
    plan = dt.plan(A, parts=8, strategy="joint", ranks_per_node=2)
    assert outcome.plan.digest == plan.digest
    assert outcome.seconds == plan.predict(THIN.network(4), k=32, dtype="float32").seconds
    assert outcome.hours == pytest.approx(outcome.seconds * 10_000)
    assert outcome.money == pytest.approx(outcome.hours * 4)  # 4 nodes for 1 an hour
    assert outcome.between == plan.volume_between_nodes * 32 * 4
    assert "4 nodes of thin, block, joint" in str(outcome)


def test_limits_that_are_not_kept_are_named_with_how_often(outcome):
    assert outcome.excess(BUDGET) == {}
    budget = dataclasses.replace(BUDGET, money=outcome.money / 2, hours=outcome.hours)
    assert outcome.excess(budget) == {"money": pytest.approx(2.0)}


def test_the_search_finds_what_evaluating_each_would(A):
    truth = np.argsort(np.random.default_rng(0).random(128)) % 8

    def own(matrix, parts):
        return truth % parts

    choices = list(designs((THIN, FAT), (2,), ("block", own), ("column", "joint")))
    found = search(A, choices, BUDGET)
    assert len(found) == len(choices) == 8
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    for one in found:
        again = evaluate(A, one.design, BUDGET)
        assert (again.plan.digest, again.seconds) == (one.plan.digest, one.seconds)
    tight = dataclasses.replace(BUDGET, money=min(one.money for one in found) * 1.01)
    first, *others = search(A, choices, tight)
    assert not first.excess(tight)
    assert all(other.excess(tight) or other.seconds >= first.seconds for other in others)


def test_points_are_the_share_of_the_references_speed(outcome):
    faster = dataclasses.replace(outcome, seconds=outcome.seconds / 4)
    assert score(outcome, outcome, BUDGET).points == 100
    slow = score(outcome, faster, BUDGET)
    assert (slow.points, slow.words) == (
        25,
        "Within the budget, and 4.00 times as slow as the reference.",
    )
    assert score(faster, outcome, BUDGET).points == 100
    assert "4.00 times as fast" in score(faster, outcome, BUDGET).words


def test_over_the_budget_is_half_and_less_the_more_it_is(outcome):
    budget = dataclasses.replace(BUDGET, money=outcome.money / 2, between=outcome.between / 5)
    found = score(outcome, outcome, budget)
    assert found.points == 5  # 100 / 2 / 2 / 5
    assert str(found) == (
        "5 of 100 points. Over the budget: money 2.00 times the limit, "
        "bytes between nodes 5.00 times the limit."
    )
