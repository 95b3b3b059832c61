"""What is kept or dropped as a whole: the protocol of everything in ``sparsity/structures``.

A structure divides a weight into units and says which sets of units may be kept. Methods score
units and know nothing of shapes; a structure knows nothing of where scores come from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

from dtoolkit.sparsity.citing import Cited
from dtoolkit.sparsity.selection import largest

__all__ = ["Structure"]

Shape = tuple[int, ...]


class Structure(Cited, ABC):
    """Units of a weight, and the choice among them.

    A plain structure defines `name`, `arrangement`, `fold` and `spread`; one with a rule of its own
    about which units go together also `admit`. One that chooses in several passes (columns first,
    then segments, then single elements) overrides `keep` and `exchange`.

    Attributes
    ----------
    limit : float
        Highest density of a sparse layer.
    default : float or None
        Density where none is asked for.
    """

    limit: float = 1.0
    default: float | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in tables and checkpoints, with its sizes."""

    @abstractmethod
    def arrangement(self, shape: Shape) -> Shape:
        """Shape of a tensor with one entry a unit."""

    @abstractmethod
    def fold(self, tensor: torch.Tensor) -> torch.Tensor:
        """Lay the elements of each unit along one more, last dimension; what is missing is 0."""

    @abstractmethod
    def spread(self, units: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Give every element what its unit has: the mask of a weight, from that of its units."""

    def admit(
        self, candidates: torch.Tensor, scores: torch.Tensor, kept: torch.Tensor, density: float
    ) -> torch.Tensor:
        """Of the candidates those that may be kept together, beside what is kept already.

        Parameters
        ----------
        candidates, kept : bool tensor, one entry a unit
        scores : tensor, one entry a unit
        density : float
            That the layer is to have.

        Returns
        -------
        bool tensor, one entry a unit
        """
        return candidates

    def present(self, shape: Shape, device: torch.device) -> torch.Tensor:
        """Units that hold any element: bool tensor, one entry a unit."""
        return torch.ones(self.arrangement(shape), dtype=torch.bool, device=device)

    def size(self, shape: Shape) -> int:
        """Number of units."""
        return math.prod(self.arrangement(shape))

    def count(self, shape: Shape, density: float) -> int:
        """Units kept at a density: rounded to the nearest, at least 1 unless the density is 0."""
        if density <= 0:
            return 0
        return min(max(1, round(density * self.size(shape))), self.size(shape))

    def slack(self, shape: Shape) -> int:
        """By how many a mask may miss :meth:`count`: 0, but where units are chosen in bundles."""
        return 0

    def pool(self, values: torch.Tensor) -> torch.Tensor:
        """Score of each unit: root of the mean square of its elements; float32 or wider."""
        wide = values if values.dtype == torch.float64 else values.float()
        members = self.fold(torch.ones_like(values, dtype=torch.bool)).sum(-1)
        # Scaled by the largest: squares of small gradients would all become 0.
        peak = wide.abs().amax() if wide.numel() else wide.new_ones(())
        scale = torch.where((peak > 0) & peak.isfinite(), peak, torch.ones_like(peak))
        squares = self.fold(wide / scale).square().sum(-1)
        return (squares / members.clamp(min=1)).sqrt() * scale

    def gather(self, mask: torch.Tensor) -> torch.Tensor:
        """Units with a live element: bool tensor, one entry a unit."""
        return self.fold(mask).any(-1)

    def keep(
        self,
        scores: torch.Tensor,
        shape: Shape,
        density: float,
        among: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Keep the units with the largest scores.

        Parameters
        ----------
        scores : tensor, one entry a unit
        shape : tuple of int
            Of the weight.
        density : float
        among : bool tensor, shape of the weight, optional
            What may be kept; default: all.

        Returns
        -------
        bool tensor, shape of the weight
            Of exactly :meth:`count` units, or of all that may be kept if those are fewer.
        """
        present = self.present(shape, scores.device)
        candidates = present if among is None else self.gather(among)
        admitted = self.admit(candidates, scores, torch.zeros_like(present), density)
        count = min(self.count(shape, density), int(admitted.sum()))
        return self.spread(largest(scores, count, admitted), shape)

    def exchange(
        self,
        mask: torch.Tensor,
        keep: torch.Tensor,
        grow: torch.Tensor,
        drop: int,
        density: float,
    ) -> torch.Tensor:
        """Drop live units and grow others.

        Parameters
        ----------
        mask : bool tensor, shape of the weight
        keep, grow : tensor, one entry a unit
            Live units with the smallest `keep` go; of all that are not live then (those just
            dropped too, as in RigL) the ones with the largest `grow` come.
        drop : int
            Units to drop.
        density : float
            That the layer is to have afterwards.

        Returns
        -------
        bool tensor, shape of the weight
        """
        shape = tuple(mask.shape)
        live = self.gather(mask)
        there, wanted = int(live.sum()), self.count(shape, density)
        stay = largest(keep, min(there - min(drop, there), wanted), live)
        candidates = self.present(shape, mask.device) & ~stay
        admitted = self.admit(candidates, grow, stay, density)
        more = min(wanted - int(stay.sum()), int(admitted.sum()))
        return self.spread(stay | largest(grow, more, admitted), shape)
