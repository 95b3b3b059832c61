"""From a strategy's decisions to the rows that are needed elsewhere, and what it asks of ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.blocks import Blocks, Structure, spread, walk
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.pairlists import PairLists
from dtoolkit.spmm.strategies import Assignment, assign

__all__ = ["Assembly", "Needs", "assemble", "assemble_by"]


@dataclass(frozen=True, eq=False)
class Needs:
    """Rows that ranks need from their owners, or have for them, and how many nonzeros want each.

    Attributes
    ----------
    lists : PairLists
    uses : int32 array
        Nonzeros by entry of ``lists.index``.
    """

    lists: PairLists
    uses: NDArray[np.int32]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Nonzeros by pair, [source, target]."""
        total = np.concatenate([[0], np.cumsum(self.uses, dtype=np.int64)])
        return np.diff(total[self.lists.ptr]).reshape(self.lists.parts, self.lists.parts)

    def entries(self, pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places in ``lists.index`` of what some pairs hold, pair by pair, and how many each."""
        counts = self.lists.ptr[pairs + 1] - self.lists.ptr[pairs]
        return spread(self.lists.ptr[pairs], counts), counts

    def select(self, mask: NDArray[np.bool_]) -> Needs:
        """Keep the pairs of ``mask[source, target]``."""
        assert self.lists.index is not None
        at, _ = self.entries(np.flatnonzero(mask.ravel()))
        counts = np.where(mask, self.lists.counts, 0)
        ptr = np.concatenate([[0], np.cumsum(counts.ravel())])
        return Needs(PairLists(self.lists.parts, ptr, self.lists.index[at]), self.uses[at])

    def transposed(self) -> Needs:
        """Give what s sends to t to the pair of t and s."""
        parts = self.lists.parts
        pairs = np.arange(parts * parts).reshape(parts, parts).T.ravel()
        at, _ = self.entries(pairs)
        return Needs(self.lists.transposed(), self.uses[at])


@dataclass(frozen=True, eq=False)
class Assembly:
    """All that follows from a strategy's decisions on a matrix and its layouts.

    Attributes
    ----------
    by_row : bool array of shape (nnz,)
    b, c : Needs
        Rows of B from their owners to who wants them, and partial rows of C from who computes them
        to their owners.
    matched : int array or None
        Positions in the canonical CSR of the nonzeros of the maximum matching, ascending.
    matching : int64 array of shape (parts, parts) or None
        Units matched by block, [target, source].
    nonzeros : int64 array of shape (parts, parts)
        Of each block, [target, source], those on the diagonal too.
    moved_by_row : int64 array of shape (parts, parts)
        Those of them that ``by_row`` marks.
    column_counts, row_counts : int64 arrays of shape (parts, parts)
        What the column-based and the row-based strategy would send, [source, target].
    """

    by_row: NDArray[np.bool_]
    b: Needs
    c: Needs
    matched: NDArray[Any] | None
    matching: NDArray[np.int64] | None
    nonzeros: NDArray[np.int64]
    moved_by_row: NDArray[np.int64]
    column_counts: NDArray[np.int64]
    row_counts: NDArray[np.int64]

    @property
    def work(self) -> NDArray[np.int64]:
        """Nonzeros multiplied by each rank, where those of ``by_row`` go to their sources."""
        at_target = self.nonzeros.sum(axis=1)
        return at_target - self.moved_by_row.sum(axis=1) + self.moved_by_row.sum(axis=0)

    def simple_loads(
        self, columns: Layout, nodes: NDArray[np.int32] | None
    ) -> tuple[Load, Load, Load]:
        """Loads of the oblivious, the column-based and the row-based strategy."""
        none = np.zeros_like(self.nonzeros)
        whole = PairLists.shards(columns.sizes).counts
        at_target, at_source = self.nonzeros.sum(axis=1), self.nonzeros.sum(axis=0)
        return (
            Load.of("oblivious", whole, none, at_target, nodes),
            Load.of("column", self.column_counts, none, at_target, nodes),
            Load.of("row", none, self.row_counts, at_source, nodes),
        )


def assemble(
    A: Structure,
    rows: Layout,
    columns: Layout,
    strategy: str,
    method: Callable[[Blocks], object],
    weights: tuple[int, int] = (1, 1),
) -> Assembly:
    """Let a strategy decide on all off-diagonal nonzeros, and list what is needed elsewhere.

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

    return assemble_by(decide, A, rows, columns, weights)


def assemble_by(
    decide: Callable[[NDArray[np.int64], Blocks], Assignment],
    A: Structure,
    rows: Layout,
    columns: Layout,
    weights: tuple[int, int] = (1, 1),
) -> Assembly:
    """List what is needed by ``decide(positions in the canonical CSR, blocks)``."""
    by_row = np.zeros(A.nnz, dtype=bool)
    tally = _Tally(A, rows.parts)
    for positions, blocks in walk(A, rows, columns, weights):
        assignment = decide(positions, blocks)
        by_row[positions] = assignment.by_row
        tally.add(positions, blocks, assignment)
    at_target = np.bincount(
        rows.owner(np.arange(A.shape[0])), weights=np.diff(A.indptr), minlength=rows.parts
    ).astype(np.int64)
    tally.add_diagonal(at_target)
    parts = rows.parts
    matched, matching = tally.certificate()
    return Assembly(
        by_row,
        tally.b.needs(),
        tally.c.needs(),
        matched,
        matching,
        nonzeros=tally.nonzeros.reshape(parts, parts),
        moved_by_row=tally.by_row.reshape(parts, parts),
        column_counts=tally.columns.reshape(parts, parts),
        row_counts=tally.rows.reshape(parts, parts),
    )


class RowLists:
    """Collects rows by pair from groups that share no pair, in little memory."""

    def __init__(self, parts: int, n: int) -> None:
        self.parts = parts
        self.dtype = np.int32 if n < 2**31 else np.int64
        self.groups: list[tuple[NDArray[Any], ...]] = []

    def add(self, pair: NDArray[np.int64], index: NDArray[np.int64], uses: NDArray[Any]) -> None:
        """Take rows, ascending within each pair, and how many nonzeros want each."""
        order = np.argsort(pair, kind="stable")
        pairs, counts = np.unique(pair, return_counts=True)
        rows = index[order].astype(self.dtype)
        self.groups.append((rows, uses[order].astype(np.int32), pairs, counts))

    def needs(self) -> Needs:
        """Put every group's rows where their pairs begin; what was collected is used up."""
        ptr = np.zeros(self.parts * self.parts + 1, dtype=np.int64)
        for *_, pairs, counts in self.groups:
            ptr[pairs + 1] = counts
        np.cumsum(ptr, out=ptr)
        index, uses = np.empty(ptr[-1], dtype=np.int64), np.empty(ptr[-1], dtype=np.int32)
        while self.groups:
            rows, wanted, pairs, counts = self.groups.pop()
            at = spread(ptr[pairs], counts)
            index[at], uses[at] = rows, wanted
        return Needs(PairLists(self.parts, ptr, index), uses)


class _Tally:
    """Collects, group by group, what is needed and what the simple strategies would move."""

    def __init__(self, A: Structure, parts: int) -> None:
        self.parts = parts
        self.b = RowLists(parts, A.shape[1])
        self.c = RowLists(parts, A.shape[0])
        self.position = np.int32 if A.nnz < 2**31 else np.int64
        self.matched: list[NDArray[Any]] = []
        self.proven = True
        # By pair of ranks: column vertices and row vertices as [source, target]; matched units, all
        # nonzeros, and those of them that go by row, as [target, source].
        self.columns, self.rows, self.matching, self.nonzeros, self.by_row = np.zeros(
            (5, parts * parts), np.int64
        )

    def add(self, positions: NDArray[np.int64], blocks: Blocks, assignment: Assignment) -> None:
        by_row = assignment.by_row
        uses = np.bincount(blocks.column_vertex[~by_row], minlength=len(blocks.column_of))
        moving = np.flatnonzero(uses)
        self.b.add(blocks.column_pair[moving], blocks.column_of[moving], uses[moving])
        uses = np.bincount(blocks.row_vertex[by_row], minlength=len(blocks.row_of))
        moving = np.flatnonzero(uses)
        self.c.add(blocks.row_pair[moving], blocks.row_of[moving], uses[moving])

        block = blocks.target.astype(np.int64) * self.parts + blocks.source
        self.columns += self._counted(blocks.column_pair)
        self.rows += self._counted(blocks.row_pair)
        self.nonzeros += self._counted(block)
        self.by_row += self._counted(block[by_row])
        if assignment.matched is None:
            self.proven = False
            return
        self.matched.append(positions[assignment.matched].astype(self.position))
        self.matching += self._counted(block[assignment.matched])

    def add_diagonal(self, at_target: NDArray[np.int64]) -> None:
        away = self.nonzeros.reshape(self.parts, self.parts).sum(axis=1)
        self.nonzeros[:: self.parts + 1] += at_target - away

    def certificate(self) -> tuple[NDArray[Any] | None, NDArray[np.int64] | None]:
        if not self.proven:
            return None, None
        matched = np.concatenate([np.empty(0, self.position), *self.matched])
        matched.sort()
        return matched, self.matching.reshape(self.parts, self.parts)

    def _counted(self, pair: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(pair, minlength=self.parts * self.parts)
