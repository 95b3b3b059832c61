"""Growth and loss by chance."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dtoolkit.sparsity.methods.base import Layer, Method
from dtoolkit.sparsity.schedules import Schedule

__all__ = ["RandomGrowth"]


@dataclass(frozen=True)
class RandomGrowth(Method):
    """Random live weights go, random ones come: the control for SET and RigL, blind to values.

    With `initial` below 1 the model also starts sparser, at that share of the asked density, and
    grows to it along the schedule (at the first update, if the schedule is constant), as in the
    in-time over-parameterisation of Liu et al., ICML 2021.

    Attributes
    ----------
    initial : float
        Share of the asked density at the start, in (0, 1].
    """

    initial: float = 1.0
    name = "growth"

    def __post_init__(self) -> None:
        if not 0 < self.initial <= 1:
            raise ValueError(f"initial={self.initial}: wanted more than 0, and at most 1")

    def begin(self, layer: Layer, schedule: Schedule) -> torch.Tensor:
        """Random mask of the density at the start."""
        start = self.lowest(layer.density)
        return layer.structure.keep(layer.draw("begin"), layer.shape, start)

    def update(self, layer: Layer, schedule: Schedule, step: int) -> torch.Tensor | None:
        """Drop the share that the schedule says, and grow to the density of the moment."""
        if layer.density >= 1:
            return None
        # What the schedule leaves to prune of a layer that starts dense is here left to grow.
        left = schedule.density(step, 0.0)
        density = layer.density * (1 - left * (1 - self.initial))
        live = int(layer.structure.gather(layer.mask).sum())
        drop = int(schedule.fraction(step) * live)
        keep, grow = layer.draw("drop"), layer.draw("grow")
        return layer.structure.exchange(layer.mask, keep, grow, drop, density)

    def lowest(self, density: float) -> float:
        """Density at the start."""
        return density if density >= 1 else self.initial * density
