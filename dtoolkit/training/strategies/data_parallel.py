"""Synchronous data parallel: one batch, shared out; gradients summed before every step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

from dtoolkit.training.buckets import MEGABYTES, Buckets
from dtoolkit.training.compression import Stream, as_compressor, elements
from dtoolkit.training.finite import check_gradients
from dtoolkit.training.shared_buffers import SharedBuffers
from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica
    from dtoolkit.training.settings import Settings

__all__ = ["DataParallel"]


class DataParallel(Strategy):
    """Every rank computes its share of each batch; gradients are summed; all make the same step.

    Sums of gradients travel in flat buckets, in the background while backward still runs, and are
    divided by the samples that all ranks together have used: shares may differ, and be empty.
    Batch norm uses the statistics of all ranks; other buffers that a model changes while it trains
    are averaged by samples (counts: the largest). Of a sparse model the gradients of live values
    alone travel; in steps that rank weights by their gradients, all (phase "scores" of the trace).

    Parameters
    ----------
    megabytes : float
        Size of a bucket.
    overlap : bool
        False: buckets leave after backward.

    Raises
    ------
    ValueError
        The size is not above 0.
    """

    name: ClassVar[str] = "data-parallel"
    masks: ClassVar[bool] = True
    cuts: ClassVar[bool] = True
    promise: ClassVar[Promise] = Promise(
        trajectory="one process on the whole batch, to rounding",
        resume="bit-equal",
        other_workers="to rounding",
    )

    def __init__(self, *, megabytes: float = MEGABYTES, overlap: bool = True) -> None:
        if not megabytes > 0:
            raise ValueError(f"megabytes={megabytes!r}: wanted a size above 0")
        self.megabytes, self.overlap = float(megabytes), bool(overlap)
        self._buckets: Buckets | None = None
        self._laid = (0, False)
        self._stream: Stream | None = None

    def check(self, settings: Settings) -> None:
        """See :meth:`Strategy.check`."""
        if settings.batch_norm not in (None, "sync", "local"):
            raise ValueError(
                f"batch_norm={settings.batch_norm!r}: {self.name} has 'sync' and 'local'"
            )
        as_compressor(settings.compression)

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""
        compressor = as_compressor(replica.settings.compression)
        if compressor is not None:
            self._stream = Stream(compressor, seed=replica.settings.seed)
            flat = replica.flat_parameters()
            self._size = (flat.numel(), flat.dtype)
        self._buffers = SharedBuffers(replica)
        self._buckets = None
        self._lay(replica)

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        start = time.perf_counter()
        shares = replica.sampler.share(step, replica.rank)
        planned = self._divisor(replica, step)  # and all of it is used
        self._begin(replica, step)
        loss, samples = 0.0, 0
        for micro, ids in enumerate(shares):
            if self._buckets is not None and self.overlap and micro == len(shares) - 1:
                self._buckets.arm()
            one, count = replica.backward(ids, step=step, micro=micro, weight=1 / planned)
            loss, samples = loss + one, samples + count
        compute = time.perf_counter() - start
        counts, idle = self._sum(replica, step, samples)
        replica.update(sum(counts) / planned)
        return StepReport(loss, samples, sum(map(len, shares)), compute, idle)

    def finish(self, replica: Replica) -> None:
        """See :meth:`Strategy.finish`."""
        if self._buckets is not None:
            self._buckets.close()

    def own_state(self) -> dict[str, Any]:
        """See :meth:`Strategy.own_state`."""
        return {} if self._stream is None else self._stream.own_state()

    def restore(self, own: dict[str, Any]) -> None:
        """See :meth:`Strategy.restore`."""
        if self._stream is not None:
            self._stream.restore(own, *self._size)

    def _divisor(self, replica: Replica, step: int) -> int:
        """What gradients are divided by before they are sent."""
        # What is compressed stays a sum: what it owes is of sums too.
        return 1 if self._stream is not None else replica.sampler.planned(step)

    def _begin(self, replica: Replica, step: int) -> None:
        """Forget the gradients of the step before."""
        replica.zero_grad()
        self._lay(replica)
        if self._buckets is not None:
            self._buckets.begin(step)

    def _lay(self, replica: Replica) -> None:
        """Lay the buckets: for what is alive, or for all where the step ranks by gradients."""
        sparse = replica.sparse
        wanted = (0, False) if sparse is None else (sparse.changes, sparse.wants_gradients)
        before = self._buckets
        if replica.size == 1 or (before is not None and wanted == self._laid):
            return
        if before is not None:
            before.close()
        self._laid = wanted
        self._buckets = Buckets(
            [] if self._stream else replica.parameters,
            replica.comm,
            megabytes=self.megabytes,
            clock=replica.ctx.clock,
            masks=None if sparse is None or sparse.wants_gradients else sparse.masks,
            phase="gradients" if not wanted[1] else "scores",
            agreed=before is not None and sparse is not None and sparse.agreed,
        )

    def _sum(self, replica: Replica, step: int, samples: int) -> tuple[tuple[int, ...], float]:
        """Sum gradients over ranks; samples that each has used, and seconds of waiting here."""
        if self._buckets is None or self._stream is not None:  # buckets look by themselves
            check_gradients(replica, step)
        counts: tuple[int, ...] = (samples,)
        idle = 0.0
        if self._buckets is not None:
            totals = self._buckets.finish(samples, flag=self._buffers.changed())
            counts, idle = totals.samples, totals.idle
            if totals.flagged:
                self._buffers.pool([self._buffers.copies()], counts)
        if self._stream is not None:
            self._compressed(replica, step)
        return counts, idle

    def _compressed(self, replica: Replica, step: int) -> None:
        assert self._stream is not None
        flat, used = replica.gradients()
        used = replica.comm.all_reduce(used, "max")
        where = elements(replica.parameters, used)
        with replica.comm.phase("compressed"):
            flat = self._stream.sum(replica.comm, flat, step=step, where=where)
        replica.load_gradients(flat, used)
