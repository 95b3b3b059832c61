"""Bandwidths, times and sizes, read from numbers and from text with a unit.

Numbers are bytes a second, seconds and bytes. Text carries its unit: ``"50GB/s"`` and ``"400Gb/s"``
are the same bandwidth, because ``B`` is a byte and ``b`` a bit, ``"5us"`` is a time and ``"64MiB"``
a size. What leaves open whether bits or bytes are meant is refused: a factor of 8 that nobody sees
is worse than an error. Prefixes k (or K), M, G, T, P are powers of 1,000, and Ki, Mi, Gi, Ti, Pi
powers of 1,024.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["bandwidth", "seconds", "share", "size"]

_PREFIXES = ("", "k", "m", "g", "t", "p")
_TIMES = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "1"),
    **{"ms": "1e-3", "us": "1e-6", "µs": "1e-6", "ns": "1e-9", "ps": "1e-12"},
    **dict.fromkeys(("min", "minute", "minutes"), "60"),
    **dict.fromkeys(("h", "hour", "hours"), "3600"),
    **dict.fromkeys(("d", "day", "days"), "86400"),
}
_NUMBER = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*(.*)", re.ASCII | re.DOTALL
)
_AMOUNT = re.compile(r"([kKMGTPmgtp]?)(i?)([bB]|(?i:bits?|bytes?))")
_PER_SECOND = re.compile(r"(.*?)(\s*/\s*(?:s|sec|second)|ps)")


def bandwidth(value: Any, name: str = "bandwidth") -> float:
    """Read a bandwidth.

    Parameters
    ----------
    value : float or str
        A number is bytes a second. Text has a unit: ``"50GB/s"``, ``"50 GiB/s"``, ``"50GBps"`` are
        bytes; ``"400Gb/s"``, ``"400Gbit/s"``, ``"400Gbps"`` and ``"400gbps"`` are bits.
    name : str
        The argument, for the error.

    Returns
    -------
    float
        Bytes a second, above 0 and finite.

    Raises
    ------
    ValueError
        If the value is no number, has no unit or one that leaves open what is meant (``"50G"``,
        ``"50gb/s"``), or is not above 0 and finite.

    Examples
    --------
    >>> bandwidth("50GB/s"), bandwidth("400Gb/s")
    (50000000000.0, 50000000000.0)
    """
    wanted = "bytes a second as a number, or text such as '50GB/s' (bytes) or '400Gbit/s' (bits)"
    if isinstance(value, str):
        number, unit = _split(value, name, wanted)
        match = _PER_SECOND.fullmatch(unit)
        unit, per_second = match.groups() if match else (unit, "")
        bits = number * _amount(unit, value, name, after="/s", bps=per_second == "ps")
        if not match:
            raise ValueError(f"{name}={value!r} is no amount a second: wanted {wanted}")
        result = float(bits / 8)
    else:
        result = _number(value, name, wanted)
    if not 0 < result < math.inf:
        raise ValueError(f"{name}={value!r}: wanted a finite bandwidth above 0")
    return result


def seconds(value: Any, name: str = "seconds") -> float:
    """Read a time.

    Parameters
    ----------
    value : float or str
        A number is seconds. Text has a unit: ``"5us"``, ``"5µs"``, ``"0.3 ms"``, ``"20ns"``,
        ``"1s"``, ``"2min"``, ``"1h"``, ``"1 d"``.
    name : str
        The argument, for the error.

    Returns
    -------
    float
        Seconds, at least 0 and finite.

    Raises
    ------
    ValueError
        If the value is no number, has no or no known unit, is negative or not finite.
    """
    wanted = (
        "seconds as a number, or text such as '5us', '0.3ms' or '1h', in ps, ns, us, ms, s, min, h "
        "or d"
    )
    if isinstance(value, str):
        number, unit = _split(value, name, wanted)
        scale = _TIMES.get(unit.replace("\u03bc", "\u00b5"))
        if scale is None:
            raise ValueError(f"{name}={value!r} has the unknown unit {unit!r}: wanted {wanted}")
        result = float(number * Decimal(scale))
    else:
        result = _number(value, name, wanted)
    if not 0 <= result < math.inf:
        raise ValueError(f"{name}={value!r}: wanted a finite time of at least 0")
    return result


def share(value: Any, name: str = "share", *, most: float = 1.0) -> float:
    """Read a share, which has no unit.

    Parameters
    ----------
    value : float
    name : str
        The argument, for the error.
    most : float
        1, or infinity for what may be more than the whole.

    Returns
    -------
    float
        At least 0, finite, and at most ``most``.

    Raises
    ------
    ValueError
        If the value is no number, or out of that range.
    """
    wanted = "a share from 0 to 1" if most == 1 else "a finite number of at least 0"
    result = _number(value, name, wanted)
    if not 0 <= result <= most or result == math.inf:
        raise ValueError(f"{name}={value!r}: wanted {wanted}")
    return result


def size(value: Any, name: str = "size") -> int:
    """Read a number of bytes.

    Parameters
    ----------
    value : int, float or str
        A number is bytes, and whole. Text has a unit: ``"100MB"``, ``"64MiB"``, ``"1kB"``,
        ``"512B"``.
    name : str
        The argument, for the error.

    Returns
    -------
    int
        Bytes, at least 0.

    Raises
    ------
    ValueError
        If the value is no number, has no unit or one of bits, is negative, or is no whole number
        of bytes.
    """
    wanted = "bytes as a whole number, or text such as '100MB', '64MiB' or '512B'"
    if isinstance(value, str):
        number, unit = _split(value, name, wanted)
        bits = number * _amount(unit, value, name)
        if not _says_bytes(unit):
            raise ValueError(f"{name}={value!r} counts bits: wanted {wanted}")
        exact = bits / 8
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        exact = Decimal(int(value))
    else:
        exact = Decimal(_number(value, name, wanted))
    if not exact.is_finite() or exact < 0 or exact != exact.to_integral_value():
        raise ValueError(f"{name}={value!r}: wanted a whole number of bytes, at least 0")
    return int(exact)


def _number(value: Any, name: str, wanted: str) -> float:
    """Return a number that came as one."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real | Decimal | np.number):
        raise ValueError(f"{name}={value!r} is {_kind(value)}: wanted {wanted}")
    if isinstance(value, complex | np.complexfloating):
        raise ValueError(f"{name}={value!r} is complex: wanted {wanted}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _split(text: str, name: str, wanted: str) -> tuple[Decimal, str]:
    """Cut a text into its number and its unit."""
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{name}={text!r} does not begin with a number: wanted {wanted}")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{name}={text!r} has no unit: wanted {wanted}")
    return Decimal(number), unit.strip()


