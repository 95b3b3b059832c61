"""How fast a rank computes: nonzeros times dense columns a second, for all dtypes or by dtype."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

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
        made = {dtype_name(name, "rate's dtype"): _rate(rate) for name, rate in value.items()}
        if len(made) < len(value):
            raise ValueError(f"rate has one dtype twice: got {', '.join(map(str, value))}")
        return made
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


def dtype_name(dtype: Any, name: str = "dtype") -> str:
    """Name a dtype of NumPy's or torch's, or one given by name, such as ``"float32"``.

    Raises
    ------
    ValueError
        If it is none, or one of no numbers; naming the argument (``name``).
    """
    text = isinstance(dtype, str)
    of_torch = vars(torch).get(dtype.removeprefix("torch.")) if text else dtype
    of_numpy = None if text and dtype.startswith("torch.") else _of_numpy(dtype)
    if of_numpy is not None:
        return of_numpy.name
    if isinstance(of_torch, torch.dtype):
        return str(of_torch).removeprefix("torch.")
    raise ValueError(
        f"{name}={dtype!r} is no dtype of numbers: wanted NumPy's, torch's, or a name such as "
        "'float32'"
    )


def _of_numpy(dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype of numbers that NumPy knows by this, if there is one."""
    try:
        found = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy parses text such as "f4,,"
        return None
    # Others register dtypes of a kind of their own with NumPy, such as bfloat16.
    known = found is not None and isinstance(vars(torch).get(found.name), torch.dtype)
    return found if found is not None and (known or found.kind in "biufc") else None


def _rate(value: Any) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value <= sys.float_info.max:
        raise ValueError(
            f"rate={value!r}: wanted nonzeros times columns a second, finite and above 0"
        )
    return float(value)
