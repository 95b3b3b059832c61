"""Traces laid out to be played back: against the events, one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtoolkit.comm import Event, Replay, Trace


def event(rank, start, end, sent, *, launch=1, operation="send", phase="a"):
    return Event(launch, rank, operation, phase, start, end, tuple(sent), sum(sent))


TRACE = Trace(
    [
        event(0, 10.0, 11.0, (0, 5, 0)),
        event(1, 10.0, 12.0, (7, 0, 9), phase="b"),
        event(2, 11.5, 14.0, (1, 0, 0), phase="", launch=2),
        event(0, 13.0, 13.0, (0, 3, 0), operation="all_reduce", launch=2),
    ],
    ranks=3,
)


def test_without_a_window_it_is_the_traces_own_matrix():
    assert (Replay(TRACE).matrix() == TRACE.matrix()).all()
    for kept in ({"phase": "a"}, {"operation": "send"}, {"launch": 2}, {"phase": ""}):
        replay = Replay(TRACE, **kept)
        assert (replay.matrix() == TRACE.matrix(**kept)).all()
        assert len(replay) == len(TRACE.filter(**kept))


def test_worked_windows():
    replay = Replay(TRACE)
    assert replay.span == 4.0
    assert replay.end.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert replay.matrix(until=2.0).tolist() == [[0, 5, 0], [7, 0, 9], [0, 0, 0]]
    assert replay.matrix(until=1.999).tolist() == [[0, 5, 0], [0, 0, 0], [0, 0, 0]]
    assert replay.matrix(2.0, 3.0).tolist() == [[0, 3, 0], [0, 0, 0], [0, 0, 0]]
    assert replay.matrix(messages=True).tolist() == [[0, 2, 0], [1, 0, 1], [1, 0, 0]]
    assert replay.matrix(3.0, 2.0).sum() == 0
    assert replay.peak(2.0) == 9
    assert replay.peak(4.5) == 9
    assert replay.peak(4.5, messages=True) == 2


def test_sums_by_phase():
    frame = Replay(TRACE).phases()
    assert frame["phase"].tolist() == ["a", "b", ""]
    assert frame["events"].tolist() == [2, 1, 1]
    assert frame["messages"].tolist() == [2, 2, 1]
    assert frame["bytes"].tolist() == [8, 16, 1]
    assert frame["seconds"].tolist() == [1.0, 2.0, 2.5]
    assert Replay(TRACE).phases(2.5, 3.5)["bytes"].tolist() == [3]
    pairs = Replay(TRACE).pairs(until=2.0)
    assert pairs.values.tolist() == [[0, 1, 5, 1], [1, 0, 7, 1], [1, 2, 9, 1]]
    assert Replay(TRACE).frame(3.5)["bytes_sent"].tolist() == [1]


def test_traffic_for_a_network_takes_each_phase_as_one():
    traffic = Replay(TRACE).traffic()
    assert [phase.name for phase in traffic.phases] == ["a", "b", "send"]
    assert (traffic.sent == TRACE.matrix()).all()
    assert Replay(TRACE).traffic(until=0.5).total == 0


def test_nothing():
    replay = Replay(Trace(ranks=2))
    assert replay.matrix().tolist() == [[0, 0], [0, 0]]
    assert (replay.span, len(replay), replay.peak(1.0)) == (0.0, 0, 0)
    assert len(replay.phases()) == len(replay.pairs()) == 0
    assert Replay(Trace()).matrix().shape == (0, 0)
    assert replay.traffic().total == 0


amounts = st.lists(st.integers(0, 2**40), min_size=3, max_size=3)
events = st.builds(
    lambda rank, start, took, sent, phase: event(rank, start, start + took, sent, phase=phase),
    st.integers(0, 2),
    st.floats(0, 10),
    st.floats(0, 3),
    amounts,
    st.sampled_from(["", "a", "b/c"]),
)


@given(st.lists(events, max_size=12), st.lists(st.floats(0, 14), min_size=1, max_size=3))
def test_windows_sum_to_the_whole(some, cuts):
    trace = Trace(some, ranks=3)
    replay = Replay(trace)
    bounds = [None, *sorted(cuts), None]
    parts = [replay.matrix(a, b) for a, b in pairwise(bounds)]
    assert (np.sum(parts, axis=0) == trace.matrix()).all()
    assert replay.phases()["bytes"].sum() == trace.total
    assert replay.peak(3.0) <= trace.matrix().max(initial=0)


def test_emulation_and_clock_stay():
    trace = Trace(TRACE.events, ranks=3, clock_error=1e-3, emulated="slow")
    replay = Replay(trace)
    assert (replay.clock_error, replay.emulated) == (1e-3, "slow")
