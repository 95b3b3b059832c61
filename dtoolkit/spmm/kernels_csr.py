"""A rank's piece of a sparse matrix, as the local kernels read it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

__all__ = ["LocalCSR"]


@dataclass(frozen=True, eq=False)
class LocalCSR:
    """A rank's piece of a sparse matrix, in compressed sparse rows.

    Parameters
    ----------
    indptr : torch.Tensor, shape (m + 1,)
        Where each row starts; any integer dtype, held as int64.
    indices : torch.Tensor, shape (nnz,)
        Columns, in any order within a row; int32 and int64 are held as they are.
    data : torch.Tensor, shape (nnz,)
        Values; duplicates count as their sum.
    shape : tuple of int
        (m, n).

    Raises
    ------
    TypeError
        If indptr or indices are no integers.
    ValueError
        If the three arrays do not describe a matrix of this shape. Nothing later checks indices:
        the arrays must not be changed afterwards, except the values in `data`.
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    data: torch.Tensor
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        indptr = _integers("indptr", self.indptr).to(torch.int64)
        indices = _integers("indices", self.indices)
        data = torch.as_tensor(self.data).detach().resolve_conj().resolve_neg().contiguous()
        shape = (int(self.shape[0]), int(self.shape[1]))
        _check_structure(indptr, indices, data, shape)
        for name, value in zip(
            ("indptr", "indices", "data", "shape"), (indptr, indices, data, shape), strict=True
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_scipy(
        cls,
        A: sp.sparray | sp.spmatrix,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
    ) -> LocalCSR:
        """Take a SciPy matrix; its arrays are shared where neither dtype nor device changes."""
        A = A.tocsr()
        narrow = A.indices.astype(np.int32, copy=False) if A.shape[1] < 2**31 else A.indices
        indptr, indices, data = (_tensor(array) for array in (A.indptr, narrow, A.data))
        data = data.to(device, data.dtype if dtype is None else dtype)
        return cls(indptr.to(device), indices.to(device), data, A.shape)

    def to_scipy(self) -> sp.csr_array:
        """Give a SciPy array that shares memory on a CPU (bfloat16 becomes float32)."""
        data = self.data.float() if self.data.dtype == torch.bfloat16 else self.data
        indptr, indices = (array.cpu().numpy() for array in self._indices_of_one_width())
        return sp.csr_array((data.cpu().numpy(), indices, indptr), shape=self.shape)

    def with_data(self, data: torch.Tensor) -> LocalCSR:
        """Give a matrix of the same structure with other values; the structure is shared."""
        if data.shape != self.data.shape or data.device != self.device:
            raise ValueError(
                f"data must have shape {(*self.data.shape,)} on {self.device}, not "
                f"{(*data.shape,)} on {data.device}"
            )
        other = object.__new__(LocalCSR)  # the structure was checked when it was made
        values = data.detach().resolve_conj().resolve_neg().contiguous()
        other.__dict__.update(self.__getstate__(), data=values)
        return other

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> LocalCSR:
        """Move to a device, change the dtype of the values, or both; itself if nothing changes."""
        device = self.device if device is None else torch.device(device)
        dtype = self.dtype if dtype is None else dtype
        if device == self.device:
            return self if dtype == self.dtype else self.with_data(self.data.to(dtype))
        moved = (self.indptr.to(device), self.indices.to(device), self.data.to(device, dtype))
        return LocalCSR(*moved, self.shape)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self.data.numel()

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.data.dtype

    @property
    def device(self) -> torch.device:
        """Where the arrays are."""
        return self.data.device

    @cached_property
    def as_scipy(self) -> sp.csr_array:
        """What :meth:`to_scipy` gives; made once."""
        return self.to_scipy()

    @cached_property
    def as_torch(self) -> torch.Tensor:
        """The same matrix as a ``torch.sparse_csr`` tensor, sharing the values; made once."""
        arrays = (*self._indices_of_one_width(), self.data)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            return torch.sparse_csr_tensor(*arrays, self.shape, check_invariants=False)

    def _indices_of_one_width(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Give indptr and indices in the narrower dtype that holds both, as other kernels want."""
        width = self.indices.dtype if self.nnz < 2**31 else torch.int64
        return self.indptr.to(width), self.indices.to(width)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made again on demand: sparse torch tensors do not travel."""
        return {name: self.__dict__[name] for name in ("indptr", "indices", "data", "shape")}


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    """Share an array; torch has no read-only tensors, so that one is copied."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _integers(name: str, values: torch.Tensor) -> torch.Tensor:
    """Give a vector of int32 or int64 in one piece."""
    values = torch.as_tensor(values).detach()
    if values.dtype.is_floating_point or values.dtype.is_complex or values.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, not {values.dtype}")
    kept = values.dtype in (torch.int32, torch.int64)
    return values.contiguous() if kept else values.to(torch.int64)


def _check_structure(
    indptr: torch.Tensor, indices: torch.Tensor, data: torch.Tensor, shape: tuple[int, int]
) -> None:
    m, n = shape
    if len({indptr.device, indices.device, data.device}) > 1:
        raise ValueError(
            f"indptr, indices and data must be on one device, not {indptr.device}, "
            f"{indices.device} and {data.device}"
        )
    if indptr.shape != (m + 1,):
        raise ValueError(f"indptr must have shape ({m + 1},) for {m} rows, not {(*indptr.shape,)}")
    if indices.ndim != 1 or indices.shape != data.shape:
        raise ValueError(
            f"indices and data must be vectors of one length, not {(*indices.shape,)} and "
            f"{(*data.shape,)}"
        )
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(data) or bool((indptr.diff() < 0).any()):
        raise ValueError(
            f"indptr must rise from 0 to the {len(data)} entries; it runs from {int(indptr[0])} "
            f"to {int(indptr[-1])}, or falls between"
        )
    if len(data):
        low, high = (int(bound) for bound in torch.aminmax(indices))
        if low < 0 or high >= n:
            raise ValueError(
                f"indices must lie within 0 .. {n - 1} for {n} columns; they run from {low} to "
                f"{high}"
            )
