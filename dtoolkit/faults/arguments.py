"""Arguments of faults and delays: refused by the owner's name and their own."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

__all__ = ["check_number", "check_rank", "read_whole"]


def read_whole(owner: str, name: str, value: Any, *, negative: bool = False) -> int:
    """An argument that must be an integer, of at least 0 unless it may be `negative`.

    Raises
    ------
    TypeError, ValueError
        Naming the owner, the argument and what came.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{owner}: {name}={value!r} is not an integer")
    if number < 0 and not negative:
        raise ValueError(f"{owner}: {name}={value!r} must be at least 0")
    return number


def check_number(owner: str, name: str, value: Any, *, least: float = 0.0) -> None:
    """Refuse what is no finite number of at least `least`.

    Raises
    ------
    TypeError, ValueError
        Naming the owner, the argument and what came.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{owner}: {name}={value!r} is not a number")
    if not (math.isfinite(value) and float(value) >= least):
        raise ValueError(f"{owner}: {name}={value!r} must be finite and at least {least:g}")


def check_rank(owner: str, name: str, value: int, ranks: int) -> None:
    """Refuse a rank that is not one of so many.

    Raises
    ------
    ValueError
        Naming the owner, the argument and what came.
    """
    if value >= ranks:
        raise ValueError(
            f"{owner}: {name}={value} is not one of the {ranks} rank(s) 0 to {ranks - 1}"
        )
