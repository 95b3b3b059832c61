"""Masks as buffers of the model, beside the weights they belong to.

The mask of ``conv.weight`` is the bool buffer ``conv.weight_mask`` of the same module: it is in the
model's state dict, moves with the model to other devices, and is copied and pickled with it. A
module with a mask refuses a state dict that has its weight and no mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["erase", "find_mask", "masks_of", "remove_masks", "store_mask"]

_ENDING = "_mask"
_WORDS = "has weights but no masks"
_PIECE = 1 << 16  # elements whose mask stays in the cache while all tensors are done
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def masks_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Find the masks that a model carries.

    Returns
    -------
    dict of str to bool tensor
        By name of the weight; the buffers themselves. A tied weight is named once.
    """
    return {
        f"{prefix}.{name}" if prefix else name: mask
        for prefix, module in model.named_modules()
        for name, mask in _masked(module)
    }


def remove_masks(model: nn.Module) -> None:
    """Take all masks out of a model: an ordinary one is left, with zeros in its weights.

    To export it, or to begin anew with another sparsifier; the old one is of no use then.
    """
    for module in model.modules():
        for name, _ in [*_masked(module)]:
            del module._buffers[name + _ENDING]
        hooks = module._load_state_dict_pre_hooks
        for key in [key for key, hook in hooks.items() if _is_ours(hook)]:
            del hooks[key]


def find_mask(module: nn.Module, attribute: str) -> torch.Tensor | None:
    """Mask of a module's weight: the buffer itself, or None."""
    return dict(_masked(module)).get(attribute)


def store_mask(module: nn.Module, attribute: str, mask: torch.Tensor) -> None:
    """Make a mask a buffer of the module, or write it over the one that is there.

    Parameters
    ----------
    module : torch.nn.Module
        Owner of the weight.
    attribute : str
        Name of the weight within it.
    mask : bool tensor, shape of the weight

    Raises
    ------
    ValueError
        The module uses the buffer's name for something else.
    """
    there = find_mask(module, attribute)
    if there is not None:
        there.copy_(mask)
        return
    name = attribute + _ENDING
    if hasattr(module, name):
        raise ValueError(
            f"{type(module).__name__} has an attribute {name!r} already, which is where the mask "
            f"of its {attribute!r} is to be: leave that weight out (exclude=), or rename it"
        )
    weight: torch.Tensor = getattr(module, attribute)
    buffer = torch.empty_like(weight, dtype=torch.bool, requires_grad=False)  # strides as well
    module.register_buffer(name, buffer.copy_(mask))
    if not any(_is_ours(hook) for hook in module._load_state_dict_pre_hooks.values()):
        module.register_load_state_dict_pre_hook(_refuse_without_masks)


def erase(mask: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Set to 0, in place, what the mask does not keep: exactly, Inf and NaN too.

    Parameters
    ----------
    mask : bool tensor
    tensors : sequence of tensors of that shape
        Of any dtype up to 64 bits.
    """
    # Bits are cut by AND: a product with a bool tensor takes 15 times as long on a CPU, one with a
    # float mask needs as much memory as the weights, and either leaves NaN where there was Inf.
    rows = mask.shape[0]
    if mask.device.type == "cpu":
        rows = max(1, _PIECE * rows // max(mask.numel(), 1))
    for piece, *parts in zip(mask.split(rows), *(t.split(rows) for t in tensors), strict=True):
        bits = piece.view(torch.int8).neg()
        made = {torch.int8: bits}
        for part in parts:
            integer = _INTEGERS[part.element_size()]
            if integer not in made:
                made[integer] = bits.to(integer)
            part.view(integer).bitwise_and_(made[integer])


def _masked(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Names of a module's own weights that have a mask, and the masks."""
    for name, weight in module._parameters.items():
        mask = module._buffers.get(name + _ENDING)
        if weight is not None and mask is not None and mask.dtype == torch.bool:
            yield name, mask


def _refuse_without_masks(
    module: nn.Module,
    state: dict[str, Any],
    prefix: str,
    metadata: Any,
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Before a module is loaded: say that masks are missing, once for the whole model."""
    for name, _ in _masked(module):
        weight = prefix + name
        bare = weight in state and weight + _ENDING not in state
        if bare and not any(_WORDS in error for error in errors):
            errors.append(
                f"the state dict {_WORDS}, such as {weight + _ENDING!r}: it is that of a dense "
                "model, or was saved without them, and loading it would undo the sparsity in "
                "silence. Load dense weights before the Sparsifier is made; to resume sparse "
                "training, save and load the state_dict() of the sparse model"
            )


def _is_ours(hook: Any) -> bool:
    return getattr(hook, "hook", hook) is _refuse_without_masks
