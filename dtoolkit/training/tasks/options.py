"""What the ready tasks have in common: optimizers by name, checks of options, the split."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

__all__ = ["EVERY", "Make", "chosen_optimizer", "count", "number", "test_part"]

Make = Callable[[Any], Optimizer]  # parameters -> optimizer

EVERY = 5  # each fifth item is for the test
_KINDS: dict[str, Any] = {"sgd": SGD, "momentum": partial(SGD, momentum=0.9), "adam": Adam}


def chosen_optimizer(optimizer: str | Make, lr: float | None, usual: dict[str, float]) -> Make:
    """Return what makes the optimizer.

    Parameters
    ----------
    optimizer : {"sgd", "momentum", "adam"} or callable
        Plain SGD, SGD with momentum 0.9, Adam; or what is called with the parameters.
    lr : float or None
        Learning rate; None is the usual one of this optimizer and task.
    usual : dict
        Those learning rates, by name of the optimizer.

    Returns
    -------
    callable
        Of the parameters; it can be pickled where ``optimizer`` can.

    Raises
    ------
    ValueError
        For an unknown name, a rate that is not positive, or a rate beside a callable.
    """
    if callable(optimizer):
        if lr is not None:
            raise ValueError("lr= says nothing to an optimizer of your own: give the rate there")
        return optimizer
    if optimizer not in _KINDS:
        known = ", ".join(map(repr, _KINDS))
        raise ValueError(
            f"optimizer={optimizer!r}: wanted one of {known}, or a callable of the parameters"
        )
    rate = usual[optimizer] if lr is None else number("lr", lr, above=0.0)
    return partial(_KINDS[optimizer], lr=rate)


def count(name: str, value: Any, least: int = 1) -> int:
    """Check a whole number, and return it.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what came and what was wanted.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if int(value) < least:
        raise ValueError(f"{name}={value}: want at least {least}")
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    least: float = 0.0,
    above: float | None = None,
    below: float = math.inf,
) -> float:
    """Check that a number is at least `least`, or above `above` if given, and below `below`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what came and what was wanted.
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r}")
    fits = value >= least if above is None else value > above
    if not (fits and value < below):
        start = f"at least {least:g}" if above is None else f"more than {above:g}"
        end = "" if below == math.inf else f" and less than {below:g}"
        raise ValueError(f"{name}={value}: want {start}{end}")
    return float(value)


def test_part(items: int) -> Tensor:
    """Return which items are for the test: each fifth, 4, 9, 14, ...

    Parameters
    ----------
    items : int

    Returns
    -------
    bool tensor of shape (items,)
    """
    return torch.arange(items) % EVERY == EVERY - 1
