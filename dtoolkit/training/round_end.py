"""How ranks end a round of local steps: who has used how many samples, and the mean of all models.

Each tells the others its samples and when it was ready, in one small message. A model that is as
small as that travels in it, and its mean is there at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dtoolkit.comm.standing import StandingGather
from dtoolkit.training.averaging import average, average_model, batch_statistics, model_parts

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["Met", "RoundEnd"]

_HEAD = 32  # bytes, of float64: when this rank was ready, its samples, and one number more
_ALIGNED = 16  # bytes: where any dtype may begin
_SMALL = 1024  # bytes of a model that go with them: one round of messages instead of three


@dataclass(frozen=True)
class Met:
    """What a rank knows when all have ended a round.

    Attributes
    ----------
    samples : list of float
        That each rank has used in the round.
    numbers : list of float
        That each rank has told beside.
    idle : float
        Seconds from when this rank was ready until the last one was, as exact as clocks agree.
    rows : torch.Tensor
        What all ranks told, for :meth:`RoundEnd.mean`.
    """

    samples: list[float]
    numbers: list[float]
    idle: float
    rows: torch.Tensor


class RoundEnd:
    """The ends of a run's rounds; made, and used, by all ranks together.

    Parameters
    ----------
    replica : Replica
        Its model keeps its parameters' and buffers' shapes.
    whole : bool
        Models are averaged; False where something else travels in place of them.
    """

    def __init__(self, replica: Replica, *, whole: bool = True) -> None:
        self._comm, self._clock, self._model = replica.comm, replica.ctx.clock, replica.model
        self._statistics = batch_statistics(replica.model)
        self._places: list[tuple[str, torch.dtype, torch.Size, slice]] = []
        end = _HEAD
        for name, value in model_parts(replica.model).items():
            start = -(-end // _ALIGNED) * _ALIGNED
            end = start + value.nbytes
            self._places.append((name, value.dtype, value.shape, slice(start, end)))
        self._along = whole and end <= _SMALL
        self._told = torch.zeros(end if self._along else _HEAD, dtype=torch.uint8)
        self._mine = self._laid(self._told) if self._along else {}
        self._telling = StandingGather(replica.comm, self._told)

    def meet(self, samples: float, number: float = 0.0) -> Met:
        """Tell what this rank has used, and any number, and wait for all."""
        ready = self._clock()
        head = torch.tensor([ready, samples, number, 0.0], dtype=torch.float64)
        self._told[:_HEAD] = head.view(torch.uint8)
        if self._along:
            for name, value in model_parts(self._model).items():
                self._mine[name].copy_(value)
        self._telling.run()
        waited = self._clock() - ready
        rows = self._telling.whole
        heads = rows[:, :_HEAD].contiguous().view(torch.float64)
        idle = min(max(float(heads[:, 0].max()) - ready, 0.0), waited)
        return Met(heads[:, 1].tolist(), heads[:, 2].tolist(), idle, rows)

    def mean(self, met: Met) -> dict[str, torch.Tensor]:
        """What :func:`~dtoolkit.training.averaging.average_model` gives; collective."""
        if not self._along:
            return average_model(self._comm, self._model, met.samples)
        states = [self._laid(row) for row in met.rows]
        return average(states, met.samples, statistics=self._statistics)

    def _laid(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """The model in a message: views of it."""
        return {
            name: row[place].view(dtype).view(shape) for name, dtype, shape, place in self._places
        }
