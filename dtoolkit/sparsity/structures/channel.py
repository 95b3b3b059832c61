"""Whole output channels."""

from __future__ import annotations

import torch

from dtoolkit.sparsity.structures.base import Shape, Structure

__all__ = ["Channel"]


class Channel(Structure):
    """All that lies at one index of dimension 0: an output channel, a row of a linear layer.

    (Of a transposed convolution dimension 0 is that of the inputs.) Nothing is cut: the weights of
    a dropped channel are 0, its bias is left alone.

    Li et al., "Pruning filters for efficient ConvNets", ICLR 2017.
    """

    citation = "H. Li et al., Pruning filters for efficient ConvNets, ICLR 2017"

    @property
    def name(self) -> str:
        """``"channel"``."""
        return "channel"

    def arrangement(self, shape: Shape) -> Shape:
        """One entry a channel."""
        return (shape[0],)

    def fold(self, tensor: torch.Tensor) -> torch.Tensor:
        """All elements of a channel."""
        return tensor.reshape(tensor.shape[0], -1)

    def spread(self, units: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Every element of a channel is as the channel."""
        return units.view(-1, *[1] * (len(shape) - 1)).expand(shape).contiguous()
