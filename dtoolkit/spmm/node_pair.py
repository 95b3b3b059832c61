"""The cover of node-pair blocks: the least that can cross between two nodes.

A row of B crosses to a node once, however many of its ranks want it, and the partial sums of a row
of C leave a node once, however many of its ranks contribute. So between two nodes a column vertex
is (target node, row of B), a row vertex (source node, row of C), and a minimum vertex cover of the
block of the two *nodes* is the least that can cross. It is never more than what crosses under the
covers of single ranks' blocks, with or without hierarchy, because those are covers of the nodes'
blocks too. Which of the two SHIRO (arXiv 2512.20178) solves could not be seen. Inside a node every
two ranks have their own minimum cover.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.assembly import Assembly, assemble_by
from dtoolkit.spmm.blocks import Blocks, Structure, walk
from dtoolkit.spmm.cover import minimum_cover
from dtoolkit.spmm.nodes import node_layout
from dtoolkit.spmm.strategies import Assignment

__all__ = ["assemble_node_pairs"]


def assemble_node_pairs(
    A: Structure,
    rows: Layout,
    columns: Layout,
    nodes: NDArray[np.int32],
    weights: tuple[int, int] = (1, 1),
) -> Assembly:
    """Decide on the blocks of two nodes, and inside each node on those of two ranks."""
    between = np.zeros(A.nnz, dtype=bool)
    proof = [np.empty(0, np.int64)]
    by_node = (node_layout(rows, nodes), node_layout(columns, nodes))
    for positions, blocks in walk(A, *by_node, weights):
        everything = np.arange(blocks.nonzeros)
        by_row, matched = _covered(blocks, everything)
        between[positions] = by_row
        proof.append(positions[matched])

    def decide(positions: NDArray[np.int64], blocks: Blocks) -> Assignment:
        by_row = between[positions]
        inside = np.flatnonzero(nodes[blocks.target] == nodes[blocks.source])
        by_row[inside], matched = _covered(blocks, inside)
        return Assignment(by_row, inside[matched])

    made = assemble_by(decide, A, rows, columns, weights)
    assert made.matched is not None
    assert made.matching is not None
    crossing = np.concatenate(proof)
    row = np.searchsorted(A.indptr, crossing, side="right") - 1
    block = rows.owner(row).astype(np.int64) * rows.parts + columns.owner(A.indices[crossing])
    matching = made.matching + np.bincount(block, minlength=rows.parts**2).reshape(
        rows.parts, rows.parts
    )
    matched = np.concatenate([made.matched, crossing.astype(made.matched.dtype)])
    matched.sort()
    return replace(made, matched=matched, matching=matching)


def _covered(
    blocks: Blocks, chosen: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which of some nonzeros go by row in a minimum cover of them alone, and its matching."""
    column, row = blocks.column_vertex[chosen], blocks.row_vertex[chosen]
    cover = minimum_cover(
        column,
        row,
        columns=len(blocks.column_of),
        rows=len(blocks.row_of),
        weights=blocks.weights,
    )
    return ~cover.columns[column], cover.matched
