"""Masks within state dicts: taken out, to be kept by name of the parameter, and put back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from dtoolkit.sparsity import masks_of

__all__ = ["with_masks", "without_masks"]


def without_masks(
    model: nn.Module, state: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A state dict of a model as if it were dense, and the masks by name of the parameter."""
    names = _keys(model)
    rest = {key: value for key, value in state.items() if key not in names}
    return rest, {name: state[key] for key, name in names.items() if key in state}


def with_masks(
    model: nn.Module, state: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The state dict of a model of what :func:`without_masks` gave."""
    return {**state, **{key: masks[name] for key, name in _keys(model).items() if name in masks}}


def _keys(model: nn.Module) -> dict[str, str]:
    """Keys of masks in the state dict, several where modules are used twice, and their names."""
    names = {id(mask): name for name, mask in masks_of(model).items()}
    if not names:
        return {}
    return {
        key: names[id(buffer)]
        for key, buffer in model.named_buffers(remove_duplicate=False)
        if id(buffer) in names
    }
