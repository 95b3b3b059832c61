"""Maximum matchings of bipartite graphs, compiled.

SciPy's Hopcroft-Karp does not end in any useful time on some small regular graphs: a layer of the
sparse DNN Graph Challenge cut in two (1,024 vertices a side, 32 edges each) kept it busy for
minutes. Here the matching starts from the greedy one of Karp and Sipser, which serves vertices with
one free neighbour first and leaves next to nothing to mend; what is left is mended in phases that
each look at an edge once. Compiling takes a second, once on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["maximum_matching"]


def maximum_matching(graph: sparse.csr_array) -> NDArray[np.int32]:
    """Maximum matching between the rows and the columns of a sparse matrix.

    Parameters
    ----------
    graph : csr_array of shape (left, right)
        Entry (i, j) is an edge, whatever its value.

    Returns
    -------
    int32 array of shape (right,)
        Left partner of each right vertex; -1 where it has none.
    """
    back = graph.tocsc()
    return _compiled()(graph.indptr, graph.indices, back.indptr, back.indices)


@cache
def _compiled() -> Callable[..., NDArray[np.int32]]:
    import numba

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, nogil=True)(function)
        except RuntimeError:  # no folder that the cache could be written to
            return numba.njit(nogil=True)(function)

    greedy, levels, augment = compiled(_greedy), compiled(_levels), compiled(_augment)

    def match(
        ptr: NDArray[Any], ends: NDArray[Any], back_ptr: NDArray[Any], back_ends: NDArray[Any]
    ) -> NDArray[np.int32]:
        left, right = greedy(ptr, ends, back_ptr, back_ends)
        level = np.empty(len(left), dtype=np.int32)
        while levels(ptr, ends, left, right, level):
            augment(ptr, ends, left, right, level)
        return right

    return match


def _greedy(
    ptr: NDArray[Any], ends: NDArray[Any], back_ptr: NDArray[Any], back_ends: NDArray[Any]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Match greedily, vertices with one free neighbour first (Karp and Sipser, 1981).

    Left vertex i is number i, right vertex j is number ``lefts + j``.
    """
    lefts, rights = len(ptr) - 1, len(back_ptr) - 1
    left, right = np.full(lefts, -1, np.int32), np.full(rights, -1, np.int32)
    degree = np.empty(lefts + rights, np.int32)
    for i in range(lefts):
        degree[i] = ptr[i + 1] - ptr[i]
    for j in range(rights):
        degree[lefts + j] = back_ptr[j + 1] - back_ptr[j]
    # A vertex comes to one free neighbour at most once, so that the stack cannot overflow.
    stack, top = np.empty(lefts + rights, np.int32), 0
    for v in range(lefts + rights):
        if degree[v] == 1:
            stack[top] = v
            top += 1
    following = 0
    while True:
        if top > 0:
            top -= 1
            v = stack[top]
        elif following < lefts:
            v = following
            following += 1
        else:
            return left, right
        i, j = -1, -1
        if v < lefts:
            if left[v] >= 0:
                continue
            for e in range(ptr[v], ptr[v + 1]):
                if right[ends[e]] < 0:
                    i, j = v, ends[e]
                    break
        else:
            if right[v - lefts] >= 0:
                continue
            for e in range(back_ptr[v - lefts], back_ptr[v - lefts + 1]):
                if left[back_ends[e]] < 0:
                    i, j = back_ends[e], v - lefts
                    break
        if i < 0:
            continue
        left[i], right[j] = j, i
        for e in range(ptr[i], ptr[i + 1]):
            w = lefts + ends[e]
            degree[w] -= 1
            if degree[w] == 1 and right[ends[e]] < 0:
                stack[top] = w
                top += 1
        for e in range(back_ptr[j], back_ptr[j + 1]):
            w = back_ends[e]
            degree[w] -= 1
            if degree[w] == 1 and left[w] < 0:
                stack[top] = w
                top += 1


def _levels(
    ptr: NDArray[Any],
    ends: NDArray[Any],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    level: NDArray[np.int32],
) -> bool:
    """Breadth-first levels of left vertices from the free ones, up to the nearest free right one.

    Returns whether there is one, and with it an augmenting path.
    """
    queue, tail = np.empty(len(left), np.int32), 0
    for i in range(len(left)):
        level[i] = -1
        if left[i] < 0:
            level[i] = 0
            queue[tail] = i
            tail += 1
    head, last = 0, 2**31 - 1
    while head < tail:
        i = queue[head]
        head += 1
        if level[i] >= last:
            break
        for e in range(ptr[i], ptr[i + 1]):
            mate = right[ends[e]]
            if mate < 0:
                last = int(level[i]) + 1
            elif level[mate] < 0:
                level[mate] = level[i] + 1
                queue[tail] = mate
                tail += 1
    return last < 2**31 - 1


def _augment(
    ptr: NDArray[Any],
    ends: NDArray[Any],
    left: NDArray[np.int32],
    right: NDArray[np.int32],
    level: NDArray[np.int32],
) -> None:
    """Flip a maximal set of shortest augmenting paths that share no vertex."""
    path, at = np.empty(len(left), np.int32), ptr[:-1].copy()
    for root in range(len(left)):
        if left[root] >= 0:
            continue
        path[0], depth = root, 0
        while depth >= 0:
            i = path[depth]
            found, deeper = -1, -1
            while at[i] < ptr[i + 1]:
                j = ends[at[i]]
                mate = right[j]
                if mate < 0:
                    found = j
                    break
                if level[mate] == level[i] + 1 and at[mate] < ptr[mate + 1]:
                    deeper = mate
                    break
                at[i] += 1
            if deeper >= 0:
                depth += 1
                path[depth] = deeper
            elif found >= 0:
                # Each left vertex on the path takes the right one that the next gives up.
                for d in range(depth, -1, -1):
                    i = path[d]
                    given = left[i]
                    left[i], right[found] = found, i
                    found = given
                    at[i] = ptr[i + 1]
                depth = -1
            else:
                depth -= 1
                if depth >= 0:
                    at[path[depth]] += 1
