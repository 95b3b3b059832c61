"""The work of an active set by compiled loops, parallel over samples or over rows.

No operation of torch that is parallel itself stands between them: its threads go on spinning for
milliseconds, in the way of those that run the loops.

:mod:`~dtoolkit.training.slide.in_torch` has the same functions for other devices.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.sparsity.hashing import HashTables
from dtoolkit.sparsity.spreading import spread
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.labels import Labels

__all__ = ["deltas", "gather", "logits", "maxima", "pull", "scaled", "sums", "unite"]

_CHUNKS = 16  # of a batch: units of work, whatever the number of threads


def unite(
    tables: HashTables, codes: torch.Tensor, labels: Labels, *, start: int, stop: int
) -> ActiveSets:
    """The union of the buckets of each sample, and its labels.

    Parameters
    ----------
    tables : HashTables
        Of the neurons from `start` to `stop`.
    codes : int32 tensor, shape (tables, samples)
        Of the inputs.
    labels : Labels
        Empty for a prediction.
    start, stop : int
        Neurons held.
    """
    begin, end = tables.ranges(codes)
    return gather(begin, end, tables.ids, labels, start=start, stop=stop)


def gather(
    begin: NDArray[np.int32],
    end: NDArray[np.int32],
    ids: NDArray[np.int32],
    labels: Labels,
    *,
    start: int,
    stop: int,
) -> ActiveSets:
    """The union of some slices of `ids` for each sample, and its labels.

    Parameters
    ----------
    begin, end : int32 arrays, shape (samples, tables)
        Slices: ``ids[t, begin[s, t]:end[s, t]]``.
    ids : int32 array, shape (tables, n)
        Local numbers of neurons.
    labels, start, stop
        As of :func:`unite`.
    """
    from dtoolkit.training.slide import kernels

    rows, samples = stop - start, len(begin)
    label_indptr, label_ids = labels.within(start, stop)
    most = (end - begin).sum(1, dtype=np.int64) + np.diff(label_indptr)
    starts = np.concatenate(([0], np.cumsum(np.minimum(most, rows))))
    out = np.empty(starts[-1], np.int32)
    sizes, found = np.empty(samples, np.int64), np.empty(samples, np.int64)
    height, chunks = _chunks(samples)
    shared = (begin, end, ids, label_indptr, label_ids, rows, starts, out, sizes, found)
    spread(kernels.unite, chunks, height, *shared)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    packed = np.empty(indptr[-1], np.int32)
    spread(kernels.pack, chunks, height, starts, indptr, out, packed)
    return ActiveSets(indptr, packed, rows, label_indptr, label_ids, labels.counts, found)


def logits(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, active: ActiveSets
) -> torch.Tensor:
    """Logit of each active neuron, in the order of ``active.ids``: shape (entries,)."""
    from dtoolkit.training.slide import kernels

    values = torch.empty(active.entries)
    by_row = active.by_row
    spread(
        kernels.logits,
        len(by_row.parts),
        *by_row.arrays,
        *(_array(weight), _array(bias), _array(hidden), values.numpy()),
    )
    return values


def maxima(active: ActiveSets, values: torch.Tensor) -> torch.Tensor:
    """Largest logit of each sample, shape (samples,); minus infinity where it has none."""
    from dtoolkit.training.slide import kernels

    largest = torch.empty(len(active))
    height, chunks = _chunks(len(active))
    spread(kernels.maxima, chunks, height, active.indptr, _array(values), largest.numpy())
    return largest


def sums(active: ActiveSets, values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Sum of ``exp(logit - largest)`` of each sample, shape (samples,)."""
    from dtoolkit.training.slide import kernels

    total = torch.empty(len(active))
    height, chunks = _chunks(len(active))
    arrays = (active.indptr, _array(values), _array(largest), total.numpy())
    spread(kernels.sums, chunks, height, *arrays)
    return total


def deltas(
    active: ActiveSets, values: torch.Tensor, largest: torch.Tensor, total: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Derivative of each sample's loss by its logits, and the loss.

    Parameters
    ----------
    active : ActiveSets
    values : float32 tensor, shape (entries,)
    largest, total : float32 tensors, shape (samples,)
        Of all active neurons of a sample, wherever they are held.

    Returns
    -------
    deltas : float32 tensor, shape (entries,)
        ``p - 1[label] / labels``; zeros where a sample has no label.
    losses : float32 tensor, shape (samples,)
        ``-sum(log p of the labels held here) / labels``: over all that hold neurons, these add up
        to the cross-entropy.
    """
    from dtoolkit.training.slide import kernels

    out, losses = torch.empty(active.entries), torch.empty(len(active))
    height, chunks = _chunks(len(active))
    spread(
        kernels.deltas,
        chunks,
        height,
        *(active.indptr, active.ids, _array(values), _array(largest), _array(total)),
        *(active.label_indptr, active.label_ids, active.label_counts),
        *(out.numpy(), losses.numpy()),
    )
    return out, losses


def pull(active: ActiveSets, delta: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Derivative by the inputs as far as the neurons held here say, shape (samples, d)."""
    from dtoolkit.training.slide import kernels

    by_row = active.by_row
    gradient = np.empty((len(by_row.parts), len(active), weight.shape[1]), np.float32)
    spread(kernels.pull, len(by_row.parts), *by_row.arrays, _array(weight), _array(delta), gradient)
    return torch.from_numpy(gradient.sum(0))


def scaled(active: ActiveSets, delta: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """`delta` times a factor of each sample, shape (entries,)."""
    from dtoolkit.training.slide import kernels

    out = torch.empty(active.entries)
    height, chunks = _chunks(len(active))
    arrays = (active.indptr, _array(delta), _array(factors), out.numpy())
    spread(kernels.scale, chunks, height, *arrays)
    return out


def _chunks(samples: int) -> tuple[int, int]:
    height = max(1, -(-samples // _CHUNKS))
    return height, -(-samples // height)


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return tensor.detach().contiguous().numpy()
