"""Hypergraphs: what is made small is the number of rows of B that travel, and nothing else.

Each column of A is a net, and its pins are the rows with a nonzero in it. Part p needs row j of B
if net j has a pin in p. A net that touches m parts costs m - 1 in the objective "km1": one of the
parts has the row, the others receive it. For that the owner has to be one of the m, so row j is a
pin of net j even where a_jj is not stored. Then km1 *is* the volume of the column strategy.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

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
from dtoolkit.arrays.partitioners.graphs import pattern
from dtoolkit.arrays.partitioners.weights import allowance, fair, row_weights, within
from dtoolkit.errors import MissingPackage

__all__ = ["Hypergraph"]

# Results differ by a tenth between renumberings of the rows: the best of two is taken where that is
# cheap, up to so many nonzeros times parts.
TRIES, LARGE = 2, 2_000_000
LIMIT = 2**30  # Mt-KaHyPar sums weights in 32 bits

# Mt-KaHyPar has one state for the process: its threads, and its random numbers.
_lock = threading.Lock()
_started: Any = None


@dataclass(frozen=True)
class Hypergraph(Partitioner):
    """Makes the volume of the column strategy small, with even shares of the nonzeros.

    For a square matrix whose columns are laid out as its rows, the objective is that volume
    exactly. A matrix that is not square has its rows partitioned, and its columns then go to the
    parts that want them most: the objective is the volume if all get such a place.

    Parameters
    ----------
    seed : int
        Renumbers the rows before Mt-KaHyPar sees them: its deterministic mode heeds no seed.
    imbalance : float
        By what share the heaviest part's nonzeros may exceed the mean. Where rows are too heavy for
        it, the best that is possible is asked for.

    Notes
    -----
    Needs mtkahypar: ``pip install "dtoolkit[partition]"``. It runs in one thread, in the preset
    whose result does not depend on timing.
    """

    seed: int = 0
    imbalance: float = 0.03

    name: ClassVar[str] = "hypergraph"
    source: ClassVar[str] = (
        "U. V. Catalyurek and C. Aykanat: Hypergraph-partitioning-based decomposition for parallel "
        "sparse-matrix vector multiplication, IEEE Trans. Parallel Distrib. Syst. 10 (1999) "
        "673-693: the column-net model. L. Gottesbueren, T. Heuer, N. Maas, P. Sanders, "
        "S. Schlag: Scalable high-quality hypergraph partitioning, ACM Trans. Algorithms 20 "
        "(2024): Mt-KaHyPar."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "imbalance", check_imbalance(self.imbalance))

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        library = _mtkahypar()
        weights = within(fair(row_weights(A), parts), LIMIT)
        limit = allowance(weights, parts, self.imbalance)
        found = []
        for attempt in range(TRIES if A.nnz * parts <= LARGE else 1):
            order = shuffled(A.shape[0], self.seed * TRIES + attempt)
            nets = _nets(A, order)
            if not nets:
                return Balanced()(A, parts)
            volume, owners = _partition(library, nets, weights[order], parts, limit)
            held = np.bincount(owners, weights=weights[order], minlength=parts)
            excess = max(0.0, float(held.max() / held.mean()) - 1 - limit)
            vector = np.empty(len(order), np.int32)
            vector[order] = owners
            found.append((round(excess, 3), volume, attempt, vector))
        return min(found)[-1]

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        return wanted_columns(A, owners, parts, self.imbalance)


def _nets(A: sparse.csr_array, order: NDArray[np.int64]) -> list[list[int]]:
    """Pins of each column of A, rows renumbered by ``order``; nets with one pin cost nothing."""
    marked = pattern(A)[order]
    if A.shape[0] == A.shape[1]:
        own = sparse.csr_array(
            (np.ones(len(order), np.int8), (np.arange(len(order)), order)), shape=A.shape
        )
        marked = marked + own
    by_column = sparse.csc_array(marked)
    by_column.sort_indices()
    # Nets in the new order too, so that nothing is left of the numbering that came.
    columns = order if A.shape[0] == A.shape[1] else np.arange(A.shape[1])
    starts, ends = by_column.indptr[columns].tolist(), by_column.indptr[columns + 1].tolist()
    pins = by_column.indices
    return [pins[a:b].tolist() for a, b in zip(starts, ends, strict=True) if b - a > 1]


def _partition(
    library: ModuleType,
    nets: list[list[int]],
    weights: NDArray[np.int64],
    parts: int,
    imbalance: float,
) -> tuple[int, NDArray[np.int32]]:
    """Value of the objective, and part of each row."""
    global _started
    with _lock:
        if _started is None:
            _started = library.initialize(1, False)
        library.set_seed(0)
        context = _started.context_from_preset(library.PresetType.DETERMINISTIC)
        context.set_partitioning_parameters(parts, imbalance, library.Objective.KM1)
        context.logging = False
        hypergraph = _started.create_hypergraph(
            context, len(weights), len(nets), nets, weights.tolist(), [1] * len(nets)
        )
        result = hypergraph.partition(context)
        return int(result.km1()), np.asarray(result.get_partition(), dtype=np.int32)


def _mtkahypar() -> ModuleType:
    try:
        import mtkahypar
    except ImportError as error:
        raise MissingPackage(
            "mtkahypar", extra="partition", purpose="partition='hypergraph'"
        ) from error
    return mtkahypar
