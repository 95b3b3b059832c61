"""Exact times: decimals for what people state, and whole numbers in a common unit.

A simulated collective is full of events at the same moment, and who goes first then decides what
follows. In floating point the last bit of a size or a bandwidth would decide, and a figure would
change by a tenth with the unit it was stated in. So times and loads are added as whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

__all__ = ["floats", "rational", "whole"]


def rational(value: float) -> Fraction:
    """Return the shortest decimal that reads as `value`, exactly: 0.1 is one tenth.

    Examples
    --------
    >>> rational(0.1), rational(3e-7)
    (Fraction(1, 10), Fraction(3, 10000000))
    """
    return Fraction(value) if isinstance(value, int) else Fraction(repr(float(value)))


def whole(values: Sequence[Fraction]) -> tuple[list[int], Fraction]:
    """Write fractions as whole numbers of one unit.

    Parameters
    ----------
    values : sequence of Fraction

    Returns
    -------
    list of int
        ``values[i] / unit``.
    Fraction
        The unit.

    Examples
    --------
    >>> whole([Fraction(1, 2), Fraction(2, 3)])
    ([3, 4], Fraction(1, 6))
    """
    scale = lcm(*(value.denominator for value in values))
    return [int(value * scale) for value in values], Fraction(1, scale)


def floats(values: Iterable[int], unit: Fraction) -> NDArray[np.float64]:
    """Give whole numbers of a unit as the nearest floating-point numbers."""
    top, bottom = unit.numerator, unit.denominator
    return np.array([value * top / bottom for value in values], dtype=np.float64)
