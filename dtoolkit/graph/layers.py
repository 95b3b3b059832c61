"""Layers of graph networks over ranks: torch modules whose neighbours may lie elsewhere.

A layer is called with the rank's context, its part of the planned matrix and its rows; the weights
are the same on all ranks. What moves is the product with the matrix, forward and backward, along
its plan; the rest is local.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from dtoolkit.cluster import Context
from dtoolkit.graph.protocol import check_whole
from dtoolkit.graph.seeded import glorot
from dtoolkit.graph.sparse_rows import SparseRows
from dtoolkit.spmm import Operand, spmm

__all__ = ["GCNLayer", "SAGELayer"]


class _Layer(nn.Module):
    """Weights of one shape, by name, and a bias.

    Parameters
    ----------
    ins, outs : int
        Columns of X and of the result.
    bias : bool
    """

    weights: ClassVar[tuple[str, ...]]

    def __init__(self, ins: int, outs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.ins, self.outs = check_whole("ins", ins), check_whole("outs", outs)
        for name in self.weights:
            self.register_parameter(name, nn.Parameter(torch.empty(self.ins, self.outs)))
        self.bias = nn.Parameter(torch.empty(self.outs)) if bias else None
        self.reset(0, "")

    @torch.no_grad()
    def reset(self, seed: int, name: str) -> None:
        """Draw the weights anew; the bias becomes 0."""
        for weight in self.weights:
            drawn = glorot((self.ins, self.outs), seed, f"{name}.{weight}")
            self.get_parameter(weight).copy_(drawn)
        if self.bias is not None:
            self.bias.zero_()

    def extra_repr(self) -> str:
        """Arguments, for the module's text."""
        return f"{self.ins}, {self.outs}, bias={self.bias is not None}"

    def _biased(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if self.bias is None else rows + self.bias


class GCNLayer(_Layer):
    """``A X W + b``: what a node hears, summed with the weights of A.

    With :func:`dtoolkit.graph.symmetric` as A the layer of T. N. Kipf and M. Welling, "Semi-
    supervised classification with graph convolutional networks", ICLR 2017, arXiv 1609.02907. The
    narrower of X and X W travels.

    Parameters
    ----------
    ins, outs : int
        Columns of X and of the result.
    bias : bool
    """

    weights = ("weight",)
    weight: torch.Tensor

    def forward(self, ctx: Context, A: Operand, X: torch.Tensor | SparseRows) -> torch.Tensor:
        """Rows of the result that are here.

        Parameters
        ----------
        ctx : Context
        A : Operand
            This rank's part of the planned, normalised adjacency.
        X : tensor or SparseRows, shape (rows here, ins)
        """
        return self._biased(_heard(ctx, A, X, self.weight))


class SAGELayer(_Layer):
    """``X V + A X W + b``: a node's own features, and what it hears, each with weights of its own.

    With :func:`dtoolkit.graph.mean` as A the mean aggregator of W. Hamilton, R. Ying and J.
    Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017, arXiv 1706.02216,
    over all neighbours (theirs samples some) and without their normalisation of the result.

    Parameters
    ----------
    ins, outs : int
        Columns of X and of the result.
    bias : bool
    """

    weights = ("own", "heard")
    own: torch.Tensor
    heard: torch.Tensor

    def forward(self, ctx: Context, A: Operand, X: torch.Tensor | SparseRows) -> torch.Tensor:
        """Rows of the result that are here; parameters as for :class:`GCNLayer`."""
        return self._biased(X @ self.own + _heard(ctx, A, X, self.heard))


def _heard(ctx: Context, A: Operand, X: torch.Tensor | SparseRows, W: torch.Tensor) -> torch.Tensor:
    """``A X W``, in the order in which the fewer columns travel."""
    if isinstance(X, SparseRows) or W.shape[1] <= W.shape[0]:
        return spmm(ctx, A, X @ W)
    return spmm(ctx, A, X) @ W
