"""Plans and traces that the tests of figures and cards share."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dtoolkit.comm.trace import Event, Trace
from dtoolkit.spmm.plan import plan

OPERATIONS = ("all_to_all_v", "all_reduce", "barrier", "broadcast")


def random_matrix(m, n, degree=4, seed=0):
    rng = np.random.default_rng(seed)
    i, j = np.repeat(np.arange(m), degree), rng.integers(0, n, m * degree)
    return sp.csr_array((np.ones(len(i)), (i, j)), shape=(m, n))


def random_trace(events, ranks, seed=0):
    """Events that follow each other on each rank, with at most 16 peers each."""
    rng = np.random.default_rng(seed)
    now = np.zeros(ranks)
    made = []
    for number in range(events):
        rank = number % ranks
        start = now[rank] + rng.exponential(2e-4)
        now[rank] = end = start + rng.exponential(1e-3)
        sent = [0] * ranks
        for peer in rng.integers(0, ranks, 16):
            sent[peer] = int(rng.integers(1, 100_000)) if peer != rank else 0
        operation = OPERATIONS[number // ranks % len(OPERATIONS)]
        phase = "halo" if number % 3 else ""
        made.append(
            Event(
                0, rank, operation, phase, 50 + start, 50 + end, tuple(sent), sum(sent), "", "", ""
            )
        )
    return Trace(made, ranks=ranks, clock_error=2.5e-4)


@pytest.fixture(scope="session")
def matrix():
    return random_matrix(60, 60)


@pytest.fixture(scope="session")
def joint(matrix):
    return plan(matrix, parts=4)


@pytest.fixture(scope="session")
def wide():
    """A plan for 1,024 ranks."""
    return plan(random_matrix(4000, 4000), parts=1024)


@pytest.fixture(scope="session")
def small_trace():
    return random_trace(40, 4)


@pytest.fixture(scope="session")
def wide_trace():
    return random_trace(3000, 1024)
