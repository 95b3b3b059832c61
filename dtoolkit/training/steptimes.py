"""Times of micro-batches as they come in: what is refused, in words."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_count", "check_time", "checked_table"]


def checked_table(times: Any) -> NDArray[np.float64]:
    """A table of times, shape (workers, iterations, micro-batches), as float64.

    Raises
    ------
    ValueError
        It has another shape or is empty, or a value is negative or not finite.
    """
    table = np.asarray(times, dtype=np.float64)
    if table.ndim != 3 or 0 in table.shape:
        raise ValueError(
            f"times has shape {table.shape}: wanted (workers, iterations, micro-batches), at least "
            "one of each"
        )
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise ValueError("times has values that are negative or not finite")
    return table


def check_time(name: str, value: float, *, infinite: bool = False) -> None:
    """Refuse what is no time.

    Raises
    ------
    TypeError, ValueError
    """
    if not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}: wanted a number")
    if not (value >= 0 and (infinite or math.isfinite(value))):
        wanted = "0 or more" if infinite else "finite and 0 or more"
        raise ValueError(f"{name}={value!r}: wanted {wanted}")


def check_count(name: str, value: int) -> int:
    """A count of at least 1.

    Raises
    ------
    TypeError, ValueError
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: wanted an integer") from None
    if number < 1:
        raise ValueError(f"{name}={value!r}: wanted 1 or more")
    return number
