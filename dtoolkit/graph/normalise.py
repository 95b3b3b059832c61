"""The matrix that a layer multiplies by, made of an adjacency; features with rows of one scale.

Pure functions of SciPy matrices. Row i of the adjacency has a nonzero in column j where node i
hears node j.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data import as_csr

__all__ = ["mean", "row_normalised", "symmetric", "with_self_loops"]


def with_self_loops(A: Any) -> csr_array:
    """Put a 1 on the diagonal where nothing is stored; a loop that is there keeps its weight.

    Parameters
    ----------
    A : square matrix
        Anything that ``read_matrix`` takes as an object.

    Returns
    -------
    csr_array
        Canonical.

    Raises
    ------
    ValueError
        If A is not square.
    """
    A = _square(A)
    n = A.shape[0]
    row = np.repeat(np.arange(n), np.diff(A.indptr))
    missing = np.setdiff1d(np.arange(n), row[row == A.indices])
    data = np.concatenate([A.data, np.ones(len(missing), A.dtype)])
    i, j = (np.concatenate([index, missing]) for index in (row, A.indices))
    return as_csr(sparse.coo_array((data, (i, j)), shape=A.shape), copy=False)


def symmetric(A: Any, *, self_loops: bool = True) -> csr_array:
    """Divide every a_ij by the roots of the sums of row i and of column j (Kipf and Welling 2017).

    For an undirected graph that is D^-1/2 (A + I) D^-1/2. In a directed one a node's degree is what
    it hears as a row, and who hears it as a column.

    Parameters
    ----------
    A : square matrix
        Weights are not negative.
    self_loops : bool
        Let each node hear itself first, as :func:`with_self_loops` does.

    Returns
    -------
    csr_array
        With A's dtype; rows and columns whose sum is 0 stay 0.

    Raises
    ------
    ValueError
        If A is not square, or a weight is negative or not finite.
    """
    A = _weights(with_self_loops(A) if self_loops else _square(A))
    rows, columns = (_inverse(np.asarray(A.sum(axis=axis), np.float64)) ** 0.5 for axis in (1, 0))
    return _scaled(A, rows, columns)


def mean(A: Any) -> csr_array:
    """Divide every row by its sum: what a node hears on average; nothing where it hears nobody.

    Parameters
    ----------
    A : square matrix
        Weights are not negative.

    Returns
    -------
    csr_array
        With A's dtype.

    Raises
    ------
    ValueError
        If A is not square, or a weight is negative or not finite.
    """
    A = _weights(_square(A))
    return _scaled(A, _inverse(np.asarray(A.sum(axis=1), np.float64)), np.ones(A.shape[1]))


def row_normalised(X: Any) -> Any:
    """Divide every row of the features by its sum; rows of zeros stay.

    Parameters
    ----------
    X : csr_array or float array of shape (nodes, features)
        No number is negative.

    Returns
    -------
    csr_array or array
        Like X.

    Raises
    ------
    ValueError
        If a number is negative: its row may have any sum, 0 too.
    """
    stored = X.data if sparse.issparse(X) else X
    if (stored < 0).any():
        raise ValueError(
            "features hold negative numbers, and rows are divided by their sum: pass "
            "row_normalise=False, and scale them yourself where they need it"
        )
    scale = _inverse(np.asarray(X.sum(axis=1), np.float64))
    if sparse.issparse(X):
        return _scaled(X, scale, np.ones(X.shape[1]))
    return (X * scale[:, None]).astype(X.dtype)


def _square(A: Any) -> csr_array:
    A = as_csr(A, copy=False)
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"A is {A.shape[0]} x {A.shape[1]}: the adjacency of a graph is square")
    return A


def _weights(A: csr_array) -> csr_array:
    if A.dtype.kind == "c":
        raise ValueError(f"A is {A.dtype}: wanted real weights")
    if not np.isfinite(A.data).all() or (A.data < 0).any():
        raise ValueError("A has weights that are negative or not finite: degrees need weights >= 0")
    return A


def _inverse(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)


def _scaled(A: csr_array, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> csr_array:
    factors = np.repeat(rows, np.diff(A.indptr)) * columns[A.indices]
    data = (A.data * factors).astype(A.dtype)
    return sparse.csr_array((data, A.indices, A.indptr), shape=A.shape)
