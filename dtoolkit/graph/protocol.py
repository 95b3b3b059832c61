"""What train_full_batch asks of a model, checked before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["check_forward", "check_maker", "check_whole"]


def check_forward(module: nn.Module) -> None:
    """Refuse a module whose ``forward`` cannot be called as ``forward(ctx, A, X)``.

    Raises
    ------
    TypeError
        It has none, or its signature takes other arguments. What has no signature passes.
    """
    kind = type(module).__name__
    wanted = (
        "wanted forward(ctx, A, X), which gives scores of shape (nodes here, classes), where ctx "
        "is the rank's context, A its part of the adjacency and X the features of its nodes"
    )
    if module.forward == nn.Module.forward.__get__(module):
        raise TypeError(f"model {kind} has no forward: {wanted}")
    if not _takes(module.forward, 3):
        raise TypeError(f"model {kind} has forward{inspect.signature(module.forward)}: {wanted}")


def check_maker(make: Callable[..., Any]) -> None:
    """Refuse a function that cannot be called with the numbers of features and of classes.

    Raises
    ------
    TypeError
        Its signature takes other arguments.
    """
    if not _takes(make, 2):
        name = getattr(make, "__name__", type(make).__name__)
        raise TypeError(
            f"model is {name}{inspect.signature(make)}: wanted a function of the number of "
            "features and of classes that returns a module"
        )


def check_whole(name: str, number: Any) -> int:
    """``number`` as an int of at least 1.

    Raises
    ------
    ValueError
        If it is none.
    """
    whole = hasattr(type(number), "__index__") and not isinstance(number, bool)
    if not whole or int(number) < 1:
        raise ValueError(f"{name}={number!r}: wanted an integer of at least 1")
    return int(number)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it takes so many positional arguments, and no keyword besides."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of built-in and compiled code
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
