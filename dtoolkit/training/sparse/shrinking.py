"""A replica that cuts channels out of its model while it learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dtoolkit.sparsity import PruneTrain
from dtoolkit.training.living import living
from dtoolkit.training.sparse.cuts import apply_saved, saved_cut
from dtoolkit.training.sparse.sparse import Sparse

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Shrinking"]


class Shrinking(Sparse):
    """PruneTrain of a replica's model and optimizer.

    Ranks that hold the same weights cut alike, each by itself. The penalty's strength follows from
    the mean loss of the first step, for which the ranks tell each other their losses.

    Parameters
    ----------
    replica : Replica
    settings : mapping
        Keywords of :class:`~dtoolkit.sparsity.PruneTrain`; ``example_inputs`` may be left out, and
        is two samples of the training set then.
    """

    agreed = False  # a cut is the result of much arithmetic: sizes are compared, which is little

    def __init__(self, replica: Replica, settings: Mapping[str, Any]) -> None:
        super().__init__()
        settings = dict(settings)
        inputs = settings.pop("example_inputs", None)
        if inputs is None:
            inputs, _ = replica.examples.take(torch.arange(2) % len(replica.examples))
        self._replica = replica
        self._pruner = PruneTrain(replica.model, replica.optimizer, inputs, **settings)
        self._began_with = self._live()
        self._cuts: list[dict[str, Any]] = []
        self._losses: list[tuple[float, int]] = []  # sums of the first step, and of how many

    def note(self, loss: float, samples: int) -> None:
        """See :meth:`Sparse.note`."""
        if self._pruner.penalty.strength is None:
            self._losses.append((loss, samples))

    def begin(self) -> None:
        """Set the strength by the mean loss of the first step, whoever computed which samples."""
        if self._pruner.penalty.strength is not None:
            return
        comm = self._replica.comm
        with comm.phase("scores"):
            mine = torch.tensor(self._losses, dtype=torch.float64).view(-1, 2)
            said = torch.cat(comm.all_gather_v(mine)).tolist()
        self._losses = []
        # Sums that do not depend on the order: the same whoever computed which.
        loss = math.fsum(one for one, _ in said) / math.fsum(count for _, count in said)
        self._pruner.penalty(torch.tensor(loss, dtype=torch.float64))

    def penalty(self, model: nn.Module) -> torch.Tensor | None:
        """See :meth:`Sparse.penalty`."""
        return self._pruner.penalty(model)

    def stepped(self) -> None:
        """See :meth:`Sparse.stepped`."""

    def finish(self, step: int) -> None:
        """End the epoch, if the step was its last one: cut, if it is time to."""
        epoch = self._replica.sampler.epoch
        if epoch(step + 1) == epoch(step):
            return
        with living(self._replica.ctx):
            report = self._pruner.end_epoch()
        if report is not None and report.changed:
            self._cuts.append(saved_cut(report.plan))
            self.changes += 1

    def prepare(self, state: Mapping[str, Any]) -> None:
        """See :meth:`Sparse.prepare`."""
        self._cuts = list(state["cuts"])
        apply_saved(self._replica.model, self._replica.optimizer, self._cuts)
        self.changes += 1

    def state(self) -> dict[str, Any]:
        """See :meth:`Sparse.state`."""
        return {"pruner": self._pruner.state_dict(), "cuts": list(self._cuts)}

    def load(self, state: Mapping[str, Any], masks: Mapping[str, torch.Tensor]) -> None:
        """See :meth:`Sparse.load`."""
        self._pruner.load_state_dict(dict(state["pruner"]))

    def _counts(self) -> tuple[int, float]:
        live = self._live()
        return live, live / self._began_with

    def _live(self) -> int:
        return sum(value.numel() for _, value in self._replica.parameters)
