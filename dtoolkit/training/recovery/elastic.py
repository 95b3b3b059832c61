"""What every rank does in a run that outlives its workers.

Ranks compute gradients of shards, vote, and make the step together or not at all: until the last
message of a step has come, nothing that a rank holds is changed. So whoever is left after a loss
holds the state of the last step, or of the one before; those behind get it from those ahead, and
the step that was interrupted is made again with the gradients that are there. Sums are taken in the
order of the shards: the result is that of the run without losses, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.errors import ReplicaMismatch, WipeOut
from dtoolkit.training.capture import restore, run_state
from dtoolkit.training.finite import check_parameters
from dtoolkit.training.living import living
from dtoolkit.training.recovery.catchup import catch_up
from dtoolkit.training.recovery.dealing import Deal, Lost
from dtoolkit.training.recovery.fingerprint import fingerprint
from dtoolkit.training.recovery.group import Group, Standing, gathered
from dtoolkit.training.recovery.ledger import Ledger
from dtoolkit.training.recovery.mishaps import Mishaps
from dtoolkit.training.recovery.shards import Shard, Shards
from dtoolkit.training.recovery.solo import loaded_digest, solo_replica
from dtoolkit.training.recovery.steps import BROKEN, Stepping
from dtoolkit.training.recovery.vote import Ballot, Vote
from dtoolkit.training.row_gradients import check_row_gradients
from dtoolkit.training.state import RunState

if TYPE_CHECKING:
    from dtoolkit.cluster import Context
    from dtoolkit.training.loop import Job
    from dtoolkit.training.recovery.surviving import Elastic

__all__ = ["ElasticRank"]

_GROUPS = 30  # that may break in a row without a step in between


class ElasticRank(Stepping):
    """One rank's side of an elastic run.

    Parameters
    ----------
    ctx : Context
    job : Job
    policy : Elastic
    """

    def __init__(self, ctx: Context, job: Job, policy: Elastic) -> None:
        self.ctx, self.job, self.policy = ctx, job, policy
        self.workers = int(job.about["settings"]["workers"])
        with living(ctx):
            self.replica = solo_replica(ctx, job, workers=self.workers)
            self.examples = loaded_digest(self.replica)
        check_row_gradients(self.replica, job.strategy, self.workers)
        self.shards = Shards(self.replica, job.strategy)
        self.dealer = policy.dealer(job.strategy, self.workers)
        self.ledger = Ledger(job)
        self.mishaps = Mishaps(ctx, self.workers)
        self.seat = self.step = self.met = -1  # a newcomer has no place, and knows of no step
        if not ctx.joined:
            self.seat, self.step = ctx.rank, 0
            if job.state is not None:
                self.step = job.state.step
                restore(self.replica, job.state)
            self.met = self.step - 1 if self._through else self.step
        self.stopped = self._asked = False
        self.held: dict[int, Shard] = {}
        self._scores: dict[str, Any] = {}  # the last ones
        self._gone: set[int] = set()  # seats that were lost, whoever has them now
        self.group: Group | None = None
        self._before: Group | None = None
        self._vote: Vote | None = None
        self._now = self._later = Deal({}, ())
        self._broken = self._groups = 0

    def run(self) -> tuple[RunState | None, dict[str, Any], bool]:
        """All steps, from where the run stands.

        Returns
        -------
        state : RunState or None
            On rank 0.
        summary : dict
        stopped : bool

        Raises
        ------
        WipeOut
            What is left is not enough to go on.
        """
        threads = torch.get_num_threads()
        if self.job.strategy.shards is not None:
            torch.set_num_threads(1)  # as the strategy does: kernels that share work add otherwise
        try:
            while True:
                try:
                    return self._all_steps()
                except BROKEN as error:
                    self.mishaps.broke(error)
                self._rebuild()
        finally:
            torch.set_num_threads(threads)

    def _all_steps(self) -> tuple[RunState | None, dict[str, Any], bool]:
        while True:
            if self.group is None:
                self._alone("met the others", self._form)
            if self._meets():
                self._alone("evaluated or saved", self._meet)
            if self._through or self.stopped:
                break
            self.make_step()
        with self.ctx.comm.phase("agreement"):
            self.ctx.comm.barrier()
        state = self._state() if self.ctx.rank == 0 else None
        return state, self._summary(), not self._through

    def _alone(self, doing: str, work: Callable[[], None]) -> None:
        """Do what all ranks do together; where one raises, the others wait in the middle of it."""
        try:
            work()
        except (*BROKEN, WipeOut, ReplicaMismatch, FloatingPointError):
            raise
        except Exception as error:
            text = f"rank {self.ctx.rank} raised {type(error).__name__} as it {doing}: {error}"
            raise WipeOut(step=max(0, self.step), why=text) from error

    # ------------------------------------------------------------------------------- groups

    def _rebuild(self) -> None:
        """Go on in the next group."""
        self._broken += 1
        if self._broken > _GROUPS:
            raise WipeOut(step=self.step, why=f"{_GROUPS} groups broke, one after the other")
        self._before, self.group, self._vote = self.group or self._before, None, None
        patience = self.policy.waits
        if patience and self.policy.newcomers:
            self.ctx.rebuild(self.workers, timeout=patience)
        else:
            self.ctx.rebuild(newcomers=self.policy.newcomers)

    def _form(self) -> None:
        """Find out where the ranks of a new group stand, and bring all to the same state."""
        ctx, replica = self.ctx, self.replica
        replica.comm, replica.rank, replica.size = ctx.comm, ctx.rank, ctx.size
        held = frozenset(self.held)
        mine = Standing(
            self.seat, self.step, self.met, self.stopped, self.examples, self._groups, held
        )
        group = gathered(ctx.comm, mine, shards=self.dealer.shards, seats=self.workers)
        if group.step < 0:
            raise WipeOut(step=0, why="no worker that holds its state is left")
        if strangers := group.strangers():
            raise ReplicaMismatch(fields=["examples"], ranks=strangers, step=group.step)
        self._stand_in(group)
        moved = self._catch_up(group) if group.behind else 0
        self.seat, self.met, self._groups = group.seats[ctx.rank], group.met, group.number
        self.stopped = any(one.stopped for one in group.standings)
        try:
            self._now, self._later = self.dealer.deal(sorted(group.seats), group.held)
        except Lost as error:
            raise WipeOut(step=self.step, why=str(error)) from None
        self._vote = Vote(ctx.comm, len(replica.parameters))
        self.group = group
        self.mishaps.formed(self._before, group, step=self.step, moved=moved)
        self._before = None

    def _catch_up(self, group: Group) -> int:
        """Bring those that are behind to the state of a peer; bytes that it took."""
        beside = {"records": self.ledger.packed()} if self.ctx.rank == group.ahead[0] else None
        mine, came = catch_up(
            self.replica,
            step=group.step,
            source=group.ahead[0],
            targets=group.behind,
            beside=beside,
        )
        if came is not None:
            self.step, self.held = group.step, {}
            self.ledger.unpack(came["records"])
        with self.ctx.comm.phase("agreement"):
            return int(self.ctx.comm.all_reduce(torch.tensor([mine]), "max"))

    def _stand_in(self, group: Group) -> None:
        """Report in place of those that are gone or behind, who may not have been heard."""
        if self._before is None or self.ctx.rank not in group.ahead:
            return
        gone = {self._before.seats[rank] for rank in group.lost_from(self._before)}
        self._gone |= gone  # those before too: who told of them may be among those of now
        behind = {group.seats[rank] for rank in group.behind if rank not in group.came}
        instead = self.ledger.in_place_of(sorted(self._gone | behind))
        if self.ctx.rank == group.ahead[0]:
            for event in instead:
                self.ctx.log(event)
            if gone and self._scores:
                self.ctx.log(self._scores)

    # ----------------------------------------------------------------------------- meetings

    def _meets(self) -> bool:
        """Whether there is something to do here beside the steps."""
        if self.met >= self.step:
            return False
        every = (self.job.settings.evaluate_every, self.ledger.every)
        last = self._through or self.stopped
        return last or any(n and self.step % n == 0 for n in every)

    def _meet(self) -> None:
        """Evaluate and save what is due here."""
        assert self.group is not None
        ctx, last = self.ctx, self._through or self.stopped
        every, saves = self.job.settings.evaluate_every, self.ledger.every
        if last or (saves and self.step % saves == 0):
            self._compare()
            check_parameters(self.replica, dict(self.replica.parameters), self.step)
            self.ledger.gather(ctx.comm, self.group.seats)
            self._write()
        if last or (every and self.step % every == 0):
            with ctx.comm.phase("evaluation"):
                scores = self.replica.evaluate()
            if scores:
                said = {"scores": list(scores), "values": list(scores.values())}
                self._scores = {**said, "after": self.step}
                self.ledger.scored(self._scores)
                if ctx.rank == 0:
                    ctx.log(self._scores)
                if last:
                    self._write()
        self.met = self.step

    def _compare(self) -> None:
        """See that all hold the same before it is written."""
        assert self.group is not None
        ballot = Ballot(mark=fingerprint(self.replica))
        nothing = torch.zeros(len(self.replica.parameters), dtype=torch.bool)
        votes, _ = self.cast(ballot, nothing, None)
        source, outvoted = votes.outvoted()
        if outvoted:
            self.mend(source, outvoted)
            self.mishaps.over(self.group)

    def _write(self) -> None:
        if self.ctx.rank == 0:
            self.ledger.write(self._state(), self._summary())

    def _state(self) -> RunState:
        """The state of the run, which all ranks hold."""
        model = self.job.strategy.reconcile(self.replica)
        return run_state(
            self.replica, self.job.strategy, step=self.step, model=model, workers=self.workers
        )

    def _summary(self) -> dict[str, Any]:
        return {"shards": self.dealer.shards, **self.dealer.summary()}
