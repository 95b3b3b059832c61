"""Patterns of matrices as graphs."""

from __future__ import annotations

import numpy as np
from scipy import sparse

__all__ = ["bipartite_graph", "pattern", "symmetric_graph"]


def pattern(A: sparse.csr_array) -> sparse.csr_array:
    """A with ones in place of its stored entries: explicit zeros and NaN travel like any other."""
    ones = np.ones(A.nnz, dtype=np.int8)
    return sparse.csr_array((ones, A.indices, A.indptr), shape=A.shape)


def symmetric_graph(A: sparse.csr_array) -> sparse.csr_array:
    """Adjacency of the graph of A + A.T without the diagonal, for a square A.

    The pattern is added and not the values, which may cancel.

    Returns
    -------
    csr_array of int8, canonical
        1 where one of a_ij and a_ji is stored, 2 where both are.
    """
    ones = pattern(A).tocoo()
    away = ones.row != ones.col
    rows, columns = ones.row[away], ones.col[away]
    half = sparse.csr_array((ones.data[away], (rows, columns)), shape=A.shape)
    graph = sparse.csr_array(half + half.T)
    graph.sort_indices()
    return graph


def bipartite_graph(A: sparse.csr_array) -> sparse.csr_array:
    """Adjacency of the graph that joins row i to column j, numbered after the rows, by a_ij.

    Returns
    -------
    csr_array of int8, canonical, of shape (rows + columns, rows + columns)
    """
    ones = pattern(A)
    graph = sparse.csr_array(sparse.block_array([[None, ones], [ones.T, None]], format="csr"))
    graph.sort_indices()
    return graph
