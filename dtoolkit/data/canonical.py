"""The one form in which dtoolkit keeps a sparse matrix: canonical CSR.

Rows and, within a row, columns ascend; duplicates are summed; explicit zeros stay; values are
float32, float64, complex64 or complex128; both index arrays are int32 where the shape and the
number of nonzeros fit, else int64. What comes in is checked, whatever flags it carries: SciPy and
torch accept column numbers beyond the shape, and compiled kernels then read foreign memory.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import coo_array, csr_array

from dtoolkit.errors import MatrixFormatError

__all__ = ["Shape", "check_row_pointer", "from_compressed", "from_triplets", "working_dtype"]

Shape: TypeAlias = tuple[int, int]

_WORKING = tuple(np.dtype(t) for t in (np.float32, np.float64, np.complex64, np.complex128))
_INT32_MAX = np.iinfo(np.int32).max
_INT64_MAX = np.iinfo(np.int64).max
_POINTER_LIMIT = 1 << 30


def working_dtype(dtype: DTypeLike) -> np.dtype:
    """Dtype in which values of another dtype are kept.

    Parameters
    ----------
    dtype : dtype-like
        A NumPy dtype.

    Returns
    -------
    numpy.dtype
        float32, float64, complex64 and complex128 as they are; bool, (u)int8, (u)int16 and float16
        become float32, which holds them exactly; larger integers and wider floats become float64;
        wider complex numbers become complex128. Integers beyond 2**53 are rounded to the nearest
        float64.

    Raises
    ------
    TypeError
        If values of this dtype are not numbers.
    """
    given = np.dtype(dtype)
    if given.newbyteorder("=") in _WORKING:
        return given.newbyteorder("=")
    if given.kind == "b" or (given.kind in "iuf" and given.itemsize <= 2):
        return np.dtype(np.float32)
    if given.kind in "iuf":
        return np.dtype(np.float64)
    if given.kind == "c":
        return np.dtype(np.complex128)
    raise TypeError(f"values of dtype {given} are not numbers: want booleans, integers or floats")


def from_triplets(
    rows: NDArray,
    columns: NDArray,
    values: NDArray | None,
    shape: Shape,
    *,
    what: str,
    dtype: DTypeLike | None = None,
) -> csr_array:
    """Canonical CSR of (row, column, value) triplets in any order.

    Parameters
    ----------
    rows, columns : integer array, (entries,)
        Counted from 0.
    values : array, (entries,), or None
        None stands for ones.
    shape : tuple of int
        Rows and columns of the matrix.
    what : str
        What the triplets come from, for errors.
    dtype : dtype-like, optional
        float32, float64, complex64 or complex128; by default :func:`working_dtype` of the values.

    Returns
    -------
    scipy.sparse.csr_array

    Raises
    ------
    MatrixFormatError
        If an index is out of range or the arrays differ in length.
    """
    _check_shape(shape, what)
    if (values is not None and len(values) != len(rows)) or len(rows) != len(columns):
        sizes = f"{len(rows)} row numbers, {len(columns)} column numbers"
        raise MatrixFormatError(what, f"{sizes} and {0 if values is None else len(values)} values")
    _check_range(rows, shape[0], "row", what)
    _check_range(columns, shape[1], "column", what)
    data = _convert(np.ones(len(rows), np.float32) if values is None else values, dtype)
    index = _index_dtype(shape, len(rows))
    triplets = coo_array((data, (rows.astype(index), columns.astype(index))), shape=shape)
    result = triplets.tocsr()
    return _assemble(result.indptr, result.indices, result.data, shape)


def from_compressed(
    indptr: NDArray,
    indices: NDArray,
    values: NDArray,
    shape: Shape,
    *,
    what: str,
    dtype: DTypeLike | None = None,
) -> csr_array:
    """Canonical CSR of the three arrays of a CSR matrix that may not be canonical.

    Parameters
    ----------
    indptr : integer array, (rows + 1,)
        Where each row starts.
    indices : integer array, (nonzeros,) or longer
        Column numbers from 0, in any order within a row.
    values : array, (nonzeros,) or longer
        Their values.
    shape, what, dtype
        As in :func:`from_triplets`.

    Returns
    -------
    scipy.sparse.csr_array
        Shares memory with the arguments where nothing had to change.

    Raises
    ------
    MatrixFormatError
        If the row pointer is broken or a column is out of range.
    """
    _check_shape(shape, what)
    _check_pointer(indptr, shape[0], min(len(indices), len(values)), what)
    nnz = int(indptr[-1])
    indices, values = indices[:nnz], values[:nnz]
    _check_range(indices, shape[1], "column", what)
    return _assemble(indptr, indices, _convert(values, dtype), shape)


def check_row_pointer(rows: int, size: int, *, what: str, line: int | None = None) -> None:
    """Refuse a stated number of rows that the content cannot justify.

    CSR takes 4 or 8 bytes a row, empty or not. A size line of a few bytes could ask for terabytes.

    Parameters
    ----------
    rows : int
        Stated number of rows.
    size : int
        Bytes of content read.
    what, line
        For the error.

    Raises
    ------
    MatrixFormatError
        If the row pointer takes more than 1 GiB and more than 16 times the content.
    """
    need = 4 * rows
    if need > max(_POINTER_LIMIT, 16 * size):
        raise MatrixFormatError(
            what,
            f"{rows:,} rows take {need / 2**30:,.1f} GiB for the row pointer alone, but the "
            f"content has {size:,} bytes: remove or renumber the empty rows",
            line,
        )


def _check_shape(shape: Shape, what: str) -> None:
    if len(shape) != 2:
        raise MatrixFormatError(what, f"has {len(shape)} dimensions: want 2")
    if min(shape) < 0 or max(shape) >= _INT64_MAX:
        raise MatrixFormatError(what, f"shape {shape} does not fit 64-bit indices")


def _check_range(index: NDArray, bound: int, axis: str, what: str) -> None:
    if index.dtype.kind not in "iu":
        raise MatrixFormatError(what, f"{axis} numbers are of dtype {index.dtype}: want integers")
    if len(index) == 0:
        return
    for extreme in (int(index.min()), int(index.max())):
        if not 0 <= extreme < bound:
            where = int(np.flatnonzero(index == extreme)[0])
            raise MatrixFormatError(
                what, f"entry {where} has {axis} {extreme}, but there are {bound} {axis}s from 0"
            )


def _check_pointer(indptr: NDArray, rows: int, stored: int, what: str) -> None:
    if indptr.dtype.kind not in "iu" or indptr.shape != (rows + 1,):
        raise MatrixFormatError(
            what, f"row pointer of {indptr.size} {indptr.dtype}: want {rows + 1} integers"
        )
    if indptr[0] != 0 or indptr[-1] > stored:
        raise MatrixFormatError(
            what, f"row pointer goes from {indptr[0]} to {indptr[-1]}: want 0 to {stored}"
        )
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        raise MatrixFormatError(what, f"row pointer falls at row {falls[0]}")


def _convert(values: NDArray, dtype: DTypeLike | None) -> NDArray:
    target = working_dtype(values.dtype) if dtype is None else np.dtype(dtype)
    if target not in _WORKING:
        raise TypeError(f"dtype={target}: want float32, float64, complex64 or complex128")
    working_dtype(values.dtype)
    if values.dtype.kind == "c" and target.kind != "c":
        raise TypeError(f"dtype={target} would drop the imaginary parts of {values.dtype} values")
    return values.astype(target, copy=False)


def _index_dtype(shape: Shape, nnz: int) -> np.dtype:
    return np.dtype(np.int32 if max(*shape, nnz) <= _INT32_MAX else np.int64)


def _assemble(indptr: NDArray, indices: NDArray, data: NDArray, shape: Shape) -> csr_array:
    """Sort and sum where needed; the arguments are checked already and never written to."""
    index = _index_dtype(shape, len(indices))
    indptr, indices = indptr.astype(index, copy=False), indices.astype(index, copy=False)
    if not _ascends(indptr, indices):
        loose = csr_array((data.copy(), indices.copy(), indptr.copy()), shape=shape)
        loose.has_canonical_format = False
        loose.has_sorted_indices = False
        loose.sum_duplicates()
        indptr, indices, data = loose.indptr, loose.indices, loose.data
    result = csr_array((data, indices, indptr), shape=shape)
    result.has_canonical_format = True
    return result


def _ascends(indptr: NDArray, indices: NDArray) -> bool:
    ascends = indices[1:] > indices[:-1]
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(indices))] - 1] = True
    return bool(ascends.all())
