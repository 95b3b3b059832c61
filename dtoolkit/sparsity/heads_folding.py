"""Similar heads folded into those that stand for them, and removed for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from dtoolkit.sparsity.channels.applying import carry_out
from dtoolkit.sparsity.channels.plan import CutPlan, Kept
from dtoolkit.sparsity.flops import run_once
from dtoolkit.sparsity.heads import fold_targets, head_similarity
from dtoolkit.sparsity.heads_attention import FewerHeads
from dtoolkit.sparsity.heads_parts import Attention, HeadParts, find_attention
from dtoolkit.sparsity.masks import find_mask
from dtoolkit.sparsity.tiles.fast_path import allow_fast_path, leave_fast_path

__all__ = ["FoldedHeads", "fold_heads", "remove_heads"]

Undo = Callable[[], None]


@dataclass(frozen=True)
class FoldedHeads:
    """What became of the heads of a model.

    Attributes
    ----------
    targets : dict of str to tuple of int
        By attention module: the head that stands for each of those that there were before; itself
        where it is kept.
    """

    targets: dict[str, tuple[int, ...]]

    @property
    def removed(self) -> int:
        """Heads that went, in all."""
        return sum(len(each) - len(set(each)) for each in self.targets.values())

    def table(self) -> pd.DataFrame:
        """One row an attention module: ``attention``, ``before``, ``after``, ``kept``, ``folded``.

        Heads are counted from 0; ``folded`` says ``0 -> 3`` where head 0 went into head 3.
        """
        rows = []
        for name, each in self.targets.items():
            folded = [f"{head} -> {to}" for head, to in enumerate(each) if head != to]
            rows.append(
                {
                    "attention": name,
                    "before": len(each),
                    "after": len(set(each)),
                    "kept": tuple(sorted(set(each))),
                    "folded": ", ".join(folded),
                }
            )
        return pd.DataFrame(rows, columns=["attention", "before", "after", "kept", "folded"])

    def __repr__(self) -> str:
        total = sum(map(len, self.targets.values()))
        return f"FoldedHeads({self.removed} of {total} heads removed)\n{self.table()}"

    def _repr_html_(self) -> str:
        from dtoolkit.figures.html import card, table

        head = ["attention", "heads before", "after", "folded"]
        rows = [
            [row["attention"], str(row["before"]), str(row["after"]), row["folded"] or "none"]
            for row in self.table().to_dict("records")
        ]
        body = table(head, rows, caption="Heads are counted from 0, as they were before.")
        total = sum(map(len, self.targets.values()))
        return card("Heads", f"{self.removed} of {total} removed", body)


@torch.no_grad()
def fold_heads(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    theta: float = 0.15,
    parts: Mapping[type[nn.Module], HeadParts] | None = None,
    example_inputs: Any = None,
) -> FoldedHeads:
    """Fold heads that are alike into the dominating ones, and remove them: after each epoch.

    The output weights of a head that goes are added to those of the head that stands for it, and
    its weights, masks and optimizer state are cut. What a difference of their value biases adds to
    every output goes to the output's bias. Where heads are identical the output is unchanged.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer, optional
        Whatever it keeps of these weights is cut with them.
    theta : float
        Largest difference of two weights at the same place in similar heads.
    parts : mapping of type to HeadParts, optional
        For attention classes of your own (:class:`~dtoolkit.sparsity.HeadParts`).
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments, optional
        What the model is called with: it is tried once afterwards, and if it fails all is undone.

    Returns
    -------
    FoldedHeads

    Raises
    ------
    ValueError
        No attention is found, heads cannot be removed from one, or the model fails with fewer.
    """
    found = find_attention(model, parts)
    if not found:
        raise ValueError(
            "model has no attention that is known: say where heads are by parts={YourAttention: "
            "HeadParts(...)}"
        )
    targets, undoing = {}, []
    for attention in found:
        query, key, value = (attention.part(where) for where in attention.inputs)
        alike = head_similarity(query, key, value, attention.heads, theta=theta)
        targets[attention.name] = tuple(fold_targets(alike))
    try:
        for attention in found:
            undoing.append(remove_heads(attention, targets[attention.name], optimizer))
        leave_fast_path(model, [a.module for a in found if isinstance(a.module, FewerHeads)])
        if example_inputs is not None:
            run_once(model, example_inputs)
    except Exception as error:
        for undo in reversed(undoing):
            undo()
        allow_fast_path(model)
        if example_inputs is None:
            raise
        raise ValueError(
            f"model does not run with fewer heads ({error}), and all is as it was. Its attention "
            "must take the number of heads from its attribute at every call, and their width from "
            "elsewhere"
        ) from error
    return FoldedHeads(targets)


@torch.no_grad()
def remove_heads(
    attention: Attention, targets: tuple[int, ...], optimizer: torch.optim.Optimizer | None
) -> Undo:
    """Fold each head into its target, and cut those that are not their own.

    Parameters
    ----------
    attention : Attention
    targets : tuple of int
        One entry a head.
    optimizer : torch.optim.Optimizer or None

    Returns
    -------
    callable
        Undoes it.
    """
    module, before, kept = attention.module, attention.heads, sorted(set(targets))
    output = attention.output
    mask = find_mask(output, "weight")
    saved = [(t, t.detach().clone()) for t in (output.weight, output.bias, mask) if t is not None]
    if len(kept) == before:
        return lambda: None
    _fold(attention, targets, mask)
    undo_cut = carry_out(module, optimizer, _plan(attention, kept))
    kind, settings = type(module), dict(module.__dict__)
    if attention.parts is None:
        assert isinstance(module, nn.MultiheadAttention)
        there = module.__dict__.get("kept_heads", tuple(range(before)))
        module.__dict__.setdefault("all_heads", before)
        module.__dict__["kept_heads"] = tuple(there[head] for head in kept)
        module.num_heads = len(kept)
        module.__class__ = FewerHeads
    else:
        setattr(module, attention.parts.heads, len(kept))

    def undo() -> None:
        module.__class__ = kind
        module.__dict__.clear()
        module.__dict__.update(settings)
        undo_cut()
        with torch.no_grad():
            for tensor, value in saved:
                tensor.copy_(value)

    return undo


def _fold(attention: Attention, targets: tuple[int, ...], mask: torch.Tensor | None) -> None:
    """Add what the output reads of heads that go to what it reads of their targets."""
    output = attention.output
    width = output.weight.shape[1] // len(targets)
    shifts = None
    where = attention.biases[2]
    if where is not None:
        shifts = attention.part(where).view(len(targets), width)
    for head, target in enumerate(targets):
        if head == target:
            continue
        old, new = (slice(each * width, each * width + width) for each in (head, target))
        if shifts is not None and output.bias is not None:
            # Weights of attention add up to 1: a value's bias comes through as it is.
            output.bias.add_(output.weight[:, old] @ (shifts[head] - shifts[target]))
        output.weight[:, new] += output.weight[:, old]
        if mask is not None:
            mask[:, new] |= mask[:, old]


def _plan(attention: Attention, kept: list[int]) -> CutPlan:
    """What stays of the module's tensors, masks included."""
    module, heads = attention.module, attention.heads
    width = attention.output.weight.shape[1] // heads
    stays = np.concatenate([np.arange(head * width, (head + 1) * width) for head in kept])
    rows: dict[str, list[Any]] = {}
    for where in (*attention.inputs, *attention.biases):
        if where is not None:
            name, place, _ = where
            rows.setdefault(name, []).append(stays + place * heads * width)
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    plan: dict[str, Kept] = {}
    for name, positions in rows.items():
        every = np.concatenate(positions)
        plan[name] = (every,) if tensors[name].dim() == 1 else (every, None)
    plan[f"{attention.output_name}.weight"] = (None, stays)
    masks = {f"{name}_mask": each for name, each in plan.items() if f"{name}_mask" in tensors}
    plan |= masks
    shapes = {name: tuple(tensors[name].shape) for name in plan}
    return CutPlan(groups=(), whole=(), kept=plan, shapes=shapes)
