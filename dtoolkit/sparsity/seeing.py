"""A weight as methods see it."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.drawing import draw
from dtoolkit.sparsity.methods import Layer
from dtoolkit.sparsity.sites import Site
from dtoolkit.sparsity.structures import Structure

__all__ = ["see"]


def see(
    site: Site,
    gradient: torch.Tensor | None,
    *,
    density: float,
    structure: Structure,
    seed: int,
    step: int,
) -> Layer:
    """Make the view of a weight that a method gets: tensors as they are, and random scores.

    Parameters
    ----------
    site : Site
        Where no mask has been made yet all is live.
    gradient : tensor or None
    density : float
        Asked for in the end.
    structure : Structure
    seed, step : int
        What random scores depend on, with the weight's key and the purpose.

    Returns
    -------
    Layer
    """
    weight, mask = site.weight.detach(), site.carried

    def drawn(purpose: str) -> torch.Tensor:
        return draw(
            structure.arrangement(tuple(weight.shape)),
            seed=seed,
            name=site.key,
            step=step,
            purpose=purpose,
            device=weight.device,
        )

    return Layer(
        name=site.name,
        weight=weight,
        mask=torch.ones_like(weight, dtype=torch.bool) if mask is None else mask,
        gradient=gradient,
        density=density,
        structure=structure,
        draw=drawn,
    )
