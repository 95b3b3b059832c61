"""Bounded staleness as a pure rule: its bound, its progress, and each push once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.training.serving_rule import (
    Action,
    Apply,
    Closed,
    Dismiss,
    Grant,
    Opened,
    Pushed,
    Serving,
    react,
)

bounds = st.one_of(st.none(), st.integers(0, 4))


def history(
    data: st.DataObject,
    workers: int,
    bound: int | None,
    pushes: int,
    close_after: int | None = None,
) -> tuple[Serving, list[Action], list[int]]:
    """Push in an order that the test draws, until nobody computes; all that was done."""
    state, done = react(Serving(bound=bound), Opened(tuple(range(workers)), pushes))
    actions, order = list(done), []
    while state.computing:
        if len(order) == close_after:
            state, done = react(state, Closed())
            actions += done
        rank = data.draw(st.sampled_from(sorted(state.computing)))
        order.append(rank)
        state, done = react(state, Pushed(rank))
        actions += done
    return state, actions, order


@given(st.data(), st.integers(1, 5), bounds, st.integers(0, 30))
def test_every_push_is_applied_once_within_the_bound(
    data: st.DataObject, workers: int, bound: int | None, pushes: int
) -> None:
    state, actions, order = history(data, workers, bound, pushes)
    applied = [action for action in actions if isinstance(action, Apply)]
    assert state.idle  # nobody was left waiting
    assert len(order) == pushes
    assert Counter(r for one in applied for r in one.staleness) == Counter(order)
    assert [one.version for one in applied] == list(range(1, state.version + 1))
    for one in applied:
        assert list(one.staleness) == sorted(one.staleness)
        assert all(s >= 0 for s in one.staleness.values())
        assert bound is None or all(s <= bound for s in one.staleness.values())
    dismissed = Counter(r for a in actions if isinstance(a, Dismiss) for r in a.ranks)
    assert dismissed == Counter(range(workers))


@given(st.data(), st.integers(1, 5), bounds, st.integers(0, 20))
def test_pushes_are_granted_on_the_version_they_say(
    data: st.DataObject, workers: int, bound: int | None, pushes: int
) -> None:
    _, actions, _ = history(data, workers, bound, pushes)
    version, on = 0, {}
    for action in actions:
        if isinstance(action, Apply):
            assert action.version == version + 1
            assert action.staleness == {r: version - on.pop(r) for r in action.staleness}
            version = action.version
        else:
            assert action.version == version
            if isinstance(action, Grant):
                on |= dict.fromkeys(action.ranks, version)
    assert not on


@given(st.data(), st.integers(1, 5), st.integers(1, 6))
def test_bound_zero_is_all_together(data: st.DataObject, workers: int, steps: int) -> None:
    state, actions, _ = history(data, workers, 0, steps * workers)
    applied = [action for action in actions if isinstance(action, Apply)]
    assert state.version == steps
    assert [one.staleness for one in applied] == [dict.fromkeys(range(workers), 0)] * steps


@given(st.data(), st.integers(1, 5), st.integers(0, 20))
def test_no_bound_is_one_by_one(data: st.DataObject, workers: int, pushes: int) -> None:
    _, actions, order = history(data, workers, None, pushes)
    assert [r for a in actions if isinstance(a, Apply) for r in a.staleness] == order


@given(bounds, st.integers(0, 10))
def test_one_worker_is_sequential(bound: int | None, pushes: int) -> None:
    state, done = react(Serving(bound=bound), Opened((0,), pushes))
    for number in range(pushes):
        assert done == (Grant((0,), number),) or done[1:] == (Grant((0,), number),)
        state, done = react(state, Pushed(0))
        assert done[0] == Apply({0: 0}, number + 1)
    assert done[-1] == Dismiss((0,), pushes)


@given(st.data(), st.integers(1, 4), bounds, st.integers(1, 20), st.integers(0, 10))
def test_a_close_lets_what_is_under_way_end(
    data: st.DataObject, workers: int, bound: int | None, pushes: int, after: int
) -> None:
    state, actions, order = history(data, workers, bound, pushes, close_after=after)
    assert state.idle
    applied = Counter(r for a in actions if isinstance(a, Apply) for r in a.staleness)
    assert applied == Counter(order)
    assert len(order) <= min(pushes, after + workers)
    # It can be opened again from there, and goes on counting.
    again, done = react(state, Opened(tuple(range(workers)), 1))
    assert done[0] == Grant((0,), state.version)
    assert again.granted == state.granted + 1


def test_a_slow_worker_holds_the_others_at_the_bound() -> None:
    state, _ = react(Serving(bound=1), Opened((0, 1), 10))
    state, done = react(state, Pushed(0))  # version 1 leaves worker 1 one behind
    assert done == (Apply({0: 0}, 1), Grant((0,), 1))
    state, done = react(state, Pushed(0))  # version 2 would leave it two behind
    assert done == ()
    state, done = react(state, Pushed(1))
    assert done == (Apply({0: 0, 1: 1}, 2), Grant((0, 1), 2))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="bound must be 0 or more"):
        Serving(bound=-1)
    state, _ = react(Serving(), Opened((0, 1), 4))
    with pytest.raises(ValueError, match="rank 2 pushes"):
        react(state, Pushed(2))
    with pytest.raises(ValueError, match="under way"):
        react(state, Opened((0, 1), 4))
    with pytest.raises(ValueError, match="pushes must be 0 or more"):
        react(Serving(), Opened((0,), -1))
