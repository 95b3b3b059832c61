"""What the kernel counted on the sockets of a cluster: the second number beside every trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dtoolkit as dt

LARGE = 1_000_000  # bytes of a pair from which 1% is held


def counted(cluster: dt.Cluster, work: Callable[[], object]) -> np.ndarray:
    """Bytes by pair, [source, target], that the kernel counted while `work` ran, traced anew."""
    before = cluster.socket_bytes()
    if (before < 0).any():
        pytest.skip("this system does not count bytes by socket (macOS)")
    cluster.trace.clear()
    work()
    return cluster.socket_bytes() - before


def hold(moved: np.ndarray, said: np.ndarray) -> None:
    """No fewer bytes than were said, and within 1% more for large pairs, and in all."""
    large = said > LARGE
    assert large.any()
    assert (moved >= said).all()
    assert (moved[large] <= 1.01 * said[large]).all()
    assert moved.sum() <= 1.01 * said.sum()
