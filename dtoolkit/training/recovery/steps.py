"""One step of an elastic run: computed shard by shard, voted on, and made by all or by none."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import torch

from dtoolkit.errors import CommunicationError, PeerLost, WipeOut
from dtoolkit.training.agreement import STOP
from dtoolkit.training.finite import all_finite
from dtoolkit.training.recovery.catchup import catch_up
from dtoolkit.training.recovery.dealing import Deal
from dtoolkit.training.recovery.exchange import pooled, summed
from dtoolkit.training.recovery.fingerprint import fingerprint, held_by, tensors_of
from dtoolkit.training.recovery.group import Group
from dtoolkit.training.recovery.ledger import Ledger
from dtoolkit.training.recovery.mishaps import Mishaps
from dtoolkit.training.recovery.shards import Shard, Shards
from dtoolkit.training.recovery.vote import Ballot, Vote, Votes

if TYPE_CHECKING:
    from dtoolkit.cluster import Context
    from dtoolkit.training.loop import Job
    from dtoolkit.training.recovery.surviving import Elastic
    from dtoolkit.training.replica import Replica

__all__ = ["BROKEN", "Stepping"]

BROKEN = PeerLost, CommunicationError
"""What is raised where a group is over."""

_TRIES = 2  # of a rank in one step


class Stepping:
    """What a rank needs for its steps; :class:`ElasticRank` fills it and does what is around.

    Attributes
    ----------
    ctx, job, policy, replica, shards, ledger, mishaps
    seat : int
        The rank's place in the run; -1 until a newcomer has one.
    step : int
        Steps whose result the rank holds; -1 where a newcomer knows of none.
    stopped : bool
        The ranks have agreed to stop.
    held : dict of shard to Shard
        What is computed of the step that is under way.
    group : Group or None
        Ranks of now; None where they have yet to meet.
    """

    ctx: Context
    job: Job
    policy: Elastic
    replica: Replica
    shards: Shards
    ledger: Ledger
    mishaps: Mishaps
    seat: int
    step: int
    stopped: bool
    held: dict[int, Shard]
    group: Group | None
    _before: Group | None
    _vote: Vote | None
    _now: Deal
    _later: Deal
    _asked: bool
    _broken: int

    def make_step(self) -> None:
        """Make a step, or find that it is void."""
        assert self.group is not None
        start, sent = self.ctx.clock(), self.ctx.recorder.sent
        ballot, used, error = self._work(start)
        votes, error = self.cast(ballot, used, error)
        source, outvoted = votes.outvoted()
        if outvoted:
            self.mend(source, outvoted)
        elif votes.faults:
            self._void(votes.faults, error)
        else:
            self._commit(votes, start, sent)

    def _work(self, start: float) -> tuple[Ballot, torch.Tensor, Exception | None]:
        """Compute what is this rank's to compute, and what it says of that."""
        ctx, error, mark = self.ctx, None, 0
        self._asked = self._asked or STOP in ctx.messages()
        began = time.perf_counter()
        try:
            ctx.step(self.step, report=False)
            self._expose()
            if self.policy.verify and self.step % self.policy.verify == 0:
                mark = fingerprint(self.replica)
            for shard in self._now.computes[self.seat]:
                if shard not in self.held:
                    self.held[shard] = self.shards.compute(self.step, shard)
        except BROKEN:
            raise
        except Exception as found:  # whatever a model, its data or a fault raises
            error = found
        own = [self.held[s] for s in self._now.counted_by(self.seat) if s in self.held]
        used = torch.zeros(len(self.replica.parameters), dtype=torch.bool)
        for one in self.held.values():
            used |= one.used
        ballot = Ballot(
            fault=int(error is not None),
            mark=mark,
            newcomers=ctx.newcomers if self.policy.newcomers else 0,
            stop=self._asked,
            changed=any(one.changed for one in self.held.values()),
            loss=sum(one.loss for one in own),
            samples=sum(one.samples for one in own),
            compute=time.perf_counter() - began,
            start=start,
            ready=ctx.clock(),
        )
        return ballot, used, error

    @property
    def _through(self) -> bool:
        return self.step >= self.job.settings.steps

    def _expose(self) -> None:
        """Show what the rank holds to the instruments of the launch."""
        if self.ctx.exposed:
            for name in ("parameters", "optimizer"):
                self.ctx.expose(name, partial(held_by, self.replica, name))

    def cast(
        self, ballot: Ballot, used: torch.Tensor, error: Exception | None
    ) -> tuple[Votes, Exception | None]:
        """Vote; whatever a rank raises as it begins to, before it has sent anything, it says."""
        assert self._vote is not None
        try:
            return self._vote.cast(ballot, used), error
        except BROKEN:
            raise
        except Exception as found:
            return self._vote.cast(replace(ballot, fault=1), used), found

    def _void(self, ranks: list[int], error: Exception | None) -> None:
        """Somebody could not do its part: nobody makes the step, and it is tried again."""
        times = self.mishaps.again(ranks)
        if error is None:
            return
        self.held = {}  # what it has may be no better
        self.mishaps.failed(error, self.step)
        if times >= _TRIES:
            raise error

    def mend(self, source: int | None, ranks: list[int]) -> None:
        """Some ranks hold something else: they get what most hold, and the step is tried again."""
        if source is None or self.policy.verify != 1:
            held = (
                "no state is held by most" if source is None else "it was not looked at each step"
            )
            why = f"ranks hold different states ({held})"
            raise WipeOut(step=self.step, why=why)
        if not self._sound(source):
            why = "ranks hold different states (that of most is not finite)"
            raise WipeOut(step=self.step, why=why)
        mine = self.ctx.rank in ranks
        before = [(n, t.clone()) for n, t in tensors_of(self.replica)] if mine else []
        moved, _ = catch_up(self.replica, step=self.step, source=source, targets=ranks)
        if mine:
            now = dict(tensors_of(self.replica))
            names = [n for n, t in before if n not in now or not _same(t, now[n])]
            self.held = {}
            self.mishaps.differed(names, self.step, moved=moved)

    def _sound(self, source: int) -> bool:
        """Whether what a rank has learned and remembers is finite; collective."""
        # Buffers aren't looked at: a mask may well be infinite.
        learned = (value for _, value in self.replica.parameters)
        kept = chain(learned, held_by(self.replica, "optimizer").values())
        mine = self.ctx.rank != source or all_finite(kept)
        with self.ctx.comm.phase("agreement"):
            return bool(self.ctx.comm.all_reduce(torch.tensor([int(mine)]), "min"))

    def _commit(self, votes: Votes, start: float, sent: int) -> None:
        """Exchange gradients and make the step."""
        assert self.group is not None
        ctx, step, seats = self.ctx, self.step, self.group.seats
        owners = [seats.index(seat) for seat in self._now.counts]
        try:
            totals = summed(ctx.comm, owners, self.held, self.shards)
            buffers = None
            if any(one.changed for one in votes.ballots):
                buffers = pooled(ctx.comm, owners, self.held, self.shards, step)
        except BROKEN:
            raise
        except Exception as error:  # the others wait in the middle of it
            why = f"rank {ctx.rank} raised {type(error).__name__} in an exchange: {error}"
            raise WipeOut(step=step, why=why) from error
        rate = float(self.replica.optimizer.param_groups[0]["lr"])
        self.shards.apply(step, totals, votes.used, buffers)
        self.shards.done(self.held.values())
        self.step, self.held, self._now, self._broken = step + 1, {}, self._later, 0
        self.stopped = self.stopped or votes.stop
        self._report(votes, step, rate, start, ctx.recorder.sent - sent)
        if votes.newcomers and not (self.stopped or self._through):
            self._before, self.group, self._vote = self.group, None, None
            ctx.rebuild()

    def _report(self, votes: Votes, step: int, rate: float, start: float, sent: int) -> None:
        """Tell the client of a step that was made, and of what was got over."""
        assert self.group is not None
        ctx, mine = self.ctx, votes.ballots[self.ctx.rank]
        row = [
            *(step, self.replica.sampler.epoch(step), mine.loss, mine.samples, mine.samples),
            *(mine.compute, votes.idle[ctx.rank], 0, 1, sent, rate, start, ctx.clock()),
        ]
        self.ledger.note(row, votes, self.group.seats)
        ctx.log({"row": row, "worker": self.seat, "of": ctx.size})
        self.mishaps.over(self.group)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    return one.shape == other.shape and torch.equal(
        one.contiguous().reshape(-1).view(torch.uint8),
        other.contiguous().reshape(-1).view(torch.uint8),
    )
