"""D-SLIDE: the neurons of a network, their tables and optimizer state split over the ranks."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.training.local_step import check_workers, step_schedule
from dtoolkit.training.optimizer_state import load_optimizer, optimizer_state
from dtoolkit.training.slide.adam import RowSparseAdam
from dtoolkit.training.slide.gradient import RowGradient
from dtoolkit.training.slide.hashed_bag import HashedBag
from dtoolkit.training.slide.model import SlideModel
from dtoolkit.training.slide.output import OutputLinear
from dtoolkit.training.slide.sharing import Sharing, traffic
from dtoolkit.training.slide.statistics import Retrieval
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["DSlide"]


class DSlide(Strategy):
    """Every rank holds some neurons, and computes them for the whole batch.

    Hidden units and output neurons are split over the ranks, and with them weights, optimizer
    state and hash tables. In a step a rank computes its hidden units and sends them to all; finds
    the active ones of its output neurons; agrees with the others on each sample's softmax by
    maximum and sum; and sends what its outputs say of the hidden units to their owners. Weights and
    their gradients are never sent, tables are made anew where they are: a step costs
    :func:`~dtoolkit.training.slide.sharing.traffic` bytes, whatever the number of classes.

    The model is a :class:`~dtoolkit.training.slide.model.SlideModel` (``tasks.extreme`` makes one),
    the optimizer :class:`~dtoolkit.training.slide.RowSparseAdam`. With uncapped buckets, and the
    same seed, any number of workers computes the same active sets, and the same losses and weights
    to rounding; tables of limited capacity are each rank's own, and hold more together.

    Every rank reads the whole batch, and makes the whole model once, at the start. Where the ranks
    meet (to evaluate, to save, at the end) the whole model comes together on every rank: each
    sends its neurons to all others, ``n - 1`` times the size of its part, and codes of ``tables``
    times 4 bytes a neuron besides. Evaluate seldom over a slow network.

    After Chen et al. (2020), SLIDE, and Yan et al. (2022), arXiv 2201.12667; how neurons are
    distributed is *reconstructed*, for the paper's own text was not available.
    """

    name: ClassVar[str] = "dslide"
    row_gradients: ClassVar[bool] = True
    batch_norm: ClassVar[str] = "local"
    replicated: ClassVar[bool] = False
    promise: ClassVar[Promise] = Promise(
        trajectory="one process, with uncapped buckets, to rounding; active sets exactly",
        resume="bit-equal",
        other_workers="refused: every rank holds neurons of its own",
    )

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        for name in ("compression", "partition"):
            if getattr(settings, name) is not None:
                raise ValueError(
                    f"{name}={getattr(settings, name)!r}: with {self.name} every worker reads the "
                    "whole batch, and activations alone are sent, as they are"
                )
        if settings.accumulate != 1:
            raise ValueError(f"accumulate={settings.accumulate}: {self.name} has 1 alone")

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`: keep this rank's neurons."""
        model = replica.model
        if not isinstance(model, SlideModel) or not isinstance(model.output, OutputLinear):
            kind = type(getattr(model, "output", model)).__name__
            raise TypeError(
                f"strategy='dslide': task.model() gave {type(model).__name__} with {kind}: wanted "
                "a SlideModel with a hashed output layer, as dt.training.tasks.extreme() makes it"
            )
        smallest = min(model.hidden.out_features, model.classes)
        if replica.size > smallest:
            raise ValueError(
                f"strategy='dslide': {replica.size} workers for {model.hidden.out_features} hidden "
                f"units and {model.classes} classes: wanted at least one of each a worker"
            )
        self._replica, self._whole = replica, model
        self._part = model.part(replica.rank, replica.size)
        model.empty()
        self._output: OutputLinear = self._part.output  # type: ignore[assignment]
        self._named = [(n, p) for n, p in self._part.named_parameters() if p.requires_grad]
        make = replica.settings.optimizer or replica.task.optimizer
        self._optimizer = make([value for _, value in self._named])
        if not isinstance(self._optimizer, RowSparseAdam):
            raise TypeError(
                f"strategy='dslide': the optimizer is {type(self._optimizer).__name__}: wanted "
                "dt.training.slide.RowSparseAdam, which takes the gradients of some rows"
            )
        self._sharing = Sharing(replica.comm, model.hidden.out_features)

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        start, exchanged = time.perf_counter(), self._sharing.seconds
        ids = replica.sampler.batch(step)
        taken: Any = replica.examples.take(ids)
        inputs, labels = taken
        layer, output = self._part.hidden, self._output
        units = layer.units(inputs)
        own = torch.relu_(layer.pool(inputs, units))
        hidden = self._sharing.gather(own, units)
        active = output.active(hidden, (labels.starts, labels.ids))
        values = output.logits(hidden, active)
        largest = output.kernels.maxima(active, values)
        sums = output.kernels.sums(active, values, largest)
        largest, total = self._sharing.normaliser(largest, sums)
        delta, losses = output.kernels.deltas(active, values, largest, total)
        loss = float(losses.double().sum())
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} on rank {replica.rank} at step {step}")
        delta /= len(ids)
        pulled = self._sharing.to_owners(output.kernels.pull(active, delta, output.weight))
        self._follow(replica)
        output.add_gradient(RowGradient(active, delta, hidden, output.updated))
        self._optimizer.step()  # of the outputs, while the derivatives are on their way
        layer.add_gradient(inputs, pulled().mul_(own > 0))
        self._optimizer.step()
        self._optimizer.zero_grad()
        step_schedule(replica)
        seconds = time.perf_counter() - start - (self._sharing.seconds - exchanged)
        replica.slow(step, 0, seconds)
        mine = len(torch.tensor_split(ids, replica.size)[replica.rank])
        extra = {"active": active.entries / len(ids)}
        if units is not None:
            extra["active_hidden"] = units.entries / len(ids)
        return StepReport(loss, mine, mine, seconds, 0.0, extra=extra)

    def reconcile(self, replica: Replica) -> dict[str, torch.Tensor]:
        """See :meth:`Strategy.reconcile`: the whole model, of all ranks' neurons."""
        state = self._part.state_dict()
        names = [name for name, value in state.items()]
        with replica.comm.phase("reconcile"):
            each = [replica.comm.all_gather_v(state[name]) for name in names]
        parts = [
            {name: values[rank] for name, values in zip(names, each, strict=True)}
            for rank in range(replica.size)
        ]
        return self._whole.joined(parts)

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`: the optimizer's state of this rank's neurons."""
        return {
            "workers": self._replica.size,
            "optimizer": optimizer_state(self._optimizer, self._named),
        }

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        check_workers(self.name, own, self._replica.size)
        load_optimizer(self._optimizer, own["optimizer"], self._named)

    def summary(self) -> dict[str, Any]:
        """Bytes a step by the formula, and what rank 0 has retrieved of its neurons."""
        replica, found = self._replica, self._output.retrieval
        told = _told(found)
        if not isinstance(self._whole.hidden, HashedBag):  # whose bytes differ by step
            sent = traffic(
                batch=replica.sampler.size,
                hidden=self._whole.hidden.out_features,
                ranks=replica.size,
            )
            told["bytes_a_step"] = int(sent.sum())
        return told

    def cite(self) -> str:
        """What to cite."""
        return (
            "B. Chen et al., SLIDE: in defense of smart algorithms over hardware acceleration for "
            "large-scale deep learning systems, MLSys 2020; M. Yan et al., Distributed SLIDE, "
            "arXiv 2201.12667, 2022 (distribution reconstructed)"
        )

    def _follow(self, replica: Replica) -> None:
        """Take over what the schedule has made of the learning rates."""
        for own, group in zip(
            self._optimizer.param_groups, replica.optimizer.param_groups, strict=True
        ):
            own["lr"] = group["lr"]


def _told(found: Retrieval) -> dict[str, Any]:
    """Statistics of retrieval, in plain values."""
    return {
        "active_share": float(found.share),
        "active": float(found.mean),
        "labels_found": float(found.label_share),
    }
