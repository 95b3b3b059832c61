"""Random words from a counter: what is drawn depends on the key and the counter, on nothing else.

Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
2011) turns a counter of four 32-bit words and a key of two into four words. Integer arithmetic
alone: every device and every process draws the same.
"""

from __future__ import annotations

import hashlib
import operator

import torch

__all__ = ["philox", "seed_key"]

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


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
