"""A hidden layer of sparse inputs whose units are looked up by hash, as those of the output are."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch

from dtoolkit.sparsity.hashing import HashTables, as_refresh, make_family
from dtoolkit.sparsity.hashing.tables import check_capacity
from dtoolkit.training.slide import on_cpu
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.bag import BagLinear
from dtoolkit.training.slide.labels import Labels
from dtoolkit.training.sparse_examples import Bags

__all__ = ["HashedBag"]


class HashedBag(BagLinear):
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

    codes: torch.Tensor
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
        check_capacity(capacity, policy)
        super().__init__(in_features, out_features)
        self.hashing = make_family(family, in_features, tables=tables, hashes=hashes, seed=seed)
        self.schedule, self.seed = as_refresh(refresh), seed
        self.capacity, self.policy = capacity, policy
        self._tables: HashTables | None = None
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("codes", self.hashing.codes(self.weight.T))
        self.register_load_state_dict_post_hook(_forget_tables)

    @property
    def tables(self) -> HashTables:
        """Tables of the units held here, as of the last refresh."""
        if self._tables is None:
            self._tables = HashTables(
                self.codes,
                bits=self.hashing.bits,
                capacity=self.capacity,
                policy=self.policy,
                seed=self.seed,
            )
        return self._tables

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
        if self.schedule is not None and self.schedule.due(int(self.updates)):
            self.refresh()

    def refresh(self) -> None:
        """Hash the weights as they are now, and make new tables of them."""
        self.codes = self.hashing.codes(self.weight.T)
        self._tables = None


def _forget_tables(layer: HashedBag, _: Any) -> None:
    layer._tables = None
