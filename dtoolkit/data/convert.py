"""Objects that are matrices in other libraries, as canonical CSR."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data.canonical import Shape, from_compressed, from_triplets
from dtoolkit.data.dataset import Dataset
from dtoolkit.errors import MatrixFormatError

__all__ = ["as_csr"]


def as_csr(A: Any, *, dtype: DTypeLike | None = None, copy: bool = True) -> csr_array:
    """Canonical CSR of any object that is a matrix.

    Rows and columns ascend, duplicates are summed, explicit zeros of sparse objects are kept,
    zeros of dense objects are dropped, NaN and Inf stay. Index arrays are int32 where the shape
    and the number of nonzeros fit, else int64. A flag that claims canonical form is not believed.

    Parameters
    ----------
    A : object, (rows, columns)
        A SciPy sparse array or matrix of any format; a torch tensor, sparse (COO, CSR, CSC, BSR,
        BSC) or dense, on any device; a NumPy array or nested lists; a networkx graph (rows and
        columns in the order of its nodes, edge attribute ``weight``, 1 where there is none); a
        Dask array with dense or sparse chunks; a pandas DataFrame, sparse or dense; a
        :class:`Dataset`. Never modified.
    dtype : dtype-like, optional
        float32, float64, complex64 or complex128. By default these are kept; bool, (u)int8,
        (u)int16, float16 and bfloat16 become float32 (exactly); larger integers become float64
        (rounded to the nearest where they exceed 2**53).
    copy : bool, optional
        With False, the result may share memory with ``A``.

    Returns
    -------
    scipy.sparse.csr_array
        An *array*, as SciPy advises and networkx gives: ``@`` is the matrix product, ``*`` is
        element by element, and ``A.sum(axis=1)`` has one dimension. ``csr_matrix(A)`` gives the
        older kind.

    Raises
    ------
    MatrixFormatError
        If the object is no valid matrix: an index out of range, a broken row pointer, not two
        dimensions.
    TypeError
        If the object or its dtype is not one of those above, or ``dtype`` would drop imaginary
        parts.
    """
    if isinstance(A, Dataset):
        A = A.matrix
    result = _convert(A, dtype)
    if copy and _may_share(A):
        result = result.copy()
        result.has_canonical_format = True
    return result


def _convert(A: Any, dtype: DTypeLike | None) -> csr_array:
    what = f"{type(A).__name__} object"
    if sparse.issparse(A):
        return _from_scipy(A, what, dtype)
    if _is(A, "torch", "Tensor"):
        return _from_torch(A, what, dtype)
    if _is(A, "networkx", "Graph"):
        return _from_networkx(A, what, dtype)
    if _is(A, "dask.array", "Array"):
        return _from_dask(A, what, dtype)
    if _is(A, "pandas", "DataFrame"):
        return _from_pandas(A, what, dtype)
    if isinstance(A, np.ma.MaskedArray):
        raise TypeError("A is a masked array: fill it first, A.filled(0)")
    if isinstance(A, (np.ndarray, list, tuple)) or hasattr(A, "__array__"):
        return _from_dense(np.asarray(A), what, dtype)
    raise TypeError(
        f"A is of type {type(A).__name__}: want a SciPy sparse array, a torch tensor, a NumPy "
        "array, a networkx graph, a Dask array or a pandas DataFrame"
    )


def _is(A: Any, module: str, name: str) -> bool:
    """Tell whether A is an instance, without importing a library that its caller never did."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(A, getattr(loaded, name, ()))


def _may_share(A: Any) -> bool:
    """Tell whether a result may be a view of A: only CSR passes without being rebuilt."""
    return (sparse.issparse(A) and A.format == "csr") or (
        _is(A, "torch", "Tensor") and str(A.layout) == "torch.sparse_csr"
    )


def _from_scipy(A: Any, what: str, dtype: DTypeLike | None) -> csr_array:
    shape = _two(A.shape, what)
    if A.format == "csr":
        return from_compressed(A.indptr, A.indices, A.data, shape, what=what, dtype=dtype)
    if A.format == "csc":
        return _from_columns(A.indptr, A.indices, A.data, shape, what, dtype)
    if A.format == "bsr":
        return _from_blocks(A.indptr, A.indices, A.data, shape, what, dtype)
    # For dia, lil and dok SciPy's own conversion is safe: their indices are checked or implied.
    triplets = A if A.format == "coo" else A.tocoo()
    rows, columns = np.asarray(triplets.row), np.asarray(triplets.col)
    return from_triplets(rows, columns, triplets.data, shape, what=what, dtype=dtype)


def _from_columns(
    indptr: NDArray,
    indices: NDArray,
    values: NDArray,
    shape: Shape,
    what: str,
    dtype: DTypeLike | None,
) -> csr_array:
    by_column = from_compressed(indptr, indices, values, shape[::-1], what=f"transposed {what}")
    columns = np.repeat(np.arange(shape[1]), np.diff(by_column.indptr))
    return from_triplets(by_column.indices, columns, by_column.data, shape, what=what, dtype=dtype)


