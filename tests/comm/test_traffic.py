from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm import Event, Phase, Trace, Traffic


def sends(rank, sent, *, launch=0, operation="all_to_all_v", phase="", start=0.0, group=""):
    return Event(launch, rank, operation, phase, start, start + 0.1, tuple(sent), 0, group)


def test_a_phase_holds_what_it_was_given():
    sent = np.array([[5, 1], [2, 0]], dtype=np.int32)
    phase = Phase("halo", sent, work=[1, 2], after=np.array([3.0, 4.0]))
    assert phase.sent.dtype == np.int64
    assert phase.sent.tolist() == [[0, 1], [2, 0]]  # what stays where it is does not move
    assert phase.work.tolist() == [1.0, 2.0]
    assert phase.after.tolist() == [3.0, 4.0]
    assert phase.ranks == 2
    sent[0, 1] = 9
    assert phase.sent[0, 1] == 1
    with pytest.raises(ValueError, match="read-only"):
        phase.sent[0, 1] = 9
    assert repr(phase) == "<Phase 'halo': 3 B on 2 ranks>"


def test_work_is_nothing_by_default():
    phase = Phase("halo", np.zeros((3, 3), int))
    assert phase.work.tolist() == phase.after.tolist() == [0.0] * 3


def test_a_traffic_sums_its_phases():
    one, two = np.array([[0, 1], [2, 0]]), np.array([[0, 2**53], [0, 0]])
    traffic = Traffic([Phase("a", one), Phase("b", two)], "two phases", np.float32)
    assert isinstance(traffic.phases, tuple)
    assert traffic.total == 2**53 + 3
    assert traffic.sent.tolist() == [[0, 2**53 + 1], [2, 0]]
    assert traffic.ranks == 2
    assert traffic.dtype == "float32"
    assert repr(traffic) == "<Traffic of two phases: 9.01 PB in 2 phases on 2 ranks>"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Phase("a", np.zeros((2, 3), int)), r"phase 'a': sent has shape \(2, 3\)"),
        (lambda: Phase("a", np.zeros((2, 2))), "phase 'a': sent has dtype float64"),
        (lambda: Phase("a", -np.ones((2, 2), int)), "phase 'a': sent has negative"),
        (lambda: Phase("a", np.zeros((2, 2), int), [1.0]), r"work has shape \(1,\)"),
        (lambda: Phase("a", np.zeros((2, 2), int), [1, -1]), "work has entries"),
        (lambda: Phase("a", np.zeros((2, 2), int), None, [1, np.nan]), "after has entries"),
        (lambda: Phase(None, np.zeros((2, 2), int)), "name=None"),
        (lambda: Traffic(()), "phases is empty"),
        (lambda: Traffic((np.zeros((2, 2), int),)), "phases has a ndarray"),
        (
            lambda: Traffic((Phase("a", np.zeros((2, 2), int)), Phase("b", np.zeros((3, 3), int)))),
            "phase 'b' is of 3 ranks, and phase 'a' of 2",
        ),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_trace_gives_one_phase_for_each_round_of_calls():
    trace = Trace(
        [
            sends(0, (0, 10, 20), phase="spmm", start=1.0),
            sends(1, (5, 0, 7), phase="spmm", start=1.1),
            sends(0, (0, 1, 0), phase="spmm", start=2.0),  # the second call of rank 0
            sends(2, (3, 0, 0), phase="spmm", start=1.9),  # the first of rank 2, late
            sends(1, (0, 0, 9), operation="all_reduce", launch=1, start=3.0),
            sends(0, (0, 0, 0), operation="barrier", launch=1, start=2.5),
        ],
        ranks=3,
    )
    traffic = trace.traffic()
    assert [phase.name for phase in traffic.phases] == ["spmm", "spmm", "all_reduce"]
    assert traffic.phases[0].sent.tolist() == [[0, 10, 20], [5, 0, 7], [3, 0, 0]]
    assert traffic.phases[1].sent.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert traffic.total == trace.total
    assert not any(phase.work.any() or phase.after.any() for phase in traffic.phases)


def test_calls_in_groups_beside_each_other_are_one_phase():
    trace = Trace(
        [
            sends(0, (0, 8, 0, 0), group="row 0", start=0.0),
            sends(2, (0, 0, 0, 8), group="row 1", start=0.1),
        ],
        ranks=4,
    )
    (phase,) = trace.traffic().phases
    assert phase.sent.sum() == 16


def test_a_trace_can_be_cut_by_phase_and_launch():
    trace = Trace(
        [
            sends(0, (0, 1), phase="a"),
            sends(0, (0, 2), phase="b", start=1.0),
            sends(0, (0, 4), phase="a", launch=1, start=2.0),
        ],
        ranks=2,
    )
    assert trace.traffic(phase="a").total == 5
    assert [phase.name for phase in trace.traffic(phase=["a", "b"]).phases] == ["a", "b", "a"]
    assert trace.traffic(launch=1).total == 4
    assert trace.traffic(phase="a", launch=0).total == 1


def test_a_trace_of_nothing_has_one_phase_in_which_nothing_moves():
    traffic = Trace(ranks=4).traffic()
    assert (traffic.total, traffic.ranks, len(traffic.phases)) == (0, 4, 1)
    grown = Trace([sends(5, (1, 0))], ranks=2).traffic()
    assert grown.ranks == 6
