"""Balanced: contiguous runs of rows with as even a share of the nonzeros as there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.partitioners.base import Partitioner

__all__ = ["Balanced", "balanced_runs"]


@dataclass(frozen=True)
class Balanced(Partitioner):
    """Contiguous runs whose heaviest has the fewest nonzeros possible; columns likewise.

    Among the cuts that are best in this, those nearest to equal shares are taken.
    """

    name: ClassVar[str] = "balanced"
    source: ClassVar[str] = (
        "A. Pinar and C. Aykanat: Fast optimal load balancing algorithms for 1D partitioning, "
        "J. Parallel Distrib. Comput. 64 (2004) 974-996: bisection on the bottleneck's integers, "
        "with a greedy probe."
    )

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        return balanced_runs(np.diff(A.indptr), parts)

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        return balanced_runs(np.bincount(A.indices, minlength=A.shape[1]), parts)


def balanced_runs(weights: NDArray[Any], parts: int) -> NDArray[np.int32]:
    """Cut a sequence into runs so that the heaviest is as light as possible.

    Parameters
    ----------
    weights : int array of shape (n,)
        None negative; their sum is below 2**63.
    parts : int
        Runs. None is empty if there are as many items.

    Returns
    -------
    int32 array of shape (n,)
        Run of each item, ascending.
    """
    n = len(weights)
    before = np.concatenate([[0], np.cumsum(weights, dtype=np.int64)])
    total = int(before[-1])
    if n <= parts or not total:
        return Layout.block(n, parts).owner(np.arange(n))
    low, high = max(int(np.max(weights)), -(-total // parts)), total
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(before, parts, middle) else (middle + 1, high)
    cuts = _even_cuts(before, parts, low)
    return np.repeat(np.arange(parts, dtype=np.int32), np.diff(cuts))


def _fits(before: NDArray[np.int64], parts: int, bottleneck: int) -> bool:
    """Tell whether runs of at most ``bottleneck``, each as long as it can be, reach the end."""
    end, last = 0, len(before) - 1
    for _ in range(parts):
        end = _reach(before, end, bottleneck)
        if end == last:
            return True
    return False


def _reach(before: NDArray[np.int64], start: int, bottleneck: int) -> int:
    """End of the longest run from ``start`` that weighs at most ``bottleneck``."""
    return int(np.searchsorted(before, before[start] + bottleneck, side="right")) - 1


def _even_cuts(before: NDArray[np.int64], parts: int, bottleneck: int) -> list[int]:
    """Cuts as near to equal shares as runs of at most ``bottleneck`` allow, no run empty."""
    n, total = len(before) - 1, int(before[-1])
    earliest = [n] * (parts + 1)  # where a run may begin such that the rest still fits
    for part in range(parts - 1, 0, -1):
        start = int(np.searchsorted(before, before[earliest[part + 1]] - bottleneck, side="left"))
        earliest[part] = max(start, part)
    cuts = [0]
    for part in range(1, parts):
        wanted = total * part / parts
        even = int(np.searchsorted(before, wanted))
        if even and wanted - before[even - 1] < before[even] - wanted:
            even -= 1
        least = max(earliest[part], cuts[-1] + 1)
        most = min(_reach(before, cuts[-1], bottleneck), n - (parts - part))
        cuts.append(min(max(even, least), most))
    return [*cuts, n]
