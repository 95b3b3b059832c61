"""Random numbers from a counter: a number depends on seed, row and column, and on nothing else.

Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011) turns a counter of four 32-bit words and a key of two into four words. The counter is (row,
low and high word; pair of columns; 0), the key comes from the seed.
"""

from __future__ import annotations

import hashlib
import operator

import torch

__all__ = ["normal_rows", "philox", "seed_key", "uniform_rows"]

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_AT_ONCE = 1 << 13  # counters that stay in the cache through all rounds
_DIGITS = {torch.float32: 24, torch.bfloat16: 8, torch.complex64: 24}


def seed_key(seed: int, *names: str, domain: str = "dtoolkit.arrays") -> tuple[int, int]:
    """The key of a seed, by a stable hash.

    Parameters
    ----------
    seed : int
    *names : str
        What is drawn, where one seed serves several things that must not share their numbers.
    domain : str
        Package that draws; another one gets other numbers from the same seed.

    Raises
    ------
    TypeError
        The seed is no integer.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed={seed!r}: wanted an integer") from None
    words = (domain, str(number), *names)
    digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def philox(words: list[torch.Tensor], key: tuple[int, int]) -> list[torch.Tensor]:
    """Ten rounds of Philox 4x32, in place: fresh memory for each step would cost more than it.

    Parameters
    ----------
    words : list of 4 int64 tensors of one shape
        Counters, each word from 0 to 2**32 - 1; overwritten.
    key : two int

    Returns
    -------
    list of 4 int64 tensors
        `words`, now random, each from 0 to 2**32 - 1.
    """
    a, b, c, d = words
    first, second = key
    p, q = torch.empty_like(a), torch.empty_like(a)
    for _ in range(_ROUNDS):
        torch.mul(a, _MULTIPLIERS[0], out=p)
        torch.mul(c, _MULTIPLIERS[1], out=q)
        # A product of two words fills int64 up to its sign bit, which the shift copies: masked.
        torch.bitwise_right_shift(q, 32, out=a).bitwise_and_(_WORD)
        a.bitwise_xor_(b).bitwise_xor_(first)
        torch.bitwise_and(q, _WORD, out=b)
        torch.bitwise_right_shift(p, 32, out=c).bitwise_and_(_WORD)
        c.bitwise_xor_(d).bitwise_xor_(second)
        torch.bitwise_and(p, _WORD, out=d)
        first, second = (first + _STEPS[0]) & _WORD, (second + _STEPS[1]) & _WORD
    return words


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
