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
import weakref
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from distributed import Client

from dtoolkit.cluster import runtime
from dtoolkit.cluster.drive import Drive
from dtoolkit.cluster.launch import Launch
from dtoolkit.cluster.member import Member, clock_of
from dtoolkit.cluster.mesh import Assignment
from dtoolkit.cluster.remote import Remote
from dtoolkit.cluster.wire import Reply
from dtoolkit.comm.trace import Trace
from dtoolkit.errors import ClusterClosed, ClusterTooSmall, LaunchCancelled, VersionMismatch

__all__ = ["Gang", "WorkerGoneError"]

_PINGS = 4
_ANSWER = 1.0  # seconds that a suspect worker has to answer
_FORMING = 30.0  # seconds that a group may take to form


class WorkerGoneError(Exception):
    """A worker cannot be reached."""


class Gang:
    """Launches over the workers of one Dask cluster.

    Parameters
    ----------
    client : distributed.Client
    size : int or None
        Ranks of every launch; None to take all workers that are there.
    kill : callable or None
        ``kill(pid)`` ends a worker of this machine for good; None to ask its nanny.
    trace : Trace
    """

    def __init__(
        self,
        client: Client,
        *,
        size: int | None,
        kill: Callable[[int], None] | None,
        trace: Trace,
    ) -> None:
        self.client = client
        self.size = size
        self.trace = trace
        self.topic = f"dtoolkit-{uuid.uuid4().hex[:12]}"
        self.members: list[Member] = []
        self.closed = False
        self.drives: dict[int, Drive] = {}
        self._kill = kill
        self._known: dict[str, Member] = {}
        self._suspects: set[str] = set()
        self._group: tuple[str, tuple[str, ...], tuple[str, int]] | None = None
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()
        self._queue: list[Launch] = []
        self._versions = runtime.versions()
        self._boot = runtime._boot_id()
        client.subscribe_topic(self.topic, _Listener(self))

    # ------------------------------------------------------------------------- any thread

    def post(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Start a coroutine on the client's loop; returns a concurrent future."""
        return asyncio.run_coroutine_threadsafe(work, self.client.loop.asyncio_loop)

    def submit(
        self,
        name: str,
        orders: Callable[[Sequence[Member]], Sequence[bytes]],
        *,
        handles: Sequence[Remote],
        timeout: float | None,
        keep: str = "",
        elastic: bool = False,
    ) -> Launch:
        """Queue a launch; `orders` gives the pickled call of each rank once members are known."""
        if self.closed:
            raise ClusterClosed("the cluster is closed: make a new one")
        launch = Launch(next(self._numbers), name)
        task = self.post(self._launch(launch, orders, handles, timeout, keep, elastic))
        launch._cancel = task.cancel
        return launch

    def free(self, key: str) -> None:
        """Forget the objects of a key, some time soon; called by finalizers, from any thread."""
        if not self.closed:
            try:
                self.post(self._free(key))
            except RuntimeError:  # the loop is closed: so are the workers
                return

    # -------------------------------------------------------------------- the client's loop

    async def call(self, address: str, method: str, *args: Any, timeout: float = 30.0) -> Any:
        """Call a method of a worker's runtime.

        Raises
        ------
        WorkerGoneError
            The worker cannot be reached, or did not answer in time.
        """
        work = self.client._run(runtime.call, method, *args, workers=[address], on_error="return")
        try:
            answer = (await asyncio.wait_for(work, timeout))[address]
        except (TimeoutError, OSError, KeyError) as error:
            raise WorkerGoneError(f"{address}: {error or 'no answer'}") from error
        if isinstance(answer, BaseException):
            raise WorkerGoneError(f"{address}: {answer}") from answer
        value, error = answer
        if error is not None:
            raise error
        return value

    async def present(self) -> list[str]:
        """Addresses of the workers that the scheduler knows, in a stable order."""
        return await self.client._run_on_scheduler(_addresses)

    async def muster(self, deadline: float) -> list[Member]:
        """The members of the next launch, by rank, after replacing those that are gone.

        Raises
        ------
        ClusterTooSmall
            Not enough workers before the deadline.
        """
        await self._check_suspects()
        while True:
            there = [a for a in await self.present() if a not in self._suspects]
            size = self.size or len(there)
            if size and len(there) >= size:
                chosen = _seat([m.address for m in self.members], there, size)
                try:
                    members = [replace(await self.member(a), rank=r) for r, a in enumerate(chosen)]
                except WorkerGoneError:
                    await asyncio.sleep(0.05)
                    continue
                self.members = members
                self.trace.ranks = max(self.trace.ranks, size)
                return members
            if time.perf_counter() > deadline:
                raise ClusterTooSmall(
                    f"the launch needs {size or 1} workers and {len(there)} are there. Start more "
                    "workers, or make the Cluster with workers= at most that number."
                )
            await asyncio.sleep(0.03)

    async def member(self, address: str) -> Member:
        """What is known of a worker; asked once.

        Raises
        ------
        VersionMismatch
        """
        if address in self._known:
            return self._known[address]
        pings = []
        for _ in range(_PINGS):
            sent = time.perf_counter()
            answer = await self.call(address, "describe", timeout=20.0)
            pings.append((sent, answer, time.perf_counter()))
        if answer["versions"] != self._versions:
            raise VersionMismatch(
                f"worker {address} runs {answer['versions']} and this kernel {self._versions}: "
                "install the same versions in both"
            )
        offset, error = clock_of(pings, self._boot)
        self.trace.clock_error = max(self.trace.clock_error, error)
        facts = {k: answer[k] for k in ("pid", "host", "device", "gpu", "threads", "memory")}
        self._known[address] = Member(
            address, **facts, offset=offset, clock_error=error, boot=answer["boot"]
        )
        return self._known[address]

    async def assignments(self, members: Sequence[Member]) -> list[Assignment]:
        """Places of the members in a group: the formed one if it is whole, else a new one."""
        addresses = tuple(m.address for m in members)
        if self._group is None or self._group[1] != addresses:
            name = f"{self.topic}/{uuid.uuid4().hex[:8]}"
            where = ("", 0)
            if len(members) > 1:
                where = await self.call(addresses[0], "open_store", name, timeout=5.0)
            self._group = (name, addresses, where)
        name, _, (host, port) = self._group
        gpus = {(m.host, m.gpu) for m in members}
        nccl = len(gpus) == len(members) and all(m.gpu for m in members)
        return [
            Assignment(name, rank, len(members), host, port, addresses, nccl, _FORMING)
            for rank in range(len(members))
        ]

    def break_group(self) -> None:
        """The formed group is no longer whole: the next launch forms another."""
        self._group = None

    def suspect(self, address: str) -> None:
        """A worker did not answer: it is asked again, and replaced, before the next launch."""
        self._suspects.add(address)

    async def _launch(
        self,
        launch: Launch,
        orders: Callable[[Sequence[Member]], Sequence[bytes]],
        handles: Sequence[Remote],
        timeout: float | None,
        keep: str,
        elastic: bool,
    ) -> None:
        self._queue.append(launch)
        if len(self._queue) > 1:
            first = self._queue[0]
            launch.tell(
                f"queued behind {len(self._queue) - 1}: launch {first.number} ({first.name}) first"
            )
        try:
            for _ in range(4):
                async with self._turn:
                    launch.tell("starting")
                    seconds = 1e9 if timeout is None else timeout
                    deadline = time.perf_counter() + seconds
                    members = await self.muster(deadline)
                    lost = self._lost(handles, members)
                    if not lost:
                        drive = Drive(self, launch, members, deadline, seconds)
                        launch.settle(await drive.run(orders(members), keep, elastic))
                        return
                # Making shards again takes launches of its own, which need the turn.
                launch.tell("making lost shards again")
                for handle, ranks in lost:
                    await asyncio.to_thread(_restore, handle, ranks)
            raise ClusterTooSmall("workers are lost faster than their shards can be made again")
        except asyncio.CancelledError:
            launch.settle(
                error=LaunchCancelled(f"launch {launch.number} ({launch.name}) was cancelled")
            )
        except WorkerGoneError as error:
            launch.settle(error=ClusterTooSmall(f"a worker left before the launch began: {error}"))
        except BaseException as error:
            launch.settle(error=error)
        finally:
            self._queue.remove(launch)

    def _lost(
        self, handles: Sequence[Remote], members: Sequence[Member]
    ) -> list[tuple[Remote, list[int]]]:
        addresses = [m.address for m in members]
        found = []
        for handle in {id(h): h for h in handles}.values():
            ranks = handle.lost(addresses) if len(handle.homes) == len(addresses) else None
            if ranks is None or ranks:
                found.append((handle, ranks or []))
        return found

    async def _check_suspects(self) -> None:
        for address in tuple(self._suspects):
            there = await self.present()
            if address in there:
                try:
                    await self.call(address, "held", timeout=_ANSWER)
                except WorkerGoneError:
                    await self._replace(address)
                    continue
            self._suspects.discard(address)

    async def _replace(self, address: str) -> None:
        """End a worker that does not answer; its nanny starts another under a new address."""
        member = self._known.get(address)
        if self._kill is not None and member is not None:
            self._kill(member.pid)
        else:
            await self.client._restart_workers([address], timeout=20.0, raise_for_error=False)
        end = time.perf_counter() + 10.0
        while address in await self.present() and time.perf_counter() < end:
            await asyncio.sleep(0.02)
        self._suspects.discard(address)

    async def _free(self, key: str) -> None:
        for member in self.members:
            try:
                await self.call(member.address, "free", [key], timeout=5.0)
            except WorkerGoneError:
                continue

    async def close(self) -> None:
        """Let the workers forget what belongs to this gang."""
        self.closed = True
        for launch in tuple(self._queue):
            launch.cancel()
        end = time.perf_counter() + 3.0
        while self._queue and time.perf_counter() < end:
            await asyncio.sleep(0.01)
        self.client.unsubscribe_topic(self.topic)
        calls = [self.call(m.address, "close", timeout=2.0) for m in self.members]
        await asyncio.gather(*calls, return_exceptions=True)

    def record(self, replies: Sequence[Reply]) -> None:
        """Put the events of the replies into the trace."""
        for reply in replies:
            if reply.events:
                self.trace.extend(reply.events)


class _Listener:
    """Receives what the ranks send; holds the gang weakly, since the client outlives it."""

    def __init__(self, gang: Gang) -> None:
        self._gang = weakref.ref(gang)

    def __call__(self, event: tuple[float, Any]) -> None:
        gang = self._gang()
        if gang is None:
            return
        for message in event[1]:
            number = message.pop("ask", None)
            if number is not None:
                drive = gang.drives.get(number)
                if drive is not None:
                    drive.asked(**message)
                continue
            drive = gang.drives.get(message.get("launch"))
            if drive is not None:
                drive.launch.receive([{k: v for k, v in message.items() if k != "launch"}])


def _addresses(dask_scheduler: Any) -> list[str]:
    return [
        address
        for address, worker in dask_scheduler.workers.items()
        if worker.status.name == "running"
    ]


def _seat(before: Sequence[str], there: Sequence[str], size: int) -> list[str]:
    """Who gets which rank: workers keep theirs, others take the free ones in order."""
    kept = {rank: a for rank, a in enumerate(before[:size]) if a in there}
    others = [a for a in there if a not in kept.values()]
    return [kept[rank] if rank in kept else others.pop(0) for rank in range(size)]


def _restore(handle: Remote, ranks: list[int]) -> None:
    from dtoolkit.errors import LayoutError, ShardLost

    if not ranks:
        raise LayoutError(
            f"{handle!r} is laid over {len(handle.homes)} ranks and the cluster has another "
            "number now: distribute it anew"
        )
    if handle.restore is None:
        raise ShardLost(
            f"rank(s) {ranks} of {handle!r} were on workers that are gone, and it cannot be made "
            "again from a source"
        )
    handle.restore(ranks)
