"""Columns of a rectangular matrix: each to the part that wants it most, no part to have many more.

Where rows are laid out, every part that has a nonzero in column j needs row j of B. One of them can
own it and receive nothing, whichever it is; a part that does not need it would only pass it on. So
the column volume is the least possible if each column goes to a part that needs it, and partial
rows of C are fewest if that is the part with the most nonzeros there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["wanted_columns"]

# Columns that were refused as often as this are glad of any place.
ROUNDS = 64


def wanted_columns(
    A: sparse.csr_array, owners: NDArray[np.int32], parts: int, imbalance: float
) -> NDArray[np.int32]:
    """Give each column to a part that has nonzeros in it.

    Columns apply to the parts that need them, those with the most nonzeros first; a part that has
    too many keeps the columns that have the fewest other parts to go to (deferred acceptance:
    D. Gale and L. S. Shapley, Amer. Math. Monthly 69 (1962) 9-15). Columns that are left over, and
    empty ones, go where there is room.

    Parameters
    ----------
    A : csr_array
    owners : int32 array of shape (rows,)
        Part of each row.
    parts : int
    imbalance : float
        By what share the number of columns of a part may exceed the mean.

    Returns
    -------
    int32 array of shape (columns,)
    """
    n = A.shape[1]
    room = max(-(-n // parts), int(n / parts * (1 + imbalance)))
    first, last, choice, count = _wishes(A, owners, parts)
    wish = first.copy()
    for _ in range(ROUNDS):
        hoping = np.flatnonzero(wish < last)
        part = choice[wish[hoping]]
        # The dearest to a part first: those with few other places, then those that fit best.
        dear = np.lexsort((hoping, -count[wish[hoping]], (last - first)[hoping], part))
        part = part[dear]
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        place = np.arange(len(part)) - np.repeat(starts, np.diff(np.append(starts, len(part))))
        refused = hoping[dear[place >= room]]
        if not len(refused):
            break
        wish[refused] += 1
    return _placed(wish, last, choice, room, parts)


def _wishes(
    A: sparse.csr_array, owners: NDArray[np.int32], parts: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Where each column's list of parts begins and ends, the lists, and nonzeros in each."""
    row = np.repeat(owners.astype(np.int64), np.diff(A.indptr))
    keys, count = np.unique(A.indices * np.int64(parts) + row, return_counts=True)
    column, part = keys // parts, keys % parts
    # Ties are broken differently for each column, so that not all apply to one part first.
    order = np.lexsort(((part + column) % parts, -count, column))
    bounds = np.searchsorted(column, np.arange(A.shape[1] + 1))
    return bounds[:-1], bounds[1:], part[order].astype(np.int32), count[order]


def _placed(
    wish: NDArray[np.int64],
    last: NDArray[np.int64],
    choice: NDArray[np.int32],
    room: int,
    parts: int,
) -> NDArray[np.int32]:
    """Part of each column: the one applied to, as far as it has room, and else any with room."""
    owner = np.full(len(wish), -1, np.int32)
    hoping = np.flatnonzero(wish < last)
    owner[hoping] = choice[wish[hoping]]
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner[hoping], minlength=parts)
    starts = len(owner) - len(hoping) + np.cumsum(sizes) - sizes
    for part in np.flatnonzero(sizes > room):  # only where the rounds ended early
        owner[order[starts[part] + room : starts[part] + sizes[part]]] = -1
    free = room - np.minimum(sizes, room)
    left = np.flatnonzero(owner < 0)
    # Room is given out evenly: one place of each part that has one, then another.
    seat = np.arange(int(free.sum())) - np.repeat(np.cumsum(free) - free, free)
    seats = np.repeat(np.arange(parts, dtype=np.int32), free)
    owner[left] = seats[np.argsort(seat - np.repeat(free, free), kind="stable")][: len(left)]
    return owner
