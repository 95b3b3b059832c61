"""A slow worker sleeps so long as it was told, at the steps and on the rank that were named."""

import pickle

import pytest

from dtoolkit.faults import Slow
from dtoolkit.faults.delays import Constant, Exponential


def pause(fault: Slow, *, took=0.1, seed=0, rank=0, step=0, micro=0) -> float:
    return fault.pause(seed, rank, step, micro, took)


def test_what_is_stated_adds_up():
    assert pause(Slow(seconds=0.2)) == 0.2
    assert pause(Slow(factor=3.0)) == pytest.approx(0.2)
    assert pause(Slow(delay=Constant(0.05))) == 0.05
    assert pause(Slow(seconds=0.2, factor=2.0, delay=Constant(0.05))) == pytest.approx(0.35)


def test_only_the_rank_and_the_steps_that_were_named():
    fault = Slow(2, seconds=0.1, from_step=3, until_step=5)
    slow = [[pause(fault, rank=rank, step=step) > 0 for step in range(7)] for rank in range(4)]
    assert slow[2] == [False, False, False, True, True, False, False]
    assert not any(any(slow[rank]) for rank in (0, 1, 3))
    everyone = Slow(seconds=0.1)
    assert all(pause(everyone, rank=rank, step=9) for rank in range(4))


def test_delays_come_from_the_seed_of_the_run_or_from_its_own():
    delay = Exponential(0.1)
    place = {"rank": 1, "step": 4, "micro": 2}
    assert pause(Slow(delay=delay), seed=5, **place) == delay.draw(5, **place)
    assert pause(Slow(delay=delay, seed=9), seed=5, **place) == delay.draw(9, **place)


def test_a_fault_travels_and_compares():
    fault = Slow(1, factor=2.0, delay=Exponential(0.1))
    assert pickle.loads(pickle.dumps(fault)) == fault
    assert len({fault, Slow(1, factor=2.0, delay=Exponential(0.1))}) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "nothing makes the rank slow"),
        ({"seconds": -1.0}, ValueError, "seconds=-1.0"),
        ({"seconds": "1"}, TypeError, "seconds='1'"),
        ({"factor": 0.5}, ValueError, "factor=0.5"),
        ({"factor": float("inf")}, ValueError, "factor=inf"),
        ({"delay": 0.1}, TypeError, "delay=0.1"),
        ({"rank": -1, "seconds": 1.0}, ValueError, "rank=-1"),
        ({"seconds": True}, TypeError, "seconds=True"),
        ({"rank": True, "seconds": 1.0}, TypeError, "rank=True"),
        ({"rank": 1.5, "seconds": 1.0}, TypeError, "rank=1.5"),
        ({"seconds": 1.0, "from_step": 4, "until_step": 4}, ValueError, "until_step=4"),
    ],
)
def test_what_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        Slow(**arguments)


def test_a_rank_that_is_not_there():
    Slow(1, seconds=0.1).check(2)
    Slow(seconds=0.1).check(1)
    with pytest.raises(ValueError, match="rank=2 is not one of the 2 rank"):
        Slow(2, seconds=0.1).check(2)
