"""Partitioners: which rank gets which row of a sparse matrix.

Each is a small frozen object that is called with a matrix and a number of parts and returns a part
vector; ``dt.plan(partition=...)`` takes the object, or its name for one with default arguments.
"""

from __future__ import annotations

from dtoolkit.arrays.partitioners.balanced import Balanced
from dtoolkit.arrays.partitioners.base import Partitioner
from dtoolkit.arrays.partitioners.block import Block
from dtoolkit.arrays.partitioners.cyclic import Cyclic
from dtoolkit.arrays.partitioners.hypergraph import Hypergraph
from dtoolkit.arrays.partitioners.mending import PartitionWarning
from dtoolkit.arrays.partitioners.metis import Metis
from dtoolkit.arrays.partitioners.random import Random
from dtoolkit.arrays.partitioners.rcm import Rcm
from dtoolkit.errors import LayoutError

__all__ = [
    "NAMES",
    "Balanced",
    "Block",
    "Cyclic",
    "Hypergraph",
    "Metis",
    "PartitionWarning",
    "Partitioner",
    "Random",
    "Rcm",
    "by_name",
]

_KNOWN: dict[str, type[Partitioner]] = {
    kind.name: kind for kind in (Block, Cyclic, Random, Balanced, Rcm, Metis, Hypergraph)
}

#: Names that ``dt.plan(partition=...)`` knows.
NAMES = tuple(_KNOWN)


def by_name(name: str, *, argument: str = "partition") -> Partitioner:
    """Partitioner of a name, with default arguments.

    Raises
    ------
    LayoutError
        If there is none of that name.
    """
    if name not in _KNOWN:
        raise LayoutError(
            f"{argument}={name!r} is not known: choose one of {', '.join(NAMES)}, or give a "
            "Layout, a part vector, or a function of A and parts that returns one"
        )
    return _KNOWN[name]()
