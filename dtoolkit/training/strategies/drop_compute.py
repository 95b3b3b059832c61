"""DropCompute: synchronous data parallel in which slow workers stop computing in time."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.training.dropcompute import FEWEST_BEFORE, Threshold, best_threshold
from dtoolkit.training.dropsimulation import simulate
from dtoolkit.training.state import MEASURED
from dtoolkit.training.steptimes import check_count, check_time
from dtoolkit.training.strategies.data_parallel import DataParallel
from dtoolkit.training.strategy import Promise, StepReport

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["DropCompute"]


class DropCompute(DataParallel):
    """Each rank skips what is left of its micro-batches once a step has lasted too long.

    A rank computes its micro-batches one after the other; after each it looks at the time since the
    step began, and goes to the all-reduce if that is over the threshold. The first one is always
    computed. Nothing is sent that synchronous data parallel does not send (samples really used are
    in its messages) but for the table of times, once, at the end of the warm-up. Which micro-batch
    is the last is not known before it ends, so that all gradients leave after the backward passes,
    not while they run. Batch norm uses each rank's own statistics; its buffers are averaged.

    Source: Giladi et al., "DropCompute: simple and more robust distributed synchronous training via
    compute variance reduction", NeurIPS 2023 (arXiv 2306.10598), and its released code.

    Parameters
    ----------
    threshold : float, optional
        Seconds; infinite to drop nothing. By default it is chosen after the warm-up, the same on
        all ranks, from the times that were measured, by the rule of the released code
        (:func:`~dtoolkit.training.dropcompute.best_threshold`). That rule takes a cut *at* the
        threshold; where the measured steps would not have gained by looking after each
        micro-batch, as ranks do, nothing is dropped.
    warmup : int
        Steps to measure, without dropping, where the threshold is to be chosen. One more step comes
        before them: the first pays for what is made once.
    average : {"used", "planned"}
        What gradients are divided by: samples really used by all ranks, which weighs samples
        rightly; or all samples of the batch, as in the released code, which makes the step smaller
        the more is dropped.
    micro_batches : int
        Pieces that a rank's share of the batch is cut into where the run does not say
        (``accumulate=1``); fewer where the share has not so many pairs of samples.

    Raises
    ------
    ValueError
        An argument is out of range. By a run: fewer than 6 micro-batches, of which no threshold can
        be chosen; or batch norm over all ranks.
    """

    name: ClassVar[str] = "dropcompute"
    batch_norm: ClassVar[str] = "local"
    promise: ClassVar[Promise] = Promise(
        trajectory="one process on the samples really used, to rounding",
        resume="bit-equal if the same micro-batches are dropped, which the clock decides",
        other_workers="to rounding, if the same samples are dropped",
    )

    def __init__(
        self,
        threshold: float | None = None,
        *,
        warmup: int = 8,
        average: str = "used",
        micro_batches: int = 8,
    ) -> None:
        super().__init__(overlap=False)
        if threshold is not None:
            check_time("threshold", threshold, infinite=True)
        if average not in ("used", "planned"):
            raise ValueError(f"average={average!r}: wanted 'used' or 'planned'")
        self.threshold = None if threshold is None else float(threshold)
        self.warmup = check_count("warmup", warmup)
        self.micro_batches = check_count("micro_batches", micro_batches)
        self.average = average

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        super().check(settings)
        if settings.batch_norm not in (None, "local"):
            raise ValueError(
                f"batch_norm={settings.batch_norm!r}: ranks that drop a micro-batch have no part "
                "in its statistics; dropcompute has 'local' alone"
            )
        if self.threshold is None and settings.accumulate > 1:
            _enough(settings.accumulate, f"accumulate={settings.accumulate}")

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        super().configure(replica)
        self._pieces = self._cut(replica)
        self._limit = math.inf if self.threshold is None else self.threshold
        self._chosen: Threshold | None = None
        self._table: list[list[float]] = []
        self._fresh = True
        self._used = self._planned = 0

    def over(self, elapsed: float, *, step: int, rank: int, micro: int) -> bool:
        """Whether a rank skips what is left of a step; override it to drop by another rule.

        Parameters
        ----------
        elapsed : float
            Seconds since the step began.
        step, rank : int
        micro : int
            The micro-batch that has just ended.
        """
        return elapsed > self._limit

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        began = time.perf_counter()
        shares, divisor = self._shares(replica, step), self._divisor(replica, step)
        self._begin(replica, step)
        loss, samples, ends = 0.0, 0, [0.0]
        for micro, ids in enumerate(shares):
            one, count = replica.backward(ids, step=step, micro=micro, weight=1 / divisor)
            loss, samples = loss + one, samples + count
            if replica.device.type == "cuda":  # backward is only on its way
                torch.cuda.synchronize(replica.device)
            ends.append(time.perf_counter() - began)
            if self.over(ends[-1], step=step, rank=replica.rank, micro=micro):
                break
        counts, idle = self._sum(replica, step, samples)
        used, planned = sum(counts), replica.sampler.planned(step)
        replica.update((used if self.average == "used" else planned) / divisor)
        self._used, self._planned = self._used + used, self._planned + planned
        if self.threshold is None and self._chosen is None:
            self._measure(replica, ends, time.perf_counter() - began)
        done = {"micro_batches": len(ends) - 1}
        return StepReport(loss, samples, sum(map(len, shares)), ends[-1], idle, extra=done)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`: the threshold that was chosen, or what was measured."""
        own = super().own_state()
        if self._chosen is not None:
            chosen = [float(self._chosen), self._chosen.gain, self._chosen.dropped]
            own[MEASURED] = {_CHOSEN: chosen}
        elif self._table:
            own[MEASURED] = {_TIMES: [list(row) for row in self._table]}
        return own

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        own = dict(own)
        measured = own.pop(MEASURED, {})
        super().restore(own)
        if self.threshold is None:
            self._table = [list(row) for row in measured.get(_TIMES, [])]
            chosen = measured.get(_CHOSEN)
            if chosen is not None:
                self._choose(*chosen)

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        said: dict[str, Any] = {
            "threshold": self._limit,
            "average": self.average,
            "micro_batches": self._pieces,
            "dropped": 1 - self._used / self._planned if self._planned else 0.0,
        }
        if self._chosen is not None:
            said |= {"expected_gain": self._chosen.gain, "expected_drop": self._chosen.dropped}
        return said

    def cite(self) -> str:
        """What to cite."""
        return (
            "N. Giladi et al., DropCompute: simple and more robust distributed synchronous "
            "training via compute variance reduction, NeurIPS 2023"
        )

    def __repr__(self) -> str:
        return (
            f"DropCompute(threshold={self.threshold}, warmup={self.warmup}, "
            f"average={self.average!r}, micro_batches={self.micro_batches})"
        )

    # ------------------------------------------------------------------------ micro-batches

    def _cut(self, replica: Replica) -> int:
        """Micro-batches a rank and step."""
        if replica.settings.accumulate > 1:
            return replica.settings.accumulate
        share = replica.sampler.size // replica.size
        pieces = max(1, min(self.micro_batches, share // 2))
        if self.threshold is None and pieces <= FEWEST_BEFORE:
            pieces = min(self.micro_batches, share)
            _enough(pieces, f"a share of {share} samples a rank")
        return pieces

    def _shares(self, replica: Replica, step: int) -> list[torch.Tensor]:
        shares = replica.sampler.share(step, replica.rank)
        if len(shares) == 1:
            return list(torch.tensor_split(shares[0], self._pieces))
        return shares

    # ---------------------------------------------------------------------------- threshold

    def _measure(self, replica: Replica, ends: list[float], seconds: float) -> None:
        """Note the times of a step; after the last one of the warm-up choose the threshold."""
        if self._fresh:
            self._fresh = False
            return
        times = [after - before for before, after in pairwise(ends)]
        self._table.append([*times, seconds])
        if len(self._table) < self.warmup:
            return
        with replica.comm.phase("threshold"):
            mine = torch.tensor(self._table, dtype=torch.float64)
            table = torch.stack(list(replica.comm.all_gather(mine))).numpy()
        micros, whole = table[:, :, :-1], table[:, :, -1]
        overhead = max(0.0, float(whole.mean() - micros.sum(2).max(0).mean()))
        found = best_threshold(micros, overhead=overhead)
        real = simulate(micros, found, rule="after", overhead=overhead)
        self._choose(float(found), real.speedup - 1, real.dropped)

    def _choose(self, threshold: float, gain: float, dropped: float) -> None:
        self._chosen = Threshold(threshold, gain=gain, dropped=dropped)
        self._limit = threshold if gain > 0 else math.inf
        self._table = []


_CHOSEN, _TIMES = "threshold, gain, drop", "times of micro-batches and step"


def _enough(pieces: int, source: str) -> None:
    if pieces <= FEWEST_BEFORE:
        raise ValueError(
            f"dropcompute: {source} gives {pieces} micro-batch(es), and a threshold is chosen of "
            f"more than {FEWEST_BEFORE}: accumulate more, take a larger batch, or give the "
            "threshold, as DropCompute(threshold=...)"
        )
