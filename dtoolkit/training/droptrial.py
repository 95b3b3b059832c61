"""DropCompute on real workers held against its simulation on the very delays that they met.

What a worker's step takes beyond its delays is spread over its micro-batches, and what a step takes
beyond its slowest worker is the overhead: both as measured while nobody dropped anything. Source:
as :mod:`dtoolkit.training.dropcompute`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtoolkit.training.dropcompute import best_threshold, expected_speedup, expected_threshold
from dtoolkit.training.dropsimulation import Simulated, best_simulated, simulate
from dtoolkit.training.dropstudy import CHOICES, Straggling

if TYPE_CHECKING:
    from dtoolkit.training.run import Run

__all__ = ["Met", "Trial"]

SET_UP = 1
"""Steps at the start that count not: they pay for what is made once."""


@dataclass(frozen=True, eq=False)
class Met:
    """What workers met in a run without dropping (measured).

    Attributes
    ----------
    times : float64 array, shape (workers, steps, micro-batches)
        Seconds.
    overhead : float
        Seconds of a step beyond its slowest worker.
    """

    times: NDArray[np.float64]
    overhead: float

    @classmethod
    def of(cls, work: Straggling, waits: Run) -> Met:
        """Take it from a run under ``Slow(seconds=work.compute, delay=work.delay)``.

        Parameters
        ----------
        work : Straggling
            With the seed of the run.
        waits : Run
            By "data-parallel", of more than one step.
        """
        history = waits.history.iloc[SET_UP:]
        columns = [name for name in history if name.startswith("compute_")]
        took = history[columns].to_numpy().T
        drawn = work.compute + work.delay.table(
            work.seed,
            workers=len(columns),
            steps=len(history),
            micro_batches=work.micro_batches,
            first_step=int(history["step"].iloc[0]),
        )
        own = np.maximum(took - drawn.sum(axis=2), 0.0) / work.micro_batches
        rest = float(history["seconds"].mean() - took.max(axis=0).mean())
        return cls(drawn + own[:, :, None], max(rest, 0.0))

    def threshold(self, choice: str | float) -> float:
        """Choose a threshold for workers that look after each micro-batch.

        Parameters
        ----------
        choice : {"best", "rule", "formula"} or float
            As for :meth:`Straggling.threshold`.

        Raises
        ------
        ValueError
            For an unknown choice; for "rule" with 5 micro-batches or fewer.
        """
        if choice == "best":
            return best_simulated(self.times, rule="after", overhead=self.overhead).threshold
        if choice == "rule":
            return float(best_threshold(self.times, overhead=self.overhead))
        if choice == "formula":
            return float(expected_threshold(*self._moments, overhead=self.overhead))
        if isinstance(choice, str):
            raise ValueError(f"threshold={choice!r}: wanted {', '.join(CHOICES)} or seconds")
        return float(choice)

    def formula(self, threshold: float) -> float:
        """Speed-up by the closed form, with the moments of these times."""
        return expected_speedup(threshold, *self._moments, overhead=self.overhead)

    def simulated(self, threshold: float) -> Simulated:
        """Look after each micro-batch, on these times."""
        return simulate(self.times, threshold, rule="after", overhead=self.overhead)

    @property
    def _moments(self) -> tuple[int, int, float, float]:
        workers, _, micro_batches = self.times.shape
        return workers, micro_batches, float(self.times.mean()), float(self.times.std())


@dataclass(frozen=True, eq=False)
class Trial:
    """The same steps waiting and dropping (measured), and what was expected of them (modelled).

    Attributes
    ----------
    workers, steps : int
        Steps that count.
    threshold : float
        Seconds.
    gain : float
        Samples really used a second, over those without dropping (measured).
    dropped : float
        Share of the samples (measured).
    waiting, dropping : float
        Mean seconds of a step (measured).
    loss_waiting, loss_dropping : float
        Of the last step (measured).
    simulated : Simulated
        On the same delays, with computing and overhead as measured.
    formula : float
        Speed-up by the closed form.
    """

    workers: int
    steps: int
    threshold: float
    gain: float
    dropped: float
    waiting: float
    dropping: float
    loss_waiting: float
    loss_dropping: float
    simulated: Simulated
    formula: float

    @classmethod
    def of(cls, work: Straggling, waits: Run, drops: Run) -> Trial:
        """Compare two runs of the same steps under the same delays.

        Parameters
        ----------
        work : Straggling
        waits : Run
            By "data-parallel".
        drops : Run
            By "dropcompute".
        """
        met, threshold = Met.of(work, waits), float(drops.summary["threshold"])
        before, after = (run.history.iloc[SET_UP:] for run in (waits, drops))
        used = float(after["samples"].sum() / before["samples"].sum())
        return cls(
            workers=met.times.shape[0],
            steps=len(before),
            threshold=threshold,
            gain=used * float(before["seconds"].sum() / after["seconds"].sum()),
            dropped=1 - used,
            waiting=float(before["seconds"].mean()),
            dropping=float(after["seconds"].mean()),
            loss_waiting=float(before["loss"].iloc[-1]),
            loss_dropping=float(after["loss"].iloc[-1]),
            simulated=met.simulated(threshold),
            formula=met.formula(threshold),
        )
