"""What every rank does in a training run: steps, and what happens where the ranks meet.

Ranks meet to evaluate, to write a checkpoint, to stop, and at the end. A run can be stopped at any
step at which its strategy lets them meet; what is captured there is what it goes on from.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.training.agreement import Agreement
from dtoolkit.training.capture import capture, check_same, own_part, restore
from dtoolkit.training.checkpoint import Checkpoint
from dtoolkit.training.ended import Ended
from dtoolkit.training.finite import check_parameters
from dtoolkit.training.living import living
from dtoolkit.training.plain import plain
from dtoolkit.training.recovery.elastic import ElasticRank
from dtoolkit.training.recovery.fingerprint import held_by
from dtoolkit.training.recovery.policy import Abort, Policy
from dtoolkit.training.recovery.surviving import Elastic
from dtoolkit.training.replica import Replica
from dtoolkit.training.row_gradients import check_row_gradients
from dtoolkit.training.settings import Settings
from dtoolkit.training.state import RunState
from dtoolkit.training.strategy import StepReport, Strategy
from dtoolkit.training.writing import Writer

if TYPE_CHECKING:
    from dtoolkit.cluster import Context

__all__ = ["Ended", "Job", "learn"]

_THROUGH = 2**20 - 1  # tag of the word that a rank has made its steps
_LISTEN = 0.005  # seconds between two looks at the messages


@dataclass(frozen=True)
class Job:
    """What is asked of the ranks; the same for all.

    Attributes
    ----------
    task : Task
    strategy : Strategy
    settings : Settings
    state : RunState or None
        Where to go on; None to begin.
    checkpoint : Checkpoint or None
    about : dict
        What a saved run says of itself, in plain values.
    policy : Policy
        What is done when something goes wrong.
    deadline : float or None
        Seconds without a sign of life after which a worker counts as hung.
    records : dict or None
        Reports of the steps before, where the run is started again from its checkpoint.
    """

    task: Any
    strategy: Strategy
    settings: Settings
    state: RunState | None = None
    checkpoint: Checkpoint | None = None
    about: dict[str, Any] = field(default_factory=dict)
    policy: Policy = field(default_factory=Abort)
    deadline: float | None = None
    records: dict[str, Any] | None = None


def learn(ctx: Context, job: Job) -> Ended:
    """Train on this rank, together with the others.

    Raises
    ------
    ReplicaMismatch
        Ranks that must hold the same state do not.
    FloatingPointError
        A loss, a gradient or what was learned is not finite.
    TypeError
        The strategy gave something else than it promised.
    """
    start = time.perf_counter()
    if isinstance(job.policy, Elastic):
        state, summary, stopped = ElasticRank(ctx, job, job.policy).run()
        return Ended(state, summary, stopped, time.perf_counter() - start)
    return _Rank(ctx, job).run()


class _Rank:
    """One rank's side of a run."""

    def __init__(self, ctx: Context, job: Job) -> None:
        self.ctx, self.settings, self.strategy = ctx, job.settings, job.strategy
        with ctx.comm.phase("setup"), living(ctx):
            self.replica = Replica(
                ctx,
                job.task,
                job.settings,
                batch_norm=job.strategy.batch_norm,
                shards=job.strategy.shards,
            )
        self.step = self.count = 0  # steps of the run that are done, and of this rank
        self.own: dict[str, Any] = {}
        if job.state is not None:
            self.step = job.state.step
            self.own, self.count = own_part(job.state, ctx.rank)
            restore(self.replica, job.state)
        else:
            check_same(self.replica, 0)
        self.writer = None
        if job.checkpoint is not None:
            self.writer = Writer(
                job.checkpoint,
                self.replica,
                job.strategy,
                job.about,
                records=job.records,
                keeps_records=job.policy.attempts > 0,
            )
        self.agreement = Agreement(ctx, self.step)

    def run(self) -> Ended:
        """All steps, from where the run stands."""
        start = time.perf_counter()
        try:
            with self.ctx.comm.phase("setup"):
                if self.ctx.exposed and hasattr(self.strategy, "overlap"):
                    self.strategy.overlap = False  # gradients are shown before any has left
                check_row_gradients(self.replica, self.strategy, self.ctx.size)
                self.strategy.configure(self.replica)
                if self.own:
                    self.strategy.restore(self.own)
            state = self._meet() if self._ended else None  # the last checkpoint was of the end
            while not (self._ended or self.agreement.stopped):
                meeting = self._next_meeting()
                self.strategy.until(self.replica, self.step, meeting)
                if self.strategy.free:
                    self._run_free()
                else:
                    self._run_together(meeting)
                self.strategy.pause(self.replica)
                self.step = self.strategy.reached(self.replica, self.count)
                if not self._ended and (self.strategy.free or self.agreement.due(self.step)):
                    self.agreement.agree(self.step)
                state = self._meet()
            summary = plain(dict(self.strategy.summary()), "the strategy's summary")
        finally:
            self.strategy.finish(self.replica)
        return Ended(state, summary, not self._ended, time.perf_counter() - start)

    @property
    def _ended(self) -> bool:
        return self.step >= self.settings.steps

    def _next_meeting(self) -> int:
        """Steps that are done when the ranks meet next, whatever comes between."""
        every = [self.settings.evaluate_every, self.writer.every if self.writer else None]
        ends = [(self.step // n + 1) * n for n in every if n]
        return min([self.settings.steps, *ends])

    def _run_together(self, meeting: int) -> None:
        """Steps that all ranks count alike, until they meet or agree to stop."""
        while self.count < meeting:
            if self._one_step() is None:
                raise TypeError(f"{self.strategy.name}: step gave None: wanted a StepReport")
            if self.count < meeting and self.agreement.due(self.count):
                meets = self.strategy.meets(self.count - 1)
                if not meets and self.agreement.overdue(self.count):
                    self.strategy.pause(self.replica)
                    meets = True
                if meets and self.agreement.agree(self.count):
                    return

    def _run_free(self) -> None:
        """Steps that each rank counts by itself, until its strategy has no more."""
        while self._one_step() is not None:
            if self.ctx.rank == 0 and self.agreement.heard():
                self.strategy.stop(self.replica)
        with self.ctx.comm.phase("agreement"):
            self._hear_others_out()

    def _hear_others_out(self) -> None:
        """Rank 0, which passes a stop on, listens for one until all others are through too."""
        comm, nothing = self.ctx.comm, torch.zeros(0, dtype=torch.uint8)
        if self.ctx.rank != 0:
            comm.send(nothing, 0, tag=_THROUGH)
            return
        others = [comm.recv(rank, _THROUGH, wait=False) for rank in range(1, comm.size)]
        while not all(other.done() for other in others):
            if self.agreement.heard():
                self.strategy.stop(self.replica)
            time.sleep(_LISTEN)
        for other in others:
            other.wait()

    def _one_step(self) -> StepReport | None:
        ctx, replica = self.ctx, self.replica
        sent, start = ctx.recorder.sent, ctx.clock()
        ctx.step(self.count, report=False)
        if ctx.exposed:
            for name in ("parameters", "optimizer"):
                ctx.expose(name, partial(held_by, replica, name))
        rate = replica.optimizer.param_groups[0]["lr"]
        sparse = replica.sparse  # as the step finds it: so many values it exchanges
        found = (
            {} if sparse is None else {"density": sparse.density, "live_parameters": sparse.live}
        )
        report = self.strategy.step(replica, self.count)
        if report is None:
            return None
        if not isinstance(report, StepReport):
            kind = type(report).__name__
            raise TypeError(f"{self.strategy.name}: step gave {kind}: wanted a StepReport")
        row = [
            self.count,
            replica.sampler.epoch(self.count),
            report.loss_sum,
            report.samples,
            report.planned,
            report.compute,
            report.idle,
            report.staleness,
            report.local_steps,
            ctx.recorder.sent - sent,
            float(rate),
            start,
            ctx.clock(),
        ]
        extra = {f"extra.{name}": value for name, value in (found | report.extra).items()}
        ctx.log({"row": row, **extra})
        if self.writer is not None:
            self.writer.rows.append(row)
        self.count += 1
        return report

    def _meet(self) -> RunState | None:
        """Evaluate and save what is due here; the state, on rank 0, where it was captured."""
        last = self._ended or self.agreement.stopped
        every = self.settings.evaluate_every
        scored = last or (every is not None and self.step % every == 0)
        saved = last or (self.writer is not None and self.step % self.writer.every == 0)
        if saved and self.strategy.replicated:
            check_same(self.replica, self.step)
        model = self.strategy.reconcile(self.replica)
        if saved:
            check_parameters(self.replica, model, self.step)
        state = None
        if saved:  # before the evaluation, whose errors must not take what was learned
            state = capture(
                self.replica, self.strategy, step=self.step, count=self.count, model=model
            )
            if self.writer is not None:
                self.writer.write(state)
        if scored and self._evaluate(model) and last and self.writer is not None:
            self.writer.write(state)  # earlier scores come with the next checkpoint
        return state

    def _evaluate(self, model: dict[str, torch.Tensor]) -> bool:
        """Score a model; returns whether there are scores, the same on all ranks."""
        with self.ctx.comm.phase("evaluation"):
            scores = self.replica.evaluate(model)
        if scores and self.ctx.rank == 0:
            said = {"scores": list(scores), "values": list(scores.values()), "after": self.step}
            self.ctx.log(said)
            if self.writer is not None:
                self.writer.scores.append(said)
        return bool(scores)
