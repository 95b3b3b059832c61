"""One launch from its orders to its results or its first cause of failure."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtoolkit.cluster import membership
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.mesh import Assignment
from dtoolkit.cluster.outcome import lists, rank_error, surely
from dtoolkit.cluster.terms import Terms
from dtoolkit.cluster.wire import Order, Reply
from dtoolkit.errors import (
    CommunicationError,
    LaunchTimeout,
    WorkerLost,
)

if TYPE_CHECKING:
    from dtoolkit.cluster.gang import Gang
    from dtoolkit.cluster.launch import Launch

__all__ = ["Drive"]

_STOPPING = 0.6  # seconds that the ranks have to stop once a launch has failed
_CAUSE = 1.0  # seconds to look for the cause after a connection broke
_LOGS = 1.0  # seconds that metrics may take to arrive after the results
_LOOK = 0.25  # seconds between two looks at the watch
_WATCH = 0.25  # seconds between two looks at the scheduler's list of workers
_WATCH_SHORT = 0.03  # the same where it costs nothing, or a launch waits for newcomers


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
    terms : Terms
    """

    def __init__(
        self,
        gang: Gang,
        launch: Launch,
        members: Sequence[Member],
        deadline: float,
        terms: Terms,
    ) -> None:
        self.gang = gang
        self.launch = launch
        self.members = {m.address: m for m in members}
        self.state = membership.State(tuple(self.members), len(members))
        self.deadline = deadline
        self.terms = terms
        self.inbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.calls: dict[str, asyncio.Task[Reply]] = {}
        self.replies: dict[str, Reply] = {}
        self.over: set[str] = set()  # calls whose end was dealt with
        self.lost: dict[str, int] = {}  # address and rank of those that are gone, in order
        self._orders: Sequence[bytes] = ()
        self._expires = float("inf")
        self._logged = 0
        self._places: dict[str, Assignment] = {}  # by address, in the group of now
        self._telling: set[asyncio.Task[None]] = set()
        self._posting = asyncio.Lock()  # messages keep their order

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
        watch = asyncio.ensure_future(self._watch())
        self._places = dict(zip(self.members, assignments, strict=True))
        try:
            instruments = self.terms.pickled()
            for rank, member in enumerate(self.members.values()):
                self._send(member, orders[rank], assignments[rank], instruments)
            self.launch.tell(f"running on {len(self.members)} ranks")
            self.launch.outbox.open(self._wake)
            await self._until_ended(watch)
            return self._results()
        except BaseException as error:
            gang.break_group()
            # Not to be cut short by a second cancellation: ranks that still run would be left.
            silent = await surely(self._stop_all())
            if isinstance(error, LaunchTimeout) and silent:
                raise self._timeout(silent) from None  # the others only waited for these
            if isinstance(error, WorkerLost) and len(self.lost) > len(error.ranks):
                raise self._worker_lost() from None  # more of them went at the same time
            raise
        finally:
            watch.cancel()
            await surely(self._last_words())
            gang.drives.pop(self.launch.number, None)
            gang.record(self.replies.values())

    def logged(self, messages: list[dict[str, Any]]) -> None:
        """Metrics have come from a rank."""
        self._logged += len(messages)
        self.launch.receive(
            [{k: lists(v) for k, v in message.items() if k != "launch"} for message in messages]
        )

    def asked(self, *, address: str, group: str, size: int | None, timeout: float) -> None:
        """A rank of an elastic launch has left a group and waits for the next one."""
        place = self._places.get(address)
        if place is not None and place.name != group:  # it has not heard of the one there is
            self._aside(self._tell_all({address: ("assign", place)}, timeout=5.0))
            return
        self._expires = min(self._expires, time.perf_counter() + timeout)
        self.inbox.put_nowait(("event", membership.Asked(address, size or 0)))

    def _wake(self) -> None:
        """The owner has messages for the ranks; called from any thread."""
        self.gang.loop.call_soon_threadsafe(lambda: self._aside(self._post()))

    async def _post(self) -> None:
        async with self._posting:
            messages = self.launch.outbox.take()
            if messages:
                there = [a for a in self._places if a not in self.lost and a not in self.over]
                await self._tell_all(dict.fromkeys(there, ("post", messages)), timeout=5.0)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the watching, whose end nobody waits for."""
        self._telling.add(task := asyncio.ensure_future(work))
        task.add_done_callback(self._telling.discard)

    # ----------------------------------------------------------------------------- watching

    def _send(
        self,
        member: Member,
        call: bytes,
        assignment: Assignment,
        instruments: bytes,
        *,
        joined: bool = False,
    ) -> None:
        order = Order(
            launch=self.launch.number,
            owner=self.gang.topic,
            call=call,
            assignment=assignment,
            seconds=max(0.001, self.deadline - time.perf_counter()),
            trace=self.gang.trace.enabled,
            keep=self.terms.keep,
            elastic=self.terms.elastic,
            joined=joined,
            offset=member.offset,
            free=self.gang.take_litter(member.address),
            hooks=self.terms.hooks,
            instruments=instruments,
        )
        patience = self.terms.timeout + 60.0
        task = asyncio.ensure_future(
            self.gang.call(member.address, "launch", order, timeout=patience, watch=False)
        )
        self.calls[member.address] = task
        task.add_done_callback(lambda _: self.inbox.put_nowait(("call", member.address)))

    async def _until_ended(self, watch: asyncio.Task[None]) -> None:
        while len(self.over) < len(self.calls):
            if watch.done():
                await watch  # the scheduler cannot be reached
            if self.inbox.empty():
                now = time.perf_counter()
                patience = max(0.0, min(self.deadline, self._expires) - now)
                try:
                    kind, item = await asyncio.wait_for(self.inbox.get(), min(patience, _LOOK))
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
        if not self.state.active and not self.state.returned:
            raise self._worker_lost()

    def _note_lost(self, address: str) -> None:
        self.lost.setdefault(address, self._rank(address))
        self.gang.roster.suspect(address)  # the scheduler may hear of it later than the next launch

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
        raise rank_error(self._rank(address), address, reply)

    async def _watch(self) -> None:
        """Look at the membership: a call to a worker that is gone need not end by itself."""
        known = set(self.state.members)
        link = self.gang.link
        while True:
            hurried = link.local or (
                self.terms.elastic and len(self.state.active) < self.state.limit
            )
            await asyncio.sleep(_WATCH_SHORT if hurried else _WATCH)
            there = await link.present()
            for address, task in self.calls.items():
                if address not in there and not task.done():
                    task.cancel()
                    self._note_lost(address)
                    self.inbox.put_nowait(("event", membership.Lost(address)))
            if not self.terms.elastic:
                continue
            for address in there:
                if address not in known:
                    known.add(address)
                    self.inbox.put_nowait(("event", membership.Came(address)))

    # ---------------------------------------------------------------------------- membership

    async def _membership(self, event: membership.Event) -> None:
        if isinstance(event, membership.Lost):
            self._note_lost(event.address)
            if not self.terms.elastic:
                raise self._worker_lost()
        before = self.state
        self.state, actions = membership.step(before, event)
        for action in actions:
            if isinstance(action, membership.Tell):
                self.gang.break_group()
                lost = list(action.lost)
                words = {a: ("stop", (self._places[a].name, lost)) for a in action.addresses}
                await self._tell_all(words, timeout=2.0)
            else:
                try:
                    await self._form(action)
                except WorkerGoneError as gone:  # form again, without it
                    self.state, _ = membership.note(before, event)
                    self.inbox.put_nowait(("event", membership.Lost(gone.address)))

    async def _tell_all(self, words: Mapping[str, tuple[str, Any]], *, timeout: float) -> None:
        """Call a method about this launch on several workers; the watch finds who is gone."""
        topic, number = self.gang.topic, self.launch.number
        calls = [
            self.gang.call(address, method, topic, number, what, timeout=timeout)
            for address, (method, what) in words.items()
        ]
        await asyncio.gather(*calls, return_exceptions=True)

    async def _form(self, action: membership.Form) -> None:
        gang = self.gang
        members = [await gang.roster.member(a, self.deadline) for a in action.members]
        gang.break_group()
        assignments = await gang.assignments(members, self.deadline)
        self._expires = float("inf")
        self.members.update({m.address: m for m in members})
        self._places = dict(zip(action.members, assignments, strict=True))
        words = {}
        for member, assignment in zip(members, assignments, strict=True):
            if member.address in action.newcomers:
                call = self._orders[min(assignment.rank, len(self._orders) - 1)]
                self._send(member, call, assignment, self.terms.pickled(), joined=True)
            else:
                words[member.address] = ("assign", assignment)
        await self._tell_all(words, timeout=5.0)
        self.launch.tell(f"running on {len(members)} ranks (group re-formed)")

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
        """Wait for the metrics that ranks have sent on the slower way, then add the rest."""
        shipped = sum(reply.shipped for reply in self.replies.values())
        end = time.perf_counter() + _LOGS
        while self._logged < shipped and time.perf_counter() < end:
            await asyncio.sleep(0.001)
        if self.terms.instruments:
            await self.gang.listener.catch_up()
        for reply in self.replies.values():
            self.logged(reply.log)

    def _results(self) -> list[Any]:
        self.launch.homes = [a for a in self.state.members if a in self.replies]
        replies = [self.replies[a] for a in self.launch.homes]
        return [r.nbytes if self.terms.keep else pickle.loads(r.value) for r in replies]

    def _rank(self, address: str) -> int:
        members = self.state.members
        return members.index(address) if address in members else -1

    def _worker_lost(self) -> WorkerLost:
        return WorkerLost(
            ranks=list(self.lost.values()),
            addresses=list(self.lost),
            operation=self.launch.name,
        )

    def _timeout(self, late: Sequence[str]) -> LaunchTimeout:
        return LaunchTimeout(
            ranks=[self._rank(a) for a in late],
            addresses=late,
            timeout=self.terms.timeout,
            operation=self.launch.name,
            detail="" if late else "the last answer came too late",
        )
