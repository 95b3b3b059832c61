"""Matrices, arrays and lists in a pickle that somebody else wrote, without running it.

A pickle is a program that may call anything. Here the few names that pickles of NumPy arrays and
SciPy matrices use stand for classes of our own, which only write down what they are given; every
other name is refused. What was written down is then checked and made into arrays.
"""

from __future__ import annotations

import pickle
import re
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dtoolkit.data.convert import as_csr
from dtoolkit.errors import MatrixFormatError

__all__ = ["read_pickle"]

_BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError,
    ImportError, OverflowError, MemoryError, RecursionError,
)  # fmt: skip


def read_pickle(path: str | PathLike[str]) -> Any:
    """Read a pickle of plain objects, NumPy arrays of numbers and SciPy's CSR matrices.

    Parameters
    ----------
    path : path
        Written by Python 2 or 3, protocol 0 to 4.

    Returns
    -------
    object
        Dictionaries, lists, tuples, strings and numbers as they are; arrays as NumPy arrays;
        matrices as canonical CSR.

    Raises
    ------
    MatrixFormatError
        If the file is no such pickle, is broken, or names anything else.
    FileNotFoundError
        If there is no such file.
    """
    path = Path(path)
    with open(path, "rb") as file:
        try:
            return _real(_Reader(file, encoding="latin1").load())
        except MatrixFormatError as error:
            raise MatrixFormatError(str(path), error.fault) from error
        except _BROKEN as error:
            fault = f"is no pickle of matrices that can be read: {type(error).__name__}: {error}"
            raise MatrixFormatError(str(path), fault) from error


class _Dtype:
    """Dtype of an array, as it was pickled."""

    def __init__(self, code: str, *_: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[biufc][0-9]{1,2}", code):
            raise ValueError(f"an array of {code!r}: wanted numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """An array, as it was pickled."""

    state: tuple[Any, ...] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


class _Matrix:
    """A CSR matrix, as it was pickled: its attributes."""


def _real(kept: Any) -> Any:
    """What was written down, as arrays and matrices."""
    if isinstance(kept, _Array):
        return _real_array(kept.__dict__.get("state"))
    if isinstance(kept, _Matrix):
        return _real_matrix(kept.__dict__)
    if isinstance(kept, dict):
        return {key: _real(value) for key, value in kept.items()}
    if isinstance(kept, list | tuple):
        return type(kept)(_real(value) for value in kept)
    if kept is None or isinstance(kept, bool | int | float | str | bytes):
        return kept
    raise ValueError(f"a {type(kept).__name__} where a matrix, a list or a number was wanted")


def _real_array(state: Any) -> Any:
    if not isinstance(state, tuple) or len(state) < 4 or not isinstance(state[-3], _Dtype):
        raise ValueError("an array without its numbers")
    shape, kind, fortran, raw = state[-4:]
    data = raw.encode("latin1") if isinstance(raw, str) else raw
    flat = np.frombuffer(data, dtype=kind.dtype)
    return np.array(flat.reshape(shape, order="F" if fortran else "C"))


def _real_matrix(kept: dict[str, Any]) -> Any:
    parts = [_real(kept[name]) for name in ("data", "indices", "indptr")]
    return as_csr(sparse.csr_array(tuple(parts), shape=kept.get("_shape", kept.get("shape"))))


def _reconstruct(kind: Any, *_: Any) -> _Array:
    if not (isinstance(kind, type) and issubclass(kind, _Array)):
        raise ValueError("an array of a class of its own")
    return _Array()


def _reconstructor(kind: Any, *_: Any) -> _Matrix:
    if not (isinstance(kind, type) and issubclass(kind, _Matrix)):
        raise ValueError("an object that is no CSR matrix")
    return _Matrix()


def _dictionary(*_: Any) -> dict[Any, Any]:
    return {}


def _encode(text: str, *_: Any) -> bytes:
    return text.encode("latin1")


def _no_bytes(*_: Any) -> bytes:
    return b""  # how protocol 2 writes them; others come through _encode


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_array"): _Matrix,
    ("collections", "defaultdict"): _dictionary,
    ("_codecs", "encode"): _encode,
    **{(home, "_reconstructor"): _reconstructor for home in ("copy_reg", "copyreg")},
    **{(home, name): kind for home in ("__builtin__", "builtins")
       for name, kind in (("list", list), ("object", object), ("bytes", _no_bytes))},
}  # fmt: skip


class _Reader(pickle.Unpickler):
    """Knows the names above and no others."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            known = _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which no pickle of matrices needs; nothing of it was "
                "run"
            ) from None
        # A pickle may set attributes of what it names: it gets a copy of its own to write on.
        if known in (_Array, _Dtype, _Matrix):
            return type(known.__name__, (known,), {})
        return known if known in (list, object) else partial(known)
