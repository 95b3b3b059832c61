"""A product on the workers, timed: what is measured beside what was planned and predicted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.cluster import Cluster
from dtoolkit.spmm import Plan, distribute
from dtoolkit.spmm.timing import timed_product
from dtoolkit.widgets.work import Job

__all__ = ["ROUNDS", "Measured", "measure"]

ROUNDS = 9
_POLL = 0.05


@dataclass(frozen=True, eq=False)
class Measured:
    """What a product took.

    Attributes
    ----------
    seconds : float
        Median over the rounds of the slowest rank's time.
    rounds : tuple of float
        Seconds of each round.
    sent : int64 array of shape (ranks, ranks)
        Bytes of one product as they were counted, [source, target].
    planned : int
        Bytes that the plan says.
    """

    seconds: float
    rounds: tuple[float, ...]
    sent: NDArray[np.int64]
    planned: int

    @property
    def as_planned(self) -> bool:
        """Whether as many bytes moved as planned."""
        return int(self.sent.sum()) == self.planned


async def measure(
    job: Job,
    cluster: Cluster,
    A: Any,
    plan: Plan,
    *,
    k: int,
    dtype: str,
    seed: int,
    tell: Callable[[str, int, int], object],
) -> Measured:
    """Lay A over the workers and multiply it several times by a random B.

    Parameters
    ----------
    job : Job
    cluster : Cluster
        Idle, of as many ranks as the plan has parts.
    A : csr_array
    plan : Plan
    k : int
        Columns of B.
    dtype : str
        Of A and B.
    seed : int
        Of B.
    tell : callable
        ``tell(words, done, total)``.

    Raises
    ------
    DtoolkitError, MemoryError
        What the workers say.
    """
    tell("laying the matrix over the workers", 0, 0)
    dA, dB = await job.in_thread(_place, cluster, A, plan, k, dtype, seed)
    launch = await job.in_thread(cluster.submit, timed_product, dA, dB, ROUNDS)
    done = -1
    try:
        while not launch.done():
            steps = sum(event["rank"] == 0 for event in list(launch.events))
            if steps != done:
                done = steps
                tell(f"multiplying: {launch.status}", done, ROUNDS + 1)
            await asyncio.sleep(_POLL)
        times = np.array(await launch.wait())
    finally:
        launch.cancel()
    trace = cluster.trace.filter(launch=launch.number)
    sent = sum(trace.matrix(phase=name) for name in {e.phase for e in trace} if _is_product(name))
    rounds = times.max(axis=0)
    return Measured(
        seconds=float(np.median(rounds)),
        rounds=tuple(map(float, rounds)),
        sent=np.asarray(sent, dtype=np.int64) // (ROUNDS + 1),
        planned=plan.bytes(k, dtype),
    )


def _place(cluster: Cluster, A: Any, plan: Plan, k: int, dtype: str, seed: int) -> tuple[Any, Any]:
    B = np.random.default_rng(seed).standard_normal((A.shape[1], k)).astype(dtype)
    return distribute(cluster, A.astype(dtype), plan), distribute(cluster, B, plan)


def _is_product(phase: str) -> bool:
    return phase == "spmm" or phase.startswith("spmm/")
