"""Oscars-style rounds: fast workers make more local steps while slow ones make one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.training import oscars as rule
from dtoolkit.training.compression import as_compressor
from dtoolkit.training.local_step import local_step, step_schedule
from dtoolkit.training.message import Message
from dtoolkit.training.service import Service
from dtoolkit.training.state import MEASURED
from dtoolkit.training.strategies.local_sgd import LocalSGD
from dtoolkit.training.strategy import Promise, StepReport

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Oscars"]

_FINISHED, _READY, _ONE_MORE, _AVERAGE = 0, 1, 2, 3  # messages to and from the state server


class Oscars(LocalSGD):
    """Rounds of local steps that end when the slowest worker has made one.

    After each local step a worker asks the state server, a thread on rank 0, whether to make one
    more or to go to the average (:mod:`dtoolkit.training.oscars` states the rule); where no further
    one fits into what steps took in the last round, it tells the server and goes. Then what all
    have changed since the round's start is averaged, weighted by the samples that each has used.
    A step of the run is a round. A worker's n-th local step computes its share of the n-th batch;
    the schedule is stepped once a round. Workers without samples make no local steps and take the
    average.

    Where all workers are equally fast, a round is one local step each: with plain SGD that is
    synchronous training, to rounding.

    *Reconstructed*: Oscars-style, with the ESync rule; the method section of the paper was not
    available.

    Parameters
    ----------
    times : sequence of float, optional
        What a local step takes on each rank, on modelled clocks: local steps then follow from the
        rule alone, and a run repeats to the bit. By default real times are measured.
    optimizer_state : {"own", "average"}
        As of :class:`~dtoolkit.training.strategies.LocalSGD`, at the end of each round.

    Raises
    ------
    ValueError
        A time is not above 0.

    References
    ----------
    S. Huang, "Oscars: adaptive semi-synchronous parallel model for distributed deep learning with
    global view", 2021 (arXiv 2102.08550); Z. Li et al., "ESync: accelerating intra-domain federated
    learning in heterogeneous data centers", IEEE TSC 2020.
    """

    name: ClassVar[str] = "oscars"
    promise: ClassVar[Promise] = Promise(
        trajectory="one process where workers are equally fast, with plain SGD, to rounding",
        resume="bit-equal with modelled times",
        other_workers="refused while ranks hold anything of their own",
    )

    def __init__(
        self, times: Sequence[float] | None = None, *, optimizer_state: str = "own"
    ) -> None:
        super().__init__(1, optimizer_state=optimizer_state)
        self.times = None if times is None else [float(one) for one in times]
        if self.times is not None:
            rule.checked_times(self.times)
        self._service: Service | None = None

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        super().check(settings)
        if settings.batch_norm not in (None, "local"):
            raise ValueError(
                f"batch_norm={settings.batch_norm!r}: {self.name} has 'local' alone, for its "
                "workers do not step together"
            )
        as_compressor(settings.compression)

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`.

        Raises
        ------
        ValueError
            There are not as many `times` as ranks.
        """
        super().configure(replica)
        self._members = [r for r in range(replica.size) if replica.sampler.has_samples(r)]
        self._count: int | None = None  # local steps made so far; None: one a round
        self._seconds: float | None = None  # what the last one took
        self._round = 0
        self._known: dict[int, float] = {}  # what local steps last took on each rank
        self._state_server = _StateServer(self._members)
        self._quiet, self._told = True, False
        self._planned: dict[int, int] | None = None
        if self.times is None:
            self._service = Service(
                replica.comm, self._state_server.answer, threads=replica.ctx.threads
            )
        elif len(self.times) != replica.size:
            raise ValueError(f"times: {len(self.times)} for {replica.size} workers, wanted as many")
        else:
            counts = rule.local_steps([self.times[rank] for rank in self._members])
            self._planned = dict(zip(self._members, counts, strict=True))

    def until(self, replica: Replica, step: int, meeting: int) -> None:
        """See :meth:`Strategy.until`: the state server hears what steps took before a stop."""
        self._round = step
        self._count = step if self._count is None else self._count
        if self._planned is None and not self._told:
            self._told = True
            mine = torch.tensor([self._seconds or 0.0], dtype=torch.float64)
            with replica.comm.phase("opening"):
                said = replica.comm.all_gather(mine).flatten().tolist()
                self._known = {rank: one for rank, one in enumerate(said) if one}
                self._state_server.begin(self._known)
                replica.comm.barrier()  # nobody asks before

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`: a round."""
        self._quiet = False
        self._within = True
        loss, planned, compute, steps = 0.0, 0, 0.0, 0
        state = replace(rule.Round.of(self._members, self._known), started=time.perf_counter())
        more = replica.rank in self._members
        while more:
            assert self._count is not None
            done = local_step(replica, self._count, scheduled=False)
            planned += replica.sampler.planned(self._count, replica.rank)
            self._count += 1
            steps += 1
            loss, compute = loss + done.loss_sum, compute + done.seconds
            self._samples += done.samples
            self._seconds = done.seconds
            more = self._one_more(state, replica.rank, steps, done.seconds)
        samples = self._samples
        with replica.comm.phase("averaging"):
            met = self._average(replica, step, self._seconds or 0.0)
        self._known = {rank: one for rank, one in enumerate(met.numbers) if one}
        step_schedule(replica)
        self._round, self._quiet = step + 1, True
        return StepReport(loss, samples, planned, compute, met.idle, local_steps=steps)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        service, self._service = self._service, None
        if service is not None:
            service.end(quiet=self._quiet)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`: what local SGD has, and the count of local steps."""
        own = super().own_state()
        if self._count is not None and self._count != self._round:
            own |= {"local": self._count, "workers": self._replica.size}
        if self._seconds is not None and self._planned is None:
            own |= {MEASURED: {"seconds": self._seconds}, "workers": self._replica.size}
        return own

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        super().restore(own)
        self._count = int(own["local"]) if "local" in own else None
        self._seconds = own.get(MEASURED, {}).get("seconds")

    def cite(self) -> str:
        """What to cite."""
        return (
            "S. Huang, Oscars: adaptive semi-synchronous parallel model for distributed deep "
            "learning with global view, 2021 (arXiv 2102.08550), reconstructed with the rule of "
            "Z. Li et al., ESync: accelerating intra-domain federated learning in heterogeneous "
            "data centers, IEEE TSC 2020"
        )

    def __repr__(self) -> str:
        times = "" if self.times is None else f"{self.times}, "
        return f"Oscars({times}optimizer_state={self.optimizer_state!r})"

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        said: dict[str, Any] = {"rounds": self._rounds}
        if self._planned is not None:
            ranks = range(self._replica.size)
            said["local steps (modelled)"] = [self._planned.get(rank, 0) for rank in ranks]
        return said

    def _one_more(self, state: rule.Round, rank: int, steps: int, seconds: float) -> bool:
        """Whether to make one more local step, of a round that began as `state`."""
        if self._planned is not None:
            return steps < self._planned[rank]
        assert self._service is not None
        now = time.perf_counter()
        workers = {**state.workers, rank: rule.Worker(seconds, now, steps)}
        if rule.stops(replace(state, workers=workers), rank, now):
            self._service.tell(Message(_READY, (seconds,)))
            return False
        return self._service.ask(Message(_FINISHED, (seconds,))).kind == _ONE_MORE


class _StateServer:
    """Answers workers by the rule, in the service's thread."""

    def __init__(self, members: Sequence[int]) -> None:
        self._members = tuple(members)
        self._round = rule.Round.of(self._members)
        self._events: list[rule.Finished] = []

    def begin(self, seconds: dict[int, float]) -> None:
        """Go on with step times that are known; while nobody asks."""
        self._round = rule.Round.of(self._members, seconds)

    def answer(self, source: int, message: Message) -> list[tuple[int, Message]]:
        """See :data:`~dtoolkit.training.service.Answer`."""
        kind = rule.Ready if message.kind == _READY else rule.Finished
        self._events.append(kind(source, time.perf_counter(), message.numbers[0]))
        replies: list[tuple[int, Message]] = []
        while (event := self._next()) is not None:
            self._round, actions = rule.react(self._round, event)
            if not isinstance(event, rule.Ready):
                # Who is ready goes to the average at once: there it waits for the others.
                more = isinstance(actions[0], rule.OneMore)
                replies.append((event.rank, Message(_ONE_MORE if more else _AVERAGE)))
        return replies

    def _next(self) -> rule.Finished | None:
        """The next event of this round: others' words of its end may come behind the next one's."""
        for number, event in enumerate(self._events):
            worker = self._round.workers.get(event.rank)
            if worker is None or not worker.ready:
                return self._events.pop(number)
        return None
