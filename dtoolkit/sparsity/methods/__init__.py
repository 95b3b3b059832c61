"""Which weights are live: drawn once, by sensitivity, by magnitude, or swapped while training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtoolkit.sparsity.methods.base import Layer, Method
from dtoolkit.sparsity.methods.magnitude import Magnitude
from dtoolkit.sparsity.methods.random_growth import RandomGrowth
from dtoolkit.sparsity.methods.rigl import RigL
from dtoolkit.sparsity.methods.snip import SNIP
from dtoolkit.sparsity.methods.sparse_evolution import SET
from dtoolkit.sparsity.methods.static import Static
from dtoolkit.sparsity.naming import pick

__all__ = [
    "SET",
    "SNIP",
    "Layer",
    "Magnitude",
    "Method",
    "RandomGrowth",
    "RigL",
    "Static",
    "as_method",
]


def as_method(value: Any) -> Method:
    """Make a method of a name or an object.

    Raises
    ------
    ValueError, TypeError
        None of these.
    """
    return pick("method", value, _METHODS, Method)


_METHODS: dict[str, Callable[[], Method]] = {
    "static": Static,
    "snip": SNIP,
    "magnitude": Magnitude,
    "set": SET,
    "rigl": RigL,
    "growth": RandomGrowth,
    "random": Static,
    "static random": Static,
    "snip ratio": SNIP,
    "magnitude gradual": Magnitude,
    "gradual magnitude": Magnitude,
    "random growth": RandomGrowth,
}
