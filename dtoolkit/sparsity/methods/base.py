"""Which weights are live: the protocol of everything in ``sparsity/methods``.

A method looks at one layer at a time and returns its mask. It never writes: the sparsifier stores
masks, zeroes weights and cleans the optimizer's state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from dtoolkit.sparsity.citing import Cited
from dtoolkit.sparsity.schedules import Schedule
from dtoolkit.sparsity.structures import Structure

__all__ = ["Layer", "Method", "swap"]


@dataclass(frozen=True, eq=False)
class Layer:
    """What a method sees of a sparse weight; nothing of it is to be written to.

    Attributes
    ----------
    name : str
    weight : tensor
    mask : bool tensor, shape of the weight
        As it is before the update; all True before the first mask is made.
    gradient : tensor or None
        Of the masked forward, for all entries; given where the method asks for it, reduced over
        workers if the caller does that.
    density : float
        Asked for in the end.
    structure : Structure
    draw : callable
        ``draw(purpose)`` gives a random int32 score a unit, by seed, name, step and purpose alone.
    """

    name: str
    weight: torch.Tensor
    mask: torch.Tensor
    gradient: torch.Tensor | None
    density: float
    structure: Structure
    draw: Callable[[str], torch.Tensor]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weight."""
        return tuple(self.weight.shape)

    def magnitude(self) -> torch.Tensor:
        """Magnitude of each unit: absolute weight, or root mean square of a larger unit."""
        return self.structure.pool(self._ranked("weights", self.weight))

    def slope(self) -> torch.Tensor:
        """Size of each unit's gradient, in the same way; the layer must have one."""
        assert self.gradient is not None
        return self.structure.pool(self._ranked("gradient", self.gradient))

    def sensitivity(self) -> torch.Tensor:
        """|weight x gradient| of each element, in float64; 0 for a layer without a gradient."""
        if self.gradient is None:
            return torch.zeros(self.shape, dtype=torch.float64, device=self.weight.device)
        # float32 would lose the product of a small weight and a small gradient.
        product = self.weight.double() * self.gradient.double()
        return self._ranked("products of weight and gradient", product).abs()

    def _ranked(self, what: str, values: torch.Tensor) -> torch.Tensor:
        if bool(values.isnan().any()):
            raise ValueError(f"{self.name!r}: NaN in its {what}, masks cannot be chosen by that")
        return values


class Method(Cited, ABC):
    """Which weights are live at first, and later.

    Attributes
    ----------
    name : str
    begins_with_gradient, updates_with_gradient : bool
        Whether `allot` and `begin`, and `update`, look at gradients.
    """

    name: ClassVar[str]
    begins_with_gradient: ClassVar[bool] = False
    updates_with_gradient: ClassVar[bool] = False

    @abstractmethod
    def begin(self, layer: Layer, schedule: Schedule) -> torch.Tensor:
        """Mask at the start: bool tensor, shape of the weight."""

    def update(self, layer: Layer, schedule: Schedule, step: int) -> torch.Tensor | None:
        """Mask after an update at `step`, or None where it stays."""
        return None

    def lowest(self, density: float) -> float:
        """Lowest density on the way to `density`: masks found in a model may be as sparse."""
        return density

    def highest(self, density: float, schedule: Schedule) -> float:
        """Highest density on the way to `density`."""
        return density

    def gradients(self, weights: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Gradients to begin with; default: those that the last backward pass left."""
        return [weight.grad for weight in weights]

    def allot(self, layers: Sequence[Layer]) -> dict[str, float]:
        """Final density of each layer by name, where the method has its own view of it."""
        return {layer.name: layer.density for layer in layers}


def swap(
    layer: Layer, schedule: Schedule, step: int, *, keep: torch.Tensor, grow: torch.Tensor
) -> torch.Tensor | None:
    """Replace the share of live units that the schedule says."""
    live = int(layer.structure.gather(layer.mask).sum())
    drop = int(schedule.fraction(step) * live)
    if not drop:
        return None
    return layer.structure.exchange(layer.mask, keep, grow, drop, layer.density)
