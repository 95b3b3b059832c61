"""What can be seen of a cluster: its workers, what runs, what they hold and have moved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from dtoolkit.cluster.gang import Gang
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.nodes import nodes_of
from dtoolkit.cluster.sockets import by_rank
from dtoolkit.comm.network import Network
from dtoolkit.errors import ClusterClosed, WorkerLost

__all__ = ["MUSTER", "View"]

MUSTER = 30.0
"""Seconds to wait for workers that are missing, where somebody only looks."""


class View:
    """The part of a cluster that only looks."""

    client: Client
    emulate: Network | None
    _gang: Gang

    @property
    def workers(self) -> list[Member]:
        """The workers by rank, as the next launch would take them."""
        self._check_open()
        work = self._gang.roster.muster(time.perf_counter() + MUSTER)
        return list(self._asked(work, "a look at the workers"))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.workers)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node of each rank: workers of one host share a number, from 0 in order of ranks.

        Of a cluster that emulates a network: the nodes of that network.
        """
        if self.emulate is not None:
            self._check_open()
            return tuple(int(node) for node in self.emulate.nodes)
        return nodes_of(self.workers)

    @property
    def pids(self) -> list[int]:
        """Process id of each rank's worker."""
        return [member.pid for member in self.workers]

    @property
    def dashboard(self) -> str:
        """Link to Dask's dashboard."""
        return str(self.client.dashboard_link)

    @property
    def status(self) -> str:
        """In words: open or closed, and what runs."""
        if self._gang.closed:
            return "closed"
        running = list(self._gang.queue)
        return "idle" if not running else f"{running[0]!r}, {len(running) - 1} waiting"

    @property
    def held(self) -> list[int]:
        """Bytes of distributed data that each rank's worker holds."""
        return self._ask_all("held")

    def socket_bytes(self) -> NDArray[np.int64]:
        """Bytes that the kernel counted on the sockets of the group since it formed.

        Returns
        -------
        ndarray of int64, shape (ranks, ranks)
            ``[source, target]``, as the target's kernel received them, protocol of Gloo included.
            Two calls around a launch tell what it moved, independently of the trace. Zeros before
            the first launch; -1 where the system does not count (macOS).
        """
        return by_rank(self._ask_all("connections", self._gang.topic))

    def _ask_all(self, method: str, *args: Any) -> list[Any]:
        """What every rank's worker answers."""

        async def ask() -> list[Any]:
            await self._gang.sweep()
            members = await self._gang.roster.muster(time.perf_counter() + MUSTER)
            calls = [self._gang.call(m.address, method, *args) for m in members]
            return list(await asyncio.gather(*calls))

        self._check_open()
        answers: list[Any] = self._asked(ask(), f"a question ({method})")
        return answers

    def _asked(self, work: Coroutine[Any, Any, Any], operation: str) -> Any:
        try:
            return self._gang.ask(work, 60.0)
        except WorkerGoneError as gone:
            raise WorkerLost(
                ranks=[self._gang.roster.rank_of(gone.address)],
                addresses=[gone.address],
                operation=operation,
            ) from gone

    def _check_open(self) -> None:
        if self._gang.closed:
            raise ClusterClosed("the cluster is closed: make a new one")
