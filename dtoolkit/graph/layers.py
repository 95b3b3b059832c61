"""Layers of graph networks over ranks: torch modules whose neighbours may lie elsewhere.

A layer is called with the rank's context, its part of the planned matrix and its rows; the weights
are the same on all ranks. What moves is the product with the matrix, forward and backward, along
its plan; the rest is local.
"""

from __future__ import annotations

import torch
from torch import nn

from dtoolkit.cluster import Context
from dtoolkit.graph.protocol import check_whole
from dtoolkit.graph.seeded import glorot
from dtoolkit.graph.sparse_rows import SparseRows
from dtoolkit.spmm import Operand, spmm

__all__ = ["GCNLayer", "SAGELayer"]


class GCNLayer(nn.Module):
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

    def __init__(self, ins: int, outs: int, *, bias: bool = True) -> None:
        super().__init__()
        ins, outs = check_whole("ins", ins), check_whole("outs", outs)
        self.weight = nn.Parameter(torch.empty(ins, outs))
        self.bias = nn.Parameter(torch.empty(outs)) if bias else None
        self.reset(0, "")

    def reset(self, seed: int, name: str) -> None:
        """Draw the weights anew; the bias becomes 0."""
        _fill(self.weight, seed, f"{name}.weight")
        _fill(self.bias, seed, f"{name}.bias")

    def forward(self, ctx: Context, A: Operand, X: torch.Tensor | SparseRows) -> torch.Tensor:
        """Rows of the result that are here.

        Parameters
        ----------
        ctx : Context
        A : Operand
            This rank's part of the planned, normalised adjacency.
        X : tensor or SparseRows, shape (rows here, ins)
        """
        return _heard(ctx, A, X, self.weight) + (0 if self.bias is None else self.bias)

    def extra_repr(self) -> str:
        """Arguments, for the module's text."""
        ins, outs = self.weight.shape
        return f"{ins}, {outs}, bias={self.bias is not None}"


class SAGELayer(nn.Module):
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

    def __init__(self, ins: int, outs: int, *, bias: bool = True) -> None:
        super().__init__()
        ins, outs = check_whole("ins", ins), check_whole("outs", outs)
        self.own = nn.Parameter(torch.empty(ins, outs))
        self.heard = nn.Parameter(torch.empty(ins, outs))
        self.bias = nn.Parameter(torch.empty(outs)) if bias else None
        self.reset(0, "")

    def reset(self, seed: int, name: str) -> None:
        """Draw the weights anew; the bias becomes 0."""
        _fill(self.own, seed, f"{name}.own")
        _fill(self.heard, seed, f"{name}.heard")
        _fill(self.bias, seed, f"{name}.bias")

    def forward(self, ctx: Context, A: Operand, X: torch.Tensor | SparseRows) -> torch.Tensor:
        """Rows of the result that are here; parameters as for :class:`GCNLayer`."""
        heard = _heard(ctx, A, X, self.heard)
        return X @ self.own + heard + (0 if self.bias is None else self.bias)

    def extra_repr(self) -> str:
        """Arguments, for the module's text."""
        ins, outs = self.own.shape
        return f"{ins}, {outs}, bias={self.bias is not None}"


def _heard(ctx: Context, A: Operand, X: torch.Tensor | SparseRows, W: torch.Tensor) -> torch.Tensor:
    """``A X W``, in the order in which the fewer columns travel."""
    if isinstance(X, SparseRows) or W.shape[1] <= W.shape[0]:
        return spmm(ctx, A, X @ W)
    return spmm(ctx, A, X) @ W


def _fill(parameter: nn.Parameter | None, seed: int, name: str) -> None:
    if parameter is None:
        return
    with torch.no_grad():
        if parameter.dim() == 1:
            parameter.zero_()
        else:
            parameter.copy_(glorot((parameter.shape[0], parameter.shape[1]), seed, name))
