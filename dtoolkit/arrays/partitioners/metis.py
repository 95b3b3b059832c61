"""METIS: few edges between parts, a stand-in for volume that is quick to make small."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.partitioners.balanced import Balanced
from dtoolkit.arrays.partitioners.base import (
    Partitioner,
    check_imbalance,
    check_seed,
    shuffled,
)
from dtoolkit.arrays.partitioners.columns import wanted_columns
from dtoolkit.arrays.partitioners.graphs import bipartite_graph, symmetric_graph
from dtoolkit.arrays.partitioners.weights import allowance, fair, row_weights, within
from dtoolkit.errors import LayoutError, MissingPackage

__all__ = ["Metis"]

# METIS keeps the best of some cuts. On graphs that take it seconds one has to do.
CUTS, LARGE = 4, 2_000_000
LIMIT = 2**30  # for sums of weights, where METIS was built with 32-bit integers


@dataclass(frozen=True)
class Metis(Partitioner):
    """Cuts few edges of the graph of A + A.T, with even shares of the nonzeros.

    METIS bisects recursively and partitions directly into all parts; of the two the one with the
    smaller cut is kept, among those that are balanced. A matrix that is not square is cut as the
    graph that joins its rows to its columns; its columns then go to the parts that want them most.

    Parameters
    ----------
    seed : int
        Renumbers the rows before METIS sees them: its own seed changes little.
    imbalance : float
        By what share the heaviest part's nonzeros may exceed the mean. Where rows are too heavy for
        it, the best that is possible is asked for.

    Notes
    -----
    Needs pymetis: ``pip install "dtoolkit[partition]"``.
    """

    seed: int = 0
    imbalance: float = 0.03

    name: ClassVar[str] = "metis"
    source: ClassVar[str] = (
        "G. Karypis and V. Kumar: A fast and high quality multilevel scheme for partitioning "
        "irregular graphs, SIAM J. Sci. Comput. 20 (1998) 359-392; METIS 5 by way of pymetis."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "imbalance", check_imbalance(self.imbalance))

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        pymetis = _pymetis()
        square = A.shape[0] == A.shape[1]
        graph = symmetric_graph(A) if square else bipartite_graph(A)
        if not graph.nnz:
            return Balanced()(A, parts)
        weights = within(fair(row_weights(A), parts), LIMIT)
        if not square:  # columns go wherever their rows are
            weights = np.concatenate([weights, np.zeros(A.shape[1], np.int64)])
        order = shuffled(len(weights), self.seed)
        found = _best(pymetis, graph[order][:, order], weights[order], parts, self)
        vector = np.empty(len(weights), np.int32)
        vector[order] = found
        return vector[: A.shape[0]]

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        return wanted_columns(A, owners, parts, self.imbalance)


def _best(
    pymetis: ModuleType,
    graph: sparse.csr_array,
    weights: NDArray[np.int64],
    parts: int,
    wanted: Metis,
) -> NDArray[np.int32]:
    """Partition both ways; the better one is balanced first of all, and then cuts less."""
    limit = allowance(weights[weights > 0], parts, wanted.imbalance)
    index = pymetis.zero_copy_dtype()
    if graph.nnz > np.iinfo(index).max:
        raise LayoutError(
            f"partition='metis': {graph.nnz:,} edges are more than this build of pymetis can count"
        )
    adjacency = pymetis.CSRAdjacency(graph.indptr.astype(index), graph.indices.astype(index))
    found: list[tuple[int, float, int, int, NDArray[np.int32]]] = []
    for recursive in (True, False):
        # Recursive bisection applies its tolerance again at each level.
        levels = int(np.ceil(np.log2(parts))) if recursive else 1
        options = pymetis.Options(
            seed=wanted.seed % 2**31,
            ufactor=max(1, int(1000 * ((1 + limit) ** (1 / levels) - 1))),
            ncuts=CUTS if graph.nnz <= LARGE else 1,
        )
        cut, vector = pymetis.part_graph(
            parts,
            adjacency,
            vweights=weights.astype(index),
            recursive=recursive,
            options=options,
        )
        owners = np.asarray(vector, dtype=np.int32)
        held = np.bincount(owners, weights=weights, minlength=parts)
        excess = max(0.0, float(held.max() / held.mean()) - 1 - limit)
        empty = int((held == 0).sum())
        found.append((empty, round(excess, 3), cut, len(found), owners))
    return min(found)[-1]


def _pymetis() -> ModuleType:
    try:
        import pymetis
    except ImportError as error:
        raise MissingPackage("pymetis", extra="partition", purpose="partition='metis'") from error
    return pymetis