def _amount(unit: str, value: str, name: str, *, after: str = "", bps: bool = False) -> Decimal:
    """Return how many bits a unit such as GB, MiB or Gbit has, or refuse it in words."""
    match = _AMOUNT.fullmatch(unit)
    if not match and not re.fullmatch(r"[kKMGTPmgtp]?i?", unit):
        bits = f" or bits such as Gbit{after}" if after else ""
        raise ValueError(
            f"{name}={value!r} has the unknown unit {unit + after!r}: wanted bytes such as "
            f"GB{after} or GiB{after}{bits}"
        )
    prefix, binary, what = match.groups() if match else (unit[:1], unit[1:], "")
    # Who writes gb/s has used no capitals, and may mean bytes; gbps is bits by long custom.
    if not what or (what == "b" and not bps and (not prefix or prefix not in "KMGTP")):
        big = (prefix if prefix in ("k", "") else prefix.upper()) + binary
        raise ValueError(
            f"{name}={value!r} leaves open whether bits or bytes are meant: write {big}B{after} "
            f"for bytes or {big}bit{after} for bits"
        )
    if binary and not prefix:
        raise ValueError(f"{name}={value!r} has an i without a prefix: wanted Ki, Mi, Gi, Ti or Pi")
    power = _PREFIXES.index(prefix.lower())
    return Decimal(1024 if binary else 1000) ** power * (8 if _says_bytes(unit) else 1)


def _says_bytes(unit: str) -> bool:
    """Tell whether a unit that is known counts bytes."""
    return unit.endswith("B") or "byte" in unit.lower()


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
