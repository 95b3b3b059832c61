"""ZeRO: data parallel in which optimizer state, gradients and parameters are shared out."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.comm.standing import StandingGather
from dtoolkit.training.buckets import MEGABYTES
from dtoolkit.training.finite import penalty_gradients
from dtoolkit.training.sharding.elementwise import check_elementwise
from dtoolkit.training.sharding.formulas import check_stage
from dtoolkit.training.sharding.gathering import Gathering
from dtoolkit.training.sharding.recording import recorded
from dtoolkit.training.sharding.reducing import Reduced, bundled, reduce_whole, share_pieces
from dtoolkit.training.sharding.stepping import Pieces, told_to_all
from dtoolkit.training.sharding.units import units_of
from dtoolkit.training.shared_buffers import SharedBuffers
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Zero"]


class Zero(Strategy):
    """Synchronous data parallel whose ranks do not all hold all.

    Parameters lie in flat units, one a module (and dtype), each cut into one piece a rank, without
    padding. A rank steps its pieces alone:

    - stage 0: gradients are all-reduced; every rank holds all and steps all pieces.
    - stage 1: gradients are summed at the rank whose piece it is (reduce-scatter), which alone has
      the optimizer's state; stepped pieces are gathered.
    - stage 2: gradients of others' pieces are given back as soon as they have left, while backward
      runs.
    - stage 3: so are parameters. A module's are gathered before its forward and before its
      backward, and given back after; nothing is gathered at the end.

    Sums are taken in rank order and all stages step the same pieces: weights are the same bits in
    all stages. Ranks send 2, 2, 2, 3 words a learned parameter, times (P-1)/P, in the phases
    "gradients" and "parameters" of the trace; beside that one byte a parameter tensor ("used"). The
    optimizer must step each element by itself; a trial finds out.

    What a rank holds is in :meth:`summary`, measured by summing tensors once the optimizer has
    stepped. With micro-batches (``accumulate``) stages 2 and 3 keep the whole gradient of a rank
    until its last one, so that it travels once. Where ranks meet (evaluation, checkpoint, stop,
    end) the model is whole on every rank, and the optimizer's state on rank 0, for that time: what
    is saved is as of "data-parallel", for any number of workers. Buffers and frozen parameters are
    whole everywhere. A penalty is computed from the whole model: in stage 3 it is gathered once
    more for it (phase "penalty").

    Stage 3 sees in one forward in eval mode, before the first step, in which order modules ask for
    parameters. A module that runs more often later is refused; one that is skipped does no harm.

    Source: Rajbhandari et al., SC 2020 (arXiv 1910.02054).

    Parameters
    ----------
    stage : {0, 1, 2, 3}
    megabytes : float
        Units whose gradients, and stepped pieces, travel together in stages 1 and 2.
    overlap : bool
        False: gradients leave after backward.

    Raises
    ------
    ValueError
        There is no such stage, or the size is not above 0. By a run: the optimizer looks over
        whole tensors.
    """

    name: ClassVar[str] = "zero"
    replicated: ClassVar[bool] = False
    promise: ClassVar[Promise] = Promise(
        trajectory="one process on the whole batch, to rounding; all stages bit-equal",
        resume="bit-equal",
        other_workers="to rounding",
    )

    def __init__(
        self, stage: int = 2, *, megabytes: float = MEGABYTES, overlap: bool = True
    ) -> None:
        self.stage = check_stage(stage)
        if not megabytes > 0:
            raise ValueError(f"megabytes={megabytes!r}: wanted a size above 0")
        self.megabytes, self.overlap = float(megabytes), bool(overlap)
        self._reduced: Reduced | None = None
        self._gathering: Gathering | None = None
        self._pieces: Pieces | None = None
        self._held: dict[str, int] = {}
        self._said: dict[str, list[int]] = {}

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        if settings.compression is not None:
            raise ValueError(
                f"compression=: {self.name} sends gradients whole, to the ranks that step them"
            )
        if settings.batch_norm not in (None, "sync", "local"):
            raise ValueError(
                f"batch_norm={settings.batch_norm!r}: {self.name} has 'sync' and 'local'"
            )

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        if self.stage == 3 and replica.ctx.exposed:
            raise ValueError(
                "faults: what strikes parameters needs them in memory, and stage 3 gives them "
                "back; wanted stage 2"
            )
        check_elementwise(replica.optimizer, f"zero (stage {self.stage})")
        self._pieces, self._sharded = None, False
        self._held, self._said = {}, {}
        self._units = units_of(replica.model, replica.parameters, replica.size)
        self._bundles = bundled(self._units, 0 if self.stage == 3 else self.megabytes)
        if self.stage:
            travels = replica.comm.split(0) if self.stage == 3 else replica.comm
            self._reduced = Reduced(replica, self._bundles, travels, whole=self.stage == 1)
        if self.stage == 3:
            asking = recorded(replica, self._units)
            self._gathering = Gathering(self._units, asking, replica.comm)
        self._buffers = SharedBuffers(replica)
        told = torch.zeros(len(replica.parameters) + 1, dtype=torch.uint8, device=replica.device)
        self._told, self._telling = told, StandingGather(replica.comm, told)

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        pieces = self._shard(replica)
        start = time.perf_counter()
        loss, samples, gathering = 0.0, 0, 0.0
        replica.zero_grad()
        if self._reduced is not None:
            self._reduced.begin(step)
        shares, planned = replica.sampler.share(step, replica.rank), replica.sampler.planned(step)
        for micro, ids in enumerate(shares):
            leaves = self.stage > 1 and self.overlap and micro == len(shares) - 1
            if self._reduced is not None and leaves:
                self._reduced.arm()
            with self._around():
                one, count = replica.backward(ids, step=step, micro=micro, weight=1 / planned)
            gathering += 0.0 if self._gathering is None else self._gathering.seconds
            loss, samples = loss + one, samples + count
        compute = time.perf_counter() - start - gathering
        used, idle = self._sum(replica, step)
        pieces.load_gradients(
            [
                unit.gradient_of(place, of) if used[place.number] else None
                for unit, place, of in self._places
            ]
        )
        self._penalise(replica, pieces, step)
        replica.optimizer.step()
        self._measure(pieces)
        if replica.schedule is not None:
            replica.schedule.step()
        pieces.zero_grad()
        for unit in self._units:
            unit.gradient = None
        if self.stage in (1, 2):
            with replica.comm.phase("parameters"):
                share_pieces(replica.comm, self._bundles)
        return StepReport(loss, samples, sum(map(len, shares)), compute, idle)

    def pause(self, replica: Replica) -> None:
        """See :meth:`Strategy.pause`: the model is made whole, and on rank 0 the optimizer."""
        if self._pieces is None or not self._sharded:
            return
        self._sharded = False
        if self._gathering is not None:
            self._gathering.all("state")
        self._pieces.show_whole(sharded=self.stage > 0)

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """See :meth:`Strategy.reconcile`; every rank's measures are told to all."""
        self._said = told_to_all(replica, self._held)
        return super().reconcile(replica)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        for one in (self._reduced, self._gathering):
            if one is not None:
                one.close()

    def summary(self) -> dict[str, Any]:
        """The stage, and bytes that each worker holds, in rank order (measured).

        ``parameter_bytes``, ``gradient_bytes`` and ``optimizer_bytes`` are of learned parameters,
        once the optimizer has stepped, as :func:`~dtoolkit.training.sharding.memory` has them;
        ``memory_bytes`` is their sum. ``counter_bytes`` are the optimizer's numbers that are not by
        element, such as its count of steps. ``most_parameter_bytes`` and ``most_gradient_bytes``
        are the most that was held at once while the model ran. Room for messages is not counted.
        """
        return {"stage": self.stage, **self._said}

    def cite(self) -> str:
        """What to cite."""
        return (
            "S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, ZeRO: memory optimizations toward "
            "training trillion parameter models, SC 2020"
        )

    def __repr__(self) -> str:
        return f"Zero(stage={self.stage})"

    # -------------------------------------------------------------------------------- helpers

    def _shard(self, replica: Replica) -> Pieces:
        """Hold this rank's pieces alone, as the stage says."""
        rank = replica.rank
        if self._pieces is None or not self._sharded:
            if self.stage == 3:
                for unit in self._units:
                    unit.give_back(rank)
            if self._pieces is None:
                # Kernels may round the last elements of a tensor in another way than those before:
                # so that all stages give the same bits, they step the same pieces, whoever holds
                # them.
                ranks = [rank] if self.stage else range(replica.size)
                self._places = [
                    (unit, place, of)
                    for of in ranks
                    for unit in self._units
                    for place in unit.places(of)
                ]
                held = [(place, unit.memory(place, of)) for unit, place, of in self._places]
                self._pieces = Pieces(replica, held)
            self._pieces.hide_whole()
            self._sharded = True
        return self._pieces

    def _around(self) -> AbstractContextManager[None]:
        """What a forward and its backward need."""
        return nullcontext() if self._gathering is None else self._gathering.around()

    def _sum(self, replica: Replica, step: int) -> tuple[list[bool], float]:
        """Sum gradients; which parameters any rank used, and seconds of waiting here."""
        mine = [value.grad is not None for _, value in replica.parameters]
        if self._reduced is not None:
            mine = self._reduced.used
        self._told[:-1] = torch.tensor(mine, dtype=torch.uint8)
        self._told[-1] = self._buffers.changed()
        arrival = time.perf_counter()
        with replica.comm.phase("used"):
            self._telling.run()
        idle = time.perf_counter() - arrival
        *used, changed = self._telling.whole.amax(0).tolist()
        if self._reduced is not None:
            self._reduced.finish()
        else:
            reduce_whole(replica, self._units, step)
        if changed:
            counts = [replica.sampler.planned(step, rank) for rank in range(replica.size)]
            self._buffers.pool([self._buffers.copies()], counts)
        return [bool(one) for one in used], idle

    def _penalise(self, replica: Replica, pieces: Pieces, step: int) -> None:
        """Add the gradient of the task's penalty, of which every rank has the whole model."""
        penalty = getattr(replica.task, "penalty", None)
        if penalty is None or not replica.parameters:
            return
        if self._gathering is not None:
            self._gathering.all("penalty")
        pieces.add_gradients(penalty_gradients(replica, penalty(replica.model), step))
        if self._gathering is not None:
            self._gathering.free()

    def _measure(self, pieces: Pieces) -> None:
        """Sum the tensors that are held."""
        parameters = sum(unit.held for unit in self._units)
        gradients = sum(unit.gradient.nbytes for unit in self._units if unit.gradient is not None)
        state, counters = pieces.state_bytes()
        gathered, produced = self._gathering, self._reduced
        self._held = {
            "parameter_bytes": parameters,
            "gradient_bytes": gradients,
            "optimizer_bytes": state,
            "memory_bytes": parameters + gradients + state,
            "counter_bytes": counters,
            "most_parameter_bytes": parameters if gathered is None else gathered.largest,
            "most_gradient_bytes": gradients if produced is None else produced.largest,
        }
