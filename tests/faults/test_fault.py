"""Faults as values: what they are called, what is refused, how they travel."""

import pickle

import numpy as np
import pytest

from dtoolkit.faults import (
    Corrupt,
    CutLink,
    Fault,
    Hang,
    Kill,
    OutOfMemory,
    Raise,
    SlowLink,
)
from tests.faults.fakes import Note

WORDS = [
    (Kill(rank=2, at_step=5), "kill rank 2 at step 5"),
    (Kill(1, at_step=0, where="backward"), "kill rank 1 at step 0, after its backward pass"),
    (Kill(1, at_step=3, where="exchange"), "kill rank 1 at step 3, as its exchange begins"),
    (Kill(0, at_operation="all_reduce"), "kill rank 0 at its first all_reduce"),
    (Kill(0, at_operation=("all_to_all_v", 7)), "kill rank 0 at all_to_all_v 7"),
    (Kill(0, after=1.5), "kill rank 0 1.5 s after the beginning"),
    (Kill(0, after=0), "kill rank 0 at the beginning"),
    (Hang(1, at_step=2), "hang rank 1 at step 2"),
    (Hang(1, at_step=2, seconds=0.5), "hang rank 1 for 0.5 s at step 2"),
    (Raise(3, at_step=1, error=ValueError), "raise ValueError on rank 3 at step 1"),
    (OutOfMemory(0, at_step=1), "refuse rank 0 memory at step 1"),
    (OutOfMemory(0, at_step=1, kind="kill"), "kill rank 0 for want of memory at step 1"),
    (Corrupt(1, at_step=4), "NaN in the gradients of rank 1 at step 4"),
    (
        Corrupt(1, at_step=4, what="optimizer", kind="bitflip", layer="0.weight.exp_avg"),
        "a flipped bit in the optimizer, 0.weight.exp_avg, of rank 1 at step 4",
    ),
    (CutLink(0, 3, at_step=2), "cut the link between ranks 0 and 3 at step 2"),
    (
        SlowLink(1, 2, bandwidth="10MB/s", latency=0.005, at_step=2, until_step=6),
        "slow the link between ranks 1 and 2 (10MB/s, 0.005 s more), at step 2 until step 6",
    ),
    (
        SlowLink(1, 2, latency="5ms", for_seconds=2),
        "slow the link between ranks 1 and 2 (5ms more), at the beginning for 2 s",
    ),
]


@pytest.mark.parametrize(("fault", "words"), WORDS, ids=[words for _, words in WORDS])
def test_a_fault_says_what_it_is_travels_and_compares(fault: Fault, words: str):
    assert str(fault) == words
    assert pickle.loads(pickle.dumps(fault)) == fault
    assert eval(repr(fault)) == fault  # what is shown is what makes it again
    assert len({fault, pickle.loads(pickle.dumps(fault))}) == 1


def test_what_is_shown_is_what_was_said():
    assert repr(Kill(rank=2, at_step=5)) == "Kill(rank=2, at_step=5)"
    assert repr(Hang(1, after=2.0, seconds=3)) == "Hang(rank=1, after=2.0, seconds=3)"
    assert repr(Note(1, at_step=0)) == "Note(rank=1, at_step=0)"


def test_a_number_of_an_operation_may_be_numpys():
    fault = Kill(0, at_operation=("all_reduce", np.int64(1)))
    assert fault == Kill(0, at_operation=("all_reduce", 1))
    assert type(fault.at_operation[1]) is int


