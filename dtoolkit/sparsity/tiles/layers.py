"""Layers that look at their mask: what ordinary ones become when a model is compiled.

They are the same objects with the same weights, masks, names and hooks; only their class is
another, as with ``torch.nn.utils.parametrize``. Whichever kernel runs, masked weights get no
gradient unless asked for.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from dtoolkit.sparsity.tiles.execution import Execution, only_live
from dtoolkit.sparsity.tiles.product import multiply_packed, tile_linear
from dtoolkit.sparsity.tiles.semi_structured import semi_structured_linear

__all__ = ["COMPILED", "SparseConv2d", "SparseLinear", "sparse_class"]


class _Sparse:
    """What compiled layers share."""

    own_forward: ClassVar[bool] = True
    ordinary: ClassVar[type[nn.Module]]
    _execution: Execution
    weight: torch.Tensor
    weight_mask: torch.Tensor

    def extra_repr(self) -> str:
        """Arguments of the layer, and its kernel."""
        words: str = super().extra_repr()  # type: ignore[misc]
        return f"{words}, kernel={self._execution.kernel!r}"

    def _masked_weight(self) -> torch.Tensor:
        """The weight for a dense kernel."""
        if self._execution.dense_gradient or not torch.is_grad_enabled():
            return self.weight
        return only_live(self.weight, self.weight_mask)


class SparseLinear(_Sparse, nn.Linear):
    """A linear layer that multiplies by the live weights alone, or by all where that is faster.

    Attributes
    ----------
    ordinary : type
        What it was before.
    """

    ordinary = nn.Linear

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As ``torch.nn.Linear``.

        Parameters
        ----------
        input : tensor, shape (..., in_features)

        Returns
        -------
        tensor, shape (..., out_features)
        """
        execution, mask = self._execution, self._buffers.get("weight_mask")
        if mask is None:  # taken out since
            return functional.linear(input, self.weight, self.bias)
        if execution.kernel == "semi-structured":
            return semi_structured_linear(input, self.weight, self.bias, mask, execution)
        if execution.kernel == "dense":
            return functional.linear(input, self._masked_weight(), self.bias)
        return self._tiles(input, mask)

    def _tiles(self, input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        execution = self._execution
        layout = execution.layout(mask)
        alone = execution.frozen and not torch.is_grad_enabled()
        if alone and input.dtype == self.weight.dtype:
            packed = execution.packed(self.weight, mask, layout)
            flat = input.reshape(-1, input.shape[-1])
            out = multiply_packed(flat, packed, self.bias, layout)
            return out.view(*input.shape[:-1], len(self.weight))
        return tile_linear(
            input, self.weight, self.bias, layout, dense_gradient=execution.dense_gradient
        )


class SparseConv2d(_Sparse, nn.Conv2d):
    """A convolution over live channels alone, or over tiles of its unfolded inputs.

    Attributes
    ----------
    ordinary : type
        What it was before.
    """

    ordinary = nn.Conv2d

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As ``torch.nn.Conv2d``.

        Parameters
        ----------
        input : tensor, shape (images, in_channels, height, width) or without images

        Returns
        -------
        tensor, shape (images, out_channels, height, width) or without images
        """
        execution, mask = self._execution, self._buffers.get("weight_mask")
        if mask is None:
            return self._conv_forward(input, self.weight, self.bias)
        if input.dim() == 3:
            return self.forward(input.unsqueeze(0)).squeeze(0)
        if execution.kernel == "channels":
            return self._over_channels(input, mask)
        if execution.kernel == "tiles":
            return self._tiles(input, mask)
        return self._conv_forward(input, self._masked_weight(), self.bias)

    def _over_channels(self, input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Convolve live input channels into live output channels."""
        outputs, inputs, holes = self._execution.kept("channels", (mask,), lambda: _channels(mask))
        weight = self._masked_weight().index_select(0, outputs).index_select(1, inputs)
        if holes is not None:
            weight = weight.masked_fill(holes, 0)
        bias = None if self.bias is None else self.bias.index_select(0, outputs)
        if len(inputs) < input.shape[1]:
            input = input.index_select(1, inputs)
        out = self._conv_forward(input, weight, bias)
        if len(outputs) == self.out_channels:
            return out
        shape = (out.shape[0], self.out_channels, *out.shape[2:])
        if self.bias is None:
            whole = out.new_zeros(shape)
        else:
            whole = self.bias.to(out.dtype).view(-1, 1, 1).expand(shape).clone()
        return whole.index_copy(1, outputs, out)

    def _tiles(self, input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unfold what each output sees, and multiply tile by tile."""
        execution = self._execution
        assert not isinstance(self.padding, str)
        arguments: Any = (self.kernel_size, self.dilation, self.padding, self.stride)
        seen = functional.unfold(input, *arguments).transpose(1, 2)
        out = tile_linear(
            seen,
            self.weight.flatten(1),
            self.bias,
            execution.layout(mask),
            dense_gradient=execution.dense_gradient,
        )
        sizes = [
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, dilation, padding, stride in zip(
                input.shape[2:], *arguments, strict=True
            )
        ]
        return out.transpose(1, 2).contiguous().view(len(input), self.out_channels, *sizes)


COMPILED: tuple[type[SparseLinear | SparseConv2d], ...] = (SparseLinear, SparseConv2d)


def sparse_class(module: nn.Module) -> type[SparseLinear | SparseConv2d] | None:
    """What a module becomes; None for what has a forward pass of its own."""
    # Subclasses are left alone: the output layer of attention is one that is never called.
    return next((made for made in COMPILED if made.ordinary is type(module)), None)


def _channels(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Live output channels, live input channels, and what is masked between them."""
    outputs = mask.flatten(1).any(1).nonzero().view(-1)
    inputs = mask.transpose(0, 1).flatten(1).any(1).nonzero().view(-1)
    holes = ~mask.index_select(0, outputs).index_select(1, inputs)
    return outputs, inputs, holes if bool(holes.any()) else None
