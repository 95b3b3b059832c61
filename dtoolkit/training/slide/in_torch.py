"""The work of an active set by torch's operations, on any device: the same sets, to the id.

Sums are taken in torch's order, so that logits and gradients agree with those of
:mod:`~dtoolkit.training.slide.on_cpu`, which documents these functions, to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dtoolkit.sparsity.hashing import HashTables
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.labels import Labels

__all__ = ["deltas", "logits", "maxima", "pull", "scaled", "sums", "unite"]

_AT_ONCE = 1 << 26  # elements of gathered rows


def unite(
    tables: HashTables, codes: torch.Tensor, labels: Labels, *, start: int, stop: int
) -> ActiveSets:
    """The union of the buckets of each sample, and its labels."""
    device, samples, rows = codes.device, codes.shape[1], max(1, stop - start)
    begin, end = (torch.from_numpy(x).to(device).long().view(-1) for x in tables.ranges(codes))
    sizes = end - begin
    bucket = torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)
    before = torch.cumsum(sizes, 0) - sizes
    place = torch.arange(len(bucket), device=device) - before[bucket] + begin[bucket]
    ids = torch.from_numpy(tables.ids).to(device)[bucket % tables.tables, place]
    hashed = torch.unique(bucket // tables.tables * rows + ids)
    label_indptr, label_ids = labels.within(start, stop)
    sample = np.repeat(np.arange(samples), np.diff(label_indptr))
    true = torch.from_numpy(sample * rows + label_ids).to(device)
    both = torch.unique(torch.cat([hashed, true])).cpu().numpy()
    hits = torch.isin(true, hashed).cpu().numpy()
    indptr = np.searchsorted(both, np.arange(samples + 1) * rows)
    found = np.bincount(sample[hits], minlength=samples)
    own = (both % rows).astype(np.int32)
    return ActiveSets(
        indptr, own, stop - start, label_indptr, label_ids, labels.counts, found.astype(np.int64)
    )


def logits(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, active: ActiveSets
) -> torch.Tensor:
    """Logit of each active neuron."""
    sample, ids = _entries(active, weight)
    values = torch.empty(len(ids), device=weight.device)
    for some in _pieces(len(ids), weight.shape[1]):
        values[some] = (hidden[sample[some]] * weight.detach()[ids[some]]).sum(1)
    return values + bias.detach()[ids]


def maxima(active: ActiveSets, values: torch.Tensor) -> torch.Tensor:
    """Largest logit of each sample."""
    sample, _ = _entries(active, values)
    return values.new_full((len(active),), -torch.inf).scatter_reduce_(0, sample, values, "amax")


def sums(active: ActiveSets, values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Sum of ``exp(logit - largest)`` of each sample."""
    sample, _ = _entries(active, values)
    return values.new_zeros(len(active)).index_add_(0, sample, (values - largest[sample]).exp())


def deltas(
    active: ActiveSets, values: torch.Tensor, largest: torch.Tensor, total: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Derivative of each sample's loss by its logits, and the loss."""
    sample, _ = _entries(active, values)
    true = _label_places(active)
    owner = np.repeat(np.arange(len(active)), np.diff(active.label_indptr))
    counts = torch.from_numpy(active.label_counts).to(values)
    at, of = (torch.from_numpy(x).to(values.device) for x in (true, owner))
    over = values - largest[sample]
    out = torch.where(counts[sample] > 0, over.exp() / total[sample], 0)
    out[at] -= 1 / counts[of]
    parts = (total[of].log() - over[at]) / counts[of]
    return out, values.new_zeros(len(active)).index_add_(0, of, parts)


def pull(active: ActiveSets, delta: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Derivative by the inputs as far as the neurons held here say."""
    sample, ids = _entries(active, weight)
    gradient = weight.new_zeros(len(active), weight.shape[1])
    for some in _pieces(len(ids), weight.shape[1]):
        rows = weight.detach()[ids[some]] * delta[some, None]
        gradient.index_add_(0, sample[some], rows)
    return gradient


def scaled(active: ActiveSets, delta: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """`delta` times a factor of each sample."""
    sample, _ = _entries(active, delta)
    return delta * factors[sample]


def _entries(active: ActiveSets, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample and neuron of each entry."""
    sample = np.repeat(np.arange(len(active)), active.sizes)
    found = (torch.from_numpy(part).to(like.device).long() for part in (sample, active.ids))
    return next(found), next(found)


def _label_places(active: ActiveSets) -> Any:
    """Which entries are labels: both are in ascending order."""
    sample = np.repeat(np.arange(len(active)), active.sizes)
    owner = np.repeat(np.arange(len(active)), np.diff(active.label_indptr))
    key = sample * np.int64(active.rows) + active.ids
    return np.searchsorted(key, owner * np.int64(active.rows) + active.label_ids)


def _pieces(entries: int, width: int) -> list[slice]:
    height = max(1, _AT_ONCE // max(width, 1))
    return [slice(first, first + height) for first in range(0, entries, height)]
