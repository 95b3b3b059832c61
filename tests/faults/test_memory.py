"""The allocator refuses, with its own words, and the process is as it was."""

import resource
import sys

import pytest
import torch

from dtoolkit.faults import OutOfMemory
from dtoolkit.faults.fault import Moment


class OnHost:
    comm = torch.empty(0)  # whose device is the host


def test_an_allocation_really_fails_and_the_limit_is_put_back():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(RuntimeError, match="allocate") as caught:
        OutOfMemory(0, at_step=0).strike(OnHost, Moment("step", 0))
    if sys.platform == "linux":
        assert str(1 << 30) in str(caught.value)  # an amount that the machine has
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert torch.ones(1 << 20).sum() == 1 << 20


def test_where_there_is_no_limit_more_is_asked_for_than_there_is(monkeypatch):
    def refuse(*_):
        raise ValueError("not here")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(RuntimeError, match="allocate"):
        OutOfMemory(0, at_step=0).strike(OnHost, Moment("step", 0))
