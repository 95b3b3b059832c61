"""Clusters under panels: given ones, one that panels start and share, and whose turn it is.

Panels that are given no cluster share one of local workers: it is started when the first of them
runs something, replaced when another number of ranks is wanted and nobody else uses it, and closed
with the last panel that used it. On one cluster panels take turns, and say whom they wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Callable

from dtoolkit.cluster import Cluster
from dtoolkit.comm import Network
from dtoolkit.widgets.work import Job

__all__ = ["Workers"]

_POLL = 0.05  # seconds between two looks at a queue


class Workers:
    """What one panel knows of its workers.

    Parameters
    ----------
    owner : str
        The panel, in words, for those that wait behind it.
    given : Cluster, optional
        A cluster that is not the panel's to start or to close.
    """

    def __init__(self, owner: str, given: Cluster | None = None) -> None:
        self.owner = f"{owner} {next(_numbers)}"
        self.given = given
        self._ticket = object()

    @property
    def running(self) -> Cluster | None:
        """The cluster that is there already, if there is one."""
        return self.given if self.given is not None else _shared.cluster

    async def get(
        self, job: Job, ranks: int, emulate: Network | None = None, *, what: str = "Parts"
    ) -> Cluster:
        """Return a cluster of this many ranks; start one where none was given.

        Parameters
        ----------
        job : Job
        ranks : int
        emulate : Network, optional
            That messages are slowed down to; a given cluster has the one that it was made with.
        what : str
            Label of the control that says how many.

        Raises
        ------
        ValueError
            The given cluster has other ranks, or others use the shared one.
        """
        if self.given is None:
            return await job.in_thread(_shared.get, self._ticket, ranks, emulate, what)
        size = await job.in_thread(lambda: self.given.size if self.given else 0)
        if size != ranks:
            raise ValueError(
                f"the cluster has {size} ranks, and {what} says {ranks}: set {what} to {size}"
            )
        if emulate is not None:
            raise ValueError(
                "the panel was given a cluster, which keeps its own network: choose none here, or "
                "make the cluster with emulate=, or give the panel none"
            )
        return self.given

    @contextlib.asynccontextmanager
    async def turn(self, cluster: Cluster, tell: Callable[[str], object]) -> AsyncIterator[None]:
        """Wait until it is this panel's turn on a cluster, and until the cluster is idle.

        Parameters
        ----------
        cluster : Cluster
        tell : callable
            ``tell(words)`` is told what is waited for, again when it changes.
        """
        queue = _queues.setdefault(cluster, [])
        queue.append(self)
        said = ""
        try:
            while (ahead := _ahead(queue, self)) or cluster.status != "idle":
                words = f"behind {ahead}" if ahead else f"for the cluster: {cluster.status}"
                if words != said:
                    tell(words)
                    said = words
                await asyncio.sleep(_POLL)
            yield
        finally:
            queue.remove(self)

    def release(self) -> None:
        """Give up the shared cluster; the last one that does closes it."""
        _shared.release(self._ticket)


class _Shared:
    """The cluster that panels start."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self._made: tuple[int, Network | None] = (0, None)
        self._users: set[object] = set()
        self._gone: set[object] = set()
        self._guard = threading.Lock()

    def get(
        self, ticket: object, ranks: int, emulate: Network | None = None, what: str = "Parts"
    ) -> Cluster:
        """Return the cluster, started or replaced where that is needed; takes seconds then."""
        wanted = (ranks, emulate)
        with self._guard:
            if self.cluster is not None and self.cluster.status == "closed":
                self._close()
            if self.cluster is not None and self._made != wanted:
                if self._users - {ticket} and self.cluster.status != "idle":
                    there, network = self._made
                    over = "" if network == emulate else " over another network"
                    raise ValueError(
                        f"another panel uses the {there} workers{over}: wait for it, or set {what} "
                        f"to {there}"
                    )
                self._close()
            if self.cluster is None:
                self.cluster, self._made = Cluster(workers=ranks, emulate=emulate), wanted
            if ticket in self._gone:  # closed while the workers started
                if not self._users:
                    self._close()
                raise ValueError("the panel was closed")
            self._users.add(ticket)
            return self.cluster

    def release(self, ticket: object) -> None:
        """Forget a user, and close the cluster behind the last one, on a thread.

        Python waits for that thread at its end, so that the workers end in order.
        """
        self._gone.add(ticket)
        if self.cluster is not None or self._guard.locked():
            threading.Thread(target=self._leave, args=(ticket,), name="dtoolkit-end").start()

    def _leave(self, ticket: object) -> None:
        with self._guard:
            self._users.discard(ticket)
            if not self._users:
                self._close()

    def _close(self) -> None:
        if self.cluster is not None:
            try:
                self.cluster.close()
            finally:
                self.cluster = None


def _ahead(queue: list[Workers], one: Workers) -> str:
    """Name those that are served before, in order."""
    return ", ".join(other.owner for other in queue[: queue.index(one)])


_numbers = itertools.count(1)
_shared = _Shared()
_queues: weakref.WeakKeyDictionary[Cluster, list[Workers]] = weakref.WeakKeyDictionary()
