"""Partitioners and matrices that several tests look at."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dtoolkit.arrays.partitioners import (
    NAMES,
    Hypergraph,
    Metis,
    Random,
    by_name,
)

ALL = [by_name(name) for name in NAMES]


SEEDED = [Random, Metis, Hypergraph]


TUNED = [Metis, Hypergraph]


def named(partitioner):
    return partitioner.name if hasattr(partitioner, "name") else str(partitioner)


def pairs(shape, cells):
    row, column = np.array(sorted(cells), dtype=np.int64).reshape(-1, 2).T
    return sparse.coo_array((np.ones(len(row)), (row, column)), shape=shape).tocsr()


def ring(n):
    i = np.arange(n)
    return sparse.csr_array((np.ones(n), (i, (i + 1) % n)), shape=(n, n))
