"""Modular Golomb rulers: offsets whose differences modulo n are all distinct.

Stacks that are laid out by such offsets share at most one type of shard between any two groups,
and two types share at most one group (:mod:`dtoolkit.training.stacked.placement`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache

from dtoolkit.errors import PlanError
from dtoolkit.training.steptimes import check_count

__all__ = ["greedy_ruler", "is_ruler", "largest_redundancy", "ruler"]

_TRIED = 20_000  # marks that the search tries before it gives up: a tenth of a second

# Shortest Golomb rulers by number of marks. One shorter than n/2 is a ruler modulo n as it is.
_SHORTEST = {
    12: (0, 2, 6, 24, 29, 40, 43, 55, 68, 75, 76, 85),
    13: (0, 2, 5, 25, 37, 43, 59, 70, 85, 89, 98, 99, 106),
    14: (0, 4, 6, 20, 35, 52, 59, 77, 78, 86, 89, 99, 122, 127),
    15: (0, 4, 20, 30, 57, 59, 62, 76, 100, 111, 123, 136, 144, 145, 151),
    16: (0, 1, 4, 11, 26, 32, 56, 68, 76, 115, 117, 134, 150, 163, 168, 177),
    17: (0, 5, 7, 17, 52, 56, 67, 80, 81, 100, 122, 138, 159, 165, 168, 191, 199),
    18: (0, 2, 10, 22, 53, 56, 82, 83, 89, 98, 130, 148, 153, 167, 188, 192, 205, 216),
    19: (0, 1, 6, 25, 32, 72, 100, 108, 120, 130, 153, 169, 187, 190, 204, 231, 233, 242, 246),
    20: (
        *(0, 1, 8, 11, 68, 77, 94, 116, 121, 156, 158, 179, 194, 208, 212, 228, 240, 253, 259),
        283,
    ),
    21: (
        *(0, 2, 24, 56, 77, 82, 83, 95, 129, 144, 179, 186, 195, 255, 265, 285, 293, 296, 310),
        *(329, 333),
    ),
    22: (
        *(0, 1, 9, 14, 43, 70, 106, 122, 124, 128, 159, 179, 204, 223, 253, 263, 270, 291, 330),
        *(341, 353, 356),
    ),
    23: (
        *(0, 3, 7, 17, 61, 66, 91, 99, 114, 159, 171, 199, 200, 226, 235, 246, 277, 316, 329),
        *(348, 350, 366, 372),
    ),
    24: (
        *(0, 9, 33, 37, 38, 97, 122, 129, 140, 142, 152, 191, 205, 208, 252, 278, 286, 326, 332),
        *(353, 368, 384, 403, 425),
    ),
}


def ruler(n: int, r: int) -> tuple[int, ...]:
    """Find r offsets whose differences modulo n are all distinct.

    The greedy ruler where it is long enough, else a known short one, else a search that gives up
    after a tenth of a second: the same offsets on every machine.

    Parameters
    ----------
    n : int
        Groups, and types of shards.
    r : int
        Marks: shards of a stack. ``r (r - 1) <= n - 1`` is necessary, and not sufficient.

    Returns
    -------
    tuple of int
        Ascending from 0, below n.

    Raises
    ------
    PlanError
        None was found.

    Examples
    --------
    >>> ruler(8, 3)
    (0, 1, 3)
    """
    n, r = check_count("n", n), check_count("r", r)
    if r * (r - 1) > n - 1:
        raise PlanError(
            f"r={r} shards a stack for n={n} groups: {r * (r - 1)} differences cannot be distinct "
            f"among {n - 1}; wanted r (r - 1) <= n - 1, that is r of at most {_bound(n)}"
        )
    found = _ruler(n, r)
    if found is None:
        raise PlanError(
            f"r={r} shards a stack for n={n} groups: no offsets with distinct differences modulo "
            f"{n} were found; up to r={largest_redundancy(n)} they are known"
        )
    return found


def largest_redundancy(n: int) -> int:
    """The largest r for which :func:`ruler` finds offsets.

    Parameters
    ----------
    n : int

    Returns
    -------
    int
        At least 1.
    """
    return _largest(check_count("n", n))


def greedy_ruler(n: int) -> tuple[int, ...]:
    """Take every offset from 0 on that keeps differences modulo n distinct.

    Parameters
    ----------
    n : int

    Returns
    -------
    tuple of int
        11, 18 and 22 marks for n of 200, 600 and 1,000.
    """
    return _greedy(check_count("n", n))


def is_ruler(offsets: Sequence[int], n: int) -> bool:
    """Whether all differences of different marks are distinct modulo n.

    Parameters
    ----------
    offsets : sequence of int
    n : int

    Returns
    -------
    bool

    Raises
    ------
    TypeError, ValueError
        `n` is no integer of at least 1.
    """
    n = check_count("n", n)
    marks = [operator.index(mark) % n for mark in offsets]
    differences = [(a - b) % n for a in marks for b in marks if a is not b]
    return len(set(marks)) == len(marks) and len(set(differences)) == len(differences)


def _bound(n: int) -> int:
    r = 1
    while (r + 1) * r <= n - 1:
        r += 1
    return r


@lru_cache(maxsize=256)
def _largest(n: int) -> int:
    return max(r for r in range(1, _bound(n) + 1) if _ruler(n, r) is not None)


@lru_cache(maxsize=1024)
def _ruler(n: int, r: int) -> tuple[int, ...] | None:
    marks = _greedy(n)
    if len(marks) >= r:
        return marks[:r]
    for known in _SHORTEST.values():  # the first marks of a ruler are one, too
        if len(known) >= r and is_ruler(known, n):
            return known[:r]
    return _search(n, r)


@lru_cache(maxsize=256)
def _greedy(n: int) -> tuple[int, ...]:
    marks: list[int] = []
    used: set[int] = set()
    for mark in range(n):
        new = _new_differences(mark, marks, used, n)
        if new is not None:
            marks.append(mark)
            used |= new
    return tuple(marks)


def _search(n: int, r: int) -> tuple[int, ...] | None:
    """Go through rulers in lexicographic order, as deep as possible first."""
    tried = 0

    def grow(marks: list[int], used: set[int]) -> list[int] | None:
        nonlocal tried
        if len(marks) == r:
            return marks
        for mark in range(marks[-1] + 1, n - (r - len(marks)) + 1):
            tried += 1
            if tried > _TRIED:
                return None
            new = _new_differences(mark, marks, used, n)
            found = None if new is None else grow([*marks, mark], used | new)
            if found is not None:
                return found
        return None

    found = grow([0], set())
    return None if found is None else tuple(found)


def _new_differences(mark: int, marks: Sequence[int], used: set[int], n: int) -> set[int] | None:
    """Differences that one more mark brings; None where one of them is there twice."""
    new: set[int] = set()
    for other in marks:
        for difference in ((mark - other) % n, (other - mark) % n):
            if difference in used or difference in new:
                return None
            new.add(difference)
    return new
