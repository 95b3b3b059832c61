"""Randomness that does not know the number of workers: drawn for names and global numbers alone.

Weights come from the seed and the name of the parameter; what dropout drops comes from the seed,
the name of the layer, the step, and the global node and column. Both by a counter (Philox), so that
a node's numbers are the same on whichever rank it lies.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from dtoolkit.arrays.philox import uniform_rows
from dtoolkit.graph.sparse_rows import SparseRows
from dtoolkit.philox import philox, seed_key

__all__ = ["NodeDropout", "at_step", "dropped", "glorot", "initialise", "key_of", "place"]

_WORD = 0xFFFFFFFF
_AT_ONCE = 1 << 16  # counters at a time: twice as fast as all at once, and a few MB


def key_of(seed: int, name: str) -> tuple[int, int]:
    """The key of Philox for a seed and a name, by a stable hash.

    Raises
    ------
    TypeError
        The seed is no integer.
    """
    return seed_key(seed, name, domain="dtoolkit.graph")


def glorot(shape: tuple[int, int], seed: int, name: str) -> torch.Tensor:
    """Uniform weights within sqrt(6 / (ins + outs)) (Glorot and Bengio 2010), float64.

    Parameters
    ----------
    shape : (ins, outs)
    seed : int
    name : str
        Of the parameter.
    """
    ins, outs = shape
    limit = (6 / max(ins + outs, 1)) ** 0.5
    numbers = uniform_rows(torch.arange(ins), outs, key_of(seed, f"init {name}"), torch.float64)
    return (2 * numbers - 1) * limit


def dropped(
    nodes: torch.Tensor, columns: torch.Tensor, share: float, *, key: tuple[int, int], step: int
) -> torch.Tensor:
    """Which entries are dropped at a step.

    Parameters
    ----------
    nodes, columns : int64 tensors that broadcast to one shape
        Global numbers of each entry's node and column.
    share : float
        Probability, from 0 to 1.
    key : two int
        As :func:`key_of` gives it.
    step : int

    Returns
    -------
    bool tensor of that shape
    """
    shape = torch.broadcast_shapes(nodes.shape, columns.shape)
    nodes, columns = torch.atleast_1d(nodes.expand(shape), columns.expand(shape))
    result = torch.empty(nodes.shape, dtype=torch.bool, device=nodes.device)
    height = max(1, _AT_ONCE // max(math.prod(nodes.shape[1:]), 1))
    pieces = zip(nodes.split(height), columns.split(height), result.split(height), strict=True)
    for node, column, drop in pieces:
        zero = torch.zeros(node.shape, dtype=torch.int64, device=node.device)
        counter = [zero + (node & _WORD), zero + (node >> 32), zero + column, zero + (step & _WORD)]
        torch.lt(philox(counter, key)[0], round(share * 2**32), out=drop)
    return result.view(shape)


class NodeDropout(nn.Module):
    """Dropout of features of nodes that is the same on any number of workers.

    Entries are set to 0 with probability `p`, the others divided by 1 - p; of sparse features only
    what is stored. Before the first use :func:`place` says which nodes are here, and before each
    step :func:`at_step` says its number; `train_full_batch` does both.

    Parameters
    ----------
    p : float
        From 0 up to, but not including, 1.

    Raises
    ------
    ValueError
        If p is out of range.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p={p!r}: wanted 0 <= p < 1")
        self.p = float(p)
        self.nodes: torch.Tensor | None = None
        self.key = (0, 0)
        self.step = 0

    def forward(self, X: Any) -> Any:
        """Drop entries of `X`, a tensor or :class:`SparseRows`; nothing in evaluation mode."""
        if not self.training or self.p == 0:
            return X
        if self.nodes is None:
            raise RuntimeError("NodeDropout does not know its nodes: call dt.graph.place first")
        if X.shape[0] != len(self.nodes):
            raise ValueError(
                f"NodeDropout: X has {X.shape[0]} rows; {len(self.nodes)} nodes are here"
            )
        if isinstance(X, SparseRows):
            drop = self._dropped(self.nodes[X.row], X.column)
            return X.with_data(torch.where(drop, 0.0, X.data / (1 - self.p)))
        columns = torch.arange(X.shape[1], device=X.device)
        return torch.where(self._dropped(self.nodes[:, None], columns), 0.0, X / (1 - self.p))

    def extra_repr(self) -> str:
        """Arguments, for the module's text."""
        return f"p={self.p}"

    def _dropped(self, nodes: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return dropped(nodes, columns, self.p, key=self.key, step=self.step)


def place(model: nn.Module, nodes: torch.Tensor, seed: int) -> None:
    """Tell every :class:`NodeDropout` of a model which nodes are here, and the seed.

    Parameters
    ----------
    model : nn.Module
    nodes : int64 tensor, shape (rows here,)
        Their global numbers.
    seed : int
    """
    for name, module in model.named_modules():
        if isinstance(module, NodeDropout):
            module.nodes = nodes
            module.key = key_of(seed, f"dropout {name}")


def at_step(model: nn.Module, step: int) -> None:
    """Tell every :class:`NodeDropout` of a model the number of the step."""
    for module in model.modules():
        if isinstance(module, NodeDropout):
            module.step = step


def initialise(model: nn.Module, seed: int) -> None:
    """Draw the weights of a model's graph layers anew, by seed and name.

    Parameters
    ----------
    model : nn.Module
        Its modules that have ``reset(seed, name)``, as the layers of this package have, are reset;
        others are left as they are.
    seed : int
    """
    for name, module in model.named_modules():
        reset = getattr(module, "reset", None)
        if callable(reset):
            reset(seed, name)
