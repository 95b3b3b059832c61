"""Labels of a batch: none, one or many classes a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

__all__ = ["Labels", "as_labels", "of_batch"]


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes of each sample, ascending, each once.

    Attributes
    ----------
    indptr : int64 array (samples + 1,)
        Where each sample's begin in `ids`.
    ids : int64 array
        Global numbers of the classes.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """Labels of each sample."""
        return np.diff(self.indptr)

    def within(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Those from `start` to `stop` alone, counted from `start`: indptr and ids."""
        held = (self.ids >= start) & (self.ids < stop)
        before = np.concatenate(([0], np.cumsum(held)))
        return before[self.indptr], (self.ids[held] - start).astype(np.int32)


def as_labels(value: Any, *, classes: int) -> Labels:
    """Make labels of what a person has.

    Parameters
    ----------
    value : Labels, tensor, array, sparse matrix, pair of arrays, or list
        One class a sample, shape (samples,); rows of classes, padded with -1; a sparse matrix
        (samples, classes), whose entries are labels; ``(indptr, ids)``; or a list of lists.
    classes : int

    Returns
    -------
    Labels

    Raises
    ------
    ValueError, TypeError
        They are no whole numbers, or there is no such class.
    """
    if isinstance(value, Labels):
        found = value
    elif scipy.sparse.issparse(value):
        rows = scipy.sparse.csr_array(value, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        found = Labels(rows.indptr.astype(np.int64), rows.indices.astype(np.int64))
    elif isinstance(value, tuple) and len(value) == 2:
        indptr, ids = (_whole(part) for part in value)
        if (
            not len(indptr)
            or indptr[0] != 0
            or indptr[-1] != len(ids)
            or (np.diff(indptr) < 0).any()
        ):
            raise ValueError("labels: indptr must rise from 0 to the number of ids")
        found = _sorted(
            np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), ids, len(indptr) - 1
        )
    elif isinstance(value, list):
        rows = [_whole(one).reshape(-1) for one in value]
        sample = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
        found = _sorted(sample, np.concatenate([*rows, np.empty(0, np.int64)]), len(rows))
    else:
        found = _from_rows(_whole(value))
    if len(found.ids) and (found.ids.min() < 0 or found.ids.max() >= classes):
        raise ValueError(
            f"labels are from {found.ids.min()} to {found.ids.max()}: wanted 0 to {classes - 1}"
        )
    return found


def of_batch(value: Any, *, samples: int, classes: int) -> Labels:
    """Labels of a batch of so many samples; of none where `value` is None.

    Raises
    ------
    ValueError, TypeError
        As for :func:`as_labels`; or there are not as many.
    """
    if value is None:
        return Labels(np.zeros(samples + 1, np.int64), np.empty(0, np.int64))
    found = as_labels(value, classes=classes)
    if len(found) != samples:
        raise ValueError(f"labels are for {len(found)} samples, hidden has {samples} rows")
    return found


def _from_rows(rows: NDArray[np.int64]) -> Labels:
    if rows.ndim not in (1, 2):
        raise ValueError(f"labels has shape {rows.shape}: wanted (samples,) or (samples, most)")
    table = rows.reshape(len(rows), -1)
    sample, place = np.nonzero(table >= 0)
    return _sorted(sample, table[sample, place], len(rows))


def _sorted(sample: NDArray[np.int64], ids: NDArray[np.int64], samples: int) -> Labels:
    order = np.lexsort((ids, sample))
    sample, ids = sample[order], ids[order]
    first = np.ones(len(ids), bool)
    first[1:] = (sample[1:] != sample[:-1]) | (ids[1:] != ids[:-1])
    indptr = np.concatenate(([0], np.cumsum(np.bincount(sample[first], minlength=samples))))
    return Labels(indptr.astype(np.int64), ids[first])


def _whole(value: Any) -> NDArray[np.int64]:
    own = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if own.size and own.dtype.kind not in "iu":
        raise TypeError(f"labels are of dtype {own.dtype}: wanted whole numbers")
    return own.astype(np.int64)
