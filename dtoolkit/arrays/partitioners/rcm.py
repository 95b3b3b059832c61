"""Reverse Cuthill-McKee: order the rows so that neighbours are near, then cut into runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dtoolkit.arrays.partitioners.balanced import balanced_runs
from dtoolkit.arrays.partitioners.base import Partitioner
from dtoolkit.arrays.partitioners.graphs import bipartite_graph, symmetric_graph

__all__ = ["Rcm"]


@dataclass(frozen=True)
class Rcm(Partitioner):
    """Runs of rows with even shares of the nonzeros, in the order of reverse Cuthill-McKee.

    The order makes the band of A + A.T narrow, so that a run meets few others: good for meshes, of
    little use for graphs in which everything is near. A matrix that is not square is ordered by the
    graph that joins its rows to its columns, and the columns are cut likewise.
    """

    name: ClassVar[str] = "rcm"
    source: ClassVar[str] = (
        "E. Cuthill and J. McKee: Reducing the bandwidth of sparse symmetric matrices, ACM 1969; "
        "reversed after A. George (1971); SciPy's reverse_cuthill_mckee."
    )

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        order = _order(A)
        return _runs(order[order < A.shape[0]], np.diff(A.indptr), parts)

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        order = _order(A)
        counts = np.bincount(A.indices, minlength=A.shape[1])
        return _runs(order[order >= A.shape[0]] - A.shape[0], counts, parts)


def _order(A: sparse.csr_array) -> NDArray[np.int64]:
    """Order of the rows, or of rows and columns together."""
    graph = symmetric_graph(A) if A.shape[0] == A.shape[1] else bipartite_graph(A)
    if not graph.nnz:
        return np.arange(graph.shape[0])
    return csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True).astype(np.int64)


def _runs(order: NDArray[np.int64], weights: NDArray[np.int64], parts: int) -> NDArray[np.int32]:
    vector = np.empty(len(order), np.int32)
    vector[order] = balanced_runs(weights[order], parts)
    return vector
