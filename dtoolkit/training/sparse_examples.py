"""Examples with sparse features and several labels each, as tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array

from dtoolkit.data.convert import as_csr

__all__ = ["Bags", "SparseExamples"]


class Bags(NamedTuple):
    """Rows of a sparse matrix: CSR without the number of columns.

    Attributes
    ----------
    starts : int64 tensor of shape (rows + 1,)
        Where each row begins, and the last one ends.
    ids : int64 tensor of shape (nonzeros,)
        Columns, ascending within a row.
    values : float32 tensor of shape (nonzeros,)
    """

    starts: torch.Tensor
    ids: torch.Tensor
    values: torch.Tensor

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    @property
    def counts(self) -> torch.Tensor:
        """Entries of each row: int64."""
        return self.starts.diff()

    @property
    def row_of(self) -> torch.Tensor:
        """Row of each entry: int64."""
        return torch.repeat_interleave(self.counts)

    def take(self, rows: torch.Tensor) -> Bags:
        """Some of the rows, in the order asked for."""
        rows = rows.to(self.starts.device)
        first, counts = self.starts[rows], self.counts[rows]
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        at = torch.repeat_interleave(first - starts[:-1], counts)
        at += torch.arange(len(at), device=at.device)
        return Bags(starts, self.ids[at], self.values[at])

    def to(self, device: torch.device | str) -> Bags:
        """The same on another device."""
        return Bags(*(one.to(device) for one in self))

    @classmethod
    def of(cls, matrix: Any) -> Bags:
        """The rows of a matrix: anything that :func:`dtoolkit.data.as_csr` takes."""
        found: csr_array = as_csr(matrix)
        return cls(
            torch.from_numpy(found.indptr.astype(np.int64)),
            torch.from_numpy(found.indices.astype(np.int64)),
            torch.from_numpy(found.data.astype(np.float32)),
        )


class SparseExamples:
    """Samples whose inputs and targets are rows of sparse matrices; a task can have such a set.

    Parameters
    ----------
    inputs, targets : sparse matrix or Bags
        One row each a sample: features with their values, and labels, whose values say nothing.

    Raises
    ------
    ValueError
        They differ in length, or there are none.
    """

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs = inputs if isinstance(inputs, Bags) else Bags.of(inputs)
        self.targets = targets if isinstance(targets, Bags) else Bags.of(targets)
        if self.inputs.rows != self.targets.rows:
            raise ValueError(
                f"inputs has {self.inputs.rows} rows and targets {self.targets.rows}: wanted one "
                "of each a sample"
            )
        if not self.inputs.rows:
            raise ValueError("inputs and targets have no rows: there is nothing to learn from")

    def __len__(self) -> int:
        return self.inputs.rows

    def take(self, ids: torch.Tensor) -> tuple[Bags, Bags]:
        """Inputs and targets of some samples."""
        return self.inputs.take(ids), self.targets.take(ids)

    def to(self, device: torch.device | str) -> SparseExamples:
        """The same on another device."""
        return SparseExamples(self.inputs.to(device), self.targets.to(device))
