"""Where the rows and columns of a matrix stand in a picture: order, bins, cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.errors import LayoutError

if TYPE_CHECKING:
    from dtoolkit.arrays.layout import Layout

__all__ = ["Side", "count_cells", "grid", "originals", "sides"]


@dataclass(frozen=True)
class Side:
    """One direction of the picture: where each row (or column) stands, and how they are binned."""

    name: str
    n: int
    bins: int
    layout: Layout | None

    @property
    def permuted(self) -> bool:
        """Whether positions differ from global numbers."""
        return self.layout is not None and not self.layout.contiguous

    @property
    def step(self) -> float:
        """Rows (or columns) a bin."""
        return self.n / max(self.bins, 1)

    @property
    def starts(self) -> NDArray[np.int64]:
        """First position of each part but the first."""
        if self.layout is None:
            return np.empty(0, dtype=np.int64)
        return np.cumsum(self.layout.sizes)[:-1]

    def place(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of global rows (or columns): parts stand one after the other."""
        if self.layout is None or not self.permuted:
            return index
        first = np.cumsum(self.layout.sizes) - self.layout.sizes
        return first[self.layout.owner(index)] + self.layout.local(index)

    def bin(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bins of global rows (or columns)."""
        return self.place(index) * self.bins // max(self.n, 1)


def sides(shape: tuple[int, int], given: Any, max_size: int) -> tuple[Side, Side]:
    """Lay out both directions, and refuse what does not fit the matrix."""
    m, n = (int(size) for size in shape)
    row_layout = column_layout = None
    if hasattr(given, "by_row"):
        row_layout, column_layout = given.rows, given.columns
    elif given is not None:
        if given.n != m:
            raise LayoutError(f"the layout lays out {given.n} rows; A has {m}")
        row_layout, column_layout = given, given if m == n else None
    return (
        Side("row", m, min(m, max_size), row_layout),
        Side("column", n, min(n, max_size), column_layout),
    )


def count_cells(
    rows: Side, columns: Side, i: NDArray[np.int64], j: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Count the nonzeros (i, j) in each cell."""
    cell = rows.bin(i) * columns.bins + columns.bin(j)
    return np.bincount(cell, minlength=rows.bins * columns.bins).reshape(rows.bins, columns.bins)


def originals(
    rows: Side, columns: Side, i: NDArray[np.int64], j: NDArray[np.int64]
) -> NDArray[np.signedinteger] | None:
    """Return the global row and column of each nonzero's cell, where positions do not say them.

    For matrices that are not binned.
    """
    if not (rows.permuted or columns.permuted):
        return None
    small = np.min_scalar_type(-max(rows.n, columns.n))  # half the size of a dense figure
    cells = np.zeros((rows.bins, columns.bins, 2), dtype=small)
    cells[rows.place(i), columns.place(j)] = np.stack([i, j], axis=1)
    return cells


def grid(rows: Side, columns: Side) -> dict[str, float | bool]:
    """Return where the cells lie, in rows and columns: what all heatmaps of a figure share."""
    return {
        "x0": (columns.step - 1) / 2,
        "dx": columns.step,
        "y0": (rows.step - 1) / 2,
        "dy": rows.step,
        "hoverongaps": False,
    }
