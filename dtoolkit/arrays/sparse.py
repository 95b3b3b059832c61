"""Sparse matrices laid over the ranks as a plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse

from dtoolkit.arrays.array import DistArray
from dtoolkit.arrays.dense import DistDense
from dtoolkit.arrays.layout import Layout
from dtoolkit.cluster import Cluster, Remote

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["DistSparse"]


class DistSparse(DistArray):
    """A sparse matrix whose nonzeros lie on the ranks, ready to multiply.

    Made by :func:`dtoolkit.distribute`. ``A @ B`` multiplies as the plan says and leaves the result
    on the workers; ``A.T @ B`` uses the same nonzeros and the same plan.

    Attributes
    ----------
    plan : Plan
        Of the matrix as it was distributed; for a transposed view, of what it is a view of.
    transposed : bool
        This is the transpose of what `plan` planned.
    """

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
    def columns(self) -> Layout:
        """Layout that the rows of a right operand must have."""
        return self.plan.rows if self.transposed else self.plan.columns

    @property
    def T(self) -> DistSparse:  # noqa: N802 - NumPy's name
        """The transpose; nothing moves."""
        return DistSparse(
            self.cluster,
            self.plan,
            self.dtype,
            self.remote,
            transposed=not self.transposed,
        )

    def transpose(self) -> DistSparse:
        """The transpose; nothing moves."""
        return self.T

    def __matmul__(self, other: Any) -> DistDense:
        return self.plan.multiply(self, other)

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
