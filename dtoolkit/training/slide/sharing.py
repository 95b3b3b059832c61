"""What ranks that hold the neurons of one network exchange in a step, and how many bytes that is.

Every rank knows all sizes beforehand, but for those of a hashed hidden layer, so that no message
needs a header. Sums are taken in rank
order: all ranks hold the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.training.slide.active import ActiveSets

__all__ = ["Sharing", "traffic"]

_FLOAT = 4  # bytes


def traffic(
    *, batch: int, hidden: int, ranks: int, active: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """Bytes that each rank sends in a step.

    Hidden activations are gathered, each from its owner to all others; their derivatives go from
    all others to the owner; the maximum and the sum of each sample's softmax are reduced over all.
    For even shares that is ``(n - 1) / n * B * h * 4`` twice, and ``2 (n - 1) / n * 2 * B * 4``.

    Parameters
    ----------
    batch : int
        Samples, B.
    hidden : int
        Hidden units, h.
    ranks : int
        Workers, n.
    active : sequence of int, optional
        For a hashed hidden layer: pairs of a sample and an active unit, by the rank that holds the
        unit. Each travels as number and value, 8 bytes; others do not.

    Returns
    -------
    int64 array, shape (ranks,)

    Notes
    -----
    Derivatives are reduced to the owner alone (a reduce-scatter), since hidden units are split as
    well; an all-reduce to all ranks would be twice as much.
    """
    units, samples = (Layout.block(count, ranks).sizes for count in (hidden, batch))
    gathered = batch * units * (ranks - 1)
    if active is not None:
        gathered = 2 * np.asarray(active, np.int64) * (ranks - 1)
    reduced = batch * (hidden - units)
    pairs = 2 * (batch - samples) + 2 * samples * (ranks - 1)
    sent: NDArray[np.int64] = _FLOAT * (gathered + reduced + pairs)
    return sent


class Sharing:
    """The exchanges of a step, over one communicator.

    Parameters
    ----------
    comm : Communicator
    hidden : int
        Hidden units, of all ranks.

    Attributes
    ----------
    seconds : float
        Time that calls have taken, waiting included.
    """

    def __init__(self, comm: Any, hidden: int) -> None:
        self.comm, self.seconds = comm, 0.0
        self.units = [int(count) for count in Layout.block(hidden, comm.size).sizes]

    def gather(self, own: torch.Tensor, units: ActiveSets | None = None) -> torch.Tensor:
        """Activations of all hidden units, of each rank's own.

        Parameters
        ----------
        own : float32 tensor, shape (samples, units held here)
        units : ActiveSets, optional
            Those that are not 0: they alone are sent, with their numbers. By default all.

        Returns
        -------
        float32 tensor, shape (samples, units)
        """
        if self.comm.size == 1:
            return own
        if units is not None:
            return self._gather_some(own, units)
        out = [own.new_empty(len(own), count) for count in self.units]
        with self.comm.phase("hidden"), self._timed():
            self.comm.all_to_all([own] * self.comm.size, out=out, agreed=True)
        return torch.cat(out, dim=1)

    def normaliser(
        self, largest: torch.Tensor, total: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Maximum of each sample over all ranks, and the sum of exponentials below it.

        Maximum and sum travel together: one all-reduce of pairs, where two would wait twice.

        Parameters
        ----------
        largest, total : float32 tensors, shape (samples,)
            Maximum of the logits held here, and the sum of ``exp(logit - largest)``.
        """
        if self.comm.size == 1:
            return largest, total
        pairs = torch.stack([largest, total], dim=1)
        pieces = [one.contiguous() for one in torch.tensor_split(pairs, self.comm.size)]
        mine = pieces[self.comm.rank]
        came, whole = [torch.empty_like(mine) for _ in pieces], torch.empty_like(pairs)
        with self.comm.phase("normaliser"), self._timed():
            self.comm.all_to_all(pieces, out=came, agreed=True)
            each = torch.stack(came)  # ranks x samples x 2
            top = each[..., 0].amax(0)
            below = torch.where(each[..., 1] > 0, (each[..., 0] - top).exp(), 0.0)
            mine = torch.stack([top, (each[..., 1] * below).sum(0)], dim=1)
            out = list(torch.tensor_split(whole, self.comm.size))
            self.comm.all_to_all([mine] * self.comm.size, out=out, agreed=True)
        return whole[:, 0].contiguous(), whole[:, 1].contiguous()

    def to_owners(self, deltas: torch.Tensor) -> Any:
        """Begin to sum derivatives by the hidden units where they are held.

        Parameters
        ----------
        deltas : float32 tensor, shape (samples, units)
            What the outputs held here say.

        Returns
        -------
        callable
            Waits, and gives a float32 tensor of shape (samples, units held here).
        """
        if self.comm.size == 1:
            return lambda: deltas
        pieces = [one.contiguous() for one in torch.split(deltas, self.units, dim=1)]
        came = [torch.empty_like(pieces[self.comm.rank]) for _ in pieces]
        with self.comm.phase("deltas"):
            pending = self.comm.all_to_all(pieces, out=came, agreed=True, wait=False)

        def summed() -> torch.Tensor:
            with self._timed():
                pending.wait()
            total = came[0]
            for one in came[1:]:
                total += one
            return total

        return summed

    def _gather_some(self, own: torch.Tensor, units: ActiveSets) -> torch.Tensor:
        first, count = sum(self.units[: self.comm.rank]), sum(self.units)
        sample = torch.from_numpy(np.repeat(np.arange(len(units)), np.diff(units.indptr)))
        unit = torch.from_numpy(units.ids).long()
        numbers = (sample * count + first + unit).int().to(own.device)
        values = own[sample.to(own.device), unit.to(own.device)]
        with self.comm.phase("hidden"), self._timed():
            each = self.comm.all_gather_v(torch.stack([numbers, values.view(torch.int32)]))
        whole = own.new_zeros(len(own) * count)
        for numbers, values in each:
            whole[numbers.long()] = values.contiguous().view(torch.float32)
        return whole.view(len(own), count)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start
