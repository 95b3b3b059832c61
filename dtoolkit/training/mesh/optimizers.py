"""Optimizers of a stage whose gradients come late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

__all__ = ["OPTIMIZERS", "made_for"]

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "nadam": partial(
        torch.optim.NAdam,
        betas=(0.99, 0.999),
        weight_decay=0.01,
        decoupled_weight_decay=True,
        momentum_decay=0.004,
    ),
    "adamw": partial(torch.optim.AdamW, betas=(0.9, 0.999), weight_decay=0.01),
}
"""By name: the one whose large momentum looks ahead (AsyncMesh, arXiv 2601.22442), and AdamW."""


def made_for(
    name: str, parameters: Sequence[nn.Parameter], like: torch.optim.Optimizer
) -> tuple[torch.optim.Optimizer, Callable[[], None]]:
    """An optimizer of some parameters that follows the learning rates of another.

    Parameters
    ----------
    name : str
        Of :data:`OPTIMIZERS`.
    parameters : sequence of nn.Parameter
    like : torch.optim.Optimizer
        Which has these parameters, and whose groups and learning rates count.

    Returns
    -------
    optimizer : torch.optim.Optimizer
    follow : callable
        Takes over the learning rates as they are now.
    """
    mine = {id(value) for value in parameters}
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for group in like.param_groups:
        here = [value for value in group["params"] if id(value) in mine]
        if here:
            pairs.append(({"params": here, "lr": float(group["lr"])}, group))
    optimizer = OPTIMIZERS[name]([own for own, _ in pairs])
    followed = list(zip(optimizer.param_groups, (group for _, group in pairs), strict=True))

    def follow() -> None:
        for own, group in followed:
            own["lr"] = float(group["lr"])

    return optimizer, follow
