"""How good a partition is, before any strategy: balance, cut, and what the needs add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.partitioners.base import owners_of
from dtoolkit.data import as_csr
from dtoolkit.errors import LayoutError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PartitionQuality", "partition_quality"]


@dataclass(frozen=True, eq=False)
class PartitionQuality:
    """What a partition asks of the ranks (planned; follows from the matrix and the layouts).

    Imbalances are the largest part over the mean: 1 is even.

    Attributes
    ----------
    shape : (int, int)
        Of A.
    parts : int
    rows, columns : int64 arrays of shape (parts,)
        Rows of A and of C, and columns of A, which are rows of B, of each part.
    nonzeros : int64 array of shape (parts,)
        Stored entries in the rows of each part.
    received, sent : int64 arrays of shape (parts,)
        Rows of B that each part receives and sends by the column strategy. A row of k columns has
        k times the dtype's bytes, so their imbalance is that of the bytes.
    away : int
        Stored entries whose row and column live on different parts.
    cut : int
        Edges between different parts, of the graph of A + A.T without the diagonal where A is
        square, else of the graph that joins rows to columns.
    partial : int
        Partial rows of C that the row strategy sends.
    """

    shape: tuple[int, int]
    parts: int
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    nonzeros: NDArray[np.int64]
    received: NDArray[np.int64]
    sent: NDArray[np.int64]
    away: int
    cut: int
    partial: int

    @property
    def column_volume(self) -> int:
        """Rows of B that the column strategy sends in all."""
        return int(self.received.sum())

    @property
    def row_volume(self) -> int:
        """Partial rows of C that the row strategy sends in all."""
        return self.partial

    @property
    def row_imbalance(self) -> float:
        """Of the rows of A."""
        return _imbalance(self.rows)

    @property
    def nonzero_imbalance(self) -> float:
        """Of the nonzeros, and so of the time to multiply them."""
        return _imbalance(self.nonzeros)

    @property
    def received_imbalance(self) -> float:
        """Of the rows of B received, and so of the bytes."""
        return _imbalance(self.received)

    @property
    def empty(self) -> int:
        """Parts without rows."""
        return int((self.rows == 0).sum())

    def frame(self) -> pd.DataFrame:
        """One row a part: rows, columns, nonzeros, received, sent."""
        import pandas as pd

        names = ("rows", "columns", "nonzeros", "received", "sent")
        frame = pd.DataFrame({name: getattr(self, name) for name in names})
        return frame.rename_axis("part")

    def __repr__(self) -> str:
        parts = f"{self.parts:,} part{'s' if self.parts != 1 else ''}"
        lines = [
            f"PartitionQuality: {self.shape[0]:,} x {self.shape[1]:,} matrix, "
            f"{int(self.nonzeros.sum()):,} nonzeros, over {parts} (planned)",
            f"  rows      {_spread(self.rows)}",
            f"  nonzeros  {_spread(self.nonzeros)}",
            f"  received  {_spread(self.received)} rows of B by the column strategy",
            f"  cut       {self.cut:,} edges; {self.away:,} nonzeros have row and column apart",
            f"  volume    column {self.column_volume:,} rows, row {self.row_volume:,} rows",
        ]
        if self.empty and self.parts <= self.shape[0]:
            lines.append(f"  empty     {self.empty:,} parts have no rows")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from dtoolkit.figures.partition_card import quality_card

        return quality_card(self)


def partition_quality(
    A: Any, layout: Layout | ArrayLike, columns: Layout | ArrayLike | None = None
) -> PartitionQuality:
    """Measure a partition of a matrix.

    Parameters
    ----------
    A : matrix, (rows, columns)
        Anything that :func:`dtoolkit.data.as_csr` takes.
    layout : Layout or array of int of shape (rows,)
    columns : Layout or array of int of shape (columns,), optional
        By default that of the rows where A is square, else blocks.

    Returns
    -------
    PartitionQuality

    Raises
    ------
    LayoutError
        If a layout is not for these rows or columns, or the two have different parts.
    """
    A = as_csr(A, copy=False)
    m, n = (int(size) for size in A.shape)
    owner, parts = owners_of(layout, m, name="layout")
    if columns is None:
        column_owner = owner if m == n else Layout.block(n, parts).owner(np.arange(n))
    else:
        column_owner, found = owners_of(columns, n, name="columns")
        if found > parts or (isinstance(columns, Layout) and found != parts):
            raise LayoutError(f"columns= has {found} parts; layout= has {parts}")
    target = np.repeat(owner, np.diff(A.indptr))
    source = column_owner[A.indices]
    apart = target != source
    target, source = target[apart].astype(np.int64), source[apart].astype(np.int64)
    column = A.indices[apart].astype(np.int64)
    row = np.repeat(np.arange(m), np.diff(A.indptr))[apart]
    wanted = np.unique(target * max(n, 1) + column)
    return PartitionQuality(
        shape=(m, n),
        parts=parts,
        rows=np.bincount(owner, minlength=parts),
        columns=np.bincount(column_owner, minlength=parts),
        nonzeros=_summed(owner, np.diff(A.indptr), parts),
        received=np.bincount(wanted // max(n, 1), minlength=parts),
        sent=np.bincount(column_owner[wanted % max(n, 1)], minlength=parts),
        away=len(row),
        cut=_edges(row, column, n) if m == n else len(row),
        partial=len(np.unique(row * np.int64(parts) + source)),
    )


def _edges(row: NDArray[np.int64], column: NDArray[np.int64], n: int) -> int:
    """Pairs {i, j} among the given entries, whichever way round they stand."""
    return len(np.unique(np.minimum(row, column) * n + np.maximum(row, column)))


def _summed(owner: NDArray[np.int32], counts: NDArray[np.integer], parts: int) -> NDArray[np.int64]:
    # bincount's own weights are floats, which are exact only up to 2**53: far beyond any matrix.
    return np.bincount(owner, weights=counts, minlength=parts).astype(np.int64)


def _imbalance(amounts: NDArray[np.int64]) -> float:
    total = int(amounts.sum())
    return float(amounts.max()) * len(amounts) / total if total else 1.0


def _spread(amounts: NDArray[np.int64]) -> str:
    return f"{amounts.min():,} to {amounts.max():,} a part ({_imbalance(amounts):.2f} of the mean)"
