"""Bins: large matrices and long timelines brought down to what a figure can show."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["bin_matrix", "edges"]


def edges(n: int, bins: int) -> NDArray[np.int64]:
    """Return where each of ``bins`` nearly equal bins over ``range(n)`` begins, and ``n`` last.

    Item ``i`` lies in bin ``i * bins // n``.
    """
    return -(-np.arange(bins + 1, dtype=np.int64) * n // bins)


def bin_matrix(matrix: ArrayLike, largest: int) -> NDArray[np.int64]:
    """Sum a square matrix over blocks, so that it has at most ``largest`` rows and columns.

    Parameters
    ----------
    matrix : array of int, shape (n, n)
    largest : int
        Rows and columns of the result where ``n`` is larger; a smaller matrix is returned as it is.

    Returns
    -------
    int64 array
        With the same sum as ``matrix``.
    """
    values = np.asarray(matrix, dtype=np.int64)
    if len(values) <= largest:
        return values
    starts = edges(len(values), largest)[:-1]
    return np.add.reduceat(np.add.reduceat(values, starts, axis=0), starts, axis=1)
