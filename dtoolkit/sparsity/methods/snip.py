"""SNIP: layer densities by connection sensitivity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtoolkit.sparsity.methods.base import Layer
from dtoolkit.sparsity.methods.static import Static
from dtoolkit.sparsity.selection import largest_of_all

__all__ = ["SNIP"]


class SNIP(Static):
    """Random masks whose layer densities are those that SNIP finds on one batch ("SNIP ratio").

    Each weight's score is |weight x gradient| in the dense model (Lee, Ajanthan and Torr, "SNIP:
    single-shot network pruning based on connection sensitivity", ICLR 2019). The best of all layers
    together say how many weights each layer has, and no more: which ones is drawn (Liu et al., ICLR
    2022, section 3.2). The distribution says how many weights there are in all, and which layers it
    leaves dense.

    Where no gradient is there when the sparsifier is made, the model stays dense until its first
    step, whose gradient is then used.

    Parameters
    ----------
    loss : callable, optional
        ``loss()`` gives the loss of one batch, as a scalar tensor: gradients are taken when the
        sparsifier is made. Default: those that the last backward pass left in the weights.
    """

    name = "snip"
    citation = (
        "N. Lee, T. Ajanthan and P. Torr, SNIP: single-shot network pruning based on connection "
        "sensitivity, ICLR 2019; "
        "S. Liu et al., The unreasonable effectiveness of random pruning: return of the most naive "
        "baseline for sparse training, ICLR 2022"
    )
    begins_with_gradient = True

    def __init__(self, loss: Callable[[], torch.Tensor] | None = None) -> None:
        self.loss = loss

    def __getstate__(self) -> dict[str, Any]:
        """Without the loss, which is used once and holds a batch."""
        return {"loss": None}

    def gradients(self, weights: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Gradients of the loss, or those that are there."""
        if self.loss is None:
            return super().gradients(weights)
        with torch.enable_grad():
            return list(torch.autograd.grad(self.loss(), list(weights), allow_unused=True))

    def allot(self, layers: Sequence[Layer]) -> dict[str, float]:
        """Densities by sensitivity; layers that are dense, or empty, on purpose stay so."""
        result = {layer.name: layer.density for layer in layers}
        rest = [layer for layer in layers if 0 < layer.density < 1]
        budget = round(sum(layer.density * _size(layer) for layer in rest))
        while rest:
            counts = dict(zip((layer.name for layer in rest), _counts(rest, budget), strict=True))
            limits = {r.name: int(r.structure.limit * _size(r)) for r in rest}
            full = [layer for layer in rest if counts[layer.name] > limits[layer.name]]
            for layer in full or rest:
                result[layer.name] = min(counts[layer.name], limits[layer.name]) / _size(layer)
            if not full:
                break
            budget -= sum(limits[layer.name] for layer in full)
            rest = [layer for layer in rest if layer not in full]
        return result


def _counts(layers: Sequence[Layer], budget: int) -> list[int]:
    """Weights of each layer among the `budget` best of all, 1 at least."""
    scores = [layer.sensitivity() for layer in layers]
    counts = [int(marked.sum()) for marked in largest_of_all(scores, budget)]
    lifted = [max(count, 1) for count in counts]
    surplus = sum(lifted) - sum(counts)
    while surplus:
        most = max(range(len(lifted)), key=lifted.__getitem__)
        if lifted[most] == 1:
            break
        lifted[most] -= 1
        surplus -= 1
    return lifted


def _size(layer: Layer) -> int:
    return layer.weight.numel()
