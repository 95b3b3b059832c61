"""Gradients of the rows of a weight that were touched, as factors: never a dense matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.training.slide.active import ActiveSets

__all__ = ["RowGradient"]


@dataclass(frozen=True, eq=False)
class RowGradient:
    """Gradient of a weight (rows, d) and its bias: ``delta.T @ hidden`` where neurons were active.

    Attributes
    ----------
    active : ActiveSets
    deltas : float32 tensor, shape (entries,)
        Derivatives by the logits, in the order of ``active.ids``.
    hidden : float32 tensor, shape (samples, d)
        Inputs of the layer.
    applied : callable
        Called once the weights were updated with it.
    """

    active: ActiveSets
    deltas: torch.Tensor
    hidden: torch.Tensor
    applied: Callable[[], None]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows that are touched, ascending."""
        return self.active.by_row.active

    def plus(self, other: RowGradient) -> RowGradient:
        """The sum of two: of more samples, where gradients are accumulated."""
        one, two = self.active, other.active
        sets = replace(
            one,
            indptr=np.concatenate([one.indptr, two.indptr[1:] + one.indptr[-1]]),
            ids=np.concatenate([one.ids, two.ids]),
            label_indptr=np.concatenate(
                [one.label_indptr, two.label_indptr[1:] + one.label_indptr[-1]]
            ),
            label_ids=np.concatenate([one.label_ids, two.label_ids]),
            label_counts=np.concatenate([one.label_counts, two.label_counts]),
            found=np.concatenate([one.found, two.found]),
        )
        return RowGradient(
            sets,
            torch.cat([self.deltas, other.deltas]),
            torch.cat([self.hidden, other.hidden]),
            self.applied,
        )

    def sparse(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of weight and bias as torch's sparse tensors of whole rows.

        Returns
        -------
        weight : sparse COO tensor, shape (rows, d), one sparse dimension
        bias : sparse COO tensor, shape (rows,)
        """
        sets, device = self.active, self.deltas.device
        rows = torch.from_numpy(self.rows).to(device)
        place = torch.searchsorted(rows, torch.from_numpy(sets.ids).to(device).long())
        sample = torch.repeat_interleave(
            torch.arange(len(sets)), torch.from_numpy(sets.sizes), output_size=sets.entries
        ).to(device)
        parts = (
            torch.zeros(len(rows), self.hidden.shape[1], device=device).index_add_(
                0, place, self.deltas[:, None] * self.hidden[sample]
            ),
            torch.zeros(len(rows), device=device).index_add_(0, place, self.deltas),
        )
        weight, bias = (
            torch.sparse_coo_tensor(
                *(rows[None], part, (sets.rows, *part.shape[1:])),
                check_invariants=False,
                is_coalesced=True,
            )
            for part in parts
        )
        return weight, bias
