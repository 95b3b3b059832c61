"""The three phases of the controller on arrays: cover, raise S, move least.

Integers and fixed orders alone: every machine comes to the same result. Up to 64 groups Python does
it in less than a millisecond or two; for more the same functions are compiled by Numba.

Arrays: `order` is int32 of shape (groups, r), the types of each group's stack in the order in which
it computes them; `alive` is bool of shape (groups,); `supplier` is int32 of shape (types,), the
group that a type is counted from, -1 where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["cover", "settle"]

Order = NDArray[np.int32]
Alive = NDArray[np.bool_]

_PLAIN = 64  # groups up to which compiling is not worth its seconds
_FAR = 1 << 30


def cover(order: Order, alive: Alive, S: int) -> NDArray[np.int32]:
    """Who supplies each type, as stacks lie: the earliest slot below S, then the lowest group.

    Returns
    -------
    int32 array of shape (types,)
        -1 for a type that no survivor computes.
    """
    return _kernels(len(order)).cover(order, alive, S)


def settle(order: Order, alive: Alive, S: int) -> tuple[Order, int, int] | None:
    """Find an order of the stacks in which survivors compute all types, S as small as it can be.

    Today's order stays if it covers all types (phase 0). Else S rises from today's until there is
    an assignment with at most S types a group (phase 1), and the one that moves the fewest types
    into the first S slots is taken (phase 2: a flow of least cost, by shortest augmenting paths).

    Returns
    -------
    (order, S, moved) or None
        The order is another array where something moved. None: a type has no living holder.
    """
    kernels = _kernels(len(order))
    if (kernels.cover(order, alive, S) >= 0).all():
        return order, S, 0
    if (kernels.cover(order, alive, order.shape[1]) < 0).any():
        return None
    holders = kernels.holders(order)
    while True:  # ends at r, where a living holder is all that a type needs
        supplier = kernels.cover(order, alive, S)
        load = np.bincount(supplier[supplier >= 0], minlength=len(order)).astype(np.int32)
        # A type comes in by a shortest path, on which others change their group: as in the
        # Hungarian method, what is assigned has least cost after each of them.
        if all(
            kernels.augment(shard, order, holders, alive, S, supplier, load)
            for shard in np.flatnonzero(supplier < 0)
        ):
            break
        S += 1
    settled = order.copy()
    moved = int(kernels.reorder(settled, alive, S, supplier))
    return (settled if moved else order), S, moved


class _Kernels(NamedTuple):
    cover: Callable[..., NDArray[np.int32]]
    holders: Callable[..., NDArray[np.int32]]
    augment: Callable[..., bool]
    reorder: Callable[..., int]


def _kernels(groups: int) -> _Kernels:
    return _Kernels(_cover, _holders, _augment, _reorder) if groups <= _PLAIN else _compiled()


@cache
def _compiled() -> _Kernels:
    import numba

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, nogil=True)(function)
        except RuntimeError:  # no folder that the cache could be written to
            return numba.njit(nogil=True)(function)

    return _Kernels(compiled(_cover), compiled(_holders), compiled(_augment), compiled(_reorder))


def _cover(order: Order, alive: Alive, S: int) -> NDArray[np.int32]:
    groups = len(order)
    supplier = np.full(groups, -1, np.int32)
    for slot in range(S):
        for group in range(groups):
            if alive[group] and supplier[order[group, slot]] < 0:
                supplier[order[group, slot]] = group
    return supplier


def _holders(order: Order) -> NDArray[np.int32]:
    """Group and slot of each type, shape (types, r, 2), by group."""
    groups, r = order.shape
    holders, known = np.empty((groups, r, 2), np.int32), np.zeros(groups, np.int32)
    for group in range(groups):
        for slot in range(r):
            shard = order[group, slot]
            holders[shard, known[shard], 0] = group
            holders[shard, known[shard], 1] = slot
            known[shard] += 1
    return holders


def _augment(
    newcomer: int,
    order: Order,
    holders: NDArray[np.int32],
    alive: Alive,
    S: int,
    supplier: NDArray[np.int32],
    load: NDArray[np.int32],
) -> bool:
    """Assign one more type at least cost, in place; False where no group has room for it.

    A group has room for S types; one that is not in its first S slots costs 1. To take a type from
    its group gives its cost back, so that a type may be looked at again when it comes nearer.
    """
    groups, r = order.shape
    reached = np.full(groups, _FAR, np.int32)  # of each type: least cost at which it can be moved
    distance = np.full(groups, _FAR, np.int32)  # of each group: least cost at which it gets a type
    before = np.empty(groups, np.int32)
    queue, queued = np.empty(groups, np.int32), np.zeros(groups, np.bool_)
    queue[0], reached[newcomer] = newcomer, 0
    first, waiting = 0, 1
    while waiting:
        shard = queue[first]
        first, waiting, queued[shard] = (first + 1) % groups, waiting - 1, False
        for place in range(r):
            group = holders[shard, place, 0]
            there = reached[shard] + (holders[shard, place, 1] >= S)
            if not alive[group] or supplier[shard] == group or there >= distance[group]:
                continue
            distance[group], before[group] = there, shard
            for slot in range(r if load[group] == S else 0):
                other = order[group, slot]
                if supplier[other] == group:
                    reached[other] = there - (slot >= S)
                    if not queued[other]:
                        queue[(first + waiting) % groups] = other
                        waiting, queued[other] = waiting + 1, True
    nearest, least = -1, _FAR
    for group in range(groups):
        if load[group] < S and distance[group] < least:
            nearest, least = group, distance[group]
    if nearest < 0:
        return False
    load[nearest] += 1
    while nearest >= 0:
        shard = before[nearest]
        nearest, supplier[shard] = supplier[shard], nearest
    return True


def _reorder(order: Order, alive: Alive, S: int, supplier: NDArray[np.int32]) -> int:
    """Bring what a group supplies into its first S slots, in place; how many types moved there.

    What makes room is the latest slot of the first S whose type another group supplies.
    """
    groups, r = order.shape
    moved = 0
    for group in range(groups):
        free = S - 1
        for slot in range(S, r if alive[group] else S):
            shard = order[group, slot]
            if supplier[shard] != group:
                continue
            while supplier[order[group, free]] == group:
                free -= 1
            order[group, slot] = order[group, free]
            order[group, free] = shard
            moved += 1
    return moved
