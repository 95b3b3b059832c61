"""From a strategy's decisions to the lists of rows that move between ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.blocks import Blocks, Structure, spread, walk
from dtoolkit.spmm.strategies import Assignment, assign

__all__ = ["Assembly", "Load", "PairLists", "assemble", "assemble_by"]


@dataclass(frozen=True, eq=False)
class PairLists:
    """Lists of global rows, one for each ordered pair of ranks, as one compressed array.

    Attributes
    ----------
    parts : int
    ptr : int64 array of shape (parts * parts + 1,)
        Pair ``source * parts + target`` holds ``index[ptr[pair] : ptr[pair + 1]]``.
    index : int64 array or None
        Global rows, ascending within a pair. None: every pair of two ranks has a whole shard, which
        the layout knows.
    """

    parts: int
    ptr: NDArray[np.int64]
    index: NDArray[np.int64] | None

    @classmethod
    def empty(cls, parts: int) -> PairLists:
        """No rows for any pair."""
        return cls(parts, np.zeros(parts * parts + 1, np.int64), np.empty(0, np.int64))

    @classmethod
    def shards(cls, sizes: NDArray[np.int64]) -> PairLists:
        """Each rank's whole shard to every other rank."""
        parts = len(sizes)
        counts = np.repeat(sizes[:, None], parts, axis=1)
        np.fill_diagonal(counts, 0)
        ptr = np.zeros(parts * parts + 1, dtype=np.int64)
        np.cumsum(counts.ravel(), out=ptr[1:])
        return cls(parts, ptr, None)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows by pair: int64 array of shape (parts, parts), [source, target]."""
        return np.diff(self.ptr).reshape(self.parts, self.parts)

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
class Load:
    """What a strategy asks of each rank in one product (planned).

    Attributes
    ----------
    strategy : str
    b_sent, b_received, c_sent, c_received : int64 arrays of shape (parts,)
        Rows of B, and partial rows of C.
    work : int64 array of shape (parts,)
        Nonzeros multiplied.
    """

    strategy: str
    b_sent: NDArray[np.int64]
    b_received: NDArray[np.int64]
    c_sent: NDArray[np.int64]
    c_received: NDArray[np.int64]
    work: NDArray[np.int64]

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
        return Load(
            {"column": "row", "row": "column"}.get(self.strategy, self.strategy),
            b_sent=self.c_received,
            b_received=self.c_sent,
            c_sent=self.b_received,
            c_received=self.b_sent,
            work=self.work,
        )


@dataclass(frozen=True, eq=False)
class Assembly:
    """All that follows from a strategy's decisions on a matrix and its layouts.

    Attributes
    ----------
    by_row : bool array of shape (nnz,)
    b, c : PairLists
        Rows of B, and partial rows of C.
    matched : int array or None
        Positions in the canonical CSR of the nonzeros of the maximum matching, ascending.
    matching : int64 array of shape (parts, parts) or None
        Units matched by block, [target, source].
    loads : tuple of Load
        Of this strategy and of oblivious, column and row.
    """

    by_row: NDArray[np.bool_]
    b: PairLists
    c: PairLists
    matched: NDArray[Any] | None
    matching: NDArray[np.int64] | None
    loads: tuple[Load, ...]


def assemble(
    A: Structure,
    rows: Layout,
    columns: Layout,
    strategy: str,
    method: Callable[[Blocks], object],
    weights: tuple[int, int] = (1, 1),
) -> Assembly:
    """Let a strategy decide on all off-diagonal nonzeros, and list what moves.

    Parameters
    ----------
    A : Structure
    rows, columns : Layout
    strategy, method
        As :func:`dtoolkit.spmm.strategies.resolve` gives them.
    weights : (int, int)
        What a row of B and a partial row of C weigh, in proportion.
    """

    def decide(positions: NDArray[np.int64], blocks: Blocks) -> Assignment:
        return assign(strategy, method, blocks)

    return assemble_by(decide, A, rows, columns, strategy, weights)


def assemble_by(
    decide: Callable[[NDArray[np.int64], Blocks], Assignment],
    A: Structure,
    rows: Layout,
    columns: Layout,
    strategy: str,
    weights: tuple[int, int] = (1, 1),
) -> Assembly:
    """List what moves by ``decide(positions in the canonical CSR, blocks)``."""
    by_row = np.zeros(A.nnz, dtype=bool)
    tally = _Tally(A, rows.parts)
    for positions, blocks in walk(A, rows, columns, weights):
        assignment = decide(positions, blocks)
        by_row[positions] = assignment.by_row
        tally.add(positions, blocks, assignment)
    at_target = np.bincount(
        rows.owner(np.arange(A.shape[0])), weights=np.diff(A.indptr), minlength=rows.parts
    ).astype(np.int64)
    b, c = tally.b.lists(), tally.c.lists()
    loads = {"oblivious": oblivious_load(columns, at_target)}
    for load in (tally.own_load(strategy, b, c, at_target), *tally.simple_loads(at_target)):
        loads.setdefault(load.strategy, load)
    matched, matching = tally.certificate()
    return Assembly(by_row, b, c, matched, matching, tuple(loads.values()))


def oblivious_load(columns: Layout, work: NDArray[np.int64]) -> Load:
    """Reckon what all-gather asks: each rank sends its whole shard of B to every other."""
    none = np.zeros(columns.parts, dtype=np.int64)
    sent = columns.sizes * (columns.parts - 1)
    return Load("oblivious", sent, columns.n - columns.sizes, none, none, work)


class _Rows:
    """Collects rows by pair from groups that share no pair, in little memory."""

    def __init__(self, parts: int, n: int) -> None:
        self.parts = parts
        self.dtype = np.int32 if n < 2**31 else np.int64
        self.groups: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]] = []

    def add(self, pair: NDArray[np.int64], index: NDArray[np.int64]) -> None:
        order = np.argsort(pair, kind="stable")
        pairs, counts = np.unique(pair, return_counts=True)
        self.groups.append((index[order].astype(self.dtype), pairs, counts))

    def lists(self) -> PairLists:
        """Put every group's rows where their pairs begin; what was collected is used up."""
        ptr = np.zeros(self.parts * self.parts + 1, dtype=np.int64)
        for _, pairs, counts in self.groups:
            ptr[pairs + 1] = counts
        np.cumsum(ptr, out=ptr)
        index = np.empty(ptr[-1], dtype=np.int64)
        while self.groups:
            rows, pairs, counts = self.groups.pop()
            index[spread(ptr[pairs], counts)] = rows
        return PairLists(self.parts, ptr, index)


