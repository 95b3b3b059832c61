"""Synchronous data parallel: one batch, shared out; gradients summed before every step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

import torch

from dtoolkit.training.strategy import Promise, StepReport, Strategy

if TYPE_CHECKING:
    from dtoolkit.training.replica import Replica

__all__ = ["DataParallel"]


class DataParallel(Strategy):
    """Every rank computes its share of each batch; all make the same step."""

    name: ClassVar[str] = "data-parallel"
    promise: ClassVar[Promise] = Promise(
        trajectory="one process on the whole batch, to rounding",
        resume="bit-equal",
        other_workers="to rounding",
    )

    def configure(self, replica: Replica) -> None:
        """See :meth:`Strategy.configure`."""

    def step(self, replica: Replica, step: int) -> StepReport:
        """See :meth:`Strategy.step`."""
        start = time.perf_counter()
        loss, samples = 0.0, 0
        for micro, ids in enumerate(replica.sampler.share(step, replica.rank)):
            one, count = replica.backward(ids, step=step, micro=micro)
            loss, samples = loss + one, samples + count
        compute = time.perf_counter() - start
        flat, used = replica.gradients()
        replica.comm.barrier()
        idle = time.perf_counter() - start - compute
        flat = replica.comm.all_reduce(flat)
        used = replica.comm.all_reduce(used)
        total = int(replica.comm.all_reduce(torch.tensor(samples)))
        replica.load_gradients(flat, used)
        replica.update(total)
        return StepReport(loss, samples, replica.sampler.planned(step, replica.rank), compute, idle)
