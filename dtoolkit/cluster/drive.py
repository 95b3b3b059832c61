"""One launch from its orders to its results or its first cause of failure."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtoolkit.cluster import membership
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.wire import Order, Reply
from dtoolkit.errors import (
    CommunicationError,
    DtoolkitError,
    LaunchTimeout,
    RankError,
    WorkerLost,
)

if TYPE_CHECKING:
    from dtoolkit.cluster.gang import Gang
    from dtoolkit.cluster.launch import Launch

__all__ = ["Drive"]

_STOPPING = 0.6  # seconds that the ranks have to stop once a launch has failed
_CAUSE = 1.0  # seconds to look for the cause after a connection broke
_WATCH = 0.25  # seconds between two looks at the scheduler's list of workers
_WATCH_SHORT = 0.03  # the same while a launch waits for newcomers


class Drive:
    """Runs one launch on the client's loop.

    Parameters
    ----------
    gang : Gang
    launch : Launch
    members : sequence of Member
        By rank.
    deadline : float
        On the client's ``perf_counter``.
    timeout : float
        The whole time that was given, in seconds.
    """

    def __init__(
        self,
        gang: Gang,
        launch: Launch,
        members: Sequence[Member],
        deadline: float,
        timeout: float,
    ) -> None:
        self.gang = gang
        self.launch = launch
        self.members = {m.address: m for m in members}
        self.state = membership.State(tuple(self.members), len(members))
        self.deadline = deadline
        self.timeout = timeout
        self.inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.calls: dict[str, asyncio.Task[Reply]] = {}
        self.replies: dict[str, Reply] = {}
        self.over: set[str] = set()  # calls whose end was dealt with
        self.lost: list[str] = []
        self.elastic = False
        self.keep = ""
        self.homes: list[str] = []
        self._orders: Sequence[bytes] = ()
        self._expires = float("inf")

    async def run(self, orders: Sequence[bytes], keep: str, elastic: bool) -> list[Any]:
        """Send the orders, watch, and return the results by rank.

        Returns
        -------
        list
            The ranks' results; their sizes in bytes where `keep` is set.
        """
        self._orders, self.keep, self.elastic = orders, keep, elastic
        gang = self.gang
        gang.drives[self.launch.number] = self
        watch = asyncio.ensure_future(self._watch())
        try:
            assignments = await gang.assignments(list(self.members.values()))
            for rank, member in enumerate(self.members.values()):
                self._send(member, orders[rank], assignments[rank], joined=False)
            self.launch.tell(f"running on {len(self.members)} ranks")
            await self._until_ended()
            return self._results()
        except BaseException as error:
            gang.break_group()
            silent = await self._stop_all()
            if isinstance(error, LaunchTimeout) and silent:
                raise self._timeout(silent) from None  # the others only waited for these
            raise
        finally:
            watch.cancel()
            gang.drives.pop(self.launch.number, None)
            gang.record([self.replies[a] for a in self.replies])
            for reply in self.replies.values():
                self.launch.receive(
                    [{k: v for k, v in e.items() if k != "launch"} for e in reply.log]
                )

    def asked(self, *, address: str, size: int | None, timeout: float) -> None:
        """A rank of an elastic launch waits for the next group."""
        self._expires = min(self._expires, time.perf_counter() + timeout)
        self.inbox.put_nowait(("event", membership.Asked(address, size or 0)))

    # ----------------------------------------------------------------------------- watching

    def _send(self, member: Member, call: bytes, assignment: Any, *, joined: bool) -> None:
        order = Order(
            launch=self.launch.number,
            owner=self.gang.topic,
            call=call,
            assignment=assignment,
            seconds=max(0.001, self.deadline - time.perf_counter()),
            trace=self.gang.trace.enabled,
            keep=self.keep,
            elastic=self.elastic,
            joined=joined,
            offset=member.offset,
        )
        task = asyncio.ensure_future(
            self.gang.call(member.address, "launch", order, timeout=self.timeout + 60.0)
        )
        self.calls[member.address] = task
        task.add_done_callback(lambda _: self.inbox.put_nowait(("call", member.address)))

    async def _until_ended(self) -> None:
        while len(self.over) < len(self.calls):
            now = time.perf_counter()
            try:
                kind, item = await asyncio.wait_for(
                    self.inbox.get(), max(0.0, min(self.deadline, self._expires) - now)
                )
            except TimeoutError:
                if time.perf_counter() >= self.deadline:
                    late = [a for a, task in self.calls.items() if not task.done()]
                    raise self._timeout(late) from None
                self._expires = float("inf")
                kind, item = "event", membership.Expired()
            if kind == "event":
                await self._membership(item)
            else:
                await self._ended(item)

    async def _ended(self, address: str) -> None:
        """A worker's call has come back, or the worker is gone."""
        task = self.calls[address]
        self.over.add(address)
        if task.cancelled():  # the watch saw the worker go
            return
        error = task.exception()
        if error is not None:
            if isinstance(error, DtoolkitError):
                raise error
            await self._gone(address)
            return
        reply = self.replies[address] = task.result()
        if reply.kind == "done":
            await self._membership(membership.Returned(address))
        elif reply.kind == "raised":
            raise self._rank_error(address, reply)
        elif reply.kind == "broken":
            await self._find_cause(address, reply)
        else:
            raise CommunicationError(f"rank {self._rank(address)} stopped by itself: {reply.cause}")

    async def _gone(self, address: str) -> None:
        if address not in self.lost:
            self.lost.append(address)
        if not self.elastic:
            raise self._worker_lost()
        await self._membership(membership.Lost(address))
        if not self.state.active and not self.state.returned:
            raise self._worker_lost()

    async def _find_cause(self, address: str, reply: Reply) -> None:
        """A connection broke on a rank: somebody was lost, or raised, or it is what it is."""
        end = time.perf_counter() + _CAUSE
        while time.perf_counter() < end:
            there = await self.gang.present()
            missing = [a for a in self.state.members if a not in there and a not in self.replies]
            if missing:
                await self._gone(missing[0])
            for other, task in self.calls.items():
                if task.done() and other not in self.replies and not task.cancelled():
                    if task.exception() is not None:
                        await self._gone(other)
                    elif task.result().kind == "raised":
                        self.replies[other] = task.result()
                        raise self._rank_error(other, task.result())
            await asyncio.sleep(0.02)
        raise self._rank_error(address, reply)

    async def _watch(self) -> None:
        """Look at the membership: a call to a worker that is gone need not end by itself."""
        known = set(self.state.members)
        while True:
            hurried = self.elastic and len(self.state.active) < self.state.limit
            await asyncio.sleep(_WATCH_SHORT if hurried else _WATCH)
            there = await self.gang.present()
            for address in self.state.members:
                if address not in there and not self.calls[address].done():
                    self.calls[address].cancel()
                    self.inbox.put_nowait(("event", membership.Lost(address)))
            if not self.elastic:
                continue
            for address in there:
                if address not in known:
                    known.add(address)
                    self.inbox.put_nowait(("event", membership.Came(address)))

    # ---------------------------------------------------------------------------- membership

    async def _membership(self, event: membership.Event) -> None:
        if isinstance(event, membership.Lost) and not self.elastic:
            await self._gone(event.address)
        self.state, actions = membership.step(self.state, event)
        for action in actions:
            if isinstance(action, membership.Tell):
                self.gang.break_group()
                await asyncio.gather(
                    *(
                        self.gang.call(
                            a, "stop", self.launch.number, list(action.lost), timeout=2.0
                        )
                        for a in action.addresses
                    ),
                    return_exceptions=True,
                )
            else:
                await self._form(action)

    async def _form(self, action: membership.Form) -> None:
        self._expires = float("inf")
        gang = self.gang
        members = []
        for rank, address in enumerate(action.members):
            known = await gang.member(address)
            self.members[address] = known
            members.append(known)
            del rank
        gang.break_group()
        assignments = await gang.assignments(members)
        calls = []
        for member, assignment in zip(members, assignments, strict=True):
            if member.address in action.newcomers:
                call = self._orders[min(assignment.rank, len(self._orders) - 1)]
                self._send(member, call, assignment, joined=True)
            else:
                calls.append(
                    gang.call(member.address, "assign", self.launch.number, assignment, timeout=5.0)
                )
        await asyncio.gather(*calls, return_exceptions=True)
        self.launch.tell(f"running on {len(members)} ranks (group re-formed)")

    # -------------------------------------------------------------------------------- ending

    async def _stop_all(self) -> list[str]:
        """Stop every rank that still runs; returns those that do not answer, now suspects."""
        silent = []
        running = [a for a, task in self.calls.items() if not task.done() and a not in self.lost]
        stops = [
            asyncio.ensure_future(self.gang.call(a, "stop", self.launch.number, None))
            for a in running
        ]
        if stops:
            await asyncio.wait(stops, timeout=_STOPPING)
        for address, stop in zip(running, stops, strict=True):
            if not stop.done():
                stop.cancel()
                self.calls[address].cancel()
                self.gang.suspect(address)
                silent.append(address)
        left = [self.calls[a] for a in running]
        if left:
            await asyncio.wait(left, timeout=0.1)
        for address, task in self.calls.items():
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                self.replies.setdefault(address, task.result())
        return silent

    def _results(self) -> list[Any]:
        final = [a for a in self.state.members if a in self.replies]
        self.homes = final
        if self.keep:
            return [self.replies[a].nbytes for a in final]
        return [pickle.loads(self.replies[a].value) for a in final]

    def _rank(self, address: str) -> int:
        members = self.state.members
        return members.index(address) if address in members else -1

    def _rank_error(self, address: str, reply: Reply) -> RankError:
        error = RankError(
            rank=self._rank(address),
            address=address,
            operation=reply.operation,
            cause=reply.cause,
            traceback=reply.traceback,
        )
        if reply.error:
            try:
                error.__cause__ = pickle.loads(reply.error)
            except Exception:  # its class is not importable here: the text says it all
                error.__cause__ = None
        return error

    def _worker_lost(self) -> WorkerLost:
        return WorkerLost(
            ranks=[self._rank(a) for a in self.lost],
            addresses=self.lost,
            operation=self.launch.name,
        )

    def _timeout(self, late: Sequence[str]) -> LaunchTimeout:
        return LaunchTimeout(
            ranks=[self._rank(a) for a in late],
            addresses=late,
            timeout=self.timeout,
            operation=self.launch.name,
        )
