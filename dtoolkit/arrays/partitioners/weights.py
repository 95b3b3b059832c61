"""Weights of rows, and how evenly they can be shared at all."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["allowance", "fair", "row_weights", "within"]


def row_weights(A: sparse.csr_array) -> NDArray[np.int64]:
    """Stored entries of each row, which is what it costs to multiply; an empty row counts as 1."""
    return np.maximum(np.diff(A.indptr).astype(np.int64), 1)


def fair(weights: NDArray[np.int64], parts: int) -> NDArray[np.int64]:
    """Cap weights at a fair share of a part.

    A row that is heavier than all that a part should have fills one by itself, however it is
    placed. Counted in full it would lift the mean, and with it what others may have. So the rows
    that fill a part count as much as the mean of what is left for the other parts.
    """
    heavy = np.sort(weights)[::-1][: parts - 1]
    left = int(weights.sum()) - np.concatenate([[0], np.cumsum(heavy)])
    share = left / (parts - np.arange(len(left)))
    fills = np.flatnonzero(heavy <= share[:-1])
    level = share[fills[0]] if len(fills) else share[-1]
    return np.minimum(weights, max(1, int(np.ceil(level))))


def allowance(weights: NDArray[np.int64], parts: int, imbalance: float) -> float:
    """Imbalance to ask of a partitioner: what was wanted, or what can be had where that is more.

    Rows cannot be cut, so 1,797 equal rows on 64 parts leave one with 29, 3.3% above the mean;
    partitioners that are asked for less give worse cuts and no better balance. What can be had is
    found by placing the heaviest rows first, each on the lightest part (Graham, 1969). Rows lighter
    than the wanted excess always fit.
    """
    mean = weights.sum() / parts
    heavy = np.sort(weights[weights > imbalance * mean])[::-1]
    loads = [0] * parts
    for weight in heavy.tolist():
        heapq.heapreplace(loads, loads[0] + weight)
    # A little more, so that the limit survives being rounded down.
    return max(imbalance, max(loads) / mean - 1 + 1e-6)


def within(weights: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Scale weights down so that their sum is at most ``limit``, none to below 1.

    Partitioners count in 32 bits. Fewer rows than ``limit`` are taken for granted.
    """
    total = int(weights.sum())
    if total <= limit:
        return weights
    return np.maximum(1, weights // -(-total // (limit - len(weights))))
