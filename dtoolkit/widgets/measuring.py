"""A product on the workers, timed: what is measured beside what was planned and predicted."""

from __future__ import annotations

import statistics
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays import standard_normal
from dtoolkit.cluster import Cluster, calibrate
from dtoolkit.comm import Network
from dtoolkit.spmm import Plan, distribute
from dtoolkit.widgets.work import Job

__all__ = ["ROUNDS", "Measured", "calibrated", "measure"]

ROUNDS = 9
"""Products that are timed, after a first one that is not: it compiles, and finds its buffers."""

CALIBRATION = 3.0
"""Seconds that measuring the workers' network may take, about; once a cluster."""

Tell = Callable[[str, int, int], object]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a product took.

    Attributes
    ----------
    rounds : tuple of float
        Seconds of each product, from the call to its end.
    sent : int64 array of shape (ranks, ranks)
        Bytes of one product as they were counted, [source, target].
    planned : int
        Bytes that the plan says.
    network : Network
        The workers' own, as it was measured before.
    """

    rounds: tuple[float, ...]
    sent: NDArray[np.int64]
    planned: int
    network: Network

    @property
    def seconds(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def as_planned(self) -> bool:
        """Whether as many bytes moved as planned."""
        return int(self.sent.sum()) == self.planned


async def calibrated(job: Job, cluster: Cluster, tell: Tell) -> Network:
    """Return the network that the workers are, measured when first asked for."""
    if cluster not in _networks:

        def show(share: float, what: str) -> None:
            job.check()
            job.from_thread(tell, f"measuring the workers' network: {what}", int(100 * share), 100)

        _networks[cluster] = await job.in_thread(
            lambda: calibrate(cluster, seconds=CALIBRATION, progress=show)
        )
    return _networks[cluster]


async def measure(
    job: Job,
    cluster: Cluster,
    A: Any,
    plan: Plan,
    *,
    k: int,
    dtype: str,
    seed: int,
    tell: Tell,
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
    network = await calibrated(job, cluster, tell)
    tell("laying the matrix over the workers", 0, 0)
    dA, dB = await job.in_thread(_place, cluster, A, plan, k, dtype, seed)

    def products() -> tuple[list[float], NDArray[np.int64]]:
        seconds = []
        for number in range(ROUNDS + 1):
            job.check()
            job.from_thread(tell, "multiplying", number, ROUNDS + 1)
            before = len(cluster.trace)
            start = time.perf_counter()
            C = dA @ dB
            seconds.append(time.perf_counter() - start)
            del C  # its memory is there again for the next
        last = cluster.trace.events[before:]
        return seconds[1:], _sent(cluster, {event.launch for event in last})

    rounds, sent = await job.in_thread(products)
    return Measured(tuple(rounds), sent, plan.bytes(k, dtype), network)


def _place(cluster: Cluster, A: Any, plan: Plan, k: int, dtype: str, seed: int) -> tuple[Any, Any]:
    # B first, on the workers: what does not fit them is refused before anything is sent.
    B = standard_normal(cluster, (A.shape[1], k), seed=seed, layout=plan.columns, dtype=dtype)
    return distribute(cluster, A.astype(dtype), plan), B


def _sent(cluster: Cluster, launches: set[int]) -> NDArray[np.int64]:
    """Bytes of the product's phases in these launches."""
    trace = cluster.trace.filter(launch=launches)
    names = {event.phase for event in trace if event.phase.split("/")[0] == "spmm"}
    return trace.matrix(phase=names)


_networks: weakref.WeakKeyDictionary[Cluster, Network] = weakref.WeakKeyDictionary()
