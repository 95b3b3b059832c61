"""The ESync rule on modelled clocks: its counts, its waits, and that every round ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.training.oscars import (
    Finished,
    OneMore,
    Ready,
    Round,
    Wait,
    local_steps,
    react,
    simulate,
    stops,
)

times = st.lists(st.integers(1, 200).map(lambda n: n / 16), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("steps_take", "counts"),
    [
        ([1, 2, 4, 8], [7, 3, 1, 1]),
        ([1 / 8, 1 / 4, 1 / 2, 1], [7, 3, 1, 1]),
        ([8, 4, 2, 1], [1, 1, 3, 7]),
        ([0.3, 0.3, 0.3], [1, 1, 1]),
        ([0.1, 0.8], [7, 1]),
        ([1, 8.5], [8, 1]),  # as many as end with the slowest one's, less eps, exactly
        ([1], [1]),
    ],
)
def test_counts(steps_take: list[float], counts: list[int]) -> None:
    assert local_steps(steps_take) == counts
    assert simulate(steps_take, rounds=3).steps.tolist() == [counts] * 3


@given(times)
def test_counts_are_those_of_the_formula(steps_take: list[float]) -> None:
    assert simulate(steps_take, rounds=2).steps.tolist() == [local_steps(steps_take)] * 2


@given(times)
def test_nobody_idles_longer_than_its_own_step_and_eps(steps_take: list[float]) -> None:
    done = simulate(steps_take, rounds=2)
    assert (done.idle < np.array(steps_take) + min(steps_take) / 2).all()
    assert np.allclose(done.busy, done.steps * np.array(steps_take))
    assert np.allclose(done.ends, np.array([1, 2]) * max(steps_take))


@given(st.integers(1, 6), st.integers(1, 100).map(lambda n: n / 8), st.booleans())
def test_equal_speeds_are_one_step_each(workers: int, seconds: float, known: bool) -> None:
    done = simulate([seconds] * workers, rounds=3, known=known)
    assert (done.steps == 1).all()
    assert not done.idle.any()
    assert done.utilisation == 1


@given(times)
def test_times_are_learned_in_the_first_round(steps_take: list[float]) -> None:
    steps = simulate(steps_take, rounds=3, known=False).steps.tolist()
    assert steps == [[1] * len(steps_take), *[local_steps(steps_take)] * 2]


@given(times, st.integers(0, 2**31))
def test_with_jitter_waits_grow_by_what_steps_overran(steps_take: list[float], seed: int) -> None:
    chance = np.random.default_rng(seed).uniform(0.5, 2.0, (len(steps_take), 4000))
    done = simulate(steps_take, rounds=5, jitter=lambda worker, step: chance[worker, step])
    assert (done.steps >= 1).all()
    # A step is expected to take what the last one took: it can take four times as long.
    longest = 2 * np.array(steps_take)
    assert (done.idle <= longest + min(steps_take) + 4 * max(steps_take)).all()
    assert np.allclose(np.diff([0, *done.ends])[:, None], done.busy + done.idle)


def test_unequal_speeds_are_used_better_than_in_lock_step() -> None:
    speeds = np.array([1, 2, 4, 8])
    done = simulate(1 / speeds, rounds=10)
    lock_step = (1 / speeds).mean()
    assert lock_step == pytest.approx(15 / 32)
    assert done.utilisation == pytest.approx((1 + 1 / 2 + 3 / 4 + 7 / 8) / 4)


def test_the_slowest_is_ready_before_the_others_expected_it() -> None:
    state = Round.of((0, 1), {0: 1.0, 1: 10.0})
    state, _ = react(state, Finished(0, 1.0, 1.0))
    state, done = react(state, Finished(1, 1.5, 1.5))  # one step was slow, not the worker
    assert done == (Wait(1),)
    state, done = react(state, Finished(0, 2.0, 1.0))
    assert done[0] == Wait(0)
    assert done[1].steps == {0: 2, 1: 1}
    assert state.number == 1


def test_who_goes_by_itself_is_believed() -> None:
    state = Round.of((0, 1), {0: 1.0, 1: 10.0})
    after, done = react(state, Finished(0, 1.0, 1.0))
    assert done == (OneMore(0),)
    assert not stops(after, 0, 1.0)
    state, done = react(state, Ready(0, 1.0, 1.0))
    assert done == (Wait(0),)
    state, done = react(state, Ready(1, 9.0, 9.0))
    assert done[1].steps == {0: 1, 1: 1}
    assert state.number == 1


def test_what_cannot_be_is_refused() -> None:
    state = Round.of((0, 1))
    with pytest.raises(ValueError, match="none of its workers"):
        react(state, Finished(2, 1.0, 1.0))
    state, _ = react(state, Finished(0, 1.0, 1.0))
    with pytest.raises(ValueError, match="waits for the average"):
        react(state, Finished(0, 2.0, 1.0))
    with pytest.raises(ValueError, match="times: there are none"):
        local_steps([])
    with pytest.raises(ValueError, match=r"times\[1\] is 0"):
        simulate([1, 0], rounds=1)
    with pytest.raises(ValueError, match="rounds must be 1 or more"):
        simulate([1], rounds=0)
