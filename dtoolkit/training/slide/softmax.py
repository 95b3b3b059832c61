"""The loss of a layer of which each sample computes a part: softmax over the active neurons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from dtoolkit.training.slide.gradient import RowGradient

if TYPE_CHECKING:
    from dtoolkit.training.slide.labels import Labels
    from dtoolkit.training.slide.output import OutputLinear

__all__ = ["Alone", "Peers", "active_loss"]


class Peers(Protocol):
    """Those that hold the other neurons of a layer: what is exchanged with them.

    Each call is collective; a layer makes them in this order.
    """

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        """Largest of all peers' `values`, element by element, shape (samples,)."""

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of all peers' `values`, element by element: (samples,), then (samples, d)."""


class Alone:
    """Nobody else holds neurons."""

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        """`values`."""
        return values

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """`values`."""
        return values


def active_loss(
    layer: OutputLinear, hidden: torch.Tensor, labels: Labels, peers: Peers
) -> torch.Tensor:
    """Cross-entropy of each sample over its active neurons, with a graph back to `hidden`."""
    losses: torch.Tensor = _ActiveLoss.apply(hidden, layer.weight, layer, labels, peers)
    return losses


class _ActiveLoss(torch.autograd.Function):
    """`weight` is an argument so that there is a graph where `hidden` needs none."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        layer: OutputLinear,
        labels: Labels,
        peers: Peers,
    ) -> torch.Tensor:
        own, work = hidden.detach(), layer.kernels
        active = layer.active(own, labels)
        values = layer.logits(own, active)
        largest = peers.maximum(work.maxima(active, values))
        total = peers.total(work.sums(active, values, largest))
        delta, losses = work.deltas(active, values, largest, total)
        ctx.layer, ctx.peers, ctx.kept = layer, peers, (active, delta, own)
        ctx.needs_hidden = hidden.requires_grad
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        active, delta, hidden = ctx.kept
        layer, work = ctx.layer, ctx.layer.kernels
        delta = work.scaled(active, delta, grads[0])
        layer.add_gradient(RowGradient(active, delta, hidden, layer.updated))
        if not ctx.needs_hidden:
            return None, None, None, None, None
        pulled = ctx.peers.total(work.pull(active, delta, layer.weight))
        return pulled, None, None, None, None
