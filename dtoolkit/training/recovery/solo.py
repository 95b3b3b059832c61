"""The replica of an elastic run, which is made without the others: they may be in another step."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtoolkit.training.loaded import digest
from dtoolkit.training.replica import Replica
from dtoolkit.training.sampling import Sampler

if TYPE_CHECKING:
    from dtoolkit.cluster import Context
    from dtoolkit.training.loop import Job

__all__ = ["loaded_digest", "solo_replica"]


def solo_replica(ctx: Context, job: Job, *, workers: int) -> Replica:
    """A replica whose samples are shared out as among the workers that the run began with.

    Parameters
    ----------
    ctx : Context
    job : Job
    workers : int
    """
    strategy, settings = job.strategy, job.settings
    replica = Replica(
        _Alone(ctx),
        job.task,
        replace(settings, partition=None),  # which names owners that are not here
        batch_norm=strategy.batch_norm,
        shards=strategy.shards,
    )
    replica.ctx, replica.settings = ctx, settings
    replica.sampler = Sampler(
        len(replica.examples),
        settings.batch or job.task.batch,
        seed=settings.seed,
        ranks=workers,
        partition=settings.partition,
        accumulate=settings.accumulate,
        shards=strategy.shards,
    )
    return replica


def loaded_digest(replica: Replica) -> int:
    """A number of 63 bits for the examples that callables of the task have loaded."""
    total = hashlib.blake2b(digest_size=8)
    for name, examples in (("train", replica.examples), ("test", replica.test)):
        if examples is not None and callable(getattr(replica.task, name, None)):
            total.update(digest(examples))
    return int.from_bytes(total.digest(), "little") >> 1


class _Alone:
    """A context in which there is one rank."""

    size = 1

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)
