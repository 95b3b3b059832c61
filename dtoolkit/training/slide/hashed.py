"""Layers whose neurons lie in tables by the hash of their weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dtoolkit.sparsity.hashing import HashFamily, HashTables, as_refresh, make_family
from dtoolkit.sparsity.hashing.tables import check_capacity

__all__ = ["Hashed"]


class Hashed(nn.Module):
    """What such layers share; a subclass calls :meth:`hash_by` once its weights are there.

    Attributes
    ----------
    hashing : HashFamily
    schedule : RefreshSchedule or None
    codes : int32 tensor, shape (tables, neurons)
        Codes of the neurons when the tables were made; part of the state, so that a layer that is
        loaded has the same tables.
    """

    codes: torch.Tensor

    def hash_by(
        self,
        inputs: int,
        *,
        family: str | HashFamily,
        tables: int,
        hashes: int,
        capacity: int | None,
        policy: str,
        refresh: Any,
        seed: int,
    ) -> None:
        """Hash the weights for the first time; arguments as of :class:`SlideLinear`."""
        check_capacity(capacity, policy)
        self.schedule, self.seed = as_refresh(refresh), seed
        self.hashing = make_family(family, inputs, tables=tables, hashes=hashes, seed=seed)
        self.capacity, self.policy = capacity, policy
        self._tables: HashTables | None = None
        self.register_buffer("codes", self.hashing.codes(self.neurons()))
        self.register_load_state_dict_post_hook(_forget_tables)

    def neurons(self) -> torch.Tensor:
        """Weights of the neurons held here, one a row."""
        weights: torch.Tensor = self.get_parameter("weight")
        return weights

    @property
    def tables(self) -> HashTables:
        """Tables of the neurons held here, as of the last refresh."""
        if self._tables is None:
            self._tables = HashTables(
                self.codes,
                bits=self.hashing.bits,
                capacity=self.capacity,
                policy=self.policy,
                seed=self.seed,
            )
        return self._tables

    def refresh_due(self, step: int) -> bool:
        """Whether tables are made anew after update number `step` (1 is the first)."""
        return self.schedule is not None and self.schedule.due(step)

    def refresh(self) -> None:
        """Hash the weights as they are now, and make new tables of them."""
        self.codes = self.hashing.codes(self.neurons())
        self._tables = None


def _forget_tables(layer: Hashed, _: Any) -> None:
    layer._tables = None
