"""One door for every matrix: files by their kind, objects of other libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data.archives import BROKEN
from dtoolkit.data.canonical import Shape, check_row_pointer
from dtoolkit.data.convert import as_csr
from dtoolkit.data.edge_list import read_edge_list
from dtoolkit.data.matrix_market import read_matrix_market
from dtoolkit.errors import MatrixFormatError

__all__ = ["read_matrix"]

_COMPRESSED = (".gz", ".bz2", ".xz")
_EDGE_LISTS = (".txt", ".tsv", ".csv", ".edges", ".el", ".edgelist")


def read_matrix(
    source: Any, *, dtype: DTypeLike | None = None, base: int = 0, shape: Shape | None = None
) -> csr_array:
    """Read a matrix from a file, or take one from another library.

    Parameters
    ----------
    source : path or object
        A path to a Matrix Market file (``.mtx``), to SciPy's ``.npz`` or to an edge list (``.txt``,
        ``.tsv``, ``.csv``, ``.edges``, ``.el``); text may be compressed (``.gz``, ``.bz2``,
        ``.xz``). Or any object that :func:`as_csr` takes.
    dtype : dtype-like, optional
        float32, float64, complex64 or complex128. By default text files give float64 or
        complex128, and everything else follows the rule of :func:`as_csr`.
    base : int, optional
        Number of the first row and column in an edge list: 0 or 1.
    shape : tuple of int, optional
        Rows and columns of an edge list. By default it is a square matrix up to the largest
        number.

    Returns
    -------
    scipy.sparse.csr_array
        Canonical: rows and columns ascend, duplicates are summed, explicit zeros are kept.

    Raises
    ------
    MatrixFormatError
        If the file or object is no valid matrix: names file, line and fault.
    FileNotFoundError
        If there is no such file.
    TypeError, ValueError
        If the object, ``dtype``, ``base`` or ``shape`` is none of those above.
    """
    is_path = isinstance(source, (str, os.PathLike))
    kind = _kind(Path(source)) if is_path else "object"
    if kind != "edge list" and (base != 0 or shape is not None):
        raise ValueError(f"base= and shape= are for edge lists, but source is a {kind}")
    if not is_path:
        return as_csr(source, dtype=dtype)
    if kind == "Matrix Market file":
        return read_matrix_market(Path(source), dtype=dtype)
    if kind == "SciPy .npz file":
        return _read_npz(Path(source), dtype)
    return read_edge_list(Path(source), dtype=dtype, base=base, shape=shape)


def _kind(path: Path) -> str:
    """Kind of a file: by its name, else by how it starts."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix == ".mtx":
        return "Matrix Market file"
    if suffix == ".npz":
        return "SciPy .npz file"
    if suffix in _EDGE_LISTS:
        return "edge list"
    with open(path, "rb") as file:
        start = file.read(14)
    if start.lower() == b"%%matrixmarket":
        return "Matrix Market file"
    if start.startswith(b"PK\x03\x04"):
        return "SciPy .npz file"
    raise MatrixFormatError(
        str(path),
        f"the name ends in {suffix!r}: want .mtx, .npz or an edge list ({', '.join(_EDGE_LISTS)})",
    )


def _read_npz(path: Path, dtype: DTypeLike | None) -> csr_array:
    with open(path, "rb") as file:
        try:
            # SciPy reads it without pickle, so that a file cannot run code.
            stored = sparse.load_npz(file)
            if stored.format in ("coo", "dia", "bsr", "csc"):
                check_row_pointer(stored.shape[0], path.stat().st_size, what=str(path))
            return as_csr(stored, dtype=dtype, copy=False)
        except MatrixFormatError as error:
            raise MatrixFormatError(str(path), error.fault) from error
        except BROKEN as error:
            fault = f"is no matrix saved by scipy.sparse.save_npz: {error}"
            raise MatrixFormatError(str(path), fault) from error
