"""Random masks, drawn once."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.methods.base import Layer, Method
from dtoolkit.sparsity.schedules import Schedule

__all__ = ["Static"]


class Static(Method):
    """A random mask at the start that never changes.

    Liu et al., "The unreasonable effectiveness of random pruning: return of the most naive baseline
    for sparse training", ICLR 2022. There every weight is kept by a coin of its own; here units are
    ranked by random numbers, so that the count is exact.
    """

    name = "static"
    citation = (
        "S. Liu et al., The unreasonable effectiveness of random pruning: return of the most naive "
        "baseline for sparse training, ICLR 2022"
    )

    def begin(self, layer: Layer, schedule: Schedule) -> torch.Tensor:
        """Random mask."""
        return layer.structure.keep(layer.draw("begin"), layer.shape, layer.density)
