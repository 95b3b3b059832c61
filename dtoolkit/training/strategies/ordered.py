"""Data parallel that gives the same bits on any number of workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from dtoolkit.arrays.layout import Layout
from dtoolkit.training.shared_buffers import SharedBuffers
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["Ordered"]


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
        flat, _ = replica.gradients()
        layout = Layout.block(self.shards, replica.size)
        self._held = [int(count) for count in layout.sizes]
        self._cuts = [len(piece) for piece in torch.tensor_split(flat, replica.size)]
        self._itemsize = flat.element_size()

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        start = time.perf_counter()
        before = self._buffers.copies()
        loss, samples = 0.0, 0
        grads, used, buffers = [], torch.zeros(len(replica.parameters) + 1, dtype=torch.uint8), []
        for shard, micros in replica.sampler.shares(step, replica.rank):
            self._buffers.put(before)
            replica.zero_grad()
            for micro, ids in enumerate(micros):
                one, count = replica.backward(ids, step=step, micro=micro, item=shard)
                loss, samples = loss + one, samples + count
            used[-1] |= self._buffers.changed()
            buffers.append(self._buffers.copies())
            flat, have = replica.gradients()
            grads.append(flat)
            used[:-1] |= have
        arrival = time.perf_counter()
        used = replica.comm.all_gather(used).amax(0)
        idle = time.perf_counter() - arrival
        counts = self._counts(replica, step)
        if used[-1]:
            self._buffers.pool(buffers, counts)
        replica.load_gradients(self._sum(replica, grads), used[:-1])
        replica.update(sum(counts))
        return StepReport(loss, samples, samples, arrival - start, idle)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        if self._threads is not None:
            torch.set_num_threads(self._threads)

    def summary(self) -> dict[str, Any]:
        """Shards, and the bytes a step that all ranks send beyond those of an all-reduce."""
        size = sum(self._cuts)
        extra = sum(
            (held - 1) * (size - cut) for held, cut in zip(self._held, self._cuts, strict=True)
        )
        return {"shards": self.shards, "extra_bytes_a_step": extra * self._itemsize}

    def _counts(self, replica: Replica, step: int) -> list[int]:
        """Samples of each shard."""
        cut = [torch.tensor_split(ids, self.shards) for ids in replica.sampler.micro_batches(step)]
        return [sum(len(pieces[shard]) for pieces in cut) for shard in range(self.shards)]

    def _sum(self, replica: Replica, grads: list[torch.Tensor]) -> torch.Tensor:
        """Sum of all shards' gradients in the order of the shards, on every rank."""
        comm = replica.comm
        like, _ = replica.gradients()
        mine = torch.stack(grads) if grads else like.new_empty((0, len(like)))
        own = self._cuts[replica.rank]
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
