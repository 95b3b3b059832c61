"""Closed forms of stacked parallelism, against the paper's numbers and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtoolkit.errors import PlanError
from dtoolkit.training.stacked import (
    availability,
    best_period,
    best_redundancy,
    cost,
    endurable,
    fewest_computed,
    largest_redundancy,
    mean_computed,
    placement,
)
from dtoolkit.training.stacked.endurance import endurable_replaced
from dtoolkit.training.stacked.settling import settle

# ------------------------------------------------------------------------- losses endured


@pytest.mark.parametrize(
    ("n", "r", "known"), [(600, 9, 280.8), (600, 15, 378.0), (600, 20, 427.0), (200, 9, 106.0)]
)
def test_simulated_losses_are_near_the_formula_and_the_known_ones(n, r, known):
    simulated = endurable(n, r, method="simulated", trials=2000)
    assert simulated == pytest.approx(endurable(n, r), rel=0.02)
    assert simulated == pytest.approx(known, rel=0.01)


def test_few_groups_are_further_from_the_formula():
    simulated = endurable(8, 3, method="simulated", trials=4000)
    assert endurable(8, 3) / simulated - 1 == pytest.approx(0.08, abs=0.015)


def test_the_formula():
    assert endurable(600, 9) == pytest.approx(math.gamma(1 / 9) / 9 * 600 ** (8 / 9))
    assert endurable(50, 1) == 1.0
    assert endurable(50, 1, method="simulated", trials=5) == 0.0  # the first loss is fatal


def test_simulated_is_what_the_controller_endures():
    """The same orders of losses, lost one by one until no order of the stacks covers all types."""
    n, r = 30, 4
    stacks, endured = placement(n, r), []
    for seed in range(300):
        alive, losses = np.ones(n, np.bool_), 0
        for group in np.random.default_rng(seed).permutation(n):
            alive[group] = False
            if settle(stacks.table, alive, 1) is None:
                break
            losses += 1
        endured.append(losses)
    spread = np.std(endured) / math.sqrt(len(endured))
    assert abs(np.mean(endured) - endurable(n, r, method="simulated")) < 4 * spread


def test_simulated_is_a_function_of_its_seed():
    one, two = (endurable(60, 5, method="simulated", trials=50, seed=s) for s in (1, 2))
    assert one == endurable(60, 5, method="simulated", trials=50, seed=1)
    assert one != two


def test_groups_that_are_replaced_are_hardly_ever_gone_at_once():
    assert endurable_replaced(1, replace=10, mtbf=100) == 1.0
    assert endurable_replaced(2, replace=10, mtbf=100) == pytest.approx(1 / (1 - math.exp(-0.1)))
    assert endurable_replaced(40, replace=10, mtbf=100) == math.inf
    assert endurable_replaced(3, replace=0, mtbf=100) == math.inf


# ---------------------------------------------------------------------------------- costs


@pytest.mark.parametrize(("n", "best", "rule"), [(200, 8, 8), (600, 10, 10), (1000, 10, 10)])
def test_best_redundancy_is_the_papers(n, best, rule):
    assert best_redundancy(n) == best
    assert math.floor(math.log2(n) + 0.833) == rule
    costs = [cost(n, r) for r in range(1, largest_redundancy(n) + 1)]
    assert int(np.argmin(costs)) + 1 == best


def test_few_workers_get_as_much_as_a_ruler_allows():
    assert [best_redundancy(n) for n in (1, 2, 3, 4, 8)] == [1, 1, 2, 2, 3]


def test_cost_by_hand():
    mu = endurable(200, 8)
    failure = 300 * mu
    period = 60 + math.sqrt(60**2 + 2 * 60 * (failure + 3600))
    assert best_period(save=60, restart=3600, failure=failure) == pytest.approx(period)
    up = (period - 60) / period * failure / (failure + 3600 + period / 2)
    assert availability(period, save=60, restart=3600, failure=failure) == pytest.approx(up)
    S = np.mean([math.ceil(200 / (200 - k)) for k in range(math.floor(mu))])
    assert mean_computed(200, 8) == pytest.approx(S)
    assert cost(200, 8) == pytest.approx(S / up)
    assert cost(200, 8, save=0) == pytest.approx(S * (failure + 3600) / failure)


@given(st.floats(0.1, 100), st.floats(0, 1e4), st.floats(100, 1e6), st.floats(0.2, 5))
@settings(max_examples=60)
def test_no_other_period_is_better(save, restart, failure, factor):
    best = best_period(save=save, restart=restart, failure=failure)
    other = save + (best - save) * factor
    up, less = (
        availability(period, save=save, restart=restart, failure=failure)
        for period in (best, other)
    )
    assert less <= up * (1 + 1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: endurable(4, 5), "r=5: wanted at most n=4"),
        (lambda: endurable(0, 1), "n=0"),
        (lambda: endurable(8, 3, method="guessed"), "method='guessed'"),
        (lambda: endurable(8, 3, method="simulated", trials=0), "trials=0"),
        (lambda: fewest_computed(4, 4), "lost=4"),
        (lambda: best_period(save=-1, restart=1, failure=1), "save=-1"),
        (lambda: availability(5.0, save=5, restart=1, failure=1), "period=5.0"),
        (lambda: best_redundancy(8, mtbf=0), "mtbf=0"),
        (lambda: cost(8, 3, restart=math.inf), "restart=inf"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_simulated_needs_a_ruler():
    with pytest.raises(PlanError, match="r=4 shards a stack for n=8"):
        endurable(8, 4, method="simulated")
