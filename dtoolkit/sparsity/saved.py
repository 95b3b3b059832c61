"""What a sparsifier's saved state must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["VERSION", "check_state"]

VERSION = 1


def check_state(
    state: Mapping[str, Any], masks: Mapping[str, torch.Tensor], *, method: str, structure: str
) -> None:
    """Refuse a state that is not one of this sparsifier.

    Parameters
    ----------
    state : mapping
        What ``Sparsifier.state_dict()`` is to have given.
    masks : mapping of str to bool tensor
        The masks that are there now.
    method, structure : str

    Raises
    ------
    ValueError
        It has no masks, or those of other layers, or is of another method or structure.
    """
    if not state.get("masks"):
        raise ValueError(
            "the sparsifier's state has no masks: it is not what Sparsifier.state_dict() gave, or "
            "was cut. Without them sparse training cannot be resumed"
        )
    if state.get("version") != VERSION:
        raise ValueError(f"state of version {state.get('version')!r}: wanted {VERSION}")
    for what, here in (("method", method), ("structure", structure)):
        if state[what] != here:
            raise ValueError(
                f"the state is of {what} {state[what]!r}, and this sparsifier's is {here!r}"
            )
    for name, mask in masks.items():
        there = state["masks"].get(name)
        if there is None or there.shape != mask.shape:
            found = "no mask" if there is None else f"a mask of shape {tuple(there.shape)}"
            raise ValueError(f"the state has {found} for {name!r} of shape {tuple(mask.shape)}")
    if unknown := set(state["masks"]) - set(masks):
        raise ValueError(f"the state has masks of {sorted(unknown)}, which are not sparse here")
