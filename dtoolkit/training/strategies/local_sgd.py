"""Local SGD: every rank steps its own model for a while, then the models are averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.training.averaging import (
    average_model,
    average_over,
    batch_statistics,
    kept_buffers,
    load_average,
    whole_state,
)
from dtoolkit.training.compression import Stream, as_compressor, elements
from dtoolkit.training.local_step import check_workers, load_local, local_state, local_step
from dtoolkit.training.optimizer_average import average_optimizer
from dtoolkit.training.round_end import Met, RoundEnd
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["LocalSGD"]


class LocalSGD(Strategy):
    """Rounds of local steps, each round ended by the mean of the models.

    A rank steps with the mean gradient of its own samples. After `local_steps` steps the models are
    averaged by the samples that each rank has used in the round (McMahan et al. 2017; Stich 2019);
    ranks without samples weigh nothing and take the mean. Buffers are averaged as
    :mod:`dtoolkit.training.averaging` says. With one local step and plain SGD that is synchronous
    data parallel, to rounding, where no layer's gradient depends on who shares its batch (batch
    norm here uses each rank's own samples).

    With compression, what travels is the change of each rank's parameters in the round, times its
    samples; the sum, divided by all samples, is added to the model of the round's start. Buffers
    travel as they are.

    Parameters
    ----------
    local_steps : int
        Steps a round. Rounds begin at multiples of it, also in a run that is resumed.
    optimizer_state : {"own", "average"}
        What becomes of the optimizer's state (momentum) at the end of a round: each rank keeps its
        own, or it is averaged like the parameters.

    Raises
    ------
    ValueError, TypeError
    """

    name: ClassVar[str] = "local-sgd"
    batch_norm: ClassVar[str] = "local"
    replicated: ClassVar[bool] = False
    promise: ClassVar[Promise] = Promise(
        trajectory="one process with one local step and plain SGD, to rounding",
        resume="bit-equal, also within a round",
        other_workers="refused while ranks hold anything of their own",
    )

    def __init__(self, local_steps: int = 4, *, optimizer_state: str = "own") -> None:
        if isinstance(local_steps, bool) or not isinstance(local_steps, int):
            raise TypeError(f"local_steps={local_steps!r}: wanted an integer")
        if local_steps < 1:
            raise ValueError(f"local_steps={local_steps}: wanted at least 1")
        if optimizer_state not in ("own", "average"):
            raise ValueError(f"optimizer_state={optimizer_state!r}: wanted 'own' or 'average'")
        self.local_steps = local_steps
        self.optimizer_state = optimizer_state

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        self._replica = replica
        self._samples = 0  # of this rank, in this round
        self._rounds = 0
        self._within = False  # models differ
        self._stream: Stream | None = None
        compressor = as_compressor(replica.settings.compression)
        if compressor is not None:
            self._stream = Stream(compressor, seed=replica.settings.seed, name="change")
            self._start = replica.flat_parameters()
        self._end = RoundEnd(replica, whole=self._stream is None)

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        done = local_step(replica, step)
        self._samples += done.samples
        self._within = True
        idle = 0.0
        if self.meets(step):
            with replica.comm.phase("averaging"):
                idle = self._average(replica, step).idle
        return StepReport(
            done.loss_sum,
            done.samples,
            replica.sampler.planned(step, replica.rank),
            done.seconds,
            idle,
            local_steps=int(done.samples > 0),
        )

    def meets(self, step: int) -> bool:
        """Whether a round ends with this step."""
        return (step + 1) % self.local_steps == 0

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """See :meth:`Strategy.reconcile`: the mean by the samples of the round so far."""
        if not self._within:
            return super().reconcile(replica)
        mean = average_model(replica.comm, replica.model, self._samples)
        return whole_state(replica.model, mean)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`: within a round the model, else what is not averaged."""
        own: dict[str, Any] = {}
        if self._replica.size == 1 and self._stream is None:
            return own  # the one model is all there is
        if self._within:
            own = {**local_state(self._replica), "samples": self._samples}
            if self._stream is not None:
                own["start"] = self._start.cpu()
        elif self._keeps_optimizer:
            own = local_state(self._replica)
        if self._stream is not None:
            own |= self._stream.own_state()
        return own | {"workers": self._replica.size} if own else {}

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        replica = self._replica
        check_workers(self.name, own, replica.size)
        if "model" in own:
            load_local(replica, own)
        self._within = "samples" in own
        self._samples = int(own.get("samples", 0))
        if self._stream is not None:
            if self._within and "start" not in own:
                raise ValueError(
                    f"resume: this {self.name} run was saved without compression within a round, "
                    "so that nobody knows what the model was when it began: resume it without"
                )
            flat = replica.flat_parameters()
            self._start = own["start"].to(flat.device) if self._within else flat
            self._stream.restore(own, flat.numel(), flat.dtype)

    def cite(self) -> str:
        """What to cite."""
        return (
            "S. U. Stich, Local SGD converges fast and communicates little, ICLR 2019; "
            "H. B. McMahan et al., Communication-efficient learning of deep networks from "
            "decentralized data, AISTATS 2017"
        )

    def summary(self) -> dict[str, Any]:
        """See :meth:`Strategy.summary`."""
        return {"local steps": self.local_steps, "rounds": self._rounds}

    @property
    def _keeps_optimizer(self) -> bool:
        """Whether optimizers differ between rounds; the same answer on all ranks."""
        optimizer = self._replica.optimizer
        plain = isinstance(optimizer, torch.optim.SGD) and not any(
            group["momentum"] for group in optimizer.param_groups
        )
        return self.optimizer_state == "own" and not plain

    def _average(self, replica: Replica, step: int, number: float = 0.0) -> Met:
        """End a round; `number` is told to all."""
        met = self._end.meet(self._samples, number)
        if self._stream is None:
            load_average(replica.model, self._end.mean(met))
        else:
            self._add_changes(replica, self._stream, step, met.samples)
        if self.optimizer_state == "average":
            average_optimizer(replica, met.samples)
        self._samples = 0
        self._rounds += 1
        self._within = False
        return met

    def _add_changes(
        self, replica: Replica, stream: Stream, step: int, counts: list[float]
    ) -> None:
        change = (replica.flat_parameters() - self._start) * self._samples
        total = stream.sum(replica.comm, change, step=step, where=self._changed(replica, change))
        replica.load_parameters(self._start + total / max(sum(counts), 1.0))
        self._start = replica.flat_parameters()
        buffers = kept_buffers(replica.model)
        if buffers:
            known = batch_statistics(replica.model)
            mean = average_over(replica.comm, buffers, counts, statistics=known)
            load_average(replica.model, mean)

    def _changed(self, replica: Replica, change: torch.Tensor) -> torch.Tensor | None:
        """Elements of parameters that any rank has changed: others have no part in signs."""
        sizes = [value.numel() for _, value in replica.parameters]
        used = torch.tensor([bool(piece.any()) for piece in torch.split(change, sizes)])
        return elements(replica.parameters, replica.comm.all_reduce(used, "max"))
