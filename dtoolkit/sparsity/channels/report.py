"""What a reconfiguration has done, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dtoolkit.sparsity.channels.plan import CutPlan
from dtoolkit.sparsity.flops import forward_flops

__all__ = ["LayerSize", "Reconfiguration", "model_bytes", "sizes"]


@dataclass(frozen=True)
class LayerSize:
    """A layer's weight at one time.

    Attributes
    ----------
    inputs, channels : int
        Channels that it reads (those of one group where there are several), and makes.
    parameters : int
    flops : float
        Of the example's forward pass; NaN where they are not known.
    """

    inputs: int
    channels: int
    parameters: int
    flops: float


def sizes(model: nn.Module, example_inputs: Any) -> dict[str, LayerSize]:
    """Sizes of all weights with two or more dimensions, by name; tied ones once."""
    weights = {name: p for name, p in model.named_parameters() if p.dim() > 1}
    flops = forward_flops(model, weights, example_inputs)
    turned = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.modules.conv._ConvTransposeNd | nn.Embedding)
    }
    found = {}
    for name, weight in weights.items():
        inputs, channels = weight.shape[1], weight.shape[0]
        if id(weight) in turned:
            inputs, channels = channels, inputs
        found[name] = LayerSize(inputs, channels, weight.numel(), flops[name])
    return found


def model_bytes(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> int:
    """Bytes of parameters and buffers, and of what the optimizer keeps."""
    held: list[Any] = [*model.parameters(), *model.buffers()]
    if optimizer is not None:
        held += [v for state in optimizer.state.values() for v in tree_leaves(dict(state))]
    return sum(v.numel() * v.element_size() for v in held if isinstance(v, torch.Tensor))


@dataclass(frozen=True, eq=False)
class Reconfiguration:
    """Report of :func:`reconfigure`.

    Attributes
    ----------
    plan : CutPlan
        What went, what stayed whole and why, what was not traced.
    before, after : mapping of str to LayerSize
        By name of the weight.
    parameters : (int, int)
        Of the whole model, before and after.
    bytes : (int, int)
        Of parameters, buffers and the optimizer's state, before and after.
    """

    plan: CutPlan
    before: Mapping[str, LayerSize]
    after: Mapping[str, LayerSize]
    parameters: tuple[int, int]
    bytes: tuple[int, int]

    @property
    def changed(self) -> bool:
        """Whether anything was cut."""
        return bool(self.plan.kept)

    @property
    def flops(self) -> tuple[float, float]:
        """Of the example's forward pass, before and after, as far as they are known."""
        known = [name for name, size in self.before.items() if size.flops == size.flops]
        return (
            sum(self.before[name].flops for name in known),
            sum(self.after[name].flops for name in known),
        )

    def table(self) -> pd.DataFrame:
        """One row a weight.

        Returns
        -------
        pandas.DataFrame
            ``layer``, and before and after each: ``inputs``, ``channels``, ``parameters``,
            ``flops`` (such as ``inputs_before``).
        """
        rows = []
        for name, old in self.before.items():
            new, row = self.after[name], {"layer": name}
            for what in ("inputs", "channels", "parameters", "flops"):
                row |= {f"{what}_before": getattr(old, what), f"{what}_after": getattr(new, what)}
            rows.append(row)
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = [repr(self)]
        for name, old in self.before.items():
            new = self.after[name]
            if new != old:
                lines.append(
                    f"  {name}: {old.inputs} -> {old.channels} channels became {new.inputs} -> "
                    f"{new.channels}"
                )
        lines += [f"  whole: {width}" for width in self.plan.whole]
        lines += [f"  kept: {note}" for note in self.plan.notes]
        if self.plan.failure:
            lines.append(f"  not traced: {self.plan.failure}")
        elif self.plan.untraced:
            lines.append(f"  not used by the example: {', '.join(self.plan.untraced)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        (old, new), (much, less) = self.parameters, self.flops
        return (
            f"Reconfiguration({self.plan.cut:,} of {self.plan.width:,} channels cut; parameters "
            f"{old:,} -> {new:,}; FLOPs {much:.4g} -> {less:.4g})"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.sparsity.channels.cards import reconfiguration_card

        return reconfiguration_card(self)
