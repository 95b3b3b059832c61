"""How many losses stacks endure, what redundancy costs, and how much of it is best.

Closed forms of SPARe (arXiv 2603.00357); that of the availability is derived here: time that is
neither spent on checkpoints, nor on a restart, nor on work that is lost with one (half a period).
All times are in seconds, or any one unit.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import gammainc

from dtoolkit.training.seeds import number
from dtoolkit.training.stacked.placement import placement
from dtoolkit.training.stacked.rulers import largest_redundancy
from dtoolkit.training.steptimes import check_count, check_time

__all__ = [
    "availability",
    "best_period",
    "best_redundancy",
    "cost",
    "endurable",
    "endurable_replaced",
    "fewest_computed",
    "mean_computed",
]

# What the paper's table assumes, in seconds: failures of the whole gang, checkpoint, restart.
MTBF, SAVE, RESTART = 300.0, 60.0, 3600.0

_CELLS = 4_000_000  # groups x stacks x trials that are simulated at once


def endurable(
    n: int,
    r: int,
    *,
    method: Literal["formula", "simulated"] = "formula",
    trials: int = 1000,
    seed: int = 0,
) -> float:
    """Expected losses of groups until all holders of some type are gone: mu.

    Parameters
    ----------
    n : int
        N groups.
    r : int
        Shards of a stack.
    method : {"formula", "simulated"}
        ``Gamma(1/r) / r * N**(1 - 1/r)``, for large N; or the mean over random orders of losses,
        on the stacks of :func:`~dtoolkit.training.stacked.placement`, of the losses *before* the
        fatal one. For N of 200 and more they agree within 2%; at N = 8, r = 3 they are 8% apart.
    trials, seed : int
        Of the simulation: a pure function of its arguments.

    Returns
    -------
    float

    Raises
    ------
    PlanError
        Simulated, and there is no ruler for these numbers.

    Examples
    --------
    >>> round(endurable(600, 9), 1), round(endurable(200, 9), 1)
    (279.1, 105.1)
    """
    n, r = check_count("n", n), check_count("r", r)
    if r > n:
        raise ValueError(f"r={r}: wanted at most n={n}, the shards of a stack differ")
    if method == "formula":
        return math.gamma(1 / r) / r * n ** (1 - 1 / r)
    if method != "simulated":
        raise ValueError(f"method={method!r}: wanted 'formula' or 'simulated'")
    trials = check_count("trials", trials)
    # A type is lost with the last of its holders, and with the first such type the run. Types and
    # groups have one numbering, so that a type's holders are a row of the mirrored table.
    offsets = np.array(placement(n, r).offsets)
    holders = (np.arange(n)[:, None] - offsets) % n
    draw = np.random.Generator(np.random.Philox(number(seed, "stacked.endurable", n, r)))
    total, many = 0, max(1, _CELLS // (n * r))
    for first in range(0, trials, many):
        when = draw.random((min(many, trials - first), n)).argsort(axis=1)  # a group's turn to go
        last = when[:, holders[:, 0]]
        for place in range(1, r):
            np.maximum(last, when[:, holders[:, place]], out=last)
        total += int(last.min(axis=1).sum())
    return total / trials


def endurable_replaced(n: int, *, replace: float, mtbf: float) -> float:
    """Expected losses until all groups are gone at once, where each is replaced some time later.

    One over the chance that n - 1 more are lost before the first one is replaced (Poisson), a
    derivation.

    Parameters
    ----------
    n : int
        N groups, all of which hold everything.
    replace, mtbf : float
        Time until a newcomer is there, and mean time between failures of the whole gang.

    Returns
    -------
    float
        Infinite where that does not happen in a billion losses.
    """
    n = check_count("n", n)
    _check(replace=replace, mtbf=mtbf)
    gone = float(gammainc(n - 1, replace / mtbf)) if n > 1 else 1.0
    return 1 / gone if gone > 1e-9 else math.inf


def fewest_computed(n: int, lost: int) -> int:
    """c(k): shards that each survivor computes at least, ``ceil(N / (N - k))``.

    Parameters
    ----------
    n : int
        N groups.
    lost : int
        k of them; fewer than n.
    """
    n = check_count("n", n)
    if not 0 <= lost < n:
        raise ValueError(f"lost={lost}: wanted from 0 to n - 1 = {n - 1}")
    return -(-n // (n - lost))


def mean_computed(n: int, r: int) -> float:
    """Shards that each survivor computes in the mean until the wipe-out: S_bar.

    The mean of :func:`fewest_computed` over as many losses as are endured, by the formula.

    Parameters
    ----------
    n, r
        As of :func:`endurable`.
    """
    losses = max(1, math.floor(endurable(n, r)))
    return sum(fewest_computed(n, lost) for lost in range(losses)) / losses


def best_period(*, save: float, restart: float, failure: float) -> float:
    """Best time from the beginning of one checkpoint to that of the next: T_c.

    ``T_s + sqrt(T_s**2 + 2 T_s (T_f + T_r))``.

    Parameters
    ----------
    save : float
        T_s, that writing a checkpoint takes.
    restart : float
        T_r, from a wipe-out until steps are made again.
    failure : float
        T_f, mean time to a wipe-out.

    Returns
    -------
    float
    """
    _check(save=save, restart=restart, failure=failure)
    return save + math.sqrt(save * save + 2 * save * (failure + restart))


def availability(period: float, *, save: float, restart: float, failure: float) -> float:
    """Share of the time in which steps are made that count: A.

    ``(T_c - T_s) / T_c * T_f / (T_f + T_r + T_c / 2)``, a derivation. It is largest at
    :func:`best_period`.

    Parameters
    ----------
    period : float
        T_c, above `save`.
    save, restart, failure : float
        As of :func:`best_period`.

    Returns
    -------
    float
        From 0 to 1.
    """
    _check(period=period, save=save, restart=restart, failure=failure)
    if not period > save:
        raise ValueError(f"period={period!r}: wanted above save={save:g}")
    return (period - save) / period * failure / (failure + restart + period / 2)


def cost(
    n: int, r: int, *, mtbf: float = MTBF, save: float = SAVE, restart: float = RESTART
) -> float:
    """Time to train over that without failures, by the closed forms: J = S_bar / A.

    Parameters
    ----------
    n, r
        As of :func:`endurable`.
    mtbf : float
        Mean time between failures of the whole gang.
    save, restart
        As of :func:`best_period`. The defaults are those of the paper's table.

    Returns
    -------
    float
    """
    _check(mtbf=mtbf, save=save, restart=restart)
    failure = endurable(n, r) * mtbf
    period = best_period(save=save, restart=restart, failure=failure)
    if period == 0:  # checkpoints that cost nothing are written all the time
        return mean_computed(n, r) * (failure + restart) / failure
    up = availability(period, save=save, restart=restart, failure=failure)
    return mean_computed(n, r) / up


def best_redundancy(
    n: int, *, mtbf: float = MTBF, save: float = SAVE, restart: float = RESTART
) -> int:
    """The redundancy r of least :func:`cost`, the smallest of equal ones.

    Near ``log2(N) + 0.833``.

    Parameters
    ----------
    n : int
        N groups.
    mtbf, save, restart
        As of :func:`cost`.

    Returns
    -------
    int
        Of those for which there is a ruler.

    Examples
    --------
    >>> [best_redundancy(n) for n in (4, 200, 600, 1000)]
    [2, 8, 10, 10]
    """
    return min(
        range(1, largest_redundancy(n) + 1),
        key=lambda r: cost(n, r, mtbf=mtbf, save=save, restart=restart),
    )


def _check(**times: float) -> None:
    for name, value in times.items():
        check_time(name, value)
        if name in ("failure", "mtbf") and value == 0:
            raise ValueError(f"{name}=0: wanted above 0")
