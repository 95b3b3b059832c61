"""Random rows: a number depends on seed, row and column, and on nothing else.

The counter of :func:`dtoolkit.philox.philox` is (row, low and high word; pair of columns; 0), the
key comes from the seed.
"""

from __future__ import annotations

import torch

from dtoolkit.philox import philox

__all__ = ["normal_rows", "uniform_rows"]

_WORD = 0xFFFFFFFF
_AT_ONCE = 1 << 13  # counters that stay in the cache through all rounds
_DIGITS = {torch.float32: 24, torch.bfloat16: 8, torch.complex64: 24}


def uniform_rows(
    rows: torch.Tensor, k: int, key: tuple[int, int], dtype: torch.dtype
) -> torch.Tensor:
    """Uniform numbers in [0, 1).

    Parameters
    ----------
    rows : int64 tensor, shape (n,)
        Global numbers of the rows.
    k : int
        Columns.
    key : two int
    dtype : torch.dtype

    Returns
    -------
    torch.Tensor, shape (n, k)
    """
    digits = _DIGITS.get(dtype, 53)
    return _rows(rows, k, key, dtype, lambda bits: (bits >> (53 - digits)).double() * 2.0**-digits)


def normal_rows(
    rows: torch.Tensor, k: int, key: tuple[int, int], dtype: torch.dtype
) -> torch.Tensor:
    """Normal numbers of mean 0 and variance 1, by the inverse of the distribution function."""
    scale = 0.5**0.5 if dtype.is_complex else 1.0
    return _rows(
        rows,
        k,
        key,
        dtype,
        lambda bits: torch.special.ndtri((bits.double() + 0.5) * 2.0**-53) * scale,
    )


def _rows(
    rows: torch.Tensor, k: int, key: tuple[int, int], dtype: torch.dtype, number: object
) -> torch.Tensor:
    """Fill rows with numbers made of 53 random bits each, a few rows at a time."""
    part = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
    columns = 2 * k if dtype.is_complex else k
    pairs = -(-columns // 2)
    result = torch.empty((len(rows), columns), dtype=part, device=rows.device)
    pair = torch.arange(pairs, device=rows.device)
    height = max(1, _AT_ONCE // max(pairs, 1))
    for start in range(0, len(rows), height):
        row = rows[start : start + height, None].expand(-1, pairs)
        zeros = torch.zeros(row.shape, dtype=torch.int64, device=rows.device)
        words = philox([zeros + (row & _WORD), zeros + (row >> 32), zeros + pair, zeros], key)
        bits = torch.stack([_bits(words[0], words[1]), _bits(words[2], words[3])], dim=-1)
        made = number(bits.reshape(len(row), 2 * pairs))  # type: ignore[operator]
        result[start : start + height] = made[:, :columns]
    return torch.view_as_complex(result.reshape(len(rows), k, 2)) if dtype.is_complex else result


def _bits(high: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    """53 bits of two words."""
    return (high << 21) | (low >> 11)
