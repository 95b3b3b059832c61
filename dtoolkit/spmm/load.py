"""What a strategy asks of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dtoolkit.spmm.pairlists import Stage

__all__ = ["TURNED", "Load"]

#: What a strategy is called after transposition, where that is another.
TURNED = {
    "column": "row",
    "row": "column",
    "hier-column": "hier-row",
    "hier-row": "hier-column",
}


@dataclass(frozen=True, eq=False)
class Load:
    """What a strategy asks of each rank in one product (planned).

    Attributes
    ----------
    strategy : str
    b_sent, b_received, c_sent, c_received : int64 arrays of shape (parts,)
        Rows of B, and partial rows of C, over all stages.
    work : int64 array of shape (parts,)
        Nonzeros multiplied.
    between : int or None
        Rows sent from one node to another in all; None where nodes are unknown.
    """

    strategy: str
    b_sent: NDArray[np.int64]
    b_received: NDArray[np.int64]
    c_sent: NDArray[np.int64]
    c_received: NDArray[np.int64]
    work: NDArray[np.int64]
    between: int | None = None

    @classmethod
    def of(
        cls,
        strategy: str,
        b: NDArray[np.int64],
        c: NDArray[np.int64],
        work: NDArray[np.int64],
        nodes: NDArray[np.int32] | None = None,
    ) -> Load:
        """Add up rows of B and of C by pair of ranks, [source, target]."""
        between = None
        if nodes is not None:
            between = int((b + c)[nodes[:, None] != nodes[None, :]].sum())
        return cls(
            strategy, b.sum(axis=1), b.sum(axis=0), c.sum(axis=1), c.sum(axis=0), work, between
        )

    @classmethod
    def of_stages(
        cls,
        strategy: str,
        stages: Sequence[Stage],
        work: NDArray[np.int64],
        nodes: NDArray[np.int32] | None = None,
    ) -> Load:
        """Add up what moves in all stages."""
        none = np.zeros((len(work), len(work)), dtype=np.int64)
        b = sum((stage.b.counts for stage in stages), start=none)
        c = sum((stage.c.counts for stage in stages), start=none)
        return cls.of(strategy, b, c, work, nodes)

    @classmethod
    def over_grid(
        cls,
        strategy: str,
        shards: tuple[NDArray[np.int64], NDArray[np.int64]],
        members: int,
        work: NDArray[np.int64],
        nodes: NDArray[np.int32] | None = None,
    ) -> Load:
        """Reckon what whole shards on a grid move, without a list of pairs.

        Parameters
        ----------
        strategy : str
        shards : two int64 arrays of shape (parts,)
            Rows of B, and of C, that each rank owns.
        members : int
            Ranks of a group: :func:`dtoolkit.spmm.routes.over_grid`.
        work : int64 array of shape (parts,)
        nodes : int32 array of shape (parts,), optional
        """
        b, c = shards
        at = np.arange(len(b))
        group, member = np.divmod(at, members)
        groups = len(b) // members
        of_member, of_group = b.reshape(groups, members).sum(0), c.reshape(groups, members).sum(1)
        between = None
        if nodes is not None:
            here = nodes.astype(np.int64)
            near_b = _alike(member * (int(here.max(initial=0)) + 1) + here)
            near_c = _alike(group * (int(here.max(initial=0)) + 1) + here)
            between = int((b * (groups - near_b)).sum() + (c * (members - near_c)).sum())
        return cls(
            strategy,
            b * (groups - 1),
            of_member[member] - b,
            of_group[group] - c,
            c * (members - 1),
            work,
            between,
        )

    @property
    def volume(self) -> int:
        """Rows sent in all."""
        return int(self.b_sent.sum() + self.c_sent.sum())

    @property
    def moved(self) -> NDArray[np.int64]:
        """Rows sent and received by each rank."""
        return self.b_sent + self.b_received + self.c_sent + self.c_received

    def weighed(self, weights: tuple[int, int]) -> NDArray[np.int64]:
        """Rows sent and received by each rank, weighed (B, C)."""
        b, c = weights
        return (self.b_sent + self.b_received) * b + (self.c_sent + self.c_received) * c

    def transposed(self) -> Load:
        """Give the same for the transposed matrix with its nonzeros where they are."""
        return replace(
            self,
            strategy=TURNED.get(self.strategy, self.strategy),
            b_sent=self.c_received,
            b_received=self.c_sent,
            c_sent=self.b_received,
            c_received=self.b_sent,
        )


def _alike(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many have the label that each has."""
    return np.bincount(labels)[labels]
