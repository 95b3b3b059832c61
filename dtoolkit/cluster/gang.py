"""The client's side of launches: one gang over the workers of a Dask cluster.

Everything here runs on the event loop of the Dask client, a thread of its own, so that it works in
scripts and in notebooks. Launches take their turn in one order. A launch sends one call to each
worker and watches them together with the membership of the cluster: the first failure ends all,
and the first cause is what is reported.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from distributed import Client

from dtoolkit.cluster.drive import Drive
from dtoolkit.cluster.launch import Launch
from dtoolkit.cluster.link import Link, WorkerGoneError
from dtoolkit.cluster.listener import Listener
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.mesh import Assignment
from dtoolkit.cluster.nodes import check_emulation
from dtoolkit.cluster.remote import Remote, restore_lost
from dtoolkit.cluster.roster import Roster
from dtoolkit.cluster.terms import Terms
from dtoolkit.cluster.wire import Reply
from dtoolkit.comm.network import Network
from dtoolkit.comm.trace import Trace
from dtoolkit.errors import ClusterClosed, ClusterTooSmall, LaunchCancelled, LaunchTimeout

__all__ = ["Gang"]

_SWEEP = 0.05  # seconds that freed objects wait for a launch to take the word along
_HOSTING = 10.0  # seconds that a worker may take to open a store
_FORMING = 30.0  # seconds that a group may take to form


class Gang:
    """Launches over the workers of one Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    size : int or None
        Ranks of every launch; None to take all workers that are there.
    scheduler : distributed.Scheduler or None
        The scheduler, where it runs in this process on the client's event loop.
    kill : callable or None
        ``kill(pid)`` ends a worker of this machine for good; None to ask its nanny.
    trace : Trace
    emulate : Network or None
        The network by which messages between workers are held back.

    Attributes
    ----------
    topic : str
        Name of this gang among others: the owner of data and groups on the workers.
    listener : Listener
        Takes in what the ranks send.
    """

    def __init__(
        self,
        client: Client,
        *,
        size: int | None,
        scheduler: Any,
        kill: Callable[[int], None] | None,
        trace: Trace,
        emulate: Network | None = None,
    ) -> None:
        self.client = client
        self.emulate = emulate
        self.trace = trace
        self.topic = f"dtoolkit-{uuid.uuid4().hex[:12]}"
        self.closed = False
        self.drives: dict[int, Drive] = {}
        self.queue: list[Launch] = []
        self.listener = Listener(self)
        self.link = Link(client, scheduler)
        self.roster = Roster(self.link, size=size, kill=kill, trace=trace)
        self.loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop  # type: ignore[union-attr]
        self._group: list[Assignment] | None = None
        self._litter: dict[str, list[str]] = {}
        self._since = 0.0  # when the oldest of it was dropped, by the loop's clock
        self._sweeping = False  # somebody will look after it
        self._homes: dict[str, set[str]] = {}
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()
        client.subscribe_topic(self.topic, self.listener)

    @property
    def members(self) -> list[Member]:
        """The members by rank, as last mustered."""
        return self.roster.members

    # ------------------------------------------------------------------------- any thread

    def post(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Start a coroutine on the client's loop; returns a concurrent future."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise

    def ask(self, work: Coroutine[Any, Any, Any], timeout: float) -> Any:
        """Run a coroutine on the client's loop and wait for it.

        Raises
        ------
        RuntimeError
            Called on that loop's own thread, which would wait for itself.
        """
        if asyncio._get_running_loop() is self.loop:
            work.close()
            raise RuntimeError(
                "a cluster cannot be asked in a callback on Dask's thread: use cluster.submit there"
            )
        return self.post(work).result(timeout)

    def submit(
        self,
        name: str,
        orders: Callable[[Sequence[Member]], Sequence[bytes]],
        terms: Terms,
        *,
        handles: Sequence[Remote],
    ) -> Launch:
        """Queue a launch; `orders` gives the pickled call of each rank once members are known."""
        if self.closed:
            raise ClusterClosed("the cluster is closed: make a new one")
        launch = Launch(next(self._numbers), name)
        launch._loop = self.loop
        if terms.instruments:
            terms.pickled()  # what cannot travel is said here and now
            self.listener.instruments[launch.number] = terms.instruments
        task = self.post(self._launch(launch, orders, handles, terms))
        # A launch that is cancelled before its first instruction never comes to its own words.
        task.add_done_callback(lambda _: launch.settle(error=_cancelled(launch)))
        launch._cancel = task.cancel
        return launch

    def placed(self, key: str, homes: Iterable[str]) -> None:
        """Note where the objects of a key are."""
        self._homes.setdefault(key, set()).update(homes)

    def free(self, key: str, keep: Iterable[str] = ()) -> None:
        """Forget the objects of a key, some time soon; called by finalizers, from any thread.

        Parameters
        ----------
        key : str
        keep : iterable of str
            Workers whose objects stay.
        """
        homes = self._homes.pop(key, set())
        stay = set(keep)
        if stay:
            self._homes[key] = stay
        if homes - stay and not self.closed:
            try:
                self.loop.call_soon_threadsafe(self._discard, key, homes - stay)
            except RuntimeError:  # the loop is closed: so are the workers
                return

    # -------------------------------------------------------------------- the client's loop

    async def call(
        self, address: str, method: str, *args: Any, timeout: float = 30.0, watch: bool = True
    ) -> Any:
        """Call a method of a worker's runtime; see :meth:`Link.call`."""
        return await self.link.call(address, method, *args, timeout=timeout, watch=watch)

    async def assignments(
        self,
        members: Sequence[Member],
        deadline: float = float("inf"),
        patience: float | None = None,
    ) -> list[Assignment]:
        """Places of the members in a group: the formed one if it is whole, else a new one.

        Parameters
        ----------
        members : sequence of Member
            By rank.
        deadline : float
            On ``time.perf_counter``.
        patience : float, optional
            Seconds that the first member has to host the group's store; 10 by default.

        Raises
        ------
        WorkerGoneError
            The first member cannot host the group's store.
        ValueError
            The network to be emulated does not fit them.
        """
        addresses = tuple(m.address for m in members)
        if self._group is not None and self._group[0].addresses == addresses:
            return self._group
        self._group = None
        gpus = {(m.host, m.gpu) for m in members}
        nccl = len(gpus) == len(members) and all(m.gpu for m in members)
        if self.emulate is not None:
            check_emulation(self.emulate, members)
            nccl = False  # delays are laid on messages of the host
        name = f"{self.topic}/{uuid.uuid4().hex[:8]}"
        host, port = "", 0
        if len(members) > 1:
            wait = max(0.1, min(patience or _HOSTING, deadline - time.perf_counter()))
            host, port = await self.call(addresses[0], "open_store", self.topic, nccl, timeout=wait)
        self._group = [
            Assignment(
                name, rank, len(members), host, port, addresses, nccl, _FORMING, self.emulate
            )
            for rank in range(len(members))
        ]
        return self._group

    def break_group(self) -> None:
        """The formed group is no longer whole: the next launch forms another."""
        self._group = None

    async def _launch(
        self,
        launch: Launch,
        orders: Callable[[Sequence[Member]], Sequence[bytes]],
        handles: Sequence[Remote],
        terms: Terms,
    ) -> None:
        if self.queue:
            first = self.queue[0]
            launch.tell(
                f"queued behind {len(self.queue)}: launch {first.number} ({first.name}) first"
            )
        self.queue.append(launch)
        try:
            for _ in range(4):
                async with self._turn:
                    lost = await self._attempt(launch, orders, handles, terms)
                if not lost:
                    return
                # Making shards again takes launches of its own, which need the turn.
                launch.tell("making lost shards again")
                for handle, ranks in lost:
                    await asyncio.to_thread(restore_lost, handle, ranks)
            raise ClusterTooSmall("workers are lost faster than their shards can be made again")
        except asyncio.CancelledError:
            launch.settle(error=_cancelled(launch))
        except BaseException as error:
            launch.settle(error=error)
        finally:
            self.queue.remove(launch)
            self.listener.instruments.pop(launch.number, None)

    async def _attempt(
        self,
        launch: Launch,
        orders: Callable[[Sequence[Member]], Sequence[bytes]],
        handles: Sequence[Remote],
        terms: Terms,
    ) -> list[tuple[Remote, list[int]]]:
        """Run the launch; or return the handles, with ranks, whose objects were lost."""
        label, seconds = f"launch {launch.number} ({launch.name})", terms.timeout
        async with self.link.turn(
            self.topic, launch.number, label, seconds, launch.tell
        ) as orphans:
            launch.tell("starting")
            deadline = time.perf_counter() + seconds
            while True:
                try:
                    members = await self.roster.muster(deadline, launch.tell)
                    lost = _lost(handles, members)
                    if lost:
                        return lost
                    assignments = await self.assignments(members, deadline, terms.silence)
                    break
                except WorkerGoneError as gone:  # nothing has begun yet: go on without it
                    self.roster.suspect(gone.address)
                    if time.perf_counter() >= deadline:
                        raise LaunchTimeout(
                            ranks=[self.roster.rank_of(gone.address)],
                            addresses=[gone.address],
                            timeout=seconds,
                            operation=launch.name,
                        ) from gone
            if orphans:
                await self._forget(orphans, members)
            drive = Drive(self, launch, members, deadline, terms)
            launch.settle(await drive.run(orders(members), assignments))
            return []

    async def _forget(self, owners: Sequence[str], members: Sequence[Member]) -> None:
        """Let the workers forget what clusters left behind whose clients are gone."""
        calls = [self.call(m.address, "close", o, timeout=5.0) for o in owners for m in members]
        await asyncio.gather(*calls, return_exceptions=True)

    def take_litter(self, address: str) -> tuple[str, ...]:
        """Keys that a worker may forget, for a message that goes there anyway."""
        return tuple(self._litter.pop(address, ()))

    async def sweep(self) -> None:
        """Let the workers forget what no message has told them to."""
        there = await self.link.present()
        keys = {a: self.take_litter(a) for a in tuple(self._litter)}
        calls = [self.call(a, "free", list(k), timeout=5.0) for a, k in keys.items() if a in there]
        await asyncio.gather(*calls, return_exceptions=True)

    def _discard(self, key: str, homes: set[str]) -> None:
        """Note what may be forgotten: the next launch says so, or a sweep if none comes soon."""
        if not self._litter:
            self._since = self.loop.time()
            if not self._sweeping:
                self._sweeping = True
                self.loop.call_later(_SWEEP, self._look_after)
        for address in homes:
            self._litter.setdefault(address, []).append(key)

    def _look_after(self) -> None:
        """Sweep if what lies about has lain long enough; what a launch took along has not."""
        rest = self._since + _SWEEP - self.loop.time()
        self._sweeping = bool(self._litter) and rest > 0
        if self._sweeping:
            self.loop.call_later(rest, self._look_after)
        elif self._litter:
            self.post(self.sweep())

    async def close(self) -> None:
        """Let the workers forget what belongs to this gang."""
        self.closed = True
        for launch in tuple(self.queue):
            launch.cancel()
        end = time.perf_counter() + 3.0
        while self.queue and time.perf_counter() < end:
            await asyncio.sleep(0.01)
        if self.client.status != "running":
            return
        self.client.unsubscribe_topic(self.topic)
        if not self.link.local:  # ours end anyway
            calls = [self.call(m.address, "close", self.topic, timeout=2.0) for m in self.members]
            await asyncio.gather(*calls, return_exceptions=True)
            await self.link.leave(self.topic)
        self.link.hang_up()

    def record(self, replies: Iterable[Reply]) -> None:
        """Put the events of the replies into the trace."""
        for reply in replies:
            if reply.events:
                self.trace.extend(reply.events)


def _cancelled(launch: Launch) -> LaunchCancelled:
    return LaunchCancelled(f"launch {launch.number} ({launch.name}) was cancelled")


def _lost(handles: Sequence[Remote], members: Sequence[Member]) -> list[tuple[Remote, list[int]]]:
    """Handles with the ranks whose objects are not where they should be; no ranks: all are not."""
    addresses = [m.address for m in members]
    found = []
    for handle in {id(h): h for h in handles}.values():
        ranks = handle.lost(addresses) if len(handle.homes) == len(addresses) else None
        if ranks is None or ranks:
            found.append((handle, ranks or []))
    return found
