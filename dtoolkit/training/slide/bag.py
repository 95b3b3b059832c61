"""A linear layer of sparse inputs, whose gradient touches the features that a batch has."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding_bag

from dtoolkit.sparsity.spreading import spread
from dtoolkit.training.slide.active import ActiveSets
from dtoolkit.training.slide.gradient import RowGradient
from dtoolkit.training.sparse_examples import Bags

__all__ = ["BagLinear"]

_CHUNKS = 16  # of a batch: units of work, whatever the number of threads
_SCALE = 0.1  # spread of the weights: samples of unit length give outputs of that size


class BagLinear(nn.Module):
    """A linear layer of :class:`~dtoolkit.training.sparse_examples.Bags`: an embedding bag.

    The weight has a row a feature, and a sample reads those of its own.

    Parameters
    ----------
    in_features, out_features : int
    factors : bool
        Keep the weight's gradient as a :class:`RowGradient` for :class:`RowSparseAdam`, as
        :class:`SlideLinear` does; False: a dense ``.grad``, for any optimizer and any exchange.

    Attributes
    ----------
    weight : Parameter, float32, shape (in_features, out_features)
        Drawn from torch's generator, normal with a deviation of 0.1.
    bias : Parameter, float32, shape (out_features,)
        Zeros at first.
    """

    def __init__(self, in_features: int, out_features: int, *, factors: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features, self.factors = in_features, out_features, factors
        self.weight = nn.Parameter(torch.empty(in_features, out_features).normal_(0, _SCALE))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, inputs: Bags) -> torch.Tensor:
        """Outputs of each sample, shape (samples, out_features)."""
        if self.factors:
            outputs: torch.Tensor = _Pooled.apply(self.weight, self.bias, self, inputs)
            return outputs
        return self.bias + _bagged(inputs, self.weight)

    def units(self, inputs: Bags) -> ActiveSets | None:
        """Units held here that each sample computes; None: all."""
        return None

    def updated(self) -> None:
        """Hear that the weights were updated: called by the optimizer."""

    def pool(self, inputs: Bags, units: ActiveSets | None = None) -> torch.Tensor:
        """The same without a graph; a layer of some columns gives just these, to the bit.

        Parameters
        ----------
        inputs : Bags
        units : ActiveSets, optional
            What :meth:`units` gave: all others are 0.
        """
        weight, bias = self.weight.detach(), self.bias.detach()
        if weight.device.type != "cpu":
            whole = bias + _bagged(inputs, weight)
            return whole if units is None else whole * _mask(units).to(whole.device)
        from dtoolkit.training.slide import bag_kernels

        height = max(1, -(-inputs.rows // _CHUNKS))
        if units is not None:
            out = torch.zeros(inputs.rows, weight.shape[1])
            arrays = (one.numpy() for one in (*inputs, weight, bias, out))
            sets = (units.indptr, units.ids)
            spread(bag_kernels.pool_some, -(-inputs.rows // height), height, *sets, *arrays)
            return out
        out = torch.empty(inputs.rows, weight.shape[1])
        arrays = (one.numpy() for one in (*inputs, weight, bias, out))
        spread(bag_kernels.pool, -(-inputs.rows // height), height, *arrays)
        return out

    def add_gradient(self, inputs: Bags, delta: torch.Tensor) -> None:
        """Keep the gradient for the optimizer, with what is there already.

        Parameters
        ----------
        inputs : Bags
        delta : float32 tensor, shape (samples, out_features)
            Derivatives by the outputs.
        """
        gradient = RowGradient(_sets(inputs, len(self.weight)), inputs.values, delta, self.updated)
        there: RowGradient | None = getattr(self.weight, "row_gradient", None)
        self.weight.row_gradient = gradient if there is None else there.plus(gradient)  # type: ignore[attr-defined]
        total = delta.sum(0)
        self.bias.grad = total if self.bias.grad is None else self.bias.grad.add_(total)

    def extra_repr(self) -> str:
        """What ``repr`` says."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


class _Pooled(torch.autograd.Function):
    """Forward by :meth:`BagLinear.pool`; backward leaves the gradient in factors."""

    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, bias: torch.Tensor, layer: BagLinear, inputs: Bags
    ) -> torch.Tensor:
        ctx.layer, ctx.inputs, ctx.units = layer, inputs, layer.units(inputs)
        return layer.pool(inputs, ctx.units)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        delta = grads[0] if ctx.units is None else grads[0] * _mask(ctx.units).to(grads[0].device)
        ctx.layer.add_gradient(ctx.inputs, delta.contiguous())
        return None, None, None, None


def _bagged(inputs: Bags, weight: torch.Tensor) -> torch.Tensor:
    pooled: torch.Tensor = embedding_bag(
        inputs.ids,
        weight,
        inputs.starts,
        mode="sum",
        per_sample_weights=inputs.values,
        include_last_offset=True,
    )
    return pooled


def _sets(inputs: Bags, rows: int) -> ActiveSets:
    """The features of each sample as the rows that it touches."""
    none = np.zeros(inputs.rows + 1, np.int64)
    return ActiveSets(
        indptr=inputs.starts.cpu().numpy(),
        ids=inputs.ids.to("cpu", torch.int32).numpy(),
        rows=rows,
        label_indptr=none,
        label_ids=np.empty(0, np.int32),
        label_counts=none[1:],
        found=none[1:],
    )


def _mask(units: ActiveSets) -> torch.Tensor:
    """Which units each sample computes: bool, shape (samples, units held)."""
    mask = torch.zeros(len(units), units.rows, dtype=torch.bool)
    sample = np.repeat(np.arange(len(units)), np.diff(units.indptr))
    mask[torch.from_numpy(sample), torch.from_numpy(units.ids).long()] = True
    return mask
