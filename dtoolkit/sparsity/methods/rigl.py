"""RigL: growth by gradient."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.methods.base import Layer, swap
from dtoolkit.sparsity.methods.static import Static
from dtoolkit.sparsity.schedules import Schedule

__all__ = ["RigL"]


class RigL(Static):
    """The smallest live weights go, those with the largest gradient come.

    Evci et al., "Rigging the lottery: making all tickets winners", ICML 2020, algorithm 1. The
    gradient is that of the masked forward, before the update. What was just dropped may grow again
    (it then never left, and keeps its value). For the schedule of the paper pass
    ``Cosine(every=100, stop=...)`` with three quarters of the run's steps.
    """

    name = "rigl"
    citation = "U. Evci et al., Rigging the lottery: making all tickets winners, ICML 2020"
    updates_with_gradient = True

    def update(self, layer: Layer, schedule: Schedule, step: int) -> torch.Tensor | None:
        """Swap the share that the schedule says; a layer without a gradient stays as it is."""
        if layer.gradient is None:
            return None
        return swap(layer, schedule, step, keep=layer.magnitude(), grow=layer.slope())
