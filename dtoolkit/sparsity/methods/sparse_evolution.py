"""Sparse evolutionary training."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.methods.base import Layer, swap
from dtoolkit.sparsity.methods.static import Static
from dtoolkit.sparsity.schedules import Schedule

__all__ = ["SET"]


class SET(Static):
    """The smallest live weights go, random ones come.

    Mocanu et al., "Scalable training of artificial neural networks with adaptive sparse
    connectivity inspired by network science", Nature Communications 2018. Magnitudes are compared
    as they are, without regard to sign. Random choices come from seed, name and step: workers whose
    weights are equal change masks alike, without a message.
    """

    name = "set"
    citation = (
        "D. C. Mocanu et al., Scalable training of artificial neural networks with adaptive sparse "
        "connectivity inspired by network science, Nature Communications 9, 2018"
    )

    def update(self, layer: Layer, schedule: Schedule, step: int) -> torch.Tensor | None:
        """Swap the share that the schedule says."""
        return swap(layer, schedule, step, keep=layer.magnitude(), grow=layer.draw("grow"))
