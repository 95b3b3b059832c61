"""Policies under simulated failures: small runs; the table of 10,000 steps is a benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.training.stacked import placement, simulate
from dtoolkit.training.stacked.conditions import Conditions
from dtoolkit.training.stacked.losing import Masked, Rejoining, Replicated, Shrinking

ALL = ("checkpoint", "replication", "stacked", "shrink", "replica")


@pytest.mark.parametrize("n", [200, 600])
def test_stacked_is_faster_than_replication_and_that_than_checkpoints(n):
    found = simulate(n, steps=1500)
    assert found["stacked"].ratio < found["replication"].ratio < found["checkpoint"].ratio
    assert found.cut > 0.15
    assert found["stacked"].redundancy == {200: 8, 600: 10}[n]
    assert found["replication"].seconds == min(one.seconds for one in found.tried)
    assert [one.redundancy for one in found.tried] == [2, 3, 4]


@pytest.mark.parametrize(
    ("patch", "known"), [("free", (0.48, 0.39)), ("always", (0.34, 0.22))], ids=["free", "always"]
)
def test_cuts_are_the_known_ones(patch, known):
    """Of 200 and 600 groups: 48 and 39% with patches free, 34 and 22% with one after each loss."""
    for n, cut in zip((200, 600), known, strict=True):
        found = [
            simulate(n, steps=3000, patch=patch, policies=ALL[1:3], replicas=[2], seed=seed)
            for seed in range(3)
        ]
        assert np.mean([one.cut for one in found]) == pytest.approx(cut, abs=0.03)


def test_a_function_of_its_seed():
    one, again, other = (simulate(50, steps=200, policies=ALL, seed=s) for s in (3, 3, 4))
    assert one == again
    assert simulate(50, steps=200, policies="stacked", seed=3).outcomes == (one["stacked"],)
    assert one.table().equals(again.table())
    assert one["stacked"].seconds != other["stacked"].seconds


def test_without_failures_time_is_steps_and_checkpoints():
    found = simulate(16, steps=100, mtbf=1e12, reduce=4.0, compute=10.0, save=0.0, policies=ALL)
    for outcome in found.outcomes:
        S = 2 if outcome.policy == "replication" else 1
        assert outcome.seconds == pytest.approx(100 * (10 * S + 4))
        assert outcome.computed == S
        assert (outcome.failures, outcome.wipe_outs, outcome.steps_lost) == (0, 0, 0)
    assert found["checkpoint"].ratio == pytest.approx(1.0)


def test_time_is_the_sum_of_what_happened():
    """Every second is a step's, a checkpoint's, a restart's or a patch's."""
    found = simulate(
        100, steps=800, reduce=5.0, policies=("checkpoint", "stacked"), mtbf=900.0, pause=2.0
    )
    for outcome in found.outcomes:
        made = outcome.steps + outcome.steps_lost
        whole = made * (64 * outcome.computed + 5.0) + 64.0 * outcome.patches
        whole += 60.0 * outcome.checkpoints + 3600.0 * outcome.wipe_outs
        whole += 2.0 * (outcome.failures - outcome.wipe_outs)
        assert outcome.seconds == pytest.approx(whole)
        assert outcome.wipe_outs <= outcome.failures


def test_a_run_that_gets_nowhere_is_given_up():
    found = simulate(20, steps=50, mtbf=1.0)
    assert all(outcome.ratio == float("inf") for outcome in found.outcomes)
    assert all(outcome.steps < 50 for outcome in found.outcomes)


def test_replicas_in_sets_endure_more():
    near, apart = (
        simulate(120, steps=600, policies=ALL[1:2], replicas=[2], sets=sets)
        for sets in (False, True)
    )
    assert apart["replication"].wipe_outs < near["replication"].wipe_outs


def test_a_newcomer_is_cheaper_than_going_on_with_fewer():
    found = simulate(8, steps=2000, mtbf=3000.0, compute=4.0, restart=300.0, policies=ALL)
    assert found["replica"].ratio < found["shrink"].ratio
    assert found["replica"].checkpoints == found["replica"].wipe_outs == 0
    assert found["replica"].patches == found["replica"].failures > 0


def test_words_table_and_source():
    found = simulate(20, steps=20, patch="free", sets=True, policies=ALL[:3])
    assert "no time" in " ".join(found.assumptions)
    assert "sets of r groups" in " ".join(found.assumptions)
    assert list(found.table().index) == list(ALL[:3])
    assert found.table().loc["stacked", "ratio"] == found["stacked"].ratio
    assert "2603.00357" in found.cite()
    assert "20 groups" in repr(found)
    with pytest.raises(KeyError, match="'shrink' was not simulated"):
        found["shrink"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: simulate(0), "n=0"),
        (lambda: simulate(20, 6), "r=6 shards a stack for n=20"),
        (lambda: simulate(20, policies=["prayer"]), "policies="),
        (lambda: simulate(20, policies=[]), "policies="),
        (lambda: simulate(20, patch="cheap"), "patch='cheap'"),
        (lambda: simulate(20, mtbf=0), "mtbf=0"),
        (lambda: simulate(20, shape=-1), "shape=-1"),
        (lambda: simulate(20, reduce=(3.0, 2.0)), "reduce="),
        (lambda: simulate(20, steps=0), "steps=0"),
        (lambda: simulate(2, replicas=[3]), "replicas="),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# ------------------------------------------------------------------- what one loss does


def test_arrivals_have_the_mean_and_the_shape():
    given = Conditions.of(
        steps=1, mtbf=300.0, shape=0.78, compute=1.0, reduce=0.0, save=0.0, restart=0.0,
        patch="free", sets=False, replace=0.0, catch_up=0.0, pause=0.0,
    )  # fmt: skip
    gaps = given.gaps(0)
    drawn = np.array([next(gaps) for _ in range(40_000)])
    assert drawn.mean() == pytest.approx(300, rel=0.03)
    # Of a Weibull the logarithm of the intervals has the deviation pi / sqrt(6) over the shape.
    assert np.log(drawn).std() == pytest.approx(np.pi / np.sqrt(6) / 0.78, rel=0.03)


def test_replicated_groups_are_lost_when_neighbours_are():
    state = Replicated(6, 2)
    assert [state.lose(0.0, 0.0), state.lose(0.2, 0.0)] == ["masked", "masked"]  # 0, then 2
    assert state.lose(0.0, 0.0) == "fatal"  # 1
    state.reset()
    assert state.lose(0.99, 0.0) == "masked"
    assert Replicated(6, 1).lose(0.5, 0.0) == "fatal"


def test_stacks_are_patched_when_s_rises_and_masked_when_they_cover():
    state = Masked(placement(4, 2))
    assert (state.lose(0.0, 0.0), state.S) == ("patched", 2)  # 0
    assert (state.lose(0.4, 0.0), state.S) == ("masked", 2)  # 2
    assert state.lose(0.0, 0.0) == "fatal"
    state.reset()
    assert state.S == 1


def test_shards_are_shared_and_newcomers_join():
    state = Shrinking(4)
    assert [(state.lose(0.0, 0.0), state.S) for _ in range(4)] == [
        ("patched", 2),
        ("patched", 2),
        ("patched", 4),
        ("fatal", 4),
    ]
    state = Rejoining(4, replace=60.0, mtbf=1e6)
    assert state.lose(0.0, 100.0) == "patched"
    assert (state.begin(159.0), state.S) == (False, 2)
    assert (state.begin(160.0), state.S) == (True, 1)
    assert state.endurable == float("inf")
