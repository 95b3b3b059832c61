"""Gradients of the shards of a batch, each as the rank whose share it was would have made it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from dtoolkit.comm.reduction import reduce_in_order
from dtoolkit.training.finite import check_gradients
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.shared_buffers import SharedBuffers

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.strategy import Strategy

__all__ = ["Shard", "Shards"]


@dataclass(frozen=True)
class Shard:
    """What came of one shard in one step.

    Attributes
    ----------
    flats : tuple of torch.Tensor
        Gradients, one flat tensor a dtype.
    used : bool tensor, shape (parameters,)
    buffers : dict of tensors
        What the model's buffers became.
    changed : bool
        Whether any of them was written to.
    loss : float
        Sum over samples.
    samples : int
    """

    flats: tuple[torch.Tensor, ...]
    used: torch.Tensor
    buffers: dict[str, torch.Tensor]
    changed: bool
    loss: float
    samples: int


class Shards:
    """The shards of a replica's batches.

    Parameters
    ----------
    replica : Replica
        Its sampler must be that of the run as it began.
    strategy : Strategy
        Data-parallel or ordered, whose sums are made here.
    """

    def __init__(self, replica: Replica, strategy: Strategy) -> None:
        self._replica = replica
        self._ordered = strategy.shards is not None
        self.buffers = SharedBuffers(replica)
        values = [value for _, value in replica.parameters]
        # Ordered sums all of them in the widest dtype, data-parallel each in its own.
        kinds = ["all" if self._ordered else value.dtype for value in values]
        self._groups = [
            [number for number, one in enumerate(kinds) if one == kind]
            for kind in dict.fromkeys(kinds)
        ]
        self._dtypes = [_widest([values[n].dtype for n in group]) for group in self._groups]
        self._counts: tuple[int, list[int]] = (-1, [])
        self._free: list[tuple[torch.Tensor, ...]] = []
        self._totals: list[torch.Tensor] = []

    @property
    def totals(self) -> list[torch.Tensor]:
        """Where sums over all shards lie, as :attr:`Shard.flats`; the same tensors in each step.

        A large tensor that is made anew in each step costs more than its sum: all its pages.
        """
        if not self._totals:
            self._totals = self._made()
        return self._totals

    def done(self, held: Iterable[Shard]) -> None:
        """Take back the room of shards whose step was made."""
        self._free.extend(shard.flats for shard in held)

    def counts(self, step: int) -> list[int]:
        """Samples of each shard in a step."""
        if self._counts[0] != step:
            sampler = self._replica.sampler
            many = sampler.shards or sampler.ranks
            ids = [self._ids(sampler, step, shard) for shard in range(many)]
            self._counts = step, [sum(map(len, micros)) for micros in ids]
        return self._counts[1]

    def compute(self, step: int, shard: int) -> Shard:
        """Forward and backward of a shard; the replica is left as it was.

        Raises
        ------
        FloatingPointError
            A loss or a gradient is not finite.
        """
        replica = self._replica
        before = self.buffers.copies()
        weight = 1.0 if self._ordered else 1 / replica.sampler.planned(step)
        loss, samples = 0.0, 0
        replica.zero_grad()
        self.buffers.changed()
        try:
            for micro, ids in enumerate(self._ids(replica.sampler, step, shard)):
                one, count = replica.backward(
                    ids, step=step, micro=micro, item=shard, weight=weight
                )
                loss, samples = loss + one, samples + count
            check_gradients(replica, step)
            changed = self.buffers.changed()
            flats, used = self._taken()
            return Shard(flats, used, self.buffers.copies(), changed, loss, samples)
        finally:
            self.buffers.put(before)
            replica.zero_grad()

    def summed(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """The sum of a slice of all shards, in their order, as the strategy takes it."""
        if not self._ordered:
            return reduce_in_order(rows, "sum")
        total = torch.zeros_like(rows[0])
        for row in rows:
            total += row
        return total

    def apply(
        self,
        step: int,
        totals: Sequence[torch.Tensor],
        used: Sequence[bool],
        buffers: dict[str, torch.Tensor] | None,
    ) -> None:
        """Make the step of the optimizer with the sums of all shards."""
        replica, samples = self._replica, sum(self.counts(step))
        if buffers is not None:
            self.buffers.put(buffers)
        replica.zero_grad()
        values = [value for _, value in replica.parameters]
        for group, total in zip(self._groups, totals, strict=True):
            pieces = torch.split(total, [values[number].numel() for number in group])
            for number, piece in zip(group, pieces, strict=True):
                if used[number]:
                    value = values[number]
                    value.grad = piece.view(value.shape).to(value.dtype)
        replica._step = step
        replica.update(samples if self._ordered else samples / replica.sampler.planned(step))

    def _taken(self) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """The gradients that are there."""
        values = [value for _, value in self._replica.parameters]
        flats = self._free.pop() if self._free else tuple(self._made())
        for group, flat in zip(self._groups, flats, strict=True):
            pieces = torch.split(flat, [values[number].numel() for number in group])
            for number, piece in zip(group, pieces, strict=True):
                gradient = values[number].grad
                if gradient is None:
                    piece.zero_()
                else:
                    piece.copy_(gradient.reshape(-1))
        used = torch.tensor([value.grad is not None for value in values], dtype=torch.bool)
        return flats, used

    def _made(self) -> list[torch.Tensor]:
        """New tensors of the size and dtype of :attr:`Shard.flats`."""
        values = [value for _, value in self._replica.parameters]
        return [
            values[group[0]].new_empty(sum(values[n].numel() for n in group), dtype=dtype)
            for group, dtype in zip(self._groups, self._dtypes, strict=True)
        ]

    def _ids(self, sampler: Sampler, step: int, shard: int) -> list[torch.Tensor]:
        """Samples of a shard, by micro-batch."""
        if sampler.shards is None:
            return sampler.share(step, shard)
        cut = sampler.micro_batches(step)
        return [torch.tensor_split(ids, sampler.shards)[shard] for ids in cut]


def _widest(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    found = dtypes[0]
    for one in dtypes[1:]:
        found = torch.promote_types(found, one)
    return found
