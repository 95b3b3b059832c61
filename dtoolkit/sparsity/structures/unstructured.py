"""Single weights."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.structures.base import Shape, Structure

__all__ = ["Unstructured"]


class Unstructured(Structure):
    """Every weight is a unit of its own."""

    @property
    def name(self) -> str:
        """``"unstructured"``."""
        return "unstructured"

    def arrangement(self, shape: Shape) -> Shape:
        """Shape of the weight itself."""
        return shape

    def fold(self, tensor: torch.Tensor) -> torch.Tensor:
        """One element a unit."""
        return tensor.unsqueeze(-1)

    def spread(self, units: torch.Tensor, shape: Shape) -> torch.Tensor:
        """The units are the elements."""
        return units

    def pool(self, values: torch.Tensor) -> torch.Tensor:
        """Absolute values."""
        return values.abs()
