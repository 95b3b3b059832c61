"""Errors travel between processes with all that they know."""

from __future__ import annotations

import pickle

import pytest

from dtoolkit import errors

MADE = [
    errors.RankError(rank=2, address="tcp://h:1", operation="work", cause="V: x", traceback="tb"),
    errors.WorkerLost(ranks=[1, 3], addresses=["a", "b"], operation="work", detail="killed"),
    errors.LaunchTimeout(ranks=[1], addresses=["a"], timeout=2.5, operation="work"),
    errors.LaunchTimeout(ranks=[], addresses=[], timeout=2, operation="w", detail="it waited"),
    errors.PeerLost([1, 2]),
    errors.PeerLost(detail="why"),
    errors.MatrixFormatError("file.mtx", "bad number", line=7),
    errors.MessageMismatch("sizes differ"),
    errors.ShardLost("gone"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda e: type(e).__name__)
def test_pickled_errors_are_the_same(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


def test_they_say_what_to_do() -> None:
    assert "the cluster is usable" in str(MADE[0])
    assert "rank 1 (a), rank 3 (b) was lost" in str(MADE[1])
    assert MADE[1].rank == 1
    assert "no answer from rank(s) 1 (a)" in str(MADE[2])
    assert "Pass timeout=" in str(MADE[2])
    assert "ctx.rebuild()" in str(MADE[4])
    assert str(MADE[6]) == "file.mtx, line 7: bad number"
    assert isinstance(MADE[2], TimeoutError)
    assert isinstance(MADE[6], ValueError)
