"""Which workers take part: found, asked, seated by rank, replaced when they do not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from dtoolkit.cluster.facts import boot_id, versions
from dtoolkit.cluster.link import Link, WorkerGoneError
from dtoolkit.cluster.member import Member, clock_of
from dtoolkit.comm.trace import Trace
from dtoolkit.errors import ClusterTooSmall, VersionMismatch

__all__ = ["Roster"]

_PINGS = 4
_ANSWER = 1.0  # seconds that a suspect worker has to answer
_LEAVING = 10.0  # seconds until the scheduler misses a worker that was ended
_PATIENCE = 60.0  # seconds to wait for missing workers


class Roster:
    """The members of a gang.

    Parameters
    ----------
    link : Link
    size : int or None
        Ranks of every launch; None to take all workers that are there.
    kill : callable or None
        ``kill(pid)`` ends a worker of this machine for good; None to ask its nanny.
    trace : Trace
        Gets the number of ranks and the error of the clocks.

    Attributes
    ----------
    members : list of Member
        By rank, as last mustered.
    """

    def __init__(
        self,
        link: Link,
        *,
        size: int | None,
        kill: Callable[[int], None] | None,
        trace: Trace,
    ) -> None:
        self.size = size
        self.members: list[Member] = []
        self._link = link
        self._kill = kill
        self._trace = trace
        self._known: dict[str, Member] = {}
        self._suspects: set[str] = set()
        self._ending: dict[str, asyncio.Future[bool]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._versions = versions()
        self._boot = boot_id()

    def suspect(self, address: str) -> None:
        """A worker did not answer: it is asked again, and replaced, before the next launch."""
        self._suspects.add(address)

    def end(self, address: str) -> None:
        """End a worker for good, without waiting for it; its nanny starts another."""
        member = self._known.get(address)
        if self._kill is not None and member is not None:
            self._kill(member.pid)
        elif address not in self._ending:
            self._ending[address] = asyncio.ensure_future(self._link.restart(address))
            self._ending[address].add_done_callback(lambda _: self._ending.pop(address))

    def rank_of(self, address: str) -> int:
        """Rank that a worker has, or would have had; -1 if it never had one."""
        for member in self.members:
            if member.address == address:
                return member.rank
        return -1

    async def muster(
        self, deadline: float, tell: Callable[[str], None] = lambda status: None
    ) -> list[Member]:
        """The members of the next launch, by rank, after replacing those that are gone.

        Parameters
        ----------
        deadline : float
            On ``time.perf_counter``.
        tell : callable
            Is told in words what it waits for.

        Raises
        ------
        ClusterTooSmall
            Not enough workers before the deadline, or within a minute.
        WorkerGoneError
            A worker is listed and does not answer.
        VersionMismatch
        """
        deadline = min(deadline, time.perf_counter() + _PATIENCE)
        async with self._one_at_a_time:
            await self._check_suspects()
            while True:
                there = [a for a in await self._link.present() if a not in self._suspects]
                size = self.size or len(there)
                if size and len(there) >= size:
                    before = [m.address for m in self.members]
                    chosen = _seat(before, there, size)
                    if chosen == before:
                        return self.members
                    members = [
                        replace(await self.member(address, deadline), rank=rank)
                        for rank, address in enumerate(chosen)
                    ]
                    _check_processes(members)
                    self.members = members
                    self._trace.ranks = max(self._trace.ranks, size)
                    return members
                tell(f"waiting for workers: {len(there)} of {size or 1} are there")
                if time.perf_counter() > deadline:
                    raise ClusterTooSmall(
                        f"the launch needs {size or 1} worker(s) and {len(there)} are there. Start "
                        "more workers, or make the Cluster with workers= at most that number."
                    )
                await asyncio.sleep(0.03)

    async def member(self, address: str, deadline: float = float("inf")) -> Member:
        """What is known of a worker; asked once.

        Raises
        ------
        WorkerGoneError, VersionMismatch
        """
        if address in self._known:
            return self._known[address]
        pings = []
        for _ in range(_PINGS):
            sent = time.perf_counter()
            patience = max(0.1, min(20.0, deadline - sent))
            answer = await self._link.call(address, "describe", timeout=patience)
            pings.append((sent, answer, time.perf_counter()))
        if answer["versions"] != self._versions:
            raise VersionMismatch(
                f"worker {address} runs {answer['versions']} and this kernel {self._versions}: "
                "install the same versions in both"
            )
        offset, error = clock_of(pings, self._boot)
        self._trace.clock_error = max(self._trace.clock_error, error)
        facts = {k: answer[k] for k in ("pid", "host", "device", "gpu", "threads", "memory")}
        self._known[address] = Member(
            address, **facts, offset=offset, clock_error=error, boot=answer["boot"]
        )
        return self._known[address]

    async def _check_suspects(self) -> None:
        for address in tuple(self._suspects):
            if address in await self._link.present():
                try:
                    await self._link.call(address, "held", timeout=_ANSWER)
                except WorkerGoneError:
                    if not await self._replaced(address):
                        continue  # left out as long as it is silent
            self._suspects.discard(address)

    async def _replaced(self, address: str) -> bool:
        """End a worker that does not answer; its nanny starts another under a new address."""
        member = self._known.get(address)
        if self._kill is not None and member is not None:
            self._kill(member.pid)
        elif not await self._link.restart(address):
            return False
        end = time.perf_counter() + _LEAVING
        while address in await self._link.present():
            if time.perf_counter() > end:
                return False
            await asyncio.sleep(0.02)
        return True


def _seat(before: Sequence[str], there: Sequence[str], size: int) -> list[str]:
    """Who gets which rank: workers keep theirs, others take the free ones in order."""
    kept = {rank: a for rank, a in enumerate(before[:size]) if a in there}
    others = [a for a in there if a not in kept.values()]
    return [kept[rank] if rank in kept else others.pop(0) for rank in range(size)]


def _check_processes(members: Sequence[Member]) -> None:
    seen: dict[tuple[str, str, int], Member] = {}
    for member in members:
        other = seen.setdefault((member.host, member.boot, member.pid), member)
        if other is not member:
            raise ClusterTooSmall(
                f"workers {other.address} and {member.address} are threads of one process, and a "
                "rank needs a process of its own: start the Dask cluster with processes=True"
            )