class _Tally:
    """Collects, group by group, what moves and what the simple strategies would move."""

    def __init__(self, A: Structure, parts: int) -> None:
        self.parts = parts
        self.b = _Rows(parts, A.shape[1])
        self.c = _Rows(parts, A.shape[0])
        self.position = np.int32 if A.nnz < 2**31 else np.int64
        self.matched: list[NDArray[Any]] = []
        self.matching = np.zeros(parts * parts, dtype=np.int64)
        self.proven = True
        # By rank, [as source, as target]: all column vertices, all row vertices, all off-diagonal
        # nonzeros, and those of them that go by row.
        self.columns, self.rows, self.nonzeros, self.by_row = np.zeros((4, 2, parts), np.int64)

    def add(self, positions: NDArray[np.int64], blocks: Blocks, assignment: Assignment) -> None:
        by_row, parts = assignment.by_row, self.parts
        moving = np.zeros(len(blocks.column_of), dtype=bool)
        moving[blocks.column_vertex[~by_row]] = True
        self.b.add(blocks.column_pair[moving], blocks.column_of[moving])
        moving = np.zeros(len(blocks.row_of), dtype=bool)
        moving[blocks.row_vertex[by_row]] = True
        self.c.add(blocks.row_pair[moving], blocks.row_of[moving])

        self.columns += _ends(blocks.column_pair // parts, blocks.column_pair % parts, parts)
        self.rows += _ends(blocks.row_pair // parts, blocks.row_pair % parts, parts)
        self.nonzeros += _ends(blocks.source, blocks.target, parts)
        self.by_row += _ends(blocks.source[by_row], blocks.target[by_row], parts)
        if assignment.matched is None:
            self.proven = False
            return
        self.matched.append(positions[assignment.matched].astype(self.position))
        target = blocks.target[assignment.matched].astype(np.int64)
        block = target * parts + blocks.source[assignment.matched]
        self.matching += np.bincount(block, minlength=parts * parts)

    def certificate(self) -> tuple[NDArray[Any] | None, NDArray[np.int64] | None]:
        if not self.proven:
            return None, None
        matched = np.concatenate([np.empty(0, self.position), *self.matched])
        matched.sort()
        return matched, self.matching.reshape(self.parts, self.parts)

    def simple_loads(self, at_target: NDArray[np.int64]) -> tuple[Load, Load]:
        none = np.zeros(self.parts, dtype=np.int64)
        at_source = at_target - self.nonzeros[1] + self.nonzeros[0]
        return (
            Load("column", self.columns[0], self.columns[1], none, none, at_target),
            Load("row", none, none, self.rows[0], self.rows[1], at_source),
        )

    def own_load(
        self, strategy: str, b: PairLists, c: PairLists, at_target: NDArray[np.int64]
    ) -> Load:
        work = at_target - self.by_row[1] + self.by_row[0]
        return Load(
            strategy,
            b_sent=b.counts.sum(axis=1),
            b_received=b.counts.sum(axis=0),
            c_sent=c.counts.sum(axis=1),
            c_received=c.counts.sum(axis=0),
            work=work,
        )


def _ends(source: NDArray[Any], target: NDArray[Any], parts: int) -> NDArray[np.int64]:
    return np.stack([np.bincount(end, minlength=parts) for end in (source, target)])
