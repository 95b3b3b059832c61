"""What partitioning libraries get wrong: rows that they lose, and parts that they leave empty."""

from __future__ import annotations

import heapq
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.errors import LayoutError

__all__ = ["PartitionWarning", "mended"]


class PartitionWarning(UserWarning):
    """A partitioner lost a row or left a part empty; the text says what was done about it."""


def mended(
    vector: ArrayLike, weights: NDArray[np.int64], parts: int, name: str
) -> NDArray[np.int32]:
    """Make a part vector whole: every row has a part, and every part a row.

    A row without a part goes to the lightest part. A part without rows gets the lightest row of the
    heaviest part that has several.

    Parameters
    ----------
    vector : array of int of shape (rows,)
        What a partitioner gave.
    weights : int64 array of shape (rows,)
        Weight of each row.
    parts : int
    name : str
        Of the partitioner, for messages.

    Returns
    -------
    int32 array of shape (rows,)

    Raises
    ------
    LayoutError
        If ``vector`` is no array with one integer a row: nobody can say which rows are meant.

    Warns
    -----
    PartitionWarning
        If anything was mended.
    """
    found: NDArray[Any] = np.asarray(vector)
    if found.shape != weights.shape or (found.size and found.dtype.kind not in "iu"):
        raise LayoutError(
            f"partitioner {name!r} gave {found.dtype} of shape {found.shape}; wanted the part of "
            f"each of {len(weights)} rows"
        )
    lost = (found < 0) | (found >= parts)
    owners = np.where(lost, 0, found).astype(np.int32)
    if lost.any():
        _place(owners, np.flatnonzero(lost), weights, parts)
        row = int(np.argmax(lost))
        warnings.warn(
            f"partitioner {name!r} gave no part to {int(lost.sum()):,} of {len(found):,} rows (row "
            f"{row}: {found[row]}): they were given to the lightest parts",
            PartitionWarning,
            stacklevel=3,
        )
    empty = np.flatnonzero(np.bincount(owners, minlength=parts) == 0)
    if len(empty) and len(owners) >= parts:
        _fill(owners, empty, weights, parts)
        warnings.warn(
            f"partitioner {name!r} left {len(empty):,} of {parts:,} parts empty: each was given a "
            "light row of a heavy part",
            PartitionWarning,
            stacklevel=3,
        )
    return owners


def _place(
    owners: NDArray[np.int32], rows: NDArray[np.int64], weights: NDArray[np.int64], parts: int
) -> None:
    """Give rows, the heaviest first, to the part that is lightest then."""
    held = np.bincount(owners, weights=weights, minlength=parts)
    held[0] -= weights[rows].sum()
    heap = [(held[part], part) for part in range(parts)]
    heapq.heapify(heap)
    for row in rows[np.argsort(-weights[rows], kind="stable")]:
        load, part = heap[0]
        owners[row] = part
        heapq.heapreplace(heap, (load + weights[row], part))


def _fill(
    owners: NDArray[np.int32], empty: NDArray[np.int64], weights: NDArray[np.int64], parts: int
) -> None:
    """Give each empty part the lightest row of the part that is heaviest then."""
    order = np.lexsort((weights, owners))
    sizes = np.bincount(owners, minlength=parts)
    first = np.cumsum(sizes) - sizes
    held = np.bincount(owners, weights=weights, minlength=parts)
    heap = [(-held[part], part) for part in np.flatnonzero(sizes > 1)]
    heapq.heapify(heap)
    for part in empty:
        load, donor = heapq.heappop(heap)
        row = order[first[donor]]
        owners[row] = part
        first[donor] += 1
        sizes[donor] -= 1
        if sizes[donor] > 1:
            heapq.heappush(heap, (load + weights[row], donor))
