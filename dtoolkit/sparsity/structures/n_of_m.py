"""N of M: in every group of M neighbours along the inputs at most N are kept."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from dtoolkit.sparsity.selection import largest, ranks
from dtoolkit.sparsity.structures.base import Shape, Structure

__all__ = ["NofM"]


class NofM(Structure):
    """At most N live weights in each group of M that follow each other along dimension 1.

    Dimension 1 is that of the inputs (input channels of a convolution), as semi-structured kernels
    want it. A layer of density N/M has exactly N in every full group; at a lower density the count
    is exact all the same and no group exceeds N; a higher one is refused, but for layers that are
    left dense. While a density falls from 1 (gradual pruning) groups hold ceil(density M). The last
    group of a row is shorter where M does not divide it.

    Mishra et al., "Accelerating sparse deep neural networks", 2021.

    Parameters
    ----------
    n : int or None
        None: by density, ceil(density M).
    m : int
    """

    citation = "A. Mishra et al., Accelerating sparse deep neural networks, 2021"

    def __init__(self, n: int | None = 2, m: int = 4) -> None:
        if m < 2 or (n is not None and not 1 <= n <= m):
            raise ValueError(f"n={n}, m={m}: wanted 1 <= n <= m and m of 2 or more")
        self.n, self.m = n, m
        self.limit = 1.0 if n is None else n / m
        self.default = None if n is None else n / m

    @property
    def name(self) -> str:
        """Such as ``"2:4"``; ``":4"`` where N follows from the density."""
        return f"{'' if self.n is None else self.n}:{self.m}"

    def arrangement(self, shape: Shape) -> Shape:
        """Groups x M, the last group of a row filled up with places that hold no weight."""
        rows = math.prod(shape[:1] + shape[2:])
        return (rows * -(-shape[1] // self.m), self.m)

    def size(self, shape: Shape) -> int:
        """Number of weights."""
        return math.prod(shape)

    def present(self, shape: Shape, device: torch.device) -> torch.Tensor:
        """Places that hold a weight."""
        return self.gather(torch.ones(shape, dtype=torch.bool, device=device))

    def fold(self, tensor: torch.Tensor) -> torch.Tensor:
        """One element a unit, in groups along dimension 1."""
        rows = tensor.movedim(1, -1)
        missing = -rows.shape[-1] % self.m
        if missing:
            rows = functional.pad(rows, (0, missing))
        return rows.reshape(-1, self.m, 1)

    def spread(self, units: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Put the places back where they came from."""
        outer = shape[:1] + shape[2:]
        rows = units.reshape(*outer, -1)[..., : shape[1]]
        return rows.movedim(-1, 1).contiguous()

    def pool(self, values: torch.Tensor) -> torch.Tensor:
        """Absolute values, in groups."""
        return self.fold(values.abs()).squeeze(-1)

    def admit(
        self, candidates: torch.Tensor, scores: torch.Tensor, kept: torch.Tensor, density: float
    ) -> torch.Tensor:
        """The best of each group, as many as it has room for."""
        # A hair below: 0.3 * 10 must not become 4 by rounding.
        room = max(self.n or 0, math.ceil(density * self.m - 1e-9)) - kept.sum(1, keepdim=True)
        return candidates & (ranks(scores, candidates) < room)

    def keep(
        self,
        scores: torch.Tensor,
        shape: Shape,
        density: float,
        among: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Keep the largest scores that groups have room for.

        Above N/M, and where N follows from the density, groups hold floor(density M) at least: one
        that was emptied early could not be brought to N later.
        """
        if self.n is not None and density <= self.limit:
            return super().keep(scores, shape, density, among)
        floor = math.floor(density * self.m + 1e-9)
        present = self.present(shape, scores.device)
        candidates = present if among is None else self.gather(among)
        count = min(self.count(shape, density), int(candidates.sum()))
        sure = candidates & (ranks(scores, candidates) < floor)
        if int(sure.sum()) > count:
            sure = largest(scores, count, sure)
        admitted = self.admit(candidates, scores, torch.zeros_like(present), density) & ~sure
        more = min(count - int(sure.sum()), int(admitted.sum()))
        return self.spread(sure | largest(scores, more, admitted), shape)
