"""What DropCompute gains where times vary: by thresholds and workers, simulated and by formula.

Times are drawn as :class:`dtoolkit.faults.Slow` draws the delays of real workers, so that a run
under the same seed meets the same ones. No worker is needed. Source: as
:mod:`dtoolkit.training.dropcompute`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.faults.delays import Delay
from dtoolkit.training.dropcompute import (
    best_threshold,
    expected_done,
    expected_speedup,
    expected_threshold,
)
from dtoolkit.training.dropsimulation import Rule, Simulated, best_simulated, simulate, sweep
from dtoolkit.training.steptimes import check_count, check_time

__all__ = ["CHOICES", "Gain", "Straggling", "Study"]

CHOICES = ("best", "rule", "formula")
"""How a threshold can be chosen: the best simulated one, the released code's rule, closed form."""

MOST_STEPS, FEWEST_STEPS = 400, 20
DRAWN = 800_000
"""Micro-batches drawn at most, over workers and steps, where that leaves enough steps."""

CURVE, SPREAD = 101, 61  # thresholds of a curve, and those that a number of workers is tried with


@dataclass(frozen=True)
class Straggling:
    """Micro-batches whose times vary, alike on all workers.

    Parameters
    ----------
    delay : Delay
        Of each micro-batch, beside what it computes; one with ``mean`` and ``std``, as those of
        :mod:`dtoolkit.faults.delays`.
    compute : float
        Seconds that a micro-batch takes without delay.
    micro_batches : int
        Of a worker in a step.
    overhead : float
        Seconds that a step takes besides: all-reduce and update.
    seed : int
        Of the delays.

    Raises
    ------
    TypeError, ValueError
        An argument is out of range, or a micro-batch takes no time.

    Examples
    --------
    >>> from dtoolkit.faults.delays import Normal
    >>> work = Straggling(Normal(1.0, 0.3), micro_batches=12, overhead=0.5)
    >>> round(work.study(64, rule="at").chosen.speedup, 2), round(work.gain(64).formula, 2)
    (1.14, 1.14)
    """

    delay: Delay
    compute: float = 0.0
    micro_batches: int = 12
    overhead: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.delay, Delay) or not hasattr(self.delay, "mean"):
            raise TypeError(
                f"delay={self.delay!r}: wanted a distribution of dtoolkit.faults.delays"
            )
        check_time("compute", self.compute)
        check_count("micro_batches", self.micro_batches)
        check_time("overhead", self.overhead)
        if self.mean == 0:
            raise ValueError("a micro-batch takes no time: give compute= or a delay above 0")

    @property
    def mean(self) -> float:
        """Seconds that a micro-batch takes in the mean."""
        drawn: Any = self.delay
        return self.compute + float(drawn.mean)

    @property
    def std(self) -> float:
        """Standard deviation of a micro-batch's time, in seconds."""
        drawn: Any = self.delay
        return float(drawn.std)

    def steps(self, workers: int) -> int:
        """Steps that are simulated: fewer where there are many workers."""
        return int(np.clip(DRAWN // (workers * self.micro_batches), FEWEST_STEPS, MOST_STEPS))

    def times(self, workers: int, *, steps: int | None = None) -> NDArray[np.float64]:
        """Draw the time of each micro-batch.

        Parameters
        ----------
        workers : int
        steps : int, optional
            By default :meth:`steps`.

        Returns
        -------
        float64 array, shape (workers, steps, micro_batches)
            Seconds.
        """
        wanted = self.steps(workers) if steps is None else steps
        shares = _shares(self.seed, workers, wanted, self.micro_batches)
        return self.compute + self.delay.quantile(shares)

    def formula(self, threshold: float, workers: int) -> float:
        """Speed-up by the closed form, which takes times to be normal and cut at the threshold."""
        return expected_speedup(
            threshold, workers, self.micro_batches, self.mean, self.std, overhead=self.overhead
        )

    def formula_dropped(self, threshold: float) -> float:
        """Share of the micro-batches that is dropped, by the closed form."""
        done = expected_done(threshold, self.micro_batches, self.mean, self.std)
        return 1 - done / self.micro_batches

    def threshold(self, workers: int, choice: str | float, *, rule: Rule = "after") -> float:
        """Choose a threshold.

        Parameters
        ----------
        workers : int
        choice : {"best", "rule", "formula"} or float
            See :data:`CHOICES`; a number is taken as it is.
        rule : {"at", "after"}
            For "best": as for :func:`~dtoolkit.training.dropsimulation.simulate`.

        Raises
        ------
        ValueError
            For an unknown choice; for "rule" with 5 micro-batches or fewer.
        """
        if choice == "formula":
            return float(
                expected_threshold(
                    workers, self.micro_batches, self.mean, self.std, overhead=self.overhead
                )
            )
        if choice == "rule":
            return float(best_threshold(self.times(workers), overhead=self.overhead))
        if choice == "best":
            return self._best(workers, rule, CURVE).threshold
        if isinstance(choice, str):
            raise ValueError(f"threshold={choice!r}: wanted {', '.join(CHOICES)} or seconds")
        check_time("threshold", choice, infinite=True)
        return float(choice)

    def study(
        self, workers: int, threshold: str | float = "best", *, rule: Rule = "after"
    ) -> Study:
        """Try thresholds on so many workers.

        Parameters
        ----------
        workers : int
        threshold : {"best", "rule", "formula"} or float
            The one that is looked at; see :meth:`threshold`.
        rule : {"at", "after"}
            As for :func:`~dtoolkit.training.dropsimulation.simulate`.
        """
        times = self.times(check_count("workers", workers))
        tried = [
            (one.threshold, one.speedup, one.dropped)
            for one in sweep(times, rule=rule, overhead=self.overhead, candidates=CURVE)
        ]
        grid, speedups, dropped = np.array(tried).T
        if threshold == "best":
            found = float(grid[speedups.argmax()])
        else:
            found = self.threshold(workers, threshold, rule=rule)
        chosen = simulate(times, found, rule=rule, overhead=self.overhead)
        ends = times.cumsum(axis=2)
        return Study(
            work=self,
            workers=workers,
            chosen=chosen,
            formula=self.formula(chosen.threshold, workers),
            thresholds=grid,
            speedups=speedups,
            dropped=dropped,
            formulas=np.array([self.formula(float(one), workers) for one in grid]),
            formulas_dropped=np.array([self.formula_dropped(float(one)) for one in grid]),
            alone=ends[:, :, -1],
            slowest=ends[:, :, -1].max(axis=0),
            cut=_cut(ends, chosen),
        )

    def gain(self, workers: int) -> Gain:
        """Best speed-ups of so many workers."""
        found = expected_threshold(
            workers, self.micro_batches, self.mean, self.std, overhead=self.overhead
        )
        return Gain(
            workers, 1 + found.gain, self._best(workers, "at"), self._best(workers, "after")
        )

    def _best(self, workers: int, rule: Rule, candidates: int = SPREAD) -> Simulated:
        return best_simulated(
            self.times(workers), rule=rule, overhead=self.overhead, candidates=candidates
        )


@dataclass(frozen=True, eq=False)
class Study:
    """Thresholds tried on one number of workers (modelled).

    Attributes
    ----------
    work : Straggling
    workers : int
    chosen : Simulated
        At the threshold that is looked at.
    formula : float
        Speed-up by the closed form there.
    thresholds, speedups, dropped : float64 arrays, shape (thresholds,)
        Seconds; simulated speed-up and share dropped.
    formulas, formulas_dropped : float64 arrays, shape (thresholds,)
        The same by the closed form.
    alone : float64 array, shape (workers, steps)
        Seconds that a worker computes if nothing is dropped.
    slowest, cut : float64 arrays, shape (steps,)
        Seconds that the slowest worker computes, without dropping and with the chosen threshold.
    """

    work: Straggling
    workers: int
    chosen: Simulated
    formula: float
    thresholds: NDArray[np.float64]
    speedups: NDArray[np.float64]
    dropped: NDArray[np.float64]
    formulas: NDArray[np.float64]
    formulas_dropped: NDArray[np.float64]
    alone: NDArray[np.float64]
    slowest: NDArray[np.float64]
    cut: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Gain:
    """The best that a threshold gives to so many workers (modelled).

    Attributes
    ----------
    workers : int
    formula : float
        Speed-up by the closed form.
    at, after : Simulated
        Cut at the threshold, and looking after each micro-batch.
    """

    workers: int
    formula: float
    at: Simulated
    after: Simulated


class _Shares(Delay):
    """The probabilities that delays are made of, themselves."""

    def quantile(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        return probability


@lru_cache(maxsize=14)
def _shares(seed: int, workers: int, steps: int, micro_batches: int) -> NDArray[np.float64]:
    """Draw once for all distributions: it takes longer than all that is made of it."""
    made = _Shares().table(seed, workers=workers, steps=steps, micro_batches=micro_batches)
    made.flags.writeable = False
    return made


def _cut(ends: NDArray[np.float64], chosen: Simulated) -> NDArray[np.float64]:
    """Seconds of the slowest worker in each step with dropping."""
    if chosen.rule == "at":
        return np.minimum(ends[:, :, -1].max(axis=0), chosen.threshold)
    last = np.take_along_axis(ends, chosen.done[..., None] - 1, axis=2)[..., 0]
    return np.asarray(last.max(axis=0))
