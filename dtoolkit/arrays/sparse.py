"""Sparse matrices laid over the ranks as a plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.convert import is_scalar, to_tensor
from dtoolkit.arrays.dense import DistDense, distribute_dense
from dtoolkit.arrays.indexing import numbers_of
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.sparse_values import SparseValues
from dtoolkit.cluster import Cluster, Remote

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["DistSparse"]


class DistSparse(SparseValues):
    """A sparse matrix whose nonzeros lie on the ranks, ready to multiply.

    Made by :func:`dtoolkit.distribute`. ``A @ B`` multiplies as the plan says and leaves the result
    on the workers; ``A.T @ B`` uses the same nonzeros and the same plan. Arithmetic changes stored
    values and keeps the pattern: ``A * 2``, ``-A``, ``abs(A)``, ``A ** 2``,
    ``A / d[:, None]``; what would fill the zeros raises TypeError.

    Parameters
    ----------
    cluster : Cluster
    plan : Plan
    dtype : torch.dtype
    remote : Remote
        Handle to an operand of the plan on each rank, which brings the methods used here.
    transposed : bool

    Attributes
    ----------
    plan : Plan
        Of the matrix as it was distributed; for a transposed view, of what it is a view of.
    transposed : bool
        This is the transpose of what `plan` planned.
    """

    kind = "Sparse matrix"
    is_sparse = True
    __array_priority__ = 1000.0
    __array_ufunc__ = None  # NumPy arrays leave the product to __rmatmul__

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        dtype: torch.dtype,
        remote: Remote,
        *,
        transposed: bool = False,
    ) -> None:
        rows = plan.columns if transposed else plan.rows
        shape = plan.shape[::-1] if transposed else plan.shape
        super().__init__(cluster, rows, shape, dtype, remote)
        self.plan = plan
        self.transposed = transposed

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return self.plan.nnz

    @property
    def nnz_by_rank(self) -> NDArray[np.int64]:
        """Stored entries of each rank, which multiplies them: int64 array of shape (ranks,)."""
        return self.plan.work

    @property
    def columns(self) -> Layout:
        """Layout that the rows of a right operand must have."""
        return self.plan.rows if self.transposed else self.plan.columns

    @property
    def T(self) -> DistSparse:  # noqa: N802 - NumPy's name
        """The transpose; nothing moves."""
        return DistSparse(
            self.cluster, self.plan, self.dtype, self.remote, transposed=not self.transposed
        )

    def transpose(self) -> DistSparse:
        """The transpose; nothing moves."""
        return self.T

    # ------------------------------------------------------------------------------ products

    def __matmul__(self, other: Any) -> DistDense:
        return self.plan.multiply(self, other)

    def __rmatmul__(self, other: Any) -> DistDense:
        """``B @ A``, as ``(A.T @ B.T).T``: B of shape (k, m) or (m,), distributed or not."""
        if is_scalar(other):
            raise ValueError("matmul: an operand is a number; use * for that")
        turned = self.T
        if isinstance(other, DistDense):
            right = other.transpose(turned.columns) if other.ndim == 2 else other
            found = turned @ right
        else:
            whole = to_tensor(other, name="matmul: the left operand")
            if whole.dim() not in (1, 2) or whole.shape[-1] != self.shape[0]:
                raise ValueError(
                    f"matmul: shapes {tuple(whole.shape)} and {self.shape} do not go together"
                )
            found = turned @ distribute_dense(self.cluster, whole.t(), turned.columns, operand=True)
        return found.T

    def dot(self, other: Any) -> Any:
        """Product with a number, element by element, else ``A @ other``."""
        return self * other if is_scalar(other) else self @ other

    # ----------------------------------------------------------------- elsewhere and back here

    def __getitem__(self, key: Any) -> sparse.csr_array:
        """Bring chosen rows (and columns) here; nothing else is sent, and the matrix stays.

        Parameters
        ----------
        key : int, slice, integer array, boolean mask, or a pair of these
            An integer chooses one row, which stays a matrix of one row.

        Returns
        -------
        scipy.sparse.csr_array
        """
        rows, columns = key if isinstance(key, tuple) and len(key) == 2 else (key, slice(None))
        found = self.plan.collect(self, _chosen(rows, self.shape[0], "rows"))
        return (
            found[:, _chosen(columns, self.shape[1], "columns")]
            if columns != slice(None)
            else found
        )

    def with_data(self, values: Any) -> DistSparse:
        """The same pattern and plan with values given in the order of the canonical CSR, (nnz,)."""
        return self.plan.with_data(self, values)

    def redistribute(self, plan: Any) -> DistSparse:
        """The same matrix on another plan, or on a joint plan over a layout of its rows.

        Values go from worker to worker (phase "redistribute"), each that changes rank once.
        """
        return self.plan.redistribute(self, plan)

    def copy(self) -> DistSparse:
        """A copy on the same plan."""
        return self._values("clone")

    def to_scipy(self) -> sparse.csr_array:
        """Bring the matrix back from the workers.

        Returns
        -------
        csr_array
            The canonical matrix that was distributed, transposed for a transposed view.
        """
        return self.plan.collect(self)

    def to_numpy(self) -> Any:
        """Bring the matrix here as a dense NumPy array."""
        return np.asarray(self.to_scipy().todense())

    def __repr__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        view = ", transposed" if self.transposed else ""
        return (
            f"<DistSparse {self.shape} {name}, {self.nnz:,} nonzeros on {self.plan.parts} ranks, "
            f"plan {self.plan.strategy!r}{view}>"
        )

    # ------------------------------------------------------------------------------- helpers

    def _like(self, remote: Remote, *, dtype: torch.dtype | None = None) -> DistSparse:
        return DistSparse(
            self.cluster,
            self.plan,
            self.dtype if dtype is None else dtype,
            remote,
            transposed=self.transposed,
        )


def _chosen(key: Any, n: int, what: str) -> NDArray[np.int64]:
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return numbers_of([key], n, what)
    return numbers_of(key, n, what)
