"""Amounts written for people: counts, bytes, bandwidths and times, in three digits with a unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["bandwidth_text", "bytes_text", "count_text", "grid_text", "plural", "seconds_text"]


def count_text(count: float, unit: str = "") -> str:
    """Write a count: whole up to 99,999, and then with three digits and k, M, G, T.

    Examples
    --------
    >>> count_text(12345, "rows"), count_text(1_234_567)
    ('12,345 rows', '1.23 M')
    """
    text = f"{count:,.0f}" if abs(count) < 99_999.5 else _scaled(count, ("", "k", "M", "G", "T"))
    return f"{text} {unit}".strip()


def bytes_text(count: float) -> str:
    """Write a number of bytes in decimal units (1 kB = 1,000 bytes), with three digits.

    Examples
    --------
    >>> bytes_text(999), bytes_text(65_536)
    ('999 B', '65.5 kB')
    """
    if abs(count) < 999.5:
        return f"{count:,.0f} B"
    return _scaled(count, ("B", "kB", "MB", "GB", "TB", "PB", "EB"))


def bandwidth_text(value: float) -> str:
    """Write a bandwidth in decimal bytes a second, with three digits.

    Examples
    --------
    >>> bandwidth_text(50e9)
    '50 GB/s'
    """
    return f"{bytes_text(value)}/s" if value >= 10 else f"{_three(value)} B/s"


def seconds_text(seconds: float) -> str:
    """Write a time in ns, µs, ms, s, min or h, with three digits.

    Examples
    --------
    >>> seconds_text(0.0123), seconds_text(90)
    ('12.3 ms', '1.5 min')
    """
    size = abs(seconds)
    if not math.isfinite(size):
        return str(seconds)
    if size == 0:
        return "0 s"
    for limit, scale, unit in (
        (999.5e-9, 1e9, "ns"),
        (999.5e-6, 1e6, "µs"),
        (999.5e-3, 1e3, "ms"),
        (60, 1, "s"),
        (3600, 1 / 60, "min"),
    ):
        if size < limit:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds / 3600)} h"


def plural(count: int, noun: str, many: str = "") -> str:
    """Write a count with its noun: ``1 row``, ``2 rows``."""
    return count_text(count, noun if count == 1 else many or noun + "s")


def grid_text(shape: Sequence[int]) -> str:
    """Write the ranks of a grid.

    Examples
    --------
    >>> grid_text((16, 8)), grid_text((1,))
    ('16 x 8 ranks', '1 rank')
    """
    return " x ".join(map(str, shape)) + (" rank" if math.prod(shape) == 1 else " ranks")


def _scaled(value: float, units: tuple[str, ...]) -> str:
    power = 0
    while abs(value) >= 999.5 and power < len(units) - 1:
        value /= 1000
        power += 1
    return f"{_three(value)} {units[power]}"


def _three(value: float) -> str:
    """Write three significant digits without an exponent and without trailing zeros."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
