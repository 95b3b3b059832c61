"""A citation graph in one .npz file of plain arrays: what is in it, checked array by array."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dtoolkit.data.archives import BROKEN
from dtoolkit.errors import MatrixFormatError

__all__ = ["read_arrays", "sparse_features"]

# Kinds of dtype and numbers of dimensions; a split may be a mask.
_ARRAYS = {
    "num_nodes": ("iu", 0),
    "edges": ("iu", 2),
    "feat_indptr": ("iu", 1),
    "feat_indices": ("iu", 1),
    "feat_data": ("biuf", 1),
    "feat_shape": ("iu", 1),
    "labels": ("iu", 1),
    "train": ("iub", 1),
    "val": ("iub", 1),
    "test": ("iub", 1),
}

_WORDS = {"iu": "integers", "biuf": "real numbers", "iub": "node numbers, or a mask"}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read ``num_nodes``, ``edges``, ``feat_*``, ``labels`` and the splits, by these names.

    Raises
    ------
    MatrixFormatError
        The file is no archive of arrays; one is missing, cannot be read, is of another dtype or
        number of dimensions, or names nodes that are not there: names it.
    """
    if not zipfile.is_zipfile(path):
        raise MatrixFormatError(
            str(path), "is no graph saved as arrays: it is no whole archive of NumPy arrays (.npz)"
        )
    part, name = {}, ""
    try:
        with np.load(path, allow_pickle=False) as kept:
            missing = [name for name in _ARRAYS if name not in kept.files]
            if missing:
                raise MatrixFormatError(
                    str(path), f"is no graph saved as arrays: it has no {', '.join(missing)}"
                )
            for name in _ARRAYS:
                part[name] = kept[name]
    except MatrixFormatError:
        raise
    except BROKEN as error:
        what = f"{name} cannot be read" if name else "it cannot be read"
        # NumPy's advice on pickles would lead astray: nothing here is pickled.
        why = ": it holds objects" if "pickle" in str(error) else f": {error}"
        fault = f"is no graph saved as arrays: {what}{why}"
        raise MatrixFormatError(str(path), fault) from error
    for name, (kinds, dimensions) in _ARRAYS.items():
        _check(path, name, part[name], kinds, dimensions)
    n, edges = int(part["num_nodes"]), part["edges"]
    if n < 0:
        raise MatrixFormatError(str(path), f"num_nodes is {n}: wanted at least 0")
    if edges.size and not 0 <= int(edges.min()) <= int(edges.max()) < n:
        raise MatrixFormatError(
            str(path), f"edges run from {edges.min()} to {edges.max()}: wanted 0 to {n - 1}"
        )
    return part


def sparse_features(path: Path, part: dict[str, NDArray[Any]]) -> csr_array:
    """Put ``feat_indptr``, ``feat_indices``, ``feat_data`` and ``feat_shape`` together.

    Raises
    ------
    MatrixFormatError
        They do not fit each other: names what does not.
    """

    def refuse(fault: str) -> MatrixFormatError:
        return MatrixFormatError(str(path), fault)

    shape, ptr = part["feat_shape"], part["feat_indptr"]
    index, data = part["feat_indices"], part["feat_data"]
    if shape.shape != (2,) or (shape < 0).any():
        raise refuse(f"feat_shape is {shape.tolist()}: wanted numbers of nodes and of features")
    rows, columns = (int(length) for length in shape)
    if rows != int(part["num_nodes"]):
        raise refuse(f"feat_shape has {rows:,} rows, and num_nodes is {int(part['num_nodes']):,}")
    if len(ptr) != rows + 1:
        raise refuse(f"feat_indptr has {len(ptr):,} entries: wanted {rows + 1:,}, rows and one")
    ptr = ptr.astype(np.int64)
    if ptr[0] != 0 or (np.diff(ptr) < 0).any() or ptr[-1] != len(index):
        raise refuse(f"feat_indptr must rise from 0 to {len(index):,}, the length of feat_indices")
    if len(data) != len(index):
        raise refuse(f"feat_data has {len(data):,} entries and feat_indices {len(index):,}")
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < columns:
        raise refuse(
            f"feat_indices run from {index.min()} to {index.max()}: wanted 0 to {columns - 1}, by "
            "feat_shape"
        )
    return csr_array((data, index.astype(np.int64), ptr), shape=(rows, columns))


def _check(path: Path, name: str, array: NDArray[Any], kinds: str, dimensions: int) -> None:
    empty = not array.size and kinds != "biuf" and array.dtype.kind in "iubf"
    if array.dtype.kind not in kinds and not (empty and name in ("train", "val", "test")):
        raise MatrixFormatError(
            str(path), f"{name} is of dtype {array.dtype}: wanted {_WORDS[kinds]}"
        )
    if name == "edges" and (array.ndim != 2 or array.shape[1] != 2):
        raise MatrixFormatError(str(path), f"edges have shape {array.shape}: wanted pairs of nodes")
    if array.ndim != dimensions:
        wanted = ("a number", "a vector")[dimensions]
        raise MatrixFormatError(str(path), f"{name} has shape {array.shape}: wanted {wanted}")
