"""What was retrieved in training: how many neurons, and how many of the labels by hashing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dtoolkit.training.slide.active import ActiveSets

__all__ = ["Retrieval"]


@dataclass
class Retrieval:
    """Counts over all batches since they were last reset.

    Attributes
    ----------
    batches, samples : int
    entries : int
        Pairs of a sample and an active neuron.
    labels : int
        Labels held here.
    found : int
        Of these, that were active by hashing (or by chance), before the labels were added.
    smallest, largest : int
        Active neurons of a sample.
    """

    batches: int = 0
    samples: int = 0
    entries: int = 0
    labels: int = 0
    found: int = 0
    smallest: int = 0
    largest: int = 0
    rows: int = field(default=0, repr=False)

    def note(self, active: ActiveSets) -> None:
        """Count a batch."""
        sizes = active.sizes
        if len(sizes):
            least = int(sizes.min())
            self.smallest = min(self.smallest, least) if self.batches else least
            self.largest = max(self.largest, int(sizes.max()))
        self.batches += 1
        self.samples += len(sizes)
        self.entries += active.entries
        self.labels += len(active.label_ids)
        self.found += int(active.found.sum())
        self.rows = active.rows

    @property
    def mean(self) -> float:
        """Active neurons of a sample."""
        return self.entries / self.samples if self.samples else 0.0

    @property
    def share(self) -> float:
        """The same as a share of the neurons held."""
        return self.mean / self.rows if self.rows else 0.0

    @property
    def label_share(self) -> float:
        """Share of the labels that hashing found by itself; not a number where there were none."""
        return self.found / self.labels if self.labels else float(np.nan)

    def reset(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]
