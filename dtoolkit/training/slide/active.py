"""Which neurons each sample computes, by sample and by neuron."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dtoolkit.sparsity.hashing.spreading import spread

__all__ = ["ActiveSets", "ByRow"]

PARTS = 32  # of the rows: units of work, whatever the number of threads
_EVERY = 61  # entries from one that is looked at to the next, to find where parts end


@dataclass(frozen=True, eq=False)
class ByRow:
    """Active sets turned round: for each neuron the samples that compute it.

    Attributes
    ----------
    bounds : int64 array (parts + 1,)
        First rows of the parts that are worked on at a time; a function of the sets alone.
    indptr : int64 array (rows + 1,)
        Where each row's samples begin.
    samples : int32 array (entries,)
        Ascending within a row.
    places : int64 array (entries,)
        Where the entry stands in the order of the samples.
    """

    bounds: NDArray[np.int64]
    indptr: NDArray[np.int64]
    samples: NDArray[np.int32]
    places: NDArray[np.int64]


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
        parts = len(bounds) - 1
        cuts = np.empty((parts + 1, len(self)), np.int64)
        spread(kernels.cut, parts + 1, bounds, self.indptr, self.ids, cuts)
        starts = np.concatenate(([0], np.cumsum((cuts[1:] - cuts[:-1]).sum(1))))
        indptr = np.empty(self.rows + 1, np.int64)
        indptr[-1] = self.entries
        samples = np.empty(self.entries, np.int32)
        places = np.empty(self.entries, np.int64)
        spread(kernels.turn, parts, bounds, cuts, starts, self.ids, indptr, samples, places)
        return ByRow(bounds, indptr, samples, places)

    def _bounds(self) -> NDArray[np.int64]:
        """Cut the rows into parts of about as many entries each."""
        parts = max(1, min(PARTS, self.rows))
        seen = np.sort(self.ids[::_EVERY])
        if len(seen) < 4 * parts:
            return np.linspace(0, self.rows, parts + 1).astype(np.int64)
        inner = seen[np.linspace(0, len(seen), parts + 1).astype(np.int64)[1:-1]]
        return np.concatenate(([0], np.unique(inner[inner > 0]), [self.rows])).astype(np.int64)
