"""What all tests share: where their inputs are, and clusters for those that only use one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import dtoolkit as dt

# The first example compiles, and these machines are shared: an example has no deadline of its own.
settings.register_profile("dtoolkit", deadline=None)
settings.load_profile("dtoolkit")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Folder of the public inputs; the test is skipped by name where it is absent."""
    root = Path(os.environ.get("DTOOLKIT_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no test data at {root}: set DTOOLKIT_TEST_DATA")
    return root


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[int], dt.Cluster]]:
    """Clusters by number of workers, made when first asked for and shared by all tests.

    A test must leave them as they were: whole, idle, tracing.
    """
    made: dict[int, dt.Cluster] = {}

    def cluster(workers: int) -> dt.Cluster:
        if workers not in made:
            made[workers] = dt.Cluster(workers=workers, device="cpu", timeout=120)
        return made[workers]

    yield cluster
    for one in made.values():
        one.close()


@pytest.fixture
def cluster1(cluster_of: Callable[[int], dt.Cluster]) -> dt.Cluster:
    """The shared cluster of one worker."""
    return cluster_of(1)


@pytest.fixture
def cluster2(cluster_of: Callable[[int], dt.Cluster]) -> dt.Cluster:
    """The shared cluster of two workers."""
    return cluster_of(2)


@pytest.fixture
def cluster3(cluster_of: Callable[[int], dt.Cluster]) -> dt.Cluster:
    """The shared cluster of three workers."""
    return cluster_of(3)


@pytest.fixture
def cluster4(cluster_of: Callable[[int], dt.Cluster]) -> dt.Cluster:
    """The shared cluster of four workers."""
    return cluster_of(4)
