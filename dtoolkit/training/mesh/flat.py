"""Weights laid end to end, so that a version of them is one copy and a choice of them one index."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["FlatWeights"]


class FlatWeights:
    """Learned parameters in one flat tensor a dtype; they stay the objects they are.

    Parameters
    ----------
    parameters : sequence of (str, nn.Parameter)
        Their memory is replaced by places in the flat tensors.

    Attributes
    ----------
    parameters : list of (str, nn.Parameter)
    buffers : dict of dtype to torch.Tensor
        The flat tensors: what is written there is in the parameters at once.
    tensors : dict of dtype to list of (str, int)
        Name and elements of what lies in each.
    """

    def __init__(self, parameters: Sequence[tuple[str, nn.Parameter]]) -> None:
        self.parameters = list(parameters)
        self.buffers: dict[torch.dtype, torch.Tensor] = {}
        self.tensors: dict[torch.dtype, list[tuple[str, int]]] = {}
        for dtype in dict.fromkeys(value.dtype for _, value in self.parameters):
            mine = [(name, value) for name, value in self.parameters if value.dtype == dtype]
            self.tensors[dtype] = [(name, value.numel()) for name, value in mine]
            self.buffers[dtype] = torch.cat([value.detach().reshape(-1) for _, value in mine])
        for (_, value), piece in zip(self.parameters, self._cut(self.buffers), strict=True):
            value.data = piece

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return next(iter(self.buffers.values())).device

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(flat.nbytes for flat in self.buffers.values())

    def copies(self) -> list[torch.Tensor]:
        """A version: a copy of each parameter, in their order, ready to be differentiated by."""
        flats = {dtype: flat.clone() for dtype, flat in self.buffers.items()}
        return [piece.detach().requires_grad_() for piece in self._cut(flats)]

    def gradients(self) -> dict[torch.dtype, torch.Tensor]:
        """The parameters' gradients, flat; zeros where there is none."""
        grads: dict[torch.dtype, list[torch.Tensor]] = {dtype: [] for dtype in self.buffers}
        for _, value in self.parameters:
            one = torch.zeros_like(value) if value.grad is None else value.grad
            grads[value.dtype].append(one.detach().reshape(-1))
        return {dtype: torch.cat(pieces) for dtype, pieces in grads.items()}

    def load_gradients(self, flats: dict[torch.dtype, torch.Tensor]) -> None:
        """Take gradients as :meth:`gradients` gives them; they are not copied."""
        for (_, value), piece in zip(self.parameters, self._cut(flats), strict=True):
            value.grad = piece

    def _cut(self, flats: dict[torch.dtype, torch.Tensor]) -> list[torch.Tensor]:
        """Views of flat tensors, one a parameter."""
        pieces = {
            dtype: iter(torch.split(flat, [size for _, size in self.tensors[dtype]]))
            for dtype, flat in flats.items()
        }
        return [next(pieces[value.dtype]).view(value.shape) for _, value in self.parameters]
