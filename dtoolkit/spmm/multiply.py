"""The distributed product as its caller sees it."""

from __future__ import annotations

from typing import Any

import torch

from dtoolkit.arrays.array import RedistributionWarning, check_memory
from dtoolkit.arrays.dense import DistDense, distribute_dense, to_tensor
from dtoolkit.arrays.elementwise import align
from dtoolkit.arrays.lineage import computed
from dtoolkit.arrays.sparse import DistSparse
from dtoolkit.spmm.execute import product
from dtoolkit.spmm.kernels_candidates import KERNELS

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
    TypeError
        B is no dense array of numbers.
    ValueError
        B does not have n rows, or there is no such kernel.
    LayoutError
        B is on another cluster.
    MemoryError
        A rank would need more than its worker's limit; nothing was sent.
    """
    if isinstance(B, DistSparse):
        raise TypeError(
            "A @ B of two sparse arrays is not supported: B must be dense. Make it so with "
            "dt.distribute(cluster, B.to_numpy()), or multiply A.to_scipy() @ B.to_scipy() and "
            "distribute the product"
        )
    if kernel is not None and kernel not in KERNELS:
        raise ValueError(
            f"kernel={kernel!r} is not known: there are {', '.join(KERNELS)}, and None takes the "
            "fastest"
        )
    whole = B if isinstance(B, DistDense) else to_tensor(B, name="B")
    _check_shape(A, tuple(whole.shape))
    k = 1 if whole.ndim == 1 else int(whole.shape[1])
    dtype = torch.promote_types(A.dtype, whole.dtype)
    check_memory(A.cluster, list(A.plan.memory(k, dtype)), f"a product with {k} columns")
    if isinstance(whole, DistDense):
        B = align(A, whole, A.columns, "A @ B")
    else:
        B = distribute_dense(A.cluster, whole, A.columns, operand=True)
    remote = computed(A.cluster, product, A, B, transpose=A.transposed, kernel=kernel, agreed=True)
    return DistDense(A.cluster, A.layout, (A.shape[0], *whole.shape[1:]), dtype, remote)


def _check_shape(A: DistSparse, shape: tuple[int, ...]) -> None:
    if len(shape) not in (1, 2) or shape[0] != A.shape[1]:
        raise ValueError(
            f"B has shape {shape}; A is {A.shape[0]} x {A.shape[1]}, so B must be a vector of "
            f"{A.shape[1]} or a matrix with {A.shape[1]} rows"
        )
