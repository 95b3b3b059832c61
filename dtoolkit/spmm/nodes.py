"""Which ranks share a node: from what a person writes for ``ranks_per_node=`` and ``nodes=``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.errors import PlanError

__all__ = ["as_nodes", "largest_divisor", "node_layout"]


def as_nodes(parts: int, ranks_per_node: Any = None, nodes: Any = None) -> NDArray[np.int32] | None:
    """Node of each rank, counted from 0 in the order of their numbers; None where none is given.

    Parameters
    ----------
    parts : int
        Ranks.
    ranks_per_node : int, optional
        Ranks of a node: the first so many make the first node, and so on. Divides `parts`.
    nodes : array of int of shape (parts,), optional
        Number of each rank's node; nodes may differ in size.

    Raises
    ------
    PlanError
        Naming the argument that does not fit.
    """
    made = None if ranks_per_node is None else _even(parts, ranks_per_node)
    if nodes is None:
        return made
    given = np.asarray(nodes)
    if given.shape != (parts,):
        raise PlanError(
            f"nodes has shape {given.shape}; wanted the node of each of {parts} ranks: ({parts},)"
        )
    if given.dtype.kind not in "iu" or (len(given) and given.min() < 0):
        raise PlanError(f"nodes={nodes!r}: wanted the number of each rank's node, 0 or more")
    numbers = np.unique(given, return_inverse=True)[1].astype(np.int32)
    if made is not None and not np.array_equal(numbers, made):
        raise PlanError(
            f"ranks_per_node={ranks_per_node} and nodes= say different things: give one of them"
        )
    return numbers


def largest_divisor(parts: int) -> int:
    """The largest divisor of ``parts`` that is at most its square root."""
    return max(c for c in range(1, int(parts**0.5) + 2) if c * c <= parts and parts % c == 0)


def node_layout(layout: Layout, nodes: NDArray[np.int32]) -> Layout:
    """The layout that lays each row on its rank's node."""
    owners = nodes[layout.owner(np.arange(layout.n))]
    return Layout.from_parts(owners, int(nodes.max(initial=0)) + 1)


def _even(parts: int, ranks_per_node: Any) -> NDArray[np.int32]:
    whole = isinstance(ranks_per_node, int | np.integer) and not isinstance(ranks_per_node, bool)
    if not whole or ranks_per_node < 1:
        raise PlanError(
            f"ranks_per_node={ranks_per_node!r}: wanted the number of ranks of a node, an integer "
            "of at least 1"
        )
    if parts % ranks_per_node:
        raise PlanError(
            f"ranks_per_node={ranks_per_node} does not divide parts={parts}; where nodes differ in "
            "size give nodes=, the node of each rank"
        )
    return (np.arange(parts) // ranks_per_node).astype(np.int32)