def _from_blocks(
    indptr: NDArray,
    indices: NDArray,
    values: NDArray,
    shape: Shape,
    what: str,
    dtype: DTypeLike | None,
) -> csr_array:
    """CSR of blocks; values (blocks, block rows, block columns); zeros inside a block are kept."""
    height, width = values.shape[1:]
    # The blocks' own pattern is checked with one stand-in value a block, their order kept.
    blocks = np.arange(len(indices), dtype=np.float64)
    grid = (shape[0] // height, shape[1] // width)
    from_compressed(indptr, indices, blocks, grid, what=f"block pattern of {what}")
    stored = int(indptr[-1])
    block_rows = np.repeat(np.arange(grid[0]), np.diff(indptr))
    block_columns = indices[:stored].astype(np.int64)
    rows = block_rows[:, None, None] * height + np.arange(height)[None, :, None]
    columns = block_columns[:, None, None] * width + np.arange(width)[None, None, :]
    full = (stored, height, width)
    return from_triplets(
        np.broadcast_to(rows, full).ravel(),
        np.broadcast_to(columns, full).ravel(),
        values[:stored].ravel(),
        shape,
        what=what,
        dtype=dtype,
    )


def _from_torch(A: Any, what: str, dtype: DTypeLike | None) -> csr_array:
    import torch

    A = A.detach()
    shape = _two(tuple(A.shape), what)
    if A.layout is torch.strided:
        return _from_dense(_torch_values(A), what, dtype)
    if A.dense_dim():
        raise MatrixFormatError(what, f"has {A.dense_dim()} dense dimensions: want 0")
    if A.layout is torch.sparse_coo:
        # Not coalesce(): it believes a flag, and sums in the narrow dtype.
        rows, columns = A._indices().cpu().numpy()
        return from_triplets(
            rows, columns, _torch_values(A._values()), shape, what=what, dtype=dtype
        )
    values = _torch_values(A.values())
    if A.layout in (torch.sparse_csr, torch.sparse_bsr):
        indptr, indices = A.crow_indices().cpu().numpy(), A.col_indices().cpu().numpy()
        if A.layout is torch.sparse_csr:
            return from_compressed(indptr, indices, values, shape, what=what, dtype=dtype)
        return _from_blocks(indptr, indices, values, shape, what, dtype)
    if A.layout in (torch.sparse_csc, torch.sparse_bsc):
        indptr, indices = A.ccol_indices().cpu().numpy(), A.row_indices().cpu().numpy()
        if A.layout is torch.sparse_csc:
            return _from_columns(indptr, indices, values, shape, what, dtype)
        turned = _from_blocks(
            indptr, indices, values.transpose(0, 2, 1), shape[::-1], f"transposed {what}", dtype
        )
        return _from_scipy(turned.T, what, None)
    raise TypeError(f"A has torch layout {A.layout}: want strided or sparse COO, CSR, CSC, BSR")


def _torch_values(values: Any) -> NDArray:
    """NumPy values of a tensor; what NumPy has no dtype for is widened, exactly."""
    import torch

    values = values.cpu().resolve_conj().resolve_neg()
    if values.dtype is torch.complex32:
        values = values.to(torch.complex64)
    elif values.is_floating_point() and values.dtype not in (torch.float32, torch.float64):
        values = values.to(torch.float32)
    return values.numpy()


def _from_dense(A: NDArray, what: str, dtype: DTypeLike | None) -> csr_array:
    shape = _two(A.shape, what)
    if A.dtype.kind not in "biufc":
        raise TypeError(f"{what} has dtype {A.dtype}: want booleans, integers or floats")
    rows, columns = np.nonzero(A)
    return from_triplets(rows, columns, A[rows, columns], shape, what=what, dtype=dtype)


def _from_networkx(A: Any, what: str, dtype: DTypeLike | None) -> csr_array:
    import networkx

    if len(A) == 0:
        empty = np.zeros(0, np.int64)
        return from_triplets(empty, empty, None, (0, 0), what=what, dtype=dtype)
    return _from_scipy(networkx.to_scipy_sparse_array(A, format="coo"), what, dtype)


def _from_dask(A: Any, what: str, dtype: DTypeLike | None) -> csr_array:
    import dask

    _two(A.shape, what)
    (blocks,) = dask.compute(A.to_delayed().tolist())
    # Block by block: concatenation of sparse chunks is left to nobody's registration.
    pieces = [[_convert(block, dtype) for block in row] for row in blocks]
    return _convert(sparse.block_array(pieces, format="coo"), dtype)


def _from_pandas(A: Any, what: str, dtype: DTypeLike | None) -> csr_array:
    import pandas

    if A.shape[1] and all(isinstance(t, pandas.SparseDtype) for t in A.dtypes):
        return _from_scipy(A.sparse.to_coo(), what, dtype)
    return _from_dense(A.to_numpy(), what, dtype)


def _two(shape: tuple[int, ...], what: str) -> Shape:
    if len(shape) != 2:
        raise MatrixFormatError(what, f"has {len(shape)} dimension(s): want 2")
    return shape[0], shape[1]
