"""A hidden layer of sparse inputs whose units are looked up by hash, as those of the output are."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch

from dtoolkit.training.slide import on_cpu
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.bag import BagLinear
from dtoolkit.training.slide.hashed import Hashed
from dtoolkit.training.slide.labels import Labels
from dtoolkit.training.sparse_examples import Bags

__all__ = ["HashedBag"]


class HashedBag(Hashed, BagLinear):
    """A :class:`BagLinear` of which each sample computes the units that hash as it does.

    Units lie in tables by the hash of their weights; a sample's active ones are the union of its
    buckets, and all others are 0. For very wide hidden layers; Chen et al. (2020) hash the output
    alone.

    Parameters
    ----------
    in_features, out_features : int
    tables, hashes, family, capacity, policy, refresh
        As of :class:`SlideLinear`.
    seed : int
        Of the hash functions.

    Attributes
    ----------
    codes : int32 tensor, shape (tables, out_features)
        Codes of the units when the tables were made.
    updates : int64 tensor
        Updates of the weights.
    """

    updates: torch.Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        tables: int = 50,
        hashes: int = 2,
        family: str = "dwta",
        capacity: int | None = None,
        policy: str = "fifo",
        refresh: Any = (50, 0.1),
        seed: int = 0,
    ) -> None:
        super().__init__(in_features, out_features)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.hash_by(
            in_features,
            family=family,
            tables=tables,
            hashes=hashes,
            capacity=capacity,
            policy=policy,
            refresh=refresh,
            seed=seed,
        )

    def neurons(self) -> torch.Tensor:
        """See :meth:`Hashed.neurons`: a unit's weights stand in a column."""
        return self.weight.T

    def units(self, inputs: Bags) -> ActiveSets:
        """Units held here that each sample computes."""
        starts, ids, values = (one.cpu().numpy() for one in inputs)
        rows = scipy.sparse.csr_array((values, ids, starts), shape=(inputs.rows, self.in_features))
        none = Labels(np.zeros(inputs.rows + 1, np.int64), np.empty(0, np.int64))
        codes = self.hashing.codes(rows)
        return on_cpu.unite(self.tables, codes, none, start=0, stop=self.out_features)

    def updated(self) -> None:
        """Hear that the weights were updated: called by the optimizer."""
        self.updates += 1
        if self.refresh_due(int(self.updates)):
            self.refresh()
