"""Subnetwork data parallelism: every worker trains a part of the model, several the same one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.comm.standing import StandingGather
from dtoolkit.training.finite import check_gradients, penalty_gradients
from dtoolkit.training.norm import spans_ranks
from dtoolkit.training.seeds import number
from dtoolkit.training.sharding.elementwise import check_elementwise
from dtoolkit.training.sharding.stepping import Pieces, told_to_all
from dtoolkit.training.shared_buffers import SharedBuffers
from dtoolkit.training.strategy import Promise, StepReport, Strategy
from dtoolkit.training.subnetworks.computing import Masked, drawn_part, held_part
from dtoolkit.training.subnetworks.plan import CITATION, SubnetworkPlan, plan_subnetworks
from dtoolkit.training.subnetworks.sharing import Sharing

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Subnetwork"]


class Subnetwork(Strategy):
    """Data parallel in which a worker steps some neurons, or residual blocks, alone.

    Each block of the model is held by ``coverage * workers`` workers
    (:func:`~dtoolkit.training.subnetworks.plan_subnetworks`); what is no block, by all. The
    gradient of a part is the mean over the samples of those who hold it, who all-reduce it among
    themselves and have the optimizer's state of it. A part whose holders have no samples in a step
    stays as it is. Sums are taken in rank order: coverage 1 is "data-parallel", bit for bit.

    - Backward masking: the forward is that of the whole model, and weights' gradients are kept
      where they are held. How weights that a worker does not hold reach its forward is not stated
      in what we have of the paper. Here a holder sends them after every step (phase "weights" of
      the trace), so that all workers compute with the same model: with a small coverage that is
      more traffic than the all-reduce saves. What is saved is the optimizer's state and gradients,
      ``coverage`` times those of the blocks; parameters are whole everywhere. By neuron, autograd
      still computes the gradient of a whole layer, of which the held rows are kept.
    - Forward masking: a worker computes its subnetwork alone; a block that it does not hold gives
      its input, a neuron 0. Nothing but gradients is sent until workers meet, and no worker needs
      the weights that it does not hold: by block, their memory is given back meanwhile (not where
      the task has a penalty). Each part sees ``coverage`` times the samples: train 1/coverage times
      the steps. Batch norm is each worker's own. A penalty is of what a worker has.

    Where workers meet (evaluation, checkpoint, stop, end) the model is made whole on all, and the
    optimizer's state on rank 0, so that what is saved is as of "data-parallel". By neuron, the
    optimizer must step each element by itself.

    With ``redraw=True`` it is a control: every worker holds everything, and draws anew in each step
    and micro-batch which part it computes: by neuron that is dropout, by block stochastic depth.

    Measured (test accuracy on digits, a small residual network, 4 workers, means of 3 seeds, 120
    steps, ``python -m tests.training.subnetwork_shapes``): dense 95.3%; backward masking by
    block 95.0% and 94.3% with coverage 0.5 and 0.25, by neuron 94.8% and 94.6%; forward masking,
    1/coverage times as many steps, by block 95.4% and 88.2%, by neuron 94.4% and, with 0.25, 54%:
    that loses too much. Dense training for as many steps as the latter has 96.8% and 96.9%.

    Source: Subnetwork data parallelism (arXiv 2507.09029). The assignment is reconstructed.

    Parameters
    ----------
    coverage : float
        Times the workers, a whole number (not with `redraw`).
    by : {"neuron", "block"}
    masking : {"backward", "forward"}
    blocks : sequence of str, optional
        Names of the residual blocks, where they cannot be told.
    keep : sequence of str, optional
        By neuron, layers that all workers hold: by default those of the outputs in forward masking.
    rescale : bool
        In forward masking, what is computed counts 1/coverage times, as in dropout, so that what a
        layer gets is as large as in evaluation, where nothing is left out.
    redraw : bool

    Raises
    ------
    ValueError
        A setting makes no sense. By a run: the coverage gives no whole number of workers, or the
        model has nothing that can be masked.
    """

    name: ClassVar[str] = "subnetwork"
    replicated: ClassVar[bool] = False
    promise: ClassVar[Promise] = Promise(
        trajectory="data-parallel with coverage 1, bit for bit; else none",
        resume="bit-equal",
        other_workers="goes on, with other parts for each",
    )

    def __init__(
        self,
        coverage: float = 0.5,
        *,
        by: str = "neuron",
        masking: str = "backward",
        blocks: Sequence[str] | None = None,
        keep: Sequence[str] | None = None,
        rescale: bool = True,
        redraw: bool = False,
    ) -> None:
        real = isinstance(coverage, int | float) and not isinstance(coverage, bool)
        if not real or not 0 < coverage <= 1:
            raise ValueError(f"coverage={coverage!r}: wanted a number above 0 and up to 1")
        if by not in ("neuron", "block"):
            raise ValueError(f"by={by!r}: wanted 'neuron' or 'block'")
        if masking not in ("backward", "forward"):
            raise ValueError(f"masking={masking!r}: wanted 'backward' or 'forward'")
        if redraw and masking != "forward":
            raise ValueError(
                "redraw=True: what is drawn anew is computed; wanted masking='forward'"
            )
        self.coverage, self.by, self.masking = float(coverage), by, masking
        self.blocks = None if blocks is None else tuple(blocks)
        self.keep = None if keep is None else tuple(keep)
        self.rescale, self.redraw = bool(rescale), bool(redraw)
        if masking == "forward":  # ranks run other layers: there are no joint statistics
            self.__dict__["batch_norm"] = "local"
        self._masked: Masked | None = None
        self._pieces: Pieces | None = None
        self._held: dict[str, int] = {}
        self._said: dict[str, list[int]] = {}

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        if settings.compression is not None:
            raise ValueError(f"compression=: {self.name} sends gradients whole, among holders")
        if settings.batch_norm not in (None, self.batch_norm, "local"):
            raise ValueError(
                f"batch_norm={settings.batch_norm!r}: with {self.name} and forward masking ranks "
                "run other layers, and have no joint statistics; it has 'local' alone"
            )

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        self.plan = self._planned(replica)
        if self.by == "neuron" and self.plan.blocks and self.coverage < 1 and not self.redraw:
            check_elementwise(replica.optimizer, f"{self.name} by neuron")
        self._sharing = Sharing(replica, self.plan)
        self._pieces, self._apart = None, False
        self._held, self._said = {}, {}
        self._masked = self._masking(replica)
        over = any(spans_ranks(module) for module in replica.model.modules())
        absent = [replica.parameters[n][1] for n in self._sharing.absent]
        # Gradients of others' weights need not be computed; but where batch norm spans the ranks,
        # all must take part in its backward.
        self._silent = [] if over or len(absent) == len(replica.parameters) else absent
        self._released = self._can_release(replica, absent)
        self._buffers = SharedBuffers(replica)
        told = torch.zeros(len(replica.parameters) + 1, dtype=torch.uint8, device=replica.device)
        self._told, self._telling = told, StandingGather(replica.comm, told)

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        pieces = self._part(replica)
        start = time.perf_counter()
        shares, planned = replica.sampler.share(step, replica.rank), replica.sampler.planned(step)
        loss, samples = 0.0, 0
        replica.zero_grad()
        for micro, ids in enumerate(shares):
            self._draw(replica, step, micro)
            with self._silence(len(ids)):
                one, count = replica.backward(ids, step=step, micro=micro, weight=1 / planned)
            loss, samples = loss + one, samples + count
        check_gradients(replica, step)
        compute = time.perf_counter() - start
        gradients, idle = self._sum(replica, step)
        pieces.load_gradients(gradients)
        self._penalise(replica, pieces, step)
        replica.optimizer.step()
        self._measure(replica, pieces, gradients)
        if replica.schedule is not None:
            replica.schedule.step()
        pieces.zero_grad()
        if self.masking == "backward":
            with replica.comm.phase("weights"):
                self._spread()
        return StepReport(loss, samples, sum(map(len, shares)), compute, idle)

    def pause(self, replica: Replica) -> None:
        """See :meth:`Strategy.pause`: the model is made whole, and on rank 0 the optimizer."""
        if self._pieces is None or not self._apart:
            return
        self._apart = False
        for value, shape in self._released:
            value.data = value.data.new_empty(shape)
        if self.masking == "forward":
            with replica.comm.phase("state"):
                self._spread()
        self._pieces.show_whole(sharded=replica.size > 1)

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """See :meth:`Strategy.reconcile`; every rank's measures are told to all."""
        self._said = told_to_all(replica, self._held)
        return super().reconcile(replica)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        if self._masked is not None:
            self._masked.close()

    def summary(self) -> dict[str, Any]:
        """The settings, what is masked, and bytes that each worker holds, in rank order (measured).

        ``memory_bytes`` is the sum of ``parameter_bytes``, ``gradient_bytes`` (once they are
        summed) and ``optimizer_bytes``; ``masked_state_bytes`` are of the latter those of blocks.
        """
        return {
            "coverage": self.coverage,
            "by": self.by,
            "masking": self.masking,
            "blocks": len(self.plan.blocks),
            "maskable": self.plan.maskable,
            "learned": self.plan.learned,
            **self._said,
        }

    def cite(self) -> str:
        """What to cite."""
        return CITATION

    def __repr__(self) -> str:
        more = ", redraw=True" if self.redraw else ""
        return f"Subnetwork({self.coverage:g}, by={self.by!r}, masking={self.masking!r}{more})"

    # -------------------------------------------------------------------------------- helpers

    def _planned(self, replica: Replica) -> SubnetworkPlan:
        return plan_subnetworks(
            replica.model,
            workers=replica.size,
            coverage=1.0 if self.redraw else self.coverage,
            by=self.by,
            forward=self.masking == "forward",
            blocks=self.blocks,
            keep=self.keep,
        )

    def _masking(self, replica: Replica) -> Masked | None:
        """What makes the model compute a part; None where it computes all."""
        if self.masking == "backward" or self.coverage == 1:
            return None
        names = {block.module for block in self.plan.blocks}
        masked = Masked(
            replica.model,
            blocks=names if self.by == "block" else (),
            layers=names if self.by == "neuron" else (),
            factor=1 / self.coverage if self.rescale else 1.0,
        )
        masked.choose(*held_part(self.plan, replica.rank, replica.device))
        return masked

    def _draw(self, replica: Replica, step: int, micro: int) -> None:
        """Draw which part is computed, where that is drawn anew."""
        if self._masked is None or not self.redraw:
            return
        seed = number(replica.settings.seed, self.name, step, replica.rank, micro)
        self._masked.choose(*drawn_part(self.plan, self.coverage, seed, replica.device))

    def _can_release(
        self, replica: Replica, absent: Sequence[torch.nn.Parameter]
    ) -> list[tuple[torch.nn.Parameter, torch.Size]]:
        """Parameters that have no content between meetings: nobody looks at them."""
        looked_at = replica.ctx.exposed or getattr(replica.task, "penalty", None) is not None
        if self._masked is None or self.by != "block" or looked_at:
            return []
        return [(value, value.shape) for value in absent]

    def _part(self, replica: Replica) -> Pieces:
        """Hold this rank's part alone."""
        if self._pieces is None:
            self._pieces = Pieces(replica, self._sharing.held, self._sharing.told)
        if not self._apart:
            self._pieces.hide_whole()
            for value, _ in self._released:
                value.data = value.data.new_empty(0)
            self._apart = True
        return self._pieces

    @contextmanager
    def _silence(self, samples: int) -> Iterator[None]:
        """Compute no gradients of what this rank does not hold."""
        silent = self._silent if samples else []
        for value in silent:
            value.requires_grad_(False)
        try:
            yield
        finally:
            for value in silent:
                value.requires_grad_(True)

    def _spread(self) -> None:
        if self.plan.weight_words():
            self._sharing.spread()

    def _sum(self, replica: Replica, step: int) -> tuple[list[torch.Tensor | None], float]:
        """Sum gradients over holders; seconds of waiting before."""
        used = [value.grad is not None for _, value in replica.parameters]
        self._told[:-1] = torch.tensor(used, dtype=torch.uint8)
        self._told[-1] = self._buffers.changed()
        arrival = time.perf_counter()
        with replica.comm.phase("used"):
            self._telling.run()
        idle = time.perf_counter() - arrival
        told = self._telling.whole.bool().cpu()
        counts = [replica.sampler.planned(step, rank) for rank in range(replica.size)]
        with replica.comm.phase("gradients"):
            gradients = self._sharing.sum(told[:, :-1], counts, sum(counts))
        if bool(told[:, -1].any()):
            self._pool(replica, counts)
        return gradients, idle

    def _pool(self, replica: Replica, counts: list[int]) -> None:
        """Average buffers by samples; those of a block that some leave out, of the others."""
        if self._masked is not None and self.by == "block" and not self.redraw:
            modules = dict(replica.model.named_modules())
            for block in self.plan.blocks:
                part = SimpleNamespace(comm=replica.comm, model=modules[block.module])
                buffers = SharedBuffers(part)  # type: ignore[arg-type]
                some = [n if r in block.holders else 0 for r, n in enumerate(counts)]
                buffers.pool([buffers.copies()], some)
        self._buffers.pool([self._buffers.copies()], counts)

    def _penalise(self, replica: Replica, pieces: Pieces, step: int) -> None:
        """Add the gradient of the task's penalty to what is held."""
        penalty = getattr(replica.task, "penalty", None)
        if penalty is not None and replica.parameters:
            pieces.add_gradients(penalty_gradients(replica, penalty(replica.model), step))

    def _measure(
        self, replica: Replica, pieces: Pieces, gradients: Sequence[torch.Tensor | None]
    ) -> None:
        """Sum the tensors that are held."""
        state, counters = pieces.state_bytes()
        masked = {part.parameter for block in self.plan.blocks for part in block.parts}
        numbers = {n for n, (name, _) in enumerate(replica.parameters) if name in masked}
        parameters = sum(value.nbytes for _, value in replica.parameters)
        summed = sum(one.nbytes for one in gradients if one is not None)
        self._held = {
            "parameter_bytes": parameters,
            "gradient_bytes": summed,
            "optimizer_bytes": state,
            "memory_bytes": parameters + summed + state,
            "counter_bytes": counters,
            "masked_state_bytes": pieces.state_bytes(numbers)[0],
        }
