"""What of a model can be given to some workers alone: groups of neurons, or residual blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import is_parametrized

__all__ = ["residual_blocks", "rows_of"]

_FORWARDS = {
    kind.forward: kind for kind in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
}  # what computes one row of its weights an output neuron or channel


def rows_of(
    model: nn.Module, *, keep: Sequence[str] | None, forward: bool
) -> list[tuple[str, nn.Module]]:
    """Layers whose rows of weights are neurons, or channels, that can be masked.

    Parameters
    ----------
    model : nn.Module
    keep : sequence of str, optional
        Names of layers that are left out. By default those whose rows are the model's outputs,
        which are taken to be of the last such layer, where `forward` is True; else none.
    forward : bool
        The forward is masked too: convolutions in groups are left out.

    Raises
    ------
    ValueError
        There is no layer of a name in `keep`.
    """
    owners = _owners(model)
    found = []
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if type(module).forward not in _FORWARDS or is_parametrized(module):
            continue
        if not (isinstance(weight, nn.Parameter) and weight.requires_grad):
            continue
        if len(owners[id(weight)]) > 1 or (
            forward and isinstance(module, _ConvNd) and module.groups > 1
        ):
            continue
        found.append((name, module))
    if keep is None:
        return found[:-1] if forward else found
    for name in keep:
        if name not in {name for name, _ in found}:
            raise ValueError(f"keep: the model has no layer {name!r} with rows that are masked")
    return [(name, module) for name, module in found if name not in keep]


def residual_blocks(model: nn.Module, names: Sequence[str] | None) -> list[tuple[str, nn.Module]]:
    """The blocks of a model: those of some names, or by default what looks like them.

    That is what stands in a ``Sequential`` or ``ModuleList`` beside at least one other part of its
    class, learns something, and is made of parts itself; the outermost ones.

    Raises
    ------
    ValueError
        There is no module of a name, one lies in another or learns nothing; or nothing looks like
        a block.
    """
    if names is None:
        found = _alike(model)
        if not found:
            raise ValueError(
                "by='block': the model has no residual blocks that could be told (parts of one "
                "class in a Sequential or ModuleList); wanted blocks=[names], or by='neuron'"
            )
        return found
    modules = dict(model.named_modules())
    for number, name in enumerate(names):
        if name not in modules or not name:
            raise ValueError(f"blocks: the model has no part {name!r}")
        others = [*names[:number], *names[number + 1 :]]
        if any(name == other or name.startswith(f"{other}.") for other in others):
            raise ValueError(f"blocks: {name!r} is named twice, or lies in another block")
        if not _learns(modules[name]):
            raise ValueError(f"blocks: {name!r} learns nothing")
    return [(name, modules[name]) for name in names]


def owned_by(model: nn.Module, name: str, value: torch.Tensor) -> bool:
    """Whether a parameter is used in no other part of the model than one."""
    return all(f"{holder}.".startswith(f"{name}.") for holder in _owners(model)[id(value)])


def _owners(model: nn.Module) -> dict[int, list[str]]:
    """Names of the modules that hold each parameter."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for value in module._parameters.values():
            if value is not None:
                owners.setdefault(id(value), []).append(name)
    return owners


def _alike(model: nn.Module) -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Sequential | nn.ModuleList):
            continue
        if any(name == block or name.startswith(f"{block}.") for block, _ in found):
            continue
        parts = [(f"{name}.{key}".lstrip("."), part) for key, part in module.named_children()]
        parts = [(key, part) for key, part in parts if _learns(part) and any(part.children())]
        kinds = [type(part) for _, part in parts]
        found += [(key, part) for key, part in parts if kinds.count(type(part)) > 1]
    return found


def _learns(module: nn.Module) -> bool:
    return any(value.requires_grad for value in module.parameters())
