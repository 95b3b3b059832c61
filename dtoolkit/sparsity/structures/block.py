"""Blocks of outputs x inputs."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from dtoolkit.sparsity.structures.base import Shape, Structure

__all__ = ["Block"]


class Block(Structure):
    """Blocks of `rows` outputs by `columns` inputs; a convolution's kernel is whole in its block.

    Scored by the root of the mean square, so that the smaller blocks at the edges of a weight whose
    sides they do not divide compete on equal terms.

    Gray, Radford and Kingma, "GPU kernels for block-sparse weights", 2017.

    Parameters
    ----------
    rows, columns : int
        Along dimensions 0 and 1.
    """

    citation = "S. Gray, A. Radford and D. P. Kingma, GPU kernels for block-sparse weights, 2017"

    def __init__(self, rows: int = 4, columns: int = 4) -> None:
        if rows < 1 or columns < 1:
            raise ValueError(f"rows={rows}, columns={columns}: wanted 1 or more")
        self.rows, self.columns = rows, columns

    @property
    def name(self) -> str:
        """Such as ``"4x4"``."""
        return f"{self.rows}x{self.columns}"

    def arrangement(self, shape: Shape) -> Shape:
        """Blocks along dimension 0 x blocks along dimension 1."""
        return (-(-shape[0] // self.rows), -(-shape[1] // self.columns))

    def fold(self, tensor: torch.Tensor) -> torch.Tensor:
        """All elements of a block."""
        high, wide = self.arrangement(tuple(tensor.shape))
        flat = tensor.reshape(*tensor.shape[:2], -1)
        below = high * self.rows - flat.shape[0]
        right = wide * self.columns - flat.shape[1]
        if below or right:
            flat = functional.pad(flat, (0, 0, 0, right, 0, below))
        cut = flat.reshape(high, self.rows, wide, self.columns, -1)
        return cut.transpose(1, 2).reshape(high, wide, -1)

    def spread(self, units: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Every element of a block is as the block."""
        tall = units.repeat_interleave(self.rows, 0)[: shape[0]]
        flat = tall.repeat_interleave(self.columns, 1)[:, : shape[1]]
        rest = math.prod(shape[2:])
        return flat.unsqueeze(-1).expand(*shape[:2], rest).reshape(shape)
