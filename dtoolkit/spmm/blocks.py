"""The off-diagonal blocks of a sparse matrix laid over ranks, a group at a time.

Block (p, q) holds the nonzeros whose rows live on rank p (the target, which wants the result) and
whose columns live on rank q (the source, which has the rows of B). Planning sees whole blocks, in
groups of targets, so that its memory is bounded by the group and not by the matrix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout

__all__ = ["Blocks", "Structure", "spread", "walk"]

# Nonzeros of a group: enough that NumPy's overhead vanishes, few enough to fit in some 100 MB.
GROUP_NONZEROS = 2**19


@dataclass(frozen=True, eq=False)
class Structure:
    """Where the nonzeros of a matrix are: its canonical CSR without the values.

    Attributes
    ----------
    shape : (int, int)
    indptr : int array of shape (shape[0] + 1,)
    indices : int array of shape (nnz,)
        Columns, ascending within each row, none twice.
    """

    shape: tuple[int, int]
    indptr: NDArray[Any]
    indices: NDArray[Any]

    @classmethod
    def of(cls, A: sparse.csr_array) -> Structure:
        """Share the pattern of a canonical CSR matrix."""
        return cls((int(A.shape[0]), int(A.shape[1])), A.indptr, A.indices)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    def digest(self) -> str:
        """Stable name of the pattern: equal for equal patterns, whatever the index dtype."""
        largest = max(self.nnz, *self.shape)
        dtype = "<i4" if largest < 2**31 else "<i8"
        digest = hashlib.blake2b(f"{self.shape[0]} {self.shape[1]} {self.nnz}".encode())
        for array in (self.indptr, self.indices):
            for start in range(0, len(array), 2**20):
                piece = array[start : start + 2**20]
                digest.update(np.ascontiguousarray(piece, dtype=dtype).data)
        return digest.hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The off-diagonal nonzeros of some whole blocks, and the rows that could move for them.

    What a strategy decides on. Nonzero e can be served by row ``column[e]`` of B, sent from its
    source to its target; that is one *column vertex*, shared by all nonzeros of the block in that
    column. Or by a partial row ``row[e]`` of C, computed at the source and sent to the target: one
    *row vertex*, shared by all nonzeros of the block in that row.

    Attributes
    ----------
    parts : int
        Ranks in all.
    weights : (int, int)
        What a row of B and a partial row of C weigh, in proportion.
    target, source : int32 arrays of shape (nonzeros,)
        Rank that owns the nonzero's row of C, and rank that owns its row of B; never the same.
    row, column : int64 arrays of shape (nonzeros,)
        Global row and column.
    row_vertex, column_vertex : int32 arrays of shape (nonzeros,)
        Vertices of each nonzero, counted from 0 within this group.
    row_of, column_of : int64 arrays, one entry a vertex
        Global row of C, and global row of B.
    row_pair, column_pair : int64 arrays, one entry a vertex
        ``source * parts + target``.
    """

    parts: int
    weights: tuple[int, int]
    target: NDArray[np.int32]
    source: NDArray[np.int32]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    row_vertex: NDArray[np.int32]
    column_vertex: NDArray[np.int32]
    row_of: NDArray[np.int64]
    column_of: NDArray[np.int64]
    row_pair: NDArray[np.int64]
    column_pair: NDArray[np.int64]

    @property
    def nonzeros(self) -> int:
        """Number of nonzeros in these blocks."""
        return len(self.row)


def walk(
    A: Structure, rows: Layout, columns: Layout, weights: tuple[int, int] = (1, 1)
) -> Iterator[tuple[NDArray[np.int64], Blocks]]:
    """Go through all off-diagonal blocks, whole blocks at a time.

    Yields
    ------
    positions : int64 array
        Positions of the group's nonzeros in the canonical CSR.
    blocks : Blocks
    """
    owners = rows.owner(np.arange(A.shape[0]))
    order = np.argsort(owners, kind="stable")
    column_owner = columns.owner(np.arange(A.shape[1]))
    counts = np.diff(A.indptr).astype(np.int64)[order]
    ends = np.cumsum(rows.sizes)
    before = np.concatenate([[0], np.cumsum(counts)])[np.concatenate([[0], ends])]
    limit = max(1, GROUP_NONZEROS // (weights[0] * weights[1]))
    for first, last in _groups(before, limit):
        here = slice(ends[first] - rows.sizes[first], ends[last - 1])
        positions = spread(A.indptr[order[here]], counts[here])
        place = np.repeat(np.arange(here.start, here.stop), counts[here])
        source = column_owner[A.indices[positions]]
        away = source != owners[order[place]]
        if away.any():
            positions, place, source = positions[away], place[away], source[away]
            column = A.indices[positions].astype(np.int64)
            yield positions, _blocks(owners, order, place, source, column, columns, rows, weights)


def _groups(before: NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Cut the targets into runs with at most ``limit`` nonzeros together, or one target alone."""
    first, parts = 0, len(before) - 1
    while first < parts:
        last = int(np.searchsorted(before, before[first] + limit, side="right")) - 1
        last = min(max(last, first + 1), parts)
        if before[last] > before[first]:
            yield first, last
        first = last


def _blocks(
    owners: NDArray[np.int32],
    order: NDArray[np.int64],
    place: NDArray[np.int64],
    source: NDArray[np.int32],
    column: NDArray[np.int64],
    columns: Layout,
    rows: Layout,
    weights: tuple[int, int],
) -> Blocks:
    """Build a group and number its vertices; ``place`` is each nonzero's row in owner order."""
    parts, width = rows.parts, max(columns.n, 1)
    row = order[place]
    target = owners[row]
    # A column vertex is a (target, column) and a row vertex a (row, source): the block follows.
    low, first = int(place[0]), int(target[0])
    row_vertex, row_keys = _number(
        (place - low) * parts + source, (int(place[-1]) - low + 1) * parts
    )
    span = int(target[-1]) - first + 1
    keys = (target.astype(np.int64) - first) * width + column
    column_vertex, column_keys = _number(keys, span * width)
    row_of = order[low + row_keys // parts]
    column_of = column_keys % width
    return Blocks(
        parts=parts,
        weights=weights,
        target=target,
        source=source,
        row=row,
        column=column,
        row_vertex=row_vertex,
        column_vertex=column_vertex,
        row_of=row_of,
        column_of=column_of,
        row_pair=row_keys % parts * parts + owners[row_of],
        column_pair=columns.owner(column_of).astype(np.int64) * parts
        + (first + column_keys // width),
    )


def _number(keys: NDArray[np.int64], space: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Give each key the rank of its value, and the distinct values, ascending."""
    if space > 8 * len(keys) + 2**16:
        distinct, inverse = np.unique(keys, return_inverse=True)
        return inverse.astype(np.int32), distinct
    seen = np.zeros(space, dtype=bool)
    seen[keys] = True
    number = np.cumsum(seen, dtype=np.int32)
    return np.subtract(number[keys], 1, dtype=np.int32), np.flatnonzero(seen)


def spread(starts: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``starts[0], starts[0] + 1, ...``: ``counts[i]`` numbers from ``starts[i]``, one by one."""
    ends = np.cumsum(counts)
    offsets = starts.astype(np.int64) - (ends - counts)
    return np.repeat(offsets, counts) + np.arange(ends[-1] if len(ends) else 0)
