"""What SpeedPanel computes: times drawn, thresholds tried, the formula beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtoolkit.faults.delays import Constant, Exponential, HeavyTail, LogNormal, Normal
from dtoolkit.training.dropcompute import expected_speedup, expected_threshold
from dtoolkit.training.dropsimulation import Rule, Simulated, best_simulated, simulate

__all__ = ["DELAYS", "Answer", "Question", "answer", "over_workers"]

DELAYS = {
    "heavy": "heavy tail (sentence lengths)",
    "lognormal": "log-normal",
    "exponential": "exponential",
    "normal": "normal",
    "constant": "constant",
}
"""Distributions of the delay of a micro-batch: value to words."""

Distribution = Constant | Exponential | HeavyTail | LogNormal | Normal

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_CURVE, _CANDIDATES, _STEPS = 61, 40, 40  # points of a curve, thresholds and steps a size


@dataclass(frozen=True)
class Question:
    """What a person asks.

    Attributes
    ----------
    delay : str
        A key of ``DELAYS``.
    mean, compute, overhead : float
        Seconds: mean delay and computing of a micro-batch, and what a step takes besides.
    spread : int
        Percent: standard deviation over mean ("normal"), or 100 sigma ("lognormal").
    workers, micro_batches, steps, seed : int
    rule : "after" or "at"
    choose : "best", "formula" or "own"
    threshold : float
        Seconds, for "own".
    """

    delay: str
    mean: float
    spread: int
    compute: float
    overhead: float
    workers: int
    micro_batches: int
    steps: int
    seed: int
    rule: Rule
    choose: str
    threshold: float

    def distribution(self) -> Distribution:
        """The delay of a micro-batch."""
        if self.delay == "normal":
            return Normal(self.mean, self.mean * self.spread / 100)
        if self.delay == "lognormal":
            return LogNormal(self.mean, self.spread / 100)
        if self.delay == "heavy":
            return HeavyTail(self.mean)
        return Exponential(self.mean) if self.delay == "exponential" else Constant(self.mean)

    def distribution_code(self) -> str:
        """Python that makes it."""
        made = self.distribution()
        return f"dt.faults.delays.{made!r}"

    def times(self, workers: int, steps: int) -> NDArray[np.float64]:
        """Seconds of each micro-batch, shape (workers, steps, micro-batches)."""
        drawn = self.distribution().table(
            self.seed, workers=workers, steps=steps, micro_batches=self.micro_batches
        )
        return self.compute + drawn

    def formula(self, threshold: float, workers: int) -> float:
        """Speed-up by the closed form, with the moments of the times."""
        mean, std = self.compute + self.distribution().mean, self.distribution().std
        return expected_speedup(
            threshold, workers, self.micro_batches, mean, std, overhead=self.overhead
        )

    def formula_best(self, workers: int) -> tuple[float, float]:
        """Threshold that the closed form takes to be best, and its speed-up."""
        mean, std = self.compute + self.distribution().mean, self.distribution().std
        found = expected_threshold(workers, self.micro_batches, mean, std, overhead=self.overhead)
        return float(found), 1 + found.gain


@dataclass(frozen=True, eq=False)
class Answer:
    """What comes of it.

    Attributes
    ----------
    chosen : Simulated
        At the threshold that is looked at.
    formula : float
        Speed-up by the closed form at that threshold.
    curve : DataFrame
        threshold, simulated, dropped, formula.
    times : float array, shape (workers, steps)
        Seconds that each worker computes in each step if nothing is dropped.
    """

    chosen: Simulated
    formula: float
    curve: pd.DataFrame
    times: NDArray[np.float64]


def answer(q: Question) -> Answer:
    """Simulate the asked number of workers over many thresholds."""
    times = q.times(q.workers, q.steps)
    whole = times.sum(axis=2)
    best = best_simulated(times, rule=q.rule, overhead=q.overhead)
    threshold = {"best": best.threshold, "own": q.threshold}.get(q.choose)
    if threshold is None:
        threshold = min(q.formula_best(q.workers)[0], float(whole.max()))
    chosen = simulate(times, threshold, rule=q.rule, overhead=q.overhead)
    low = float(times[:, :, 0].min())
    grid = np.linspace(low, max(float(whole.max()), threshold), _CURVE)
    rows = [simulate(times, one, rule=q.rule, overhead=q.overhead) for one in grid]
    curve = pd.DataFrame(
        {
            "threshold": grid,
            "simulated": [one.speedup for one in rows],
            "dropped": [one.dropped for one in rows],
            "formula": [q.formula(one, q.workers) for one in grid],
        }
    )
    return Answer(chosen, q.formula(threshold, q.workers), curve, whole)


def over_workers(q: Question) -> pd.DataFrame:
    """Best speed-up by simulation and by the closed form for 1 to 1,024 workers.

    Returns
    -------
    DataFrame
        workers, simulated, formula; by ``_STEPS`` steps and ``_CANDIDATES`` thresholds a size.
    """
    steps = min(q.steps, _STEPS)
    times = q.times(SIZES[-1], steps)
    rows = []
    for size in SIZES:
        found = best_simulated(
            times[:size], rule=q.rule, overhead=q.overhead, candidates=_CANDIDATES
        )
        rows.append((size, max(found.speedup, 1.0), q.formula_best(size)[1]))
    return pd.DataFrame(rows, columns=["workers", "simulated", "formula"])
