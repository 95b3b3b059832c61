"""What the tests of training share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import dtoolkit as dt


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """What is computed by hand, for comparison, uses one thread.

    Models are tiny, and threads that wait for each other on busy cores take a hundred times as
    long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def nothing_runs(cluster2: dt.Cluster) -> Iterator[dt.Cluster]:
    """A cluster on which the test must start no launch."""
    before = next_launch(cluster2)
    yield cluster2
    assert next_launch(cluster2) == before + 1


def next_launch(cluster: dt.Cluster) -> int:
    launch = cluster.submit(lambda ctx: None)
    launch.result(30)
    return launch.number
