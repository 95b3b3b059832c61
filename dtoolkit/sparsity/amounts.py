"""Numbers that are arguments: refused by name where they are none."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

__all__ = ["check_number", "check_whole"]


def check_number(name: str, value: Any) -> None:
    """Refuse what is no real number; its range is the matter of who asks.

    Raises
    ------
    TypeError
        Naming the argument.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: wanted a number")


def check_whole(name: str, value: Any) -> int:
    """Read an integer; its range is the matter of who asks.

    Raises
    ------
    TypeError
        Naming the argument.
    """
    # A mask's element would count as 0 or 1, and so be taken for a position.
    said_bool = isinstance(value, bool) or "bool" in str(getattr(value, "dtype", ""))
    try:
        number = None if said_bool else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name}={value!r}: wanted an integer")
    return number
