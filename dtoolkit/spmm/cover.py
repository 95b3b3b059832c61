"""Exact minimum vertex covers of bipartite graphs, with the matching that proves them.

A nonzero a_ij whose row and column live on different ranks is served either by row j of B or by a
partial row i of C. Choosing what moves, so that each nonzero is served and least moves, is a
minimum vertex cover (SHIRO, arXiv 2512.20178). Koenig's theorem makes it exact and cheap: in a
bipartite graph the smallest cover is as large as the largest matching, so a matching of that size
is a certificate that anybody can check by counting.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dtoolkit.spmm.matching import maximum_matching

__all__ = ["Cover", "cite", "minimum_cover"]


@dataclass(frozen=True, eq=False)
class Cover:
    """A minimum weighted vertex cover and its certificate.

    Attributes
    ----------
    columns, rows : bool arrays
        Which vertices of either side are in the cover.
    matched : int64 array
        Edges of a maximum matching, as positions in the edge list, ascending. With weights it is a
        maximum flow: an edge stands there once for each unit it carries, and no vertex is met more
        often than it weighs. As many units as the cover weighs prove that no cover weighs less.
    weight : int
        What the cover weighs, in the units of the weights divided by their greatest common divisor.
    """

    columns: NDArray[np.bool_]
    rows: NDArray[np.bool_]
    matched: NDArray[np.int64]
    weight: int


def minimum_cover(
    column: NDArray[np.integer],
    row: NDArray[np.integer],
    *,
    columns: int,
    rows: int,
    weights: tuple[int, int] = (1, 1),
) -> Cover:
    """Minimum weighted vertex cover of a bipartite graph (SHIRO, arXiv 2512.20178).

    Equal weights: a maximum matching by Hopcroft and Karp, then Koenig's construction. Unequal
    weights: the same on the graph in which a vertex of weight w stands w times, which is exact:
    the copies of a vertex have the same neighbours, so a minimum cover takes all of them or none,
    and its size there is its weight here.

    Among the minimum covers it is the one with the most columns, whatever maximum matching was
    found: the vertices that alternating paths reach from unmatched columns do not depend on the
    matching (Dulmage and Mendelsohn). The result is therefore the same everywhere.

    Parameters
    ----------
    column, row : int arrays of shape (edges,)
        Ends of each edge: 0 to ``columns - 1`` and 0 to ``rows - 1``. No edge stands twice.
    columns, rows : int
        Number of vertices of either side.
    weights : (int, int)
        Weight of every column and of every row, at least 1.

    Returns
    -------
    Cover

    Raises
    ------
    ValueError
        If a weight is below 1.
    """
    if min(weights) < 1:
        raise ValueError(f"weights={weights}: wanted two integers of at least 1")
    common = gcd(*weights)
    by_column, by_row = weights[0] // common, weights[1] // common
    graph = _graph(column, row, columns, rows, by_column, by_row)
    partner = maximum_matching(graph)
    reached = _reach(graph, partner)
    in_rows = np.zeros(graph.shape[1], dtype=bool)
    in_rows[graph.indices[np.repeat(reached, np.diff(graph.indptr))]] = True
    cover_columns, cover_rows = ~reached[::by_column], in_rows[::by_row]
    weight = int(cover_columns.sum()) * by_column + int(cover_rows.sum()) * by_row
    matched = _matched_edges(column, row, partner, by_column, by_row)
    return Cover(cover_columns, cover_rows, matched, weight)


def cite() -> str:
    """Source of the method, as text."""
    return (
        "SHIRO: near-optimal communication for distributed SpMM, arXiv 2512.20178 (joint row and "
        "column strategy as a bipartite minimum vertex cover). Matching: J. Hopcroft and R. Karp, "
        "SIAM J. Comput. 2(4), 1973; cover from matching: D. Koenig, 1931."
    )


def _graph(
    column: NDArray[np.integer],
    row: NDArray[np.integer],
    columns: int,
    rows: int,
    by_column: int,
    by_row: int,
) -> sparse.csr_array:
    """Adjacency from columns to rows, each vertex standing as often as it weighs."""
    if by_column * by_row > 1:
        copies = np.arange(by_column * by_row)
        column = (column[:, None] * by_column + copies // by_row).ravel()
        row = (row[:, None] * by_row + copies % by_row).ravel()
    shape = (columns * by_column, rows * by_row)
    ones = np.ones(len(column), dtype=np.int8)
    return sparse.coo_array((ones, (column, row)), shape=shape).tocsr()


def _reach(graph: sparse.csr_array, partner: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Columns that alternating paths reach from the unmatched ones.

    A path goes from a column to any of its rows and on to that row's partner, so that rows need no
    node of their own. One more node starts the search at all unmatched columns at once; it also
    stands in for the partner of an unmatched row, which no path meets (it would have grown the
    matching).
    """
    root = graph.shape[0]
    free = np.ones(root, dtype=bool)
    free[partner[partner >= 0]] = False
    starts = np.flatnonzero(free)
    onward = partner[graph.indices]
    onward[onward < 0] = root
    indices = np.concatenate([onward, starts], dtype=np.int32)
    indptr = np.append(graph.indptr, len(indices)).astype(np.int32)
    paths = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=(root + 1, root + 1))
    order = csgraph.breadth_first_order(paths, root, directed=True, return_predecessors=False)
    reached = np.zeros(root + 1, dtype=bool)
    reached[order] = True
    return reached[:root]


def _matched_edges(
    column: NDArray[np.integer],
    row: NDArray[np.integer],
    partner: NDArray[np.int32],
    by_column: int,
    by_row: int,
) -> NDArray[np.int64]:
    """Positions of the matching's edges, once for each unit of flow."""
    if by_column == by_row:
        return np.flatnonzero(partner[row] == column)
    # Each row has by_row copies, each matched to some copy of a column.
    partners = partner.reshape(-1, by_row)
    units = np.zeros(len(row), dtype=np.int64)
    for copy in range(by_row):
        mate = partners[row, copy]
        units += (mate >= 0) & (mate // by_column == column)
    return np.repeat(np.arange(len(row)), units)
