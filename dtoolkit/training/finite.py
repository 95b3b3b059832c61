"""Gradients that are not finite are found on the rank that made them, before anybody gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["check_gradients"]


def check_gradients(replica: Replica, step: int) -> None:
    """Refuse gradients that are not finite; one pass over them.

    Raises
    ------
    FloatingPointError
        The text names parameter, rank and step.
    """
    have = [(name, value.grad) for name, value in replica.parameters if value.grad is not None]
    if not have:
        return
    largest = torch._foreach_norm([grad for _, grad in have], float("inf"))
    bad = ~torch.isfinite(torch.stack([one.double() for one in largest]))
    if bool(bad.any()):
        name = have[int(bad.nonzero()[0])][0]
        raise FloatingPointError(
            f"the gradient of {name} is not finite on rank {replica.rank} at step {step}"
        )