@pytest.mark.parametrize("kind", [Kill, Hang, Raise, OutOfMemory])
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "exactly one of at_step=, at_operation= and after= .* got none"),
        ({"at_step": 1, "after": 1.0}, ValueError, "got at_step and after"),
        ({"at_step": -1}, ValueError, "at_step=-1"),
        ({"at_step": 1.5}, TypeError, "at_step=1.5"),
        ({"at_step": True}, TypeError, "at_step=True"),
        ({"rank": True, "at_step": 1}, TypeError, "rank=True"),
        ({"at_step": 1, "where": ["begin"]}, ValueError, r"where=\['begin'\]; wanted one of begin"),
        ({"at_step": 1, "where": "middle"}, ValueError, "where='middle'; wanted one of begin"),
        ({"after": 1, "where": "backward"}, ValueError, "where='backward' is a part of a step"),
        ({"after": -1}, ValueError, "after=-1"),
        ({"after": float("nan")}, ValueError, "after=nan"),
        ({"after": "1s"}, TypeError, "after='1s'"),
        ({"after": True}, TypeError, "after=True"),
        ({"at_operation": ""}, ValueError, "at_operation=''"),
        ({"at_operation": ("all_reduce", -1)}, ValueError, r"at_operation=\('all_reduce', -1\)"),
        ({"at_operation": ("all_reduce", True)}, ValueError, "a number from 0"),
        ({"at_operation": ("all_reduce", 1.0)}, ValueError, "a number from 0"),
        ({"at_operation": 3}, ValueError, "at_operation=3"),
        ({"at_operation": "all-reduce"}, ValueError, "no operation 'all-reduce': .* all_reduce, "),
        ({"at_operation": ("nosuch", 1)}, ValueError, "no operation 'nosuch': .*, send, recv"),
        ({"rank": -1, "at_step": 1}, ValueError, "rank=-1"),
        ({"rank": "0", "at_step": 1}, TypeError, "rank='0'"),
        ({"rank": None, "at_step": 1}, TypeError, "rank=None"),
    ],
)
def test_points_that_are_refused(kind, arguments, error, words):
    with pytest.raises(error, match=f"{kind.__name__}: .*{words}"):
        kind(**{"rank": 0, **arguments})


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Hang(0, at_step=1, seconds=-1), ValueError, "seconds=-1"),
        (lambda: Hang(0, at_step=1, seconds="2"), TypeError, "seconds='2'"),
        (lambda: Raise(0, at_step=1, error=KeyboardInterrupt), TypeError, "error=.*Keyboard"),
        (lambda: Raise(0, at_step=1, error=ValueError("x")), TypeError, "no class of exceptions"),
        (lambda: Raise(0, at_step=1, message=3), TypeError, "message=3"),
        (lambda: OutOfMemory(0, at_step=1, kind="swap"), ValueError, "kind='swap'"),
        (lambda: OutOfMemory(0, at_step=1, kind=["kill"]), ValueError, "kind=.* error, kill"),
        (lambda: Corrupt(0, at_step=1, kind=["nan"]), ValueError, "kind=.* one of nan, inf"),
        (lambda: Corrupt(0, at_step=1, what=None), ValueError, "what=None; wanted one of grad"),
        (lambda: CutLink(1, 1, at_step=0), ValueError, "both 1"),
        (lambda: CutLink(0, -1, at_step=0), ValueError, "target=-1"),
        (lambda: CutLink(0, 1), ValueError, "exactly one"),
        (lambda: SlowLink(0, 1), ValueError, "nothing makes the link slow"),
        (lambda: SlowLink(0, 1, bandwidth="10MB"), ValueError, "bandwidth='10MB'"),
        (lambda: SlowLink(0, 1, latency="5"), ValueError, "latency='5' has no unit"),
        (lambda: SlowLink(0, 1, latency=-1), ValueError, "latency=-1"),
        (
            lambda: SlowLink(0, 1, latency=1, at_step=3, until_step=3),
            ValueError,
            "until_step=3 must be above at_step=3",
        ),
        (
            lambda: SlowLink(0, 1, latency=1, until_step=3, for_seconds=1),
            ValueError,
            "not both",
        ),
        (lambda: SlowLink(0, 1, latency=1, for_seconds=-1), ValueError, "for_seconds=-1"),
        (lambda: Corrupt(0, after=1.0), ValueError, "at_step= says when"),
        (lambda: Corrupt(0, at_step=1, where="backward"), ValueError, "make no sense"),
        (lambda: Corrupt(0, at_step=1, what="loss"), ValueError, "what='loss'"),
        (lambda: Corrupt(0, at_step=1, kind="zero"), ValueError, "kind='zero'"),
        (lambda: Corrupt(0, at_step=1, layer=2), TypeError, "layer=2"),
        (lambda: Corrupt(0, at_step=1, element=-1), ValueError, "element=-1"),
        (lambda: Corrupt(0, at_step=1, bit=3), ValueError, "bit=3 flips none with kind='nan'"),
        (lambda: Corrupt(0, at_step=1, seed="a"), TypeError, "seed='a'"),
    ],
)
def test_what_else_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_ranks_that_are_not_there():
    for fault in (Kill(3, at_step=0), CutLink(3, 0, at_step=0), SlowLink(0, 3, latency=1)):
        fault.check(4)
        with pytest.raises(ValueError, match=r"=3 is not one of the 3 rank\(s\) 0 to 2"):
            fault.check(3)
