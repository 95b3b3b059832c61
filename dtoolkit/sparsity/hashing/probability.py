"""How likely a neuron is to be found by its hash."""

from __future__ import annotations

import math

__all__ = ["retrieval_probability", "tables_for"]


def retrieval_probability(p: float, *, hashes: int, tables: int) -> float:
    """Probability that at least one of L tables gives a neuron: ``1 - (1 - p**K)**L``.

    Chen et al., "SLIDE: in defense of smart algorithms over hardware acceleration for large-scale
    deep learning systems", MLSys 2020.

    Parameters
    ----------
    p : float
        Probability that one hash function gives input and neuron the same value.
    hashes : int
        K, hash functions of a table.
    tables : int
        L.

    Returns
    -------
    float
        Of uncapped tables; those of limited capacity find less.

    Raises
    ------
    ValueError
        `p` is no probability, or there is no hash function or no table.
    """
    _check(p, hashes)
    if tables < 1:
        raise ValueError(f"tables={tables}: wanted 1 or more")
    return -math.expm1(tables * math.log1p(-(p**hashes))) if p < 1 else 1.0


def tables_for(p: float, *, hashes: int, wanted: float) -> int:
    """Fewest tables that find a neuron with probability `wanted`, in [0, 1).

    Raises
    ------
    ValueError
        As for :func:`retrieval_probability`; or no number of tables would do, since `p` is 0.
    """
    _check(p, hashes)
    if not 0 <= wanted < 1:
        raise ValueError(f"wanted={wanted}: wanted 0 or more and less than 1")
    if p == 0 and wanted > 0:
        raise ValueError("p=0: no number of tables finds what never has the same hash")
    if p == 1 or wanted == 0:
        return 1
    return max(1, math.ceil(math.log1p(-wanted) / math.log1p(-(p**hashes)) - 1e-12))


def _check(p: float, hashes: int) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"p={p}: wanted a probability")
    if hashes < 1:
        raise ValueError(f"hashes={hashes}: wanted 1 or more")
