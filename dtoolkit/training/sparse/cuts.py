"""Cuts of channels in plain values, so that a fresh model can be cut as a saved one was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dtoolkit.sparsity import CutPlan, apply_cuts

__all__ = ["apply_saved", "saved_cut", "shapes_after"]

Shape = tuple[int, ...]


def saved_cut(plan: CutPlan) -> dict[str, Any]:
    """What of a plan is needed to carry it out again, in plain values."""
    return {
        "kept": {
            name: [None if kept is None else torch.from_numpy(kept.copy()) for kept in dims]
            for name, dims in plan.kept.items()
        },
        "shapes": {name: list(shape) for name, shape in plan.shapes.items()},
        "depthwise": list(plan.depthwise),
    }


def apply_saved(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    cuts: Sequence[Mapping[str, Any]],
) -> None:
    """Cut a model as another one was cut, in the same order.

    Raises
    ------
    ValueError
        The model has other shapes than that one had.
    """
    for cut in cuts:
        plan = CutPlan(
            groups=(),
            whole=(),
            kept={
                name: tuple(None if kept is None else kept.numpy() for kept in dims)
                for name, dims in cut["kept"].items()
            },
            shapes={name: tuple(shape) for name, shape in cut["shapes"].items()},
            depthwise=tuple(cut["depthwise"]),
        )
        apply_cuts(model, optimizer, plan)


def shapes_after(
    shapes: Mapping[str, tuple[Shape, str]], cuts: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Shape, str]]:
    """Shapes and dtypes of a model's tensors once it is cut.

    What a cut does not find as it was stays as it is.
    """
    found = dict(shapes)
    for cut in cuts:
        for name, dims in cut["kept"].items():
            shape, dtype = found.get(name, ((), ""))
            if shape == tuple(cut["shapes"][name]):
                sizes = [
                    size if kept is None else kept.shape[-1]
                    for size, kept in zip(shape, dims, strict=True)
                ]
                found[name] = tuple(sizes), dtype
    return found
