"""Lists of rows by ordered pair of ranks: what moves in one stage of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.blocks import spread

__all__ = ["PairLists", "Stage"]


@dataclass(frozen=True, eq=False)
class PairLists:
    """Lists of global rows, one for each ordered pair of ranks, as one compressed array.

    Attributes
    ----------
    parts : int
    ptr : int64 array of shape (parts * parts + 1,)
        Pair ``source * parts + target`` holds ``index[ptr[pair] : ptr[pair + 1]]``.
    index : int64 array or None
        Global rows, ascending within a pair. None: a pair that holds any rows holds a whole shard,
        which the layout knows.
    """

    parts: int
    ptr: NDArray[np.int64]
    index: NDArray[np.int64] | None

    @classmethod
    def empty(cls, parts: int) -> PairLists:
        """No rows for any pair."""
        return cls(parts, np.zeros(parts * parts + 1, np.int64), np.empty(0, np.int64))

    @classmethod
    def shards(cls, sizes: NDArray[np.int64], sends: NDArray[np.bool_] | None = None) -> PairLists:
        """Each rank's whole shard to every other rank, or to those of ``sends[source, target]``."""
        parts = len(sizes)
        counts = np.repeat(sizes[:, None], parts, axis=1)
        np.fill_diagonal(counts, 0)
        if sends is not None:
            counts[~sends] = 0
        ptr = np.zeros(parts * parts + 1, dtype=np.int64)
        np.cumsum(counts.ravel(), out=ptr[1:])
        return cls(parts, ptr, None)

    @classmethod
    def of(cls, parts: int, pair: NDArray[np.int64], rows: NDArray[Any]) -> PairLists:
        """Lists of rows by pair, in whatever order they come."""
        order = np.lexsort((rows, pair))
        ptr = np.zeros(parts * parts + 1, dtype=np.int64)
        np.cumsum(np.bincount(pair, minlength=parts * parts), out=ptr[1:])
        return cls(parts, ptr, rows[order].astype(np.int64, copy=False))

    @classmethod
    def merged(cls, lists: Sequence[PairLists], shards: Layout, whose: str) -> PairLists:
        """What all of some lists hold together, where no pair holds a row twice."""
        filled = [one for one in lists if one.total]
        if len(filled) < 2:
            return filled[0] if filled else lists[0]
        parts = filled[0].parts
        found = [one.expanded(shards, whose) for one in filled]
        pair = np.concatenate([source * parts + target for source, target, _ in found])
        return cls.of(parts, pair, np.concatenate([rows for *_, rows in found]))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows by pair: int64 array of shape (parts, parts), [source, target]."""
        return np.diff(self.ptr).reshape(self.parts, self.parts)

    @property
    def total(self) -> int:
        """Rows of all pairs."""
        return int(self.ptr[-1])

    def rows(self, source: int, target: int, shards: Layout, whose: str) -> NDArray[np.int64]:
        """Rows of a pair; whole shards are those of its ``whose``: "source" or "target"."""
        pair = source * self.parts + target
        first, last = self.ptr[pair], self.ptr[pair + 1]
        if self.index is not None:
            return self.index[first:last]
        if first == last:
            return np.empty(0, dtype=np.int64)
        return shards.indices(source if whose == "source" else target)

    def expanded(
        self, shards: Layout, whose: str
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Source, target and row of each entry, pair by pair."""
        source, target = np.divmod(
            np.repeat(np.arange(self.parts * self.parts), np.diff(self.ptr)), self.parts
        )
        if self.index is not None:
            return source, target, self.index
        pairs = np.flatnonzero(np.diff(self.ptr))
        owners = pairs // self.parts if whose == "source" else pairs % self.parts
        known = {int(owner): shards.indices(int(owner)) for owner in np.unique(owners)}
        pieces = [known[int(owner)] for owner in owners]
        return source, target, np.concatenate([np.empty(0, np.int64), *pieces])

    def transposed(self) -> PairLists:
        """Give what s sends to t to the pair of t and s."""
        counts = self.counts.T.ravel()
        ptr = np.zeros_like(self.ptr)
        np.cumsum(counts, out=ptr[1:])
        if self.index is None:
            return PairLists(self.parts, ptr, None)
        starts = self.ptr[:-1].reshape(self.parts, self.parts).T.ravel()
        return PairLists(self.parts, ptr, self.index[spread(starts, counts)])


@dataclass(frozen=True, eq=False)
class Stage:
    """What moves at one time, and what it is needed for (planned).

    A rank sends rows of B that it owns or got in an earlier stage, and for rows of C the sum of
    what it computed itself and of what it got in earlier stages.

    Attributes
    ----------
    name : str
        "exchange" in a plan of one stage, which is the phase "spmm" of a trace; the others are the
        phases "spmm/" + name.
    b, c : PairLists
        Rows of B, and partial rows of C, by ordered pair of ranks.
    partial : int64 array of shape (parts,)
        Nonzeros that each rank multiplies with its own rows of B for partial rows that leave here.
    remote : int64 array of shape (parts,)
        Nonzeros that each rank multiplies with rows of B that come here, for its own rows of C.
    through : int64 array of shape (parts,)
        Nonzeros that each rank multiplies with rows of B that come here, for partial rows that
        leave later.
    """

    name: str
    b: PairLists
    c: PairLists
    partial: NDArray[np.int64]
    remote: NDArray[np.int64]
    through: NDArray[np.int64]

    @property
    def traffic(self) -> NDArray[np.int64]:
        """Rows sent: int64 array of shape (parts, parts), [source, target]."""
        return self.b.counts + self.c.counts

    @property
    def volume(self) -> int:
        """Rows sent in all."""
        return self.b.total + self.c.total

    def bytes_matrix(self, b_row: int, c_row: int) -> NDArray[np.int64]:
        """Bytes sent, [source, target], by bytes of a row of B and of C."""
        return self.b.counts * b_row + self.c.counts * c_row
