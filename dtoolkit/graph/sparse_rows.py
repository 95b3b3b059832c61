"""Sparse features of the nodes that are here, times learned weights."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dtoolkit.spmm.kernels import LocalCSR, multiply

__all__ = ["SparseRows"]


class SparseRows:
    """Rows of a sparse matrix that stays constant while what it multiplies is learned.

    ``X @ W`` is recorded by autograd for W; it needs no other rank.

    Parameters
    ----------
    matrix : LocalCSR, shape (rows here, columns)
    threads : int
        Threads that the local kernel computes with.
    """

    def __init__(self, matrix: LocalCSR, *, threads: int = 1) -> None:
        self.matrix = matrix
        self.threads = threads

    @property
    def shape(self) -> tuple[int, int]:
        """Rows here, and columns."""
        return self.matrix.shape

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.matrix.dtype

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.matrix.device

    @property
    def data(self) -> torch.Tensor:
        """The stored values, by row."""
        return self.matrix.data

    @cached_property
    def row(self) -> torch.Tensor:
        """The row of each value, int64."""
        numbers = torch.arange(self.shape[0], device=self.device)
        return torch.repeat_interleave(numbers, self.matrix.indptr.diff())

    @cached_property
    def column(self) -> torch.Tensor:
        """The column of each value, int64."""
        return self.matrix.indices.long()

    def with_data(self, data: torch.Tensor) -> SparseRows:
        """The same pattern with other values; what was found out about the pattern is kept."""
        other = SparseRows(self.matrix.with_data(data), threads=self.threads)
        kept = ("row", "column", "_turned")
        other.__dict__.update({name: getattr(self, name) for name in kept})
        return other

    def to_dense(self) -> torch.Tensor:
        """As a tensor of shape (rows here, columns)."""
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        return dense.index_put((self.row, self.column), self.data, accumulate=True)

    def __matmul__(self, W: torch.Tensor) -> torch.Tensor:
        return _Times.apply(W, self)

    @cached_property
    def _turned(self) -> tuple[LocalCSR, torch.Tensor]:
        """The transposed pattern, and where its values stand among these."""
        order = torch.argsort(self.column, stable=True)
        counts = torch.bincount(self.column, minlength=self.shape[1])
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        turned = LocalCSR(indptr, self.row[order], self.data[order], self.shape[::-1])
        return turned, order


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(state: Any, W: torch.Tensor, X: SparseRows) -> torch.Tensor:
        state.X = X
        return multiply(X.matrix, W, threads=X.threads)

    @staticmethod
    @once_differentiable
    def backward(state: Any, dY: torch.Tensor) -> tuple[torch.Tensor, None]:
        X = state.X
        turned, order = X._turned
        return multiply(turned.with_data(X.data[order]), dY, threads=X.threads), None
