"""The smallest weights go."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.methods.base import Layer, Method
from dtoolkit.sparsity.schedules import Schedule

__all__ = ["Magnitude"]


class Magnitude(Method):
    """Keep the largest weights; what is pruned stays pruned.

    With a cubic schedule this is gradual magnitude pruning (Zhu and Gupta, "To prune, or not to
    prune", 2017): it starts dense and ends at the asked density. With a constant one, the default,
    all is pruned in one shot at the start.
    """

    name = "magnitude"
    citation = (
        "M. Zhu and S. Gupta, To prune, or not to prune: exploring the efficacy of pruning for "
        "model compression, 2017"
    )

    def begin(self, layer: Layer, schedule: Schedule) -> torch.Tensor:
        """Mask of the density that the schedule starts with."""
        density = schedule.density(0, layer.density)
        return layer.structure.keep(layer.magnitude(), layer.shape, density)

    def update(self, layer: Layer, schedule: Schedule, step: int) -> torch.Tensor | None:
        """Prune down to the density of the moment, among what is live."""
        density = schedule.density(step, layer.density)
        scores = layer.magnitude()
        return layer.structure.keep(scores, layer.shape, density, among=layer.mask)

    def highest(self, density: float, schedule: Schedule) -> float:
        """Density that the schedule starts with."""
        return schedule.density(0, density)
