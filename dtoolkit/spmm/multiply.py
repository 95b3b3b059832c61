"""The distributed product as its caller sees it."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from dtoolkit.arrays.array import RedistributionWarning, check_memory
from dtoolkit.arrays.dense import DistDense, distribute_dense, to_tensor
from dtoolkit.arrays.lineage import computed
from dtoolkit.arrays.sparse import DistSparse
from dtoolkit.errors import LayoutError
from dtoolkit.spmm.execute import product

__all__ = ["RedistributionWarning", "multiply"]


def multiply(A: DistSparse, B: Any, *, kernel: str | None = None) -> DistDense:
    """Multiply on the workers; the result stays there.

    Parameters
    ----------
    A : DistSparse of shape (m, n)
    B : DistDense, array or tensor of shape (n, k) or (n,)
        What is not distributed yet is laid out first. A DistDense on another layout than
        ``A.columns`` is redistributed first, with a `RedistributionWarning`.
    kernel : str, optional
        Local kernel; by default the one chosen by measurement for device and dtype.

    Returns
    -------
    DistDense of shape (m, k) or (m,)
        Laid out as the rows of A, in the dtype that A and B promote to.

    Raises
    ------
    ValueError
        B does not have n rows.
    LayoutError
        B is on another cluster.
    MemoryError
        A rank would need more than its worker's limit.
    """
    if not isinstance(B, DistDense):
        whole = to_tensor(B)
        _check_shape(A, tuple(whole.shape))
        B = distribute_dense(A.cluster, whole, A.columns, operand=True)
    _check_shape(A, B.shape)
    if B.cluster is not A.cluster:
        raise LayoutError("A and B are on different clusters: distribute both on one")
    if B.layout != A.columns:
        warnings.warn(
            f"B is laid out as {B.layout!r} and the plan needs {A.columns!r}: it is redistributed "
            "first (phase 'redistribute' of the trace). Distribute B with the plan to avoid this.",
            RedistributionWarning,
            stacklevel=3,
        )
        B = B.redistribute(A.columns)
    k = 1 if B.ndim == 1 else B.shape[1]
    dtype = torch.promote_types(A.dtype, B.dtype)
    check_memory(A.cluster, list(A.plan.memory(k, dtype)), f"a product with {k} columns")
    remote = computed(A.cluster, product, A, B, transpose=A.transposed, kernel=kernel, agreed=True)
    return DistDense(A.cluster, A.layout, (A.shape[0], *B.shape[1:]), dtype, remote)


def _check_shape(A: DistSparse, shape: tuple[int, ...]) -> None:
    if len(shape) not in (1, 2) or shape[0] != A.shape[1]:
        raise ValueError(
            f"B has shape {shape}; A is {A.shape[0]} x {A.shape[1]}, so B must be a vector of "
            f"{A.shape[1]} or a matrix with {A.shape[1]} rows"
        )
