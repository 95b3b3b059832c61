"""One launch from its orders to its results or its first cause of failure."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dtoolkit.cluster import membership
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.cluster.mesh import Assignment
from dtoolkit.cluster.outcome import lists, rank_error, surely
from dtoolkit.cluster.regroup import Regroup
from dtoolkit.cluster.vigil import Vigil
from dtoolkit.cluster.wire import Reply
from dtoolkit.errors import (
    CommunicationError,
    LaunchTimeout,
    WorkerLost,
)

__all__ = ["Drive"]

_STOPPING = 0.6  # seconds that the ranks have to stop once a launch has failed
_CAUSE = 1.0  # seconds to look for the cause after a connection broke
_LOGS = 1.0  # seconds that metrics may take to arrive after the results
_LOOK = 0.25  # seconds between two looks at the watches


class Drive(Regroup):
    """Runs one launch on the client's loop.

    Parameters
    ----------
    gang : Gang
    launch : Launch
    members : sequence of Member
        By rank.
    deadline : float
        On the client's ``perf_counter``.
    terms : Terms
    """

    async def run(self, orders: Sequence[bytes], assignments: Sequence[Assignment]) -> list[Any]:
        """Send the orders, watch, and return the results by rank.

        Parameters
        ----------
        orders : sequence of bytes
            The pickled call of each rank.
        assignments : sequence of Assignment

        Returns
        -------
        list
            The ranks' results; their sizes in bytes where they stay on the workers.
        """
        self._orders = orders
        gang = self.gang
        gang.drives[self.launch.number] = self
        vigil = Vigil(self)
        watches = [asyncio.ensure_future(vigil.presence())]
        if self.terms.silence is not None:
            watches.append(asyncio.ensure_future(vigil.signs(self.terms.silence)))
        self._places = dict(zip(self.members, assignments, strict=True))
        try:
            instruments = self.terms.pickled()
            for rank, member in enumerate(self.members.values()):
                self._send(member, orders[rank], assignments[rank], instruments)
            self.launch.tell(f"running on {len(self.members)} ranks")
            self.launch.outbox.open(self._wake)
            await self._until_ended(watches)
            return self._results()
        except BaseException as error:
            gang.break_group()
            # Not to be cut short by a second cancellation: ranks that still run would be left.
            silent = await surely(self._stop_all())
            if isinstance(error, LaunchTimeout) and silent:
                raise self._timeout(silent) from None  # the others only waited for these
            if isinstance(error, WorkerLost):
                starved = await surely(self._over_memory())
                if starved or len(self.lost) > len(error.ranks):
                    raise self._worker_lost(starved) from None  # more is known by now
            raise
        finally:
            for watch in watches:
                watch.cancel()
            if self.terms.instruments or any(reply.shipped for reply in self.replies.values()):
                await surely(self._last_words())
            for reply in self.replies.values():
                self.logged(reply.log)
            gang.drives.pop(self.launch.number, None)
            gang.record(self.replies.values())

    def logged(self, messages: list[dict[str, Any]]) -> None:
        """Metrics have come from a rank."""
        self._logged += len(messages)
        self.launch.receive(
            [{k: lists(v) for k, v in message.items() if k != "launch"} for message in messages]
        )

    def _wake(self) -> None:
        """The owner has messages for the ranks; called from any thread."""
        self.gang.loop.call_soon_threadsafe(lambda: self.aside(self._post()))

    async def _post(self) -> None:
        async with self._posting:
            messages = self.launch.outbox.take()
            if messages:
                there = [a for a in self._places if a not in self.lost and a not in self.over]
                await self._tell_all(dict.fromkeys(there, ("post", messages)), timeout=5.0)

    # ----------------------------------------------------------------------------- watching

    async def _until_ended(self, watches: Sequence[asyncio.Task[None]]) -> None:
        while len(self.over) < len(self.calls):
            for watch in watches:
                if watch.done():
                    await watch  # the scheduler cannot be reached
            if self.inbox.empty():
                now = time.perf_counter()
                patience = max(0.0, min(self.deadline, self._expires) - now)
                try:
                    async with asyncio.timeout(min(patience, _LOOK)):
                        kind, item = await self.inbox.get()
                except TimeoutError:
                    kind, item = self._nothing_came()
            else:
                kind, item = self.inbox.get_nowait()
            if kind == "event":
                await self._membership(item)
            elif kind == "call":
                await self._ended(item)

    def _nothing_came(self) -> tuple[str, Any]:
        now = time.perf_counter()
        if now >= self.deadline:
            raise self._timeout([a for a, task in self.calls.items() if not task.done()])
        if now >= self._expires:
            self._expires = float("inf")
            return "event", membership.Expired()
        return "nothing", None

    async def _ended(self, address: str) -> None:
        """A worker's call has come back, or the worker is gone."""
        task = self.calls[address]
        self.over.add(address)
        if task.cancelled():  # the watch saw the worker go
            return
        error = task.exception()
        if isinstance(error, WorkerGoneError):
            await self._gone(address)
            return
        if error is not None:
            raise error
        reply = self.replies[address] = task.result()
        if reply.kind == "done":
            if self.terms.elastic:
                await self._membership(membership.Returned(address))
        elif reply.kind == "raised":
            raise rank_error(self._rank(address), address, reply)
        elif reply.kind == "broken":
            await self._find_cause(address, reply)
        else:
            raise CommunicationError(f"rank {self._rank(address)} stopped by itself: {reply.cause}")

    async def _gone(self, address: str) -> None:
        self._note_lost(address)
        if not self.terms.elastic:
            raise self._worker_lost()
        await self._membership(membership.Lost(address))

    async def _find_cause(self, address: str, reply: Reply) -> None:
        """A connection broke on a rank: somebody was lost, or raised, or it is what it is."""
        end = time.perf_counter() + _CAUSE
        while time.perf_counter() < end:
            there = await self.gang.link.present()
            for member in self.state.members:
                if member not in there and member not in self.replies:
                    await self._gone(member)
            for other, task in self.calls.items():
                if task.done() and other not in self.replies and not task.cancelled():
                    if task.exception() is not None:
                        await self._gone(other)
                    elif task.result().kind == "raised":
                        self.replies[other] = task.result()
                        raise rank_error(self._rank(other), other, task.result())
            await asyncio.sleep(0.02)
        cause = f"{reply.cause} (all workers live: a connection between two of them was cut)"
        raise rank_error(self._rank(address), address, replace(reply, cause=cause))

    # -------------------------------------------------------------------------------- ending

    async def _stop_all(self) -> list[str]:
        """Stop every rank that still runs; returns those that do not answer, now suspects."""
        silent = []
        gang, number = self.gang, self.launch.number
        running = [a for a, task in self.calls.items() if not task.done() and a not in self.lost]
        stops = {
            a: asyncio.ensure_future(gang.call(a, "stop", gang.topic, number)) for a in running
        }
        if stops:
            await asyncio.wait(stops.values(), timeout=_STOPPING)
        for address, stop in stops.items():
            if not stop.done():
                stop.cancel()
                gang.roster.suspect(address)
                silent.append(address)
            elif not stop.cancelled() and stop.exception() is not None:
                self._note_lost(address)
        left = [self.calls[a] for a in running if a not in silent]
        if left:
            await asyncio.wait(left, timeout=0.1)
        for address, task in self.calls.items():
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                self.replies.setdefault(address, task.result())
        return silent

    async def _last_words(self) -> None:
        """Wait for what ranks have sent on the slower way."""
        shipped = sum(reply.shipped for reply in self.replies.values())
        end = time.perf_counter() + _LOGS
        while self._logged < shipped and time.perf_counter() < end:
            await asyncio.sleep(0.001)
        if self.terms.instruments:
            await self.gang.listener.catch_up()

    async def _over_memory(self) -> dict[str, int]:
        """Which lost workers Dask ended for their memory, and how many bytes they had."""
        scheduler = self.gang.client.scheduler
        if scheduler is None:
            return {}
        try:
            asked = scheduler.events(topic="worker-restart-memory")
            events = await asyncio.wait_for(asked, _LOGS)
        except (TimeoutError, OSError):
            return {}
        return {one["worker"]: one["rss"] for _, one in events if one["worker"] in self.lost}

    def _results(self) -> list[Any]:
        self.launch.homes = [a for a in self.state.members if a in self.replies]
        replies = [self.replies[a] for a in self.launch.homes]
        return [r.nbytes if self.terms.keep else pickle.loads(r.value) for r in replies]

    def _timeout(self, late: Sequence[str]) -> LaunchTimeout:
        return LaunchTimeout(
            ranks=[self._rank(a) for a in late],
            addresses=late,
            timeout=self.terms.timeout,
            operation=self.launch.name,
            detail="" if late else "the last answer came too late",
        )
