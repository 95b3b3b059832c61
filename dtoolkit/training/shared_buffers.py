"""Buffers that a model changes while it trains, kept the same on ranks that step in lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from dtoolkit.sparsity import masks_of
from dtoolkit.training.averaging import average, batch_statistics
from dtoolkit.training.norm import spans_ranks

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["SharedBuffers"]


class SharedBuffers:
    """The buffers of a replica that its ranks would otherwise change each in its own way.

    Those of batch norm over ranks are left out, and masks: they are the same anyway.

    Parameters
    ----------
    replica : Replica

    Attributes
    ----------
    statistics
        Which of them are batch norm's (:func:`~dtoolkit.training.averaging.batch_statistics`).
    """

    def __init__(self, replica: Replica) -> None:
        self._comm = replica.comm
        self.statistics = batch_statistics(replica.model)
        masks = {id(mask) for mask in masks_of(replica.model).values()}
        self._homes = [
            (f"{name}.{buffer}".lstrip("."), module, buffer)
            for name, module in replica.model.named_modules()
            for buffer, value in module._buffers.items()
            if id(value) not in masks
            and buffer not in module._non_persistent_buffers_set
            and not spans_ranks(module)
        ]
        self._seen = self._versions()

    def changed(self) -> bool:
        """Whether any was written to, or replaced, since the last call."""
        before, self._seen = self._seen, self._versions()
        return before != self._seen

    def copies(self) -> dict[str, torch.Tensor]:
        """What they hold now, by name."""
        return {name: value.detach().clone() for name, value in self._held()}

    def put(self, values: Mapping[str, torch.Tensor]) -> None:
        """Make them hold what :meth:`copies` gave."""
        with torch.no_grad():
            for name, value in self._held():
                value.copy_(values[name])
        self._seen = self._versions()

    def pool(self, mine: Sequence[Mapping[str, torch.Tensor]], samples: Sequence[int]) -> None:
        """Make them the average of several sets, by samples; of counts the largest. Collective.

        Parameters
        ----------
        mine : sequence of mappings
            The sets of this rank, as of :meth:`copies`: one, say, or one a shard.
        samples : sequence of int
            Samples behind each set of all ranks, in rank order.
        """
        gathered = {}
        with self._comm.phase("buffers"):
            for name, value in self._held():
                rows = (
                    torch.stack([one[name] for one in mine])
                    if mine
                    else value.new_empty((0, *value.shape))
                )
                gathered[name] = torch.cat(self._comm.all_gather_v(rows))
        sets = [{n: rows[i] for n, rows in gathered.items()} for i in range(len(samples))]
        self.put(average(sets, samples, statistics=self.statistics))

    def _held(self) -> list[tuple[str, torch.Tensor]]:
        held = [(name, module._buffers[buffer]) for name, module, buffer in self._homes]
        return [(name, value) for name, value in held if value is not None]

    def _versions(self) -> list[tuple[str, int, int]]:
        return [(name, id(value), value._version) for name, value in self._held()]
