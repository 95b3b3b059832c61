"""How fast a rank computes: nonzeros times dense columns a second, for all dtypes or by dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["dtype_name", "rate_of", "rates"]


def rates(value: Any) -> float | Mapping[str, float] | None:
    """Check a rate, or rates by dtype.

    Raises
    ------
    ValueError
        If a rate is not a finite number above 0, or there is none.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        if not value:
            raise ValueError("rate is an empty mapping: wanted rates by dtype, or None")
        return {dtype_name(name): _rate(rate) for name, rate in value.items()}
    return _rate(value)


def rate_of(rate: float | Mapping[str, float] | None, dtype: Any) -> float | None:
    """Return the rate for a dtype: see :meth:`dtoolkit.comm.Network.rate_of`."""
    if rate is None or not isinstance(rate, Mapping):
        return rate
    if dtype is None or dtype == "":
        if len(rate) == 1:
            return next(iter(rate.values()))
        raise ValueError(f"the network has rates for {', '.join(rate)}: say which dtype")
    name = dtype_name(dtype)
    if name not in rate:
        raise ValueError(f"dtype={name!r}: the network has rates for {', '.join(rate)} alone")
    return rate[name]


def dtype_name(dtype: Any) -> str:
    """Name a dtype of NumPy's or torch's, or one given by name, such as ``"float32"``."""
    if isinstance(dtype, str):
        return dtype.removeprefix("torch.")
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        return np.dtype(dtype).name
    except TypeError as error:
        raise ValueError(f"{dtype!r} is no dtype") from error


def _rate(value: Any) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < np.inf:
        raise ValueError(
            f"rate={value!r}: wanted nonzeros times columns a second, finite and above 0"
        )
    return float(value)
