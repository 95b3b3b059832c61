"""Graph networks of a few layers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import nn

from dtoolkit.cluster import Context
from dtoolkit.graph.layers import GCNLayer, SAGELayer
from dtoolkit.graph.protocol import check_whole
from dtoolkit.graph.seeded import NodeDropout
from dtoolkit.graph.sparse_rows import SparseRows
from dtoolkit.spmm import Operand

__all__ = ["GCN", "GraphNetwork", "GraphSAGE"]


class GraphNetwork(nn.Module):
    """Layers with dropout before each and ReLU between them; a base for those below.

    Parameters
    ----------
    features, classes : int
        Columns of the features, and of the result.
    hidden : int
        Columns between layers.
    layers : int
    dropout : float
        From 0 up to, but not including, 1.

    Raises
    ------
    ValueError
        If one of them is out of range.

    Attributes
    ----------
    layer : type
        Of the layers.
    normalise : str
        How the adjacency is normalised for it, as `train_full_batch` takes it.
    takes_sparse : bool
        Sparse features may come as :class:`SparseRows`.
    """

    layer: ClassVar[Any] = GCNLayer
    normalise: ClassVar[str] = "symmetric"
    takes_sparse: ClassVar[bool] = True
    citation: ClassVar[str] = ""

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        hidden: int = 16,
        layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        numbers = {"features": features, "classes": classes, "hidden": hidden, "layers": layers}
        features, classes, hidden, layers = (check_whole(*item) for item in numbers.items())
        real = isinstance(dropout, Real) and not isinstance(dropout, bool)
        if not real or not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout!r}: wanted 0 <= dropout < 1")
        widths = [features, *[hidden] * (layers - 1), classes]
        self.layers = nn.ModuleList(self.layer(a, b) for a, b in pairwise(widths))
        self.dropouts = nn.ModuleList(NodeDropout(dropout) for _ in range(layers))

    def forward(self, ctx: Context, A: Operand, X: torch.Tensor | SparseRows) -> torch.Tensor:
        """Scores of each class for the nodes that are here: shape (rows here, classes)."""
        hidden = self.layers[0](ctx, A, self.dropouts[0](X))
        for dropout, layer in zip(self.dropouts[1:], self.layers[1:], strict=True):
            hidden = layer(ctx, A, dropout(torch.relu(hidden)))
        return hidden

    def decayed(self) -> Iterator[nn.Parameter]:
        """The parameters that weight decay is for: those of the first layer."""
        return self.layers[0].parameters()

    def cite(self) -> str:
        """Source of the model, as text."""
        return self.citation


class GCN(GraphNetwork):
    """Graph convolutional network of Kipf and Welling (ICLR 2017)."""

    citation = (
        'T. N. Kipf and M. Welling, "Semi-supervised classification with graph convolutional '
        'networks", ICLR 2017, arXiv 1609.02907.'
    )


class GraphSAGE(GraphNetwork):
    """GraphSAGE with the mean over all neighbours (Hamilton, Ying and Leskovec, NeurIPS 2017)."""

    layer = SAGELayer
    normalise = "mean"
    citation = (
        'W. Hamilton, R. Ying and J. Leskovec, "Inductive representation learning on large '
        'graphs", NeurIPS 2017, arXiv 1706.02216.'
    )
