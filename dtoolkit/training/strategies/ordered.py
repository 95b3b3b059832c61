"""Data parallel that gives the same bits on any number of workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.arrays.layout import Layout
from dtoolkit.comm.standing import StandingGather
from dtoolkit.training.finite import check_gradients
from dtoolkit.training.shared_buffers import SharedBuffers
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Ordered"]

_SMALL = 1024  # bytes of a rank's gradients that go with the flags
_ALIGNED = 16  # where what follows the flags may begin, whatever its dtype


class Ordered(Strategy):
    """A fixed number of shards, whoever computes them, and sums in the order of the shards.

    Floating-point sums depend on their order, and so parameters on the number of workers. Here
    every batch is cut into as many shards on 1 worker as on 8; the gradient of each is computed by
    itself, with one thread; ranks exchange slices, sum them shard by shard, and gather the sums.
    Batch norm uses the statistics of the shard, and dropout is drawn by shard. What a rank sends
    grows with its shards: :meth:`summary` says by how much.

    Parameters
    ----------
    shards : int
        At least as many as workers, or some have nothing to do; a batch should have several
        samples for each.

    Raises
    ------
    ValueError
        There are none.
    """

    name: ClassVar[str] = "ordered"
    batch_norm: ClassVar[str] = "shard"
    masks: ClassVar[bool] = True
    promise: ClassVar[Promise] = Promise(
        trajectory="one process on the whole batch, to rounding (batch norm: by shard)",
        resume="bit-equal",
        other_workers="bit-equal",
    )

    def __init__(self, *, shards: int = 8) -> None:
        whole = hasattr(type(shards), "__index__") and not isinstance(shards, bool)
        if not whole or int(shards) < 1:
            raise ValueError(f"shards={shards!r}: wanted an integer of at least 1")
        self.shards: int = int(shards)
        self._threads: int | None = None

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        if settings.compression is not None:
            raise ValueError(f"compression=: {self.name} sends gradients whole, for exact sums")
        if settings.partition is not None:
            raise ValueError(f"partition=: {self.name} cuts each batch into shards by itself")
        if settings.batch_norm not in (None, "shard"):
            raise ValueError(f"batch_norm={settings.batch_norm!r}: {self.name} has 'shard' alone")

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)  # kernels that share work out add in another order
        self._buffers = SharedBuffers(replica)
        self._like = torch.zeros_like(replica.gradients()[0])
        n, layout = len(self._like), Layout.block(self.shards, replica.size)
        self._held = [int(count) for count in layout.sizes]
        self._cuts = [len(piece) for piece in torch.tensor_split(self._like, replica.size)]
        flags = -(-(len(replica.parameters) + 1) // _ALIGNED) * _ALIGNED
        # Gradients of next to nothing go with the flags: one round of messages, not three.
        self._small = max(self._held) * self._like.nbytes <= _SMALL
        rows = max(self._held) if self._small else 0
        told = self._like.new_zeros(flags + rows * self._like.nbytes, dtype=torch.uint8)
        self._flags, self._rows = slice(0, len(replica.parameters) + 1), (flags, rows, n)
        self._telling = StandingGather(replica.comm, told)
        self._told = told

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        start = time.perf_counter()
        before = self._buffers.copies()
        loss, samples = 0.0, 0
        used, grads, buffers = self._told[self._flags].zero_(), [], []
        for shard, micros in replica.sampler.shares(step, replica.rank):
            self._buffers.put(before)
            replica.zero_grad()
            for micro, ids in enumerate(micros):
                one, count = replica.backward(ids, step=step, micro=micro, item=shard)
                loss, samples = loss + one, samples + count
            check_gradients(replica, step)
            used[-1] |= self._buffers.changed()
            buffers.append(self._buffers.copies())
            flat, have = replica.gradients()
            grads.append(flat)
            used[:-1] |= have.to(used.device)
        mine = torch.stack(grads) if grads else self._like.new_empty((0, len(self._like)))
        if self._small:
            self._sent_along(self._told)[: len(mine)] = mine
        arrival = time.perf_counter()
        with replica.comm.phase("gradients"):
            self._telling.run()
        idle = time.perf_counter() - arrival
        *learned, changed = self._telling.whole[:, self._flags].amax(0)
        counts = self._counts(replica, step)
        if changed:
            self._buffers.pool(buffers, counts)
        whole = self._summed() if self._small else self._sum(replica, mine)
        replica.load_gradients(whole, torch.tensor([bool(one) for one in learned]))
        replica.update(sum(counts))
        return StepReport(loss, samples, samples, arrival - start, idle)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        if self._threads is not None:
            torch.set_num_threads(self._threads)

    def summary(self) -> dict[str, Any]:
        """Shards, and the bytes a step that all ranks send beyond those of an all-reduce."""
        size, ranks = len(self._like), len(self._held)
        if self._small:
            sent = ranks * (ranks - 1) * max(self._held) * size
        else:
            sent = sum(h * (size - c) for h, c in zip(self._held, self._cuts, strict=True))
            sent += (ranks - 1) * size
        extra = sent - 2 * (ranks - 1) * size
        return {"shards": self.shards, "extra_bytes_a_step": extra * self._like.element_size()}

    def _counts(self, replica: Replica, step: int) -> list[int]:
        """Samples of each shard."""
        cut = [torch.tensor_split(ids, self.shards) for ids in replica.sampler.micro_batches(step)]
        return [sum(len(pieces[shard]) for pieces in cut) for shard in range(self.shards)]

    def _sent_along(self, message: torch.Tensor) -> torch.Tensor:
        """The gradients in a message, a row a shard."""
        start, rows, n = self._rows
        return message[start:].view(self._like.dtype).view(rows, n)

    def _summed(self) -> torch.Tensor:
        """Sum of all shards' gradients, which came with the flags, in the order of the shards."""
        total = torch.zeros_like(self._like)
        for held, message in zip(self._held, self._telling.whole, strict=True):
            for shard in self._sent_along(message)[:held]:
                total += shard
        return total

    def _sum(self, replica: Replica, mine: torch.Tensor) -> torch.Tensor:
        """Sum of all shards' gradients in the order of the shards, on every rank: by slices."""
        comm, like = replica.comm, self._like
        own = self._cuts[comm.rank]
        slices = [piece.contiguous() for piece in torch.tensor_split(mine, comm.size, dim=1)]
        room = [like.new_empty((held, own)) for held in self._held]
        with comm.phase("gradients"):
            comm.all_to_all(slices, out=room, agreed=True)
            total = like.new_zeros(own)
            for part in room:  # ranks hold runs of shards
                for shard in part:
                    total += shard
            whole = torch.empty_like(like)
            comm.all_to_all(
                [total] * comm.size, out=list(torch.split(whole, self._cuts)), agreed=True
            )
        return whole
