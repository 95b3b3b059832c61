"""Buffers that a model changes while it trains, kept the same on ranks that step in lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from dtoolkit.training.averaging import average
from dtoolkit.training.norm import spans_ranks

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["SharedBuffers"]


class SharedBuffers:
    """The buffers of a replica that its ranks would otherwise change each in its own way.

    Those of batch norm over ranks are left out: they are the same anyway.

    Parameters
    ----------
    replica : Replica
    """

    def __init__(self, replica: Replica) -> None:
        self._comm = replica.comm
        self._homes = [
            (f"{name}.{buffer}".lstrip("."), module, buffer)
            for name, module in replica.model.named_modules()
            for buffer in module._buffers
            if buffer not in module._non_persistent_buffers_set and not spans_ranks(module)
        ]
        self._seen = self._versions()

    def changed(self) -> bool:
        """Whether any was written to, or replaced, since the last call."""
        before, self._seen = self._seen, self._versions()
        return before != self._seen

    def pool(self, samples: Sequence[int]) -> None:
        """Make them the average of all ranks', by samples; of counts the largest. Collective.

        Parameters
        ----------
        samples : sequence of int
            What each rank has used in the step.
        """
        mine = dict(self._buffers())
        with self._comm.phase("buffers"):
            gathered = {name: self._comm.all_gather(value) for name, value in mine.items()}
        states = [
            {name: values[rank] for name, values in gathered.items()}
            for rank in range(self._comm.size)
        ]
        with torch.no_grad():
            for name, value in average(states, samples).items():
                mine[name].copy_(value)
        self._seen = self._versions()

    def _buffers(self) -> list[tuple[str, torch.Tensor]]:
        held = [(name, module._buffers[buffer]) for name, module, buffer in self._homes]
        return [(name, value) for name, value in held if value is not None]

    def _versions(self) -> list[tuple[str, int, int]]:
        return [(name, id(value), value._version) for name, value in self._buffers()]
