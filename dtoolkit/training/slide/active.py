"""Which neurons each sample computes, by sample and by neuron."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.sparsity.spreading import spread

__all__ = ["ActiveSets", "ByRow"]

PARTS = 32  # of the rows: units of work, whatever the number of threads
_EVERY = 61  # entries from one that is looked at to the next, to find where parts end


@dataclass(frozen=True, eq=False)
class ByRow:
    """Active sets turned round: for each neuron the samples that compute it.

    Rows are worked on in parts of about as many entries each, a function of the sets alone. A part
    has its first entry in ``parts[p, 0]``; its rows stand from the same place on in `rows`, as far
    as ``parts[p, 1]``.

    Attributes
    ----------
    parts : int64 array (parts, 2)
    rows : int32 array (entries,)
        Active rows of each part, ascending; the rest of a part's places is not used.
    ends : int64 array (entries,)
        Where each row's samples end; they begin where those of the row before end.
    samples : int32 array (entries,)
        Ascending within a row.
    places : int64 array (entries,)
        Where the entry stands in the order of the samples.
    """

    parts: NDArray[np.int64]
    rows: NDArray[np.int32]
    ends: NDArray[np.int64]
    samples: NDArray[np.int32]
    places: NDArray[np.int64]

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of them, as kernels take them."""
        return self.parts, self.rows, self.ends, self.samples, self.places

    @property
    def active(self) -> NDArray[np.int64]:
        """Active rows, ascending."""
        pieces = [self.rows[first:last] for first, last in self.parts.tolist()]
        return np.concatenate([*pieces, np.empty(0, np.int64)])


@dataclass(frozen=True, eq=False)
class ActiveSets:
    """Neurons that each sample of a batch computes, of those that one process holds.

    Which they are depends on the sample and the neuron alone: the sets of several processes that
    hold a range of rows each are the pieces of the sets of one that holds all.

    Attributes
    ----------
    indptr : int64 array (samples + 1,)
        Where each sample's neurons begin in `ids`.
    ids : int32 array (entries,)
        Local numbers of neurons, ascending within a sample.
    rows : int
        Neurons held.
    label_indptr : int64 array (samples + 1,)
    label_ids : int32 array
        Labels that are held, by local number; every one is in its sample's set.
    label_counts : int64 array (samples,)
        Labels of each sample, those held elsewhere included.
    found : int64 array (samples,)
        Labels held here that hashing found by itself.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    rows: int
    label_indptr: NDArray[np.int64]
    label_ids: NDArray[np.int32]
    label_counts: NDArray[np.int64]
    found: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def entries(self) -> int:
        """Pairs of a sample and a neuron."""
        return len(self.ids)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Active neurons of each sample."""
        return np.diff(self.indptr)

    def of(self, sample: int) -> NDArray[np.int32]:
        """Neurons of one sample."""
        return self.ids[self.indptr[sample] : self.indptr[sample + 1]]

    @cached_property
    def by_row(self) -> ByRow:
        """The same by neuron."""
        from dtoolkit.training.slide import kernels

        bounds = self._bounds()
        cuts = np.empty((len(bounds), len(self)), np.int64)
        spread(kernels.cut, len(bounds), bounds, self.indptr, self.ids, cuts)
        parts = np.zeros((len(bounds) - 1, 2), np.int64)
        parts[1:, 0] = np.cumsum((cuts[1:] - cuts[:-1]).sum(1))[:-1]
        rows, samples = (np.empty(self.entries, np.int32) for _ in range(2))
        ends, places = (np.empty(self.entries, np.int64) for _ in range(2))
        shared = (bounds, cuts, self.ids, parts, rows, ends, samples, places)
        spread(kernels.turn, len(parts), *shared)
        return ByRow(parts, rows, ends, samples, places)

    def _bounds(self) -> NDArray[np.int64]:
        """Cut the rows into parts of about as many entries each."""
        parts = max(1, min(PARTS, self.rows))
        seen = np.sort(self.ids[::_EVERY])
        if len(seen) < 4 * parts:
            return np.linspace(0, self.rows, parts + 1).astype(np.int64)
        inner = seen[np.linspace(0, len(seen), parts + 1).astype(np.int64)[1:-1]]
        return np.concatenate(([0], np.unique(inner[inner > 0]), [self.rows])).astype(np.int64)
