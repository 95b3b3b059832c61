"""What the generators share: checked arguments, streams of random numbers, values of entries."""

from __future__ import annotations

import numbers
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from dtoolkit.data.canonical import Shape, from_triplets

__all__ = ["Values", "check_count", "check_probability", "from_pairs", "streams"]

Values: TypeAlias = Literal["ones", "normal", "uniform"]


def check_count(name: str, value: int, *, least: int = 0) -> int:
    """Return a whole number of at least ``least``, or raise naming the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}={value!r}: want a whole number")
    if value < least:
        raise ValueError(f"{name}={value}: want at least {least}")
    return int(value)


def check_probability(name: str, value: float) -> float:
    """Return a number from 0 to 1, or raise naming the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: want a number from 0 to 1")
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value}: want a number from 0 to 1")
    return float(value)


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Two independent streams, for structure and for values.

    Structure is thus the same whatever values are asked for.
    """
    check_count("seed", seed)
    structure, values = np.random.SeedSequence(seed).spawn(2)
    return np.random.default_rng(structure), np.random.default_rng(values)


def from_pairs(
    rows: NDArray,
    columns: NDArray,
    shape: Shape,
    *,
    values: Values,
    rng: np.random.Generator,
    dtype: DTypeLike,
) -> csr_array:
    """Canonical CSR with one entry for each distinct pair.

    Parameters
    ----------
    rows, columns : integer array, (pairs,)
        Duplicates are collapsed, not summed.
    shape : tuple of int
        Rows and columns.
    values : "ones", "normal" or "uniform"
        1; standard normal; uniform from 0 (included) to 1.
    rng : numpy.random.Generator
        Draws the values, in the order of the entries.
    dtype : dtype-like
        float32 or float64 (complex dtypes get real values).

    Returns
    -------
    scipy.sparse.csr_array
    """
    result = from_triplets(rows, columns, None, shape, what="generator", dtype=dtype)
    if values == "ones":
        result.data[:] = 1
    elif values == "normal":
        result.data[:] = rng.standard_normal(result.nnz)
    elif values == "uniform":
        result.data[:] = rng.random(result.nnz)
    else:
        raise ValueError(f"values={values!r}: want 'ones', 'normal' or 'uniform'")
    return result
