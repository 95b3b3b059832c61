"""Symmetric reordering: rows and columns renumbered so that every part is a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.partitioners.base import owners_of
from dtoolkit.data import as_csr
from dtoolkit.errors import LayoutError

__all__ = ["contiguous", "inverse_permutation", "reorder"]


def reorder(A: Any, layout: Layout | ArrayLike) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Renumber the rows and columns of A so that those of a part stand together.

    Parameters
    ----------
    A : matrix, (n, n)
        Anything that :func:`dtoolkit.data.as_csr` takes.
    layout : Layout or array of int of shape (n,)
        Which part owns which row, and column.

    Returns
    -------
    reordered : csr_array, (n, n)
        ``A[order][:, order]``, canonical.
    order : int64 array of shape (n,)
        ``order[new]`` is the old number; within a part the old order is kept. Dense operands go
        along by ``B[order]``, and a result comes back by ``C[inverse_permutation(order)]``.

    Raises
    ------
    LayoutError
        If A is not square, or the layout is not for its rows.

    Examples
    --------
    >>> A = sparse.csr_array([[0, 1, 2], [0, 0, 3], [4, 0, 0]])
    >>> reordered, order = reorder(A, [1, 0, 1])
    >>> order
    array([1, 0, 2])
    >>> B = np.eye(3)
    >>> bool(np.all((reordered @ B[order])[inverse_permutation(order)] == A @ B))
    True
    """
    A = as_csr(A, copy=False)
    if A.shape[0] != A.shape[1]:
        raise LayoutError(
            f"A is {A.shape[0]:,} x {A.shape[1]:,}: rows and columns can be renumbered alike only "
            "in a square matrix"
        )
    owners, _ = owners_of(layout, A.shape[0], name="layout")
    order = np.argsort(owners, kind="stable").astype(np.int64, copy=False)
    reordered = sparse.csr_array(A[order])
    # Columns are renumbered in place of a second copy; each row is sorted again afterwards.
    reordered.indices = inverse_permutation(order)[reordered.indices].astype(
        reordered.indices.dtype
    )
    reordered.has_sorted_indices = False
    reordered.sort_indices()
    return reordered, order


def inverse_permutation(order: ArrayLike) -> NDArray[np.int64]:
    """Where each old number went: ``inverse_permutation(order)[order[i]] == i``.

    Parameters
    ----------
    order : array of int of shape (n,)
        Each of 0 to n - 1 once.

    Returns
    -------
    int64 array of shape (n,)

    Raises
    ------
    LayoutError
        If ``order`` is no permutation.
    """
    numbers = np.asarray(order)
    n = len(numbers) if numbers.ndim == 1 else -1
    whole = numbers.dtype.kind in "iu" or not numbers.size
    if n < 0 or not whole or not np.array_equal(np.sort(numbers), np.arange(n)):
        raise LayoutError("order= is no permutation: wanted each of 0 to n - 1 once")
    inverse = np.empty(n, dtype=np.int64)
    inverse[numbers.astype(np.int64)] = np.arange(n)
    return inverse


def contiguous(layout: Layout | ArrayLike) -> Layout:
    """Layout of what :func:`reorder` returns: parts of the same sizes, each one a run."""
    known = layout if isinstance(layout, Layout) else Layout.from_parts(layout)
    return Layout.from_parts(np.repeat(np.arange(known.parts), known.sizes), known.parts)
