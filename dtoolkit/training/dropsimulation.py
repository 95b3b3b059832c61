"""DropCompute simulated: what a threshold gives on a table of times, measured or drawn.

The workers of a simulation cost nothing, so that a choice can be tried for hundreds of them.
Source: as :mod:`dtoolkit.training.dropcompute`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.training.dropcompute import CANDIDATES
from dtoolkit.training.steptimes import check_count, check_time, checked_table

__all__ = ["Rule", "Simulated", "best_simulated", "simulate", "sweep"]

Rule = Literal["at", "after"]


@dataclass(frozen=True, eq=False)
class Simulated:
    """Steps with and without dropping, on one table of times.

    Attributes
    ----------
    threshold : float
    rule : "at" or "after"
    speedup : float
        Micro-batches used per time over those without dropping.
    dropped : float
        Share of the micro-batches that was dropped.
    seconds, synchronous : float
        Mean time of a step with and without dropping, overhead included, in the table's unit.
    done : int64 array, shape (workers, iterations)
        Micro-batches that were used.
    """

    threshold: float
    rule: Rule
    speedup: float
    dropped: float
    seconds: float
    synchronous: float
    done: NDArray[np.int64]


def simulate(
    times: ArrayLike, threshold: float, *, rule: Rule = "at", overhead: float = 0.0
) -> Simulated:
    """What a threshold gives on a table of times.

    Parameters
    ----------
    times : array_like, shape (workers, iterations, micro-batches)
        Time of each micro-batch: measured, or drawn, e.g.
        ``1 + HeavyTail(0.5).table(0, workers=8, steps=400, micro_batches=12)``.
    threshold : float
    rule : {"at", "after"}
        "at" is the idealised cut: at the threshold a worker stops, and what it has finished counts.
        "after" is what workers can do: look after each micro-batch, which is finished and used.
    overhead : float
        T_c, in each step.

    Returns
    -------
    Simulated

    Raises
    ------
    ValueError
        As :func:`best_threshold`, but for any number of micro-batches.
    """
    ends = _ends(times, rule, overhead)
    check_time("threshold", threshold, infinite=True)
    return _simulated(ends, float(threshold), rule, overhead)


def best_simulated(
    times: ArrayLike, *, rule: Rule = "at", overhead: float = 0.0, candidates: int = CANDIDATES
) -> Simulated:
    """The best of thresholds spread evenly from the earliest first end to the latest end.

    Parameters
    ----------
    times, rule, overhead
        As for :func:`simulate`.
    candidates : int

    Returns
    -------
    Simulated
    """
    found = sweep(times, rule=rule, overhead=overhead, candidates=candidates)
    return max(found, key=lambda one: one.speedup)


def sweep(
    times: ArrayLike, *, rule: Rule = "at", overhead: float = 0.0, candidates: int = CANDIDATES
) -> Iterator[Simulated]:
    """Simulate thresholds spread evenly from the earliest first end to the latest end, one by one.

    Parameters
    ----------
    times, rule, overhead, candidates
        As for :func:`best_simulated`.
    """
    ends = _ends(times, rule, overhead)
    spread = np.linspace(ends[:, :, 0].min(), ends.max(), check_count("candidates", candidates))
    for one in spread:
        yield _simulated(ends, float(one), rule, overhead)


def _ends(times: ArrayLike, rule: str, overhead: float) -> NDArray[np.float64]:
    if rule not in ("at", "after"):
        raise ValueError(f"rule={rule!r}: wanted 'at' or 'after'")
    check_time("overhead", overhead)
    return checked_table(times).cumsum(axis=2)


def _simulated(
    ends: NDArray[np.float64], threshold: float, rule: Rule, overhead: float
) -> Simulated:
    M = ends.shape[2]
    whole = ends[:, :, -1]
    done = (ends <= threshold).sum(axis=2)
    if rule == "at":
        each = np.minimum(whole, threshold)
    else:
        done = np.minimum(done + 1, M)
        each = np.take_along_axis(ends, done[..., None] - 1, axis=2)[..., 0]
    seconds = float(each.max(axis=0).mean()) + overhead
    synchronous = float(whole.max(axis=0).mean()) + overhead
    used = float(done.mean()) / M
    speedup = used * synchronous / seconds if seconds > 0 else 0.0
    return Simulated(threshold, rule, speedup, 1 - used, seconds, synchronous, done)
