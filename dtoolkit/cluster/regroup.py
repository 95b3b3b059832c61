"""The membership of a launch while it runs: who is lost, who waits, which group comes next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtoolkit.cluster import membership
from dtoolkit.cluster.link import WorkerGoneError
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.mesh import Assignment
from dtoolkit.cluster.terms import Terms
from dtoolkit.cluster.wire import Loss, Order, Reply
from dtoolkit.errors import WorkerLost

if TYPE_CHECKING:
    from dtoolkit.cluster.gang import Gang
    from dtoolkit.cluster.launch import Launch

__all__ = ["Regroup"]

_BREAK, _BREAK_LOCAL = 1.0, 0.3  # seconds to hear of a loss after a connection broke


class Regroup:
    """Sends the orders of a launch, and performs what :mod:`~dtoolkit.cluster.membership` decides.

    :class:`~dtoolkit.cluster.drive.Drive` states the parameters.

    Attributes
    ----------
    state : membership.State
    calls : dict
        The call of each worker that has had an order, by address.
    lost : dict
        Address and rank of those that are gone, in order.
    hung : dict
        Those of them that were ended, and after how many seconds of silence.
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
        self.calls: dict[str, asyncio.Future[Reply]] = {}
        self.replies: dict[str, Reply] = {}
        self.over: set[str] = set()  # calls whose end was dealt with
        self.lost: dict[str, int] = {}  # address and rank of those that are gone, in order
        self.hung: dict[str, float] = {}  # those of them that were ended, and after what silence
        self._orders: Sequence[bytes] = ()
        self._expires = float("inf")
        self._logged = 0
        self._places: dict[str, Assignment] = {}  # by address, in the group of now
        self._left: Loss | None = None  # why that group is over, where its members were told
        self._joinable = 0  # newcomers that the members were told of
        self._telling: set[asyncio.Task[None]] = set()
        self._posting = asyncio.Lock()  # messages keep their order

    def asked(
        self, *, address: str, group: str, size: int | None, alone: bool, timeout: float
    ) -> None:
        """A rank of an elastic launch has left a group and waits for the next one."""
        place = self._places.get(address)
        if place is not None and place.name != group:  # it has not heard of the one there is
            self.aside(self._tell_again(address, place))
            return
        self._expires = min(self._expires, time.perf_counter() + timeout)
        self.inbox.put_nowait(("event", membership.Asked(address, size or 0, alone)))

    def broke(self, *, address: str, group: str) -> None:
        """A rank of an elastic launch has lost a connection, and nobody has told it why."""
        self.aside(self._look_for_loss(address, group))

    def lose(self, address: str) -> None:
        """A worker is gone, whatever its call says."""
        self.calls[address].cancel()
        self._note_lost(address)
        self.inbox.put_nowait(("event", membership.Lost(address)))

    def aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the watching, whose end nobody waits for."""
        self._telling.add(task := asyncio.ensure_future(work))
        task.add_done_callback(self._telling.discard)

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
        task = self.gang.link.start(member.address, "launch", order, timeout=patience)
        self.calls[member.address] = task
        task.add_done_callback(lambda _: self.inbox.put_nowait(("call", member.address)))

    async def _membership(self, event: membership.Event) -> None:
        if isinstance(event, membership.Lost) and event.address in self.calls:
            self._note_lost(event.address)
            if not self.terms.elastic:
                raise self._worker_lost()
        before = self.state
        self.state, actions = membership.step(before, event)
        for action in actions:
            if isinstance(action, membership.Tell):
                self.gang.break_group()
                loss = self._left = self._loss(action.lost)
                await self._tell_all(dict.fromkeys(action.addresses, ("stop", loss)), timeout=2.0)
            else:
                try:
                    await self._form(action)
                except WorkerGoneError as gone:  # form again, without it
                    self.state, _ = membership.note(before, event)
                    self.inbox.put_nowait(("event", membership.Lost(gone.address)))
        if not self.state.active and not self.state.returned:
            raise self._worker_lost()
        if self.terms.elastic and self.state.joinable != self._joinable:
            self._joinable = self.state.joinable
            self.aside(self._tell_newcomers())

    def _note_lost(self, address: str) -> None:
        self.lost.setdefault(address, self._rank(address))
        self.gang.roster.suspect(address)  # the scheduler may hear of it later than the next launch

    def _loss(self, ranks: Sequence[int]) -> Loss:
        group = next(iter(self._places.values())).name
        hung = {a: s for a, s in self.hung.items() if self._rank(a) in ranks}
        broken = "" if ranks else "a connection between living workers broke"
        detail = ", ".join(_silence(hung)) or broken
        return Loss(group, tuple(ranks), tuple(sorted(map(self._rank, hung))), detail)

    async def _look_for_loss(self, address: str, group: str) -> None:
        """Give a loss time to be seen; if there is none, the group is over all the same."""
        end = time.perf_counter() + (_BREAK_LOCAL if self.gang.link.local else _BREAK)
        while time.perf_counter() < end:
            await asyncio.sleep(0.02)
            place = self._places.get(address)
            told = self._left is not None and self._left.group == group
            if place is None or place.name != group or told:
                return
        self._left = self._loss(())  # who else lost a connection need not say so as well
        self.inbox.put_nowait(("event", membership.Broke(address)))

    async def _tell_again(self, address: str, place: Assignment) -> None:
        await self._tell_all({address: ("assign", place)}, timeout=5.0)
        if self._left is not None and self._left.group == place.name:
            await self._tell_all({address: ("stop", self._left)}, timeout=2.0)

    async def _tell_newcomers(self) -> None:
        async with self._posting:
            there = [a for a in self.state.active if a in self._places]
            await self._tell_all(dict.fromkeys(there, ("newcomers", self._joinable)), timeout=5.0)

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
        assignments = await gang.assignments(members, self.deadline, self.terms.silence)
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
        self._joinable = 0  # so the members think now

    def _rank(self, address: str) -> int:
        members = self.state.members
        return members.index(address) if address in members else -1

    def _worker_lost(self, starved: Mapping[str, int] | None = None) -> WorkerLost:
        """The error; `starved` are those that Dask ended for their memory, and its bytes."""
        return WorkerLost(
            ranks=list(self.lost.values()),
            addresses=list(self.lost),
            operation=self.launch.name,
            detail=", ".join([*_silence(self.hung), *_starvation(starved or {})]),
            hung=[rank for a, rank in self.lost.items() if a in self.hung],
        )


def _silence(hung: Mapping[str, float]) -> list[str]:
    return [f"{a} gave no sign for {seconds:.1f} s" for a, seconds in hung.items()]


def _starvation(starved: Mapping[str, int]) -> list[str]:
    return [
        f"{a} was ended by Dask, since {had / 2**20:,.0f} MiB of memory were too near its limit"
        for a, had in starved.items()
    ]
