"""DropCompute: when a slow worker should stop computing and go to the others.

Each worker accumulates M micro-batches a step. After each one it looks at the time since the step
began: over the threshold, it skips the rest and goes to the all-reduce. This module holds what is
known without workers: the model of a step's time, and the choice of the threshold, in closed form
and from measured times by the rule of the released code. Simulations are in
:mod:`dtoolkit.training.dropsimulation`; training with it is
:class:`dtoolkit.training.strategies.DropCompute`.

Source: Giladi et al., "DropCompute: simple and more robust distributed synchronous training via
compute variance reduction", NeurIPS 2023 (arXiv 2306.10598), and its released code.

All times are in one unit, seconds or any other. `overhead` is what a step takes beside the slowest
worker's computation: the all-reduce and the update (T_c in the paper).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from dtoolkit.training.steptimes import check_count, check_time, checked_table

__all__ = [
    "Scores",
    "Threshold",
    "best_threshold",
    "expected_done",
    "expected_speedup",
    "expected_step",
    "expected_threshold",
    "threshold_scores",
]

CANDIDATES = 200
FEWEST_BEFORE = 5  # micro-batches that every worker finishes under the smallest candidate


class Threshold(float):
    """A threshold: a number, with what is expected of it.

    Attributes
    ----------
    gain : float
        Samples used per time over those without dropping, less 1, by the criterion that chose the
        threshold.
    dropped : float
        Share of the micro-batches that is expected to be dropped, by the same criterion.
    """

    gain: float
    dropped: float

    def __new__(cls, value: float, *, gain: float, dropped: float) -> Threshold:
        """Make a number that knows its gain."""
        made = super().__new__(cls, value)
        made.gain, made.dropped = float(gain), float(dropped)
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, float]]:
        return (float(self),), {"gain": self.gain, "dropped": self.dropped}


# ---------------------------------------------------------------------------------- closed form


def expected_step(workers: int, micro_batches: int, mean: float, std: float) -> float:
    """Expected time of the slowest of N workers: E[T].

    M mean + std sqrt(M) [(1-g) Phi^-1(1 - 1/N) + g Phi^-1(1 - 1/(eN))], g Euler's constant: the
    largest of N normal sums (section "Runtime analysis" of the paper). One worker takes M mean.

    Parameters
    ----------
    workers : int
        N.
    micro_batches : int
        M.
    mean, std : float
        Of the time of one micro-batch.

    Returns
    -------
    float
        Without the all-reduce.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range.

    Examples
    --------
    >>> round(expected_step(64, 12, 1.0, 0.3), 2)
    14.46
    """
    N, M = check_count("workers", workers), check_count("micro_batches", micro_batches)
    _check_mean(mean)
    check_time("std", std)
    if N == 1:
        return M * mean
    largest = (1 - np.euler_gamma) * ndtri(1 - 1 / N) + np.euler_gamma * ndtri(1 - 1 / (math.e * N))
    return float(M * mean + std * math.sqrt(M) * largest)


def expected_done(threshold: float, micro_batches: int, mean: float, std: float) -> float:
    """Expected micro-batches that a worker has finished when the threshold comes.

    The sum over m of Phi((threshold - m mean) / (std sqrt(m))).

    Parameters
    ----------
    threshold : float
        Time since the step began; may be infinite.
    micro_batches, mean, std
        As for :func:`expected_step`.

    Returns
    -------
    float
        From 0 to `micro_batches`.
    """
    M = check_count("micro_batches", micro_batches)
    check_time("threshold", threshold, infinite=True)
    _check_mean(mean)
    check_time("std", std)
    m = np.arange(1, M + 1)
    if std == 0:
        return float((m * mean <= threshold).sum())
    return float(ndtr((threshold - m * mean) / (std * np.sqrt(m))).sum())


def expected_speedup(
    threshold: float,
    workers: int,
    micro_batches: int,
    mean: float,
    std: float,
    *,
    overhead: float = 0.0,
) -> float:
    """Samples used per time over those without dropping: the effective speed-up S_eff.

    (E[T] + T_c) / (min(threshold, E[T]) + T_c) times the share of micro-batches done. The paper's
    formula for normal times; above 1 is a gain. Long tails gain more than it says.

    Parameters
    ----------
    threshold, workers, micro_batches, mean, std
        As for :func:`expected_step` and :func:`expected_done`.
    overhead : float
        T_c.

    Returns
    -------
    float
    """
    check_time("overhead", overhead)
    whole = expected_step(workers, micro_batches, mean, std)
    cut = min(float(threshold), whole) + overhead
    done = expected_done(threshold, micro_batches, mean, std) / micro_batches
    if cut == 0:  # without overhead, a cut at once: nothing is done in no time
        return 0.0
    return (whole + overhead) / cut * done


def expected_threshold(
    workers: int, micro_batches: int, mean: float, std: float, *, overhead: float = 0.0
) -> Threshold:
    """The threshold with the largest expected speed-up, in closed form.

    Parameters
    ----------
    workers, micro_batches, mean, std, overhead
        As for :func:`expected_speedup`.

    Returns
    -------
    Threshold
        A float, with the expected `gain` and share `dropped`.

    Examples
    --------
    >>> found = expected_threshold(64, 12, 1.0, 0.3, overhead=0.5)
    >>> round(float(found), 1), round(found.gain, 3), round(found.dropped, 2)
    (11.1, 0.139, 0.12)
    """

    def speedup(threshold: float) -> float:
        return expected_speedup(threshold, workers, micro_batches, mean, std, overhead=overhead)

    # Above E[T] only what is done grows; up to there the best of a grid, then the hill around it.
    whole = expected_step(workers, micro_batches, mean, std)
    grid = np.linspace(0.0, whole, 401)[1:]
    place = int(np.argmax([speedup(one) for one in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    hill = minimize_scalar(lambda one: -speedup(one), bounds=(low, high), method="bounded")
    best = max((float(hill.x), float(grid[place]), math.inf), key=speedup)
    done = expected_done(best, micro_batches, mean, std)
    return Threshold(best, gain=speedup(best) - 1, dropped=1 - done / micro_batches)


# ------------------------------------------------------------------------------- measured times


@dataclass(frozen=True, eq=False)
class Scores:
    """What each candidate is expected to give.

    Attributes
    ----------
    thresholds, gains, dropped : float64 arrays, shape (200,)
        Candidates; the score of each; the share of the micro-batches that it drops.
    """

    thresholds: NDArray[np.float64]
    gains: NDArray[np.float64]
    dropped: NDArray[np.float64]

    @property
    def best(self) -> Threshold:
        """The candidate with the largest score, the smallest of equal ones."""
        place = int(np.argmax(self.gains))
        return Threshold(
            self.thresholds[place], gain=self.gains[place], dropped=self.dropped[place]
        )


def best_threshold(
    times: ArrayLike, *, iteration_time: ArrayLike | None = None, overhead: float | None = None
) -> Threshold:
    """The threshold to use, from measured times, by the rule of the released code.

    Of 200 candidates (:func:`threshold_scores`) the one with the largest score. The same on every
    worker that has the same table. A gain that is not above 0 means: better not drop.

    Parameters
    ----------
    times : array_like, shape (workers, iterations, micro-batches)
        Time of each micro-batch, not accumulated; more than 5 micro-batches.
    iteration_time : float or array_like, optional
        Time of a whole iteration, or of each, of which the mean counts; the overhead is what it
        takes beyond the mean over iterations of the slowest worker.
    overhead : float, optional
        In place of `iteration_time`; with neither it is 0.

    Returns
    -------
    Threshold
        A float in the unit of `times`, with the expected `gain` and the share `dropped`.

    Raises
    ------
    ValueError
        The table has another shape, 5 micro-batches or fewer, or values that are no times; both
        `iteration_time` and `overhead` are given; or an iteration would be shorter than its
        slowest worker.
    """
    return threshold_scores(times, iteration_time=iteration_time, overhead=overhead).best


def threshold_scores(
    times: ArrayLike, *, iteration_time: ArrayLike | None = None, overhead: float | None = None
) -> Scores:
    """Score 200 candidate thresholds on measured times.

    Candidates lie evenly between the earliest sixth micro-batch and the latest end. A candidate's
    score is the mean over iterations of (1 - drop) / (1 - gain / raw) - 1: drop the share of
    micro-batches that end at the candidate or later, gain the time between the last end of all and
    the last one before the candidate, raw the slowest worker's time and the overhead.

    Parameters
    ----------
    times, iteration_time, overhead
        As for :func:`best_threshold`.

    Returns
    -------
    Scores
    """
    table = checked_table(times)
    if table.shape[2] <= FEWEST_BEFORE:
        raise ValueError(
            f"times: {table.shape[2]} micro-batches an iteration, wanted more than {FEWEST_BEFORE}:"
            " the smallest threshold that is tried lets every worker finish so many; give the "
            "threshold, or accumulate more"
        )
    ends = table.cumsum(axis=2)
    slowest = ends[:, :, -1].max(axis=0)
    raw = slowest + _overhead(float(slowest.mean()), iteration_time, overhead)
    if not (raw > 0).all():
        raise ValueError("times: an iteration in which no worker took any time")
    candidates = np.linspace(ends[:, :, FEWEST_BEFORE:].min(), ends.max(), CANDIDATES)
    before, last = _before(ends, candidates)
    dropped = 1 - before
    left = 1 - (slowest - last) / raw
    # Where an iteration is cut to nothing, and nothing is done in it, the quotient says nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(left > 0, (1 - dropped) / left, 0.0) - 1
    return Scores(candidates, score.mean(axis=1), dropped.mean(axis=1))


def _before(
    ends: NDArray[np.float64], candidates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Share of micro-batches that end before a candidate, and the last such end (0 for none).

    Both of shape (candidates, iterations).
    """
    workers, iterations, micro_batches = ends.shape
    each = np.sort(ends.transpose(1, 0, 2).reshape(iterations, -1), axis=1)
    counts = np.stack([np.searchsorted(row, candidates) for row in each], axis=1)
    padded = np.concatenate([np.zeros((iterations, 1)), each], axis=1)
    return counts / (workers * micro_batches), padded[np.arange(iterations), counts]


def _overhead(slowest: float, iteration_time: ArrayLike | None, overhead: float | None) -> float:
    if iteration_time is None:
        check_time("overhead", overhead or 0.0)
        return overhead or 0.0
    if overhead is not None:
        raise ValueError("iteration_time= and overhead= say the same: give one of them")
    whole = float(np.mean(np.asarray(iteration_time, dtype=np.float64)))
    check_time("iteration_time", whole)
    if whole < slowest * (1 - 1e-9):
        raise ValueError(
            f"iteration_time={whole:g} is less than the {slowest:g} that the slowest "
            "worker computes in the mean: is it in the unit of times, and of one iteration?"
        )
    return max(whole - slowest, 0.0)


def _check_mean(mean: float) -> None:
    check_time("mean", mean)
    if mean == 0:
        raise ValueError("mean=0: wanted above 0, a micro-batch takes time")
