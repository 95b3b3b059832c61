"""Who averages with whom in gossip, and with what weights.

A step of gossip replaces every model by a mean of its own and its neighbours':
``x_r <- sum_s M[r, s] x_s``. The rows of M sum to 1. Each rank has a mass, and what flows from r to
s is what flows from s to r (``mass[r] M[r, s] = mass[s] M[s, r]``), so that the mean of all models
by mass never changes and all models approach it. Where masses are equal M is doubly stochastic.

Masses are fixed, and need not be the samples of a step: what a rank learns is multiplied by
:func:`gain` before it is mixed, as in push-sum, where a rank's value and weight travel together
(Kempe, Dobra and Gehrke 2003; Assran et al. 2019). The mean of all models then moves by the mean of
what the ranks have learned, weighted by the samples of that step, whatever they are; ranks without
samples pass on what they hear.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dtoolkit.training.seeds import number

__all__ = [
    "complete",
    "gain",
    "masses_of",
    "matching",
    "mixed",
    "pairs",
    "ring",
    "second_eigenvalue",
]

Matrix = NDArray[np.float64]


def masses_of(samples: Sequence[float]) -> Matrix:
    """Mass of each rank: halfway between an equal one and its share of the samples, 1 on average.

    Equal masses would have a rank that owns most samples move several times as far as it would
    alone before it is mixed; masses in proportion would let nothing pass through ranks that have
    none. Halfway, no mass is below 1/2 and no :func:`gain` at such shares above 2.

    Parameters
    ----------
    samples : sequence of float
        What each rank has, in all; where all are 0, masses are equal.
    """
    counts = np.asarray(samples, dtype=np.float64)
    if not counts.any():
        return np.ones(len(counts))
    return (1 + len(counts) * counts / counts.sum()) / 2


def gain(mass: float, samples: int, total: int, ranks: int) -> float:
    """What a rank's move is multiplied by: its share of a step's samples over that of the mass.

    Parameters
    ----------
    mass : float
        This rank's; all of them sum to `ranks`.
    samples, total : int
        Samples of the step, on this rank and on all.
    ranks : int

    Examples
    --------
    >>> gain(1.0, 8, 32, 4), gain(0.5, 0, 32, 4), gain(2.5, 32, 32, 4)
    (1.0, 0.0, 1.6)
    """
    return ranks * samples / (total * mass) if samples else 0.0


def complete(masses: ArrayLike) -> Matrix:
    """Everybody with everybody: the mean by mass at once."""
    mass = np.asarray(masses, dtype=np.float64)
    return np.tile(mass / mass.sum(), (len(mass), 1))


def ring(masses: ArrayLike) -> Matrix:
    """Everybody with the ranks before and after it, by weights of 1/3 where masses are equal.

    Unequal masses: Metropolis weights, a third of the smaller mass flows between two neighbours.
    Up to three ranks are all neighbours, and take the mean at once.
    """
    mass = np.asarray(masses, dtype=np.float64)
    n = len(mass)
    if n <= 3:
        return complete(mass)
    after = (np.arange(n) + 1) % n
    flow = np.minimum(mass, mass[after]) / 3
    matrix = np.zeros((n, n))
    matrix[np.arange(n), after] = flow / mass
    matrix[after, np.arange(n)] = flow / mass[after]
    return matrix + np.diag(1 - matrix.sum(1))


def pairs(masses: ArrayLike, matched: Sequence[tuple[int, int]]) -> Matrix:
    """Each pair takes its mean by mass; who is in none keeps its model.

    Parameters
    ----------
    masses : array_like of float
    matched : sequence of (int, int)
        As :func:`matching` draws them.
    """
    mass = np.asarray(masses, dtype=np.float64)
    matrix = np.eye(len(mass))
    for pair in matched:
        matrix[np.ix_(pair, pair)] = complete(mass[list(pair)])
    return matrix


def matching(ranks: int, *, seed: int, step: int) -> list[tuple[int, int]]:
    """Random pairs of a step, the same on every rank; of an odd number one rank is left out.

    Parameters
    ----------
    ranks : int
    seed, step : int

    Returns
    -------
    list of (int, int)
        The lower rank first, in ascending order; each rank at most once.
    """
    draw = torch.Generator().manual_seed(number(seed, "gossip pairs", step))
    order = torch.randperm(ranks, generator=draw).tolist()
    couples = zip(order[::2], order[1::2], strict=False)
    return sorted((min(couple), max(couple)) for couple in couples)


def second_eigenvalue(matrix: Matrix) -> float:
    """Second largest magnitude of an eigenvalue: what distances from the mean fall by in a step."""
    sizes = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(sizes[-2]) if len(sizes) > 1 else 0.0


def mixed(models: dict[int, torch.Tensor], row: ArrayLike) -> torch.Tensor:
    """A rank's model after a step of mixing.

    Parameters
    ----------
    models : dict
        This rank's and its neighbours' models, flat, by rank.
    row : array_like of float
        This rank's row of the mixing matrix.

    Returns
    -------
    torch.Tensor
        The model of the lowest rank and what the others differ from it, in rank order: equal
        models stay as they are, and ranks with the same neighbours get the same bits.
    """
    first, *others = sorted(models)
    weights = np.asarray(row, dtype=np.float64)
    wide = torch.promote_types(models[first].dtype, torch.float32)
    total = models[first].to(wide, copy=True)
    for rank in others:
        total += float(weights[rank]) * (models[rank].to(wide) - models[first].to(wide))
    return total.to(models[first].dtype)
