"""The worker's side of a cluster: one :class:`Runtime` for each Dask worker.

The client reaches it through :func:`call`, an async function that Dask runs on the worker's event
loop; functions of launches run in a thread of their own, so that heartbeats and ordinary tasks go
on. The runtime is made at the first call: workers that join later need no preparation.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import cloudpickle

from dtoolkit.cluster import device as devices
from dtoolkit.cluster.facts import boot_id, nbytes_of, versions
from dtoolkit.cluster.letters import Mailbox
from dtoolkit.cluster.line import Place, listen
from dtoolkit.cluster.mesh import Assignment, Mesh, open_tcp_store
from dtoolkit.cluster.rank_thread import RankThread, Stop
from dtoolkit.cluster.running import Running
from dtoolkit.cluster.store import StoreServer
from dtoolkit.cluster.wire import Loss, Order, Reply, load_call
from dtoolkit.comm.pending import Interrupt
from dtoolkit.errors import PeerLost, ShardLost

__all__ = ["Runtime", "call"]

_POLITE = 0.12  # seconds in which a function that communicates ends by itself
_GRACE = 0.25  # seconds in which any function must end once it is stopped
_AGAIN = 0.01  # seconds until a stop is tried again that came at a bad moment
_OVERDUE = 15.0  # seconds after the deadline in which a client that lives would have said stop


async def call(
    method: str, *args: Any, dask_worker: Any = None
) -> tuple[Any, BaseException | None]:
    """Call a method of this worker's runtime; what the client sends through Dask.

    Returns
    -------
    value : object
    error : exception or None
        What the method raised: returned, so that what Dask raises is a matter of connections only.
    """
    try:
        runtime = _RUNTIMES.get(dask_worker)
        if runtime is None:
            runtime = _RUNTIMES[dask_worker] = Runtime(dask_worker)
    except Exception as error:
        return None, error
    return await runtime.answer(method, *args)


class Runtime:
    """What a worker holds between launches: data, thread, device and the formed groups.

    Several clusters may stand on one worker; what belongs to whom is told by the owner, the name of
    a cluster, with which keys and names of groups begin.

    Parameters
    ----------
    worker : distributed.Worker
    """

    def __init__(self, worker: Any) -> None:
        # The worker holds its runtime through _RUNTIMES; a strong reference back would keep both.
        self._worker = weakref.proxy(worker)
        self.address: str = worker.address
        self.host: str = worker.address.split("://", 1)[-1].rsplit(":", 1)[0].strip("[]")
        self.threads: int = worker.state.nthreads
        self.data: dict[str, Any] = {}
        self.device = devices.of_this_process()
        self.mail = Mailbox()
        self._running: Running | None = None
        self._revoked: deque[tuple[str, int]] = deque(maxlen=64)
        self._meshes: dict[str, Mesh] = {}
        self._stores: dict[str, Any] = {}
        devices.limit_threads(self.threads)
        self._thread = self._new_thread()

    async def answer(self, method: str, *args: Any) -> tuple[Any, BaseException | None]:
        """Call a method by name; see :func:`call`."""
        try:
            result = getattr(self, method)(*args)
            return (await result if asyncio.iscoroutine(result) else result), None
        except Exception as error:
            return None, error

    # ------------------------------------------------------------------ called by the client

    def describe(self) -> dict[str, Any]:
        """Facts about the worker, and its clock now."""
        limit = self._worker.memory_manager.memory_limit
        return {
            "address": self.address,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot": boot_id(),
            "device": str(self.device),
            "gpu": devices.gpu_identity(self.device),
            "threads": self.threads,
            "memory": int(limit) if limit else None,
            "clock": time.perf_counter(),
            "versions": versions(),
        }

    async def listen(self) -> Place:
        """Open a door for direct lines; returns where it is."""
        return await listen(self.host, self.answer)

    async def open_store(self, owner: str, nccl: bool) -> tuple[str, int]:
        """Host the store of an owner's next group; returns where it is. The older one is closed."""
        self._close_store(owner)
        if nccl:
            store: Any = await asyncio.to_thread(open_tcp_store, self.host)
        else:
            store = StoreServer()
            await store.open(self.host)
        self._stores[owner] = store
        return self.host, store.port

    async def launch(self, order: Order) -> Reply:
        """Run this worker's part of a launch."""
        self.free(order.free)
        left = self._running
        if left is not None:  # its client is gone, or gave up on this worker
            await self.stop(left.order.owner, left.order.launch)
        if (order.owner, order.launch) in self._revoked:
            return Reply("stopped", cause="it was stopped before it began")
        running = self._running = Running(self, order, self._thread)
        running.start()
        watched: list[asyncio.Future[Any]] = [asyncio.wrap_future(running.future), running.given_up]
        try:
            await asyncio.wait(
                watched, timeout=order.seconds + _OVERDUE, return_when=asyncio.FIRST_COMPLETED
            )
            if not any(one.done() for one in watched):
                await self.stop(order.owner, order.launch)
        finally:
            if self._running is running:
                self._running = None
            self.mail.end(order.owner, order.launch)
        if running.future.done() and running.future.exception() is None:
            return running.future.result()
        return Reply("stopped", cause="did not stop in time; its thread was left behind")

    async def stop(self, owner: str, launch: int, loss: Loss | None = None) -> bool:
        """Stop a launch, promptly; returns whether its thread came free.

        Parameters
        ----------
        owner, launch : str, int
            Which launch; one that has not come yet will not begin.
        loss : Loss, optional
            For elastic launches: a group that is over. A function that is in this group, or about
            to enter it, gets `PeerLost` and goes on. By default everything stops.
        """
        running = self._of(owner, launch)
        if running is None:
            if loss is None:
                self._revoked.append((owner, launch))
            return True
        if loss is not None:
            if running.belongs_to(loss.group):
                running.interrupt.set(lambda: PeerLost(loss.ranks, loss.detail, loss.hung))
                running.cut()
            return True
        running.interrupt.set(Stop)
        running.cut()
        future = asyncio.wrap_future(running.future)
        await asyncio.wait([future], timeout=_POLITE)
        end = time.perf_counter() + _GRACE
        while not running.future.done() and time.perf_counter() < end:
            raised = self._thread.stop_current()
            await asyncio.wait([future], timeout=_GRACE if raised else _AGAIN)
        if running.future.done():
            return True
        # Blocked in something that Python cannot interrupt: leave the thread and use a new one.
        self._thread.retire()
        self._thread = self._new_thread()
        self.drop_mesh(owner, running.mesh)
        running.give_up()
        return False

    def assign(self, owner: str, launch: int, assignment: Assignment) -> None:
        """Give the running elastic launch its place in the next group."""
        running = self._of(owner, launch)
        if running is not None:
            running.assign(assignment)

    def newcomers(self, owner: str, launch: int, count: int) -> None:
        """Tell an elastic launch how many workers could join it."""
        running = self._of(owner, launch)
        if running is not None:
            running.newcomers = count

    def pulse(self, owner: str, launch: int) -> int | None:
        """Count of the signs of life of a launch; None where it is surely alive, or not here."""
        running = self._of(owner, launch)
        return None if running is None else running.pulse()

    def hold(self, owner: str, launch: int, address: str, *how: Any) -> bool:
        """Make the link to another worker slow for a launch; returns whether that runs here."""
        running = self._of(owner, launch)
        if running is not None:
            running.hold(address, *how)
        return running is not None

    def post(self, owner: str, launch: int, messages: list[Any]) -> None:
        """Take in messages for a launch, which may not have begun here yet."""
        self.mail.put(owner, launch, messages)

    def put(self, key: str, value: bytes) -> int:
        """Keep an object; returns its bytes."""
        self.data[key] = load_call(value, self.find)[0]
        return nbytes_of(self.data[key])

    def get(self, key: str) -> bytes:
        """The pickled object of a key."""
        return cloudpickle.dumps(self.find(key), protocol=5)

    def free(self, keys: Iterable[str]) -> None:
        """Forget objects."""
        for key in keys:
            self.data.pop(key, None)

    def held(self) -> int:
        """Bytes of the objects that are kept, whoever owns them."""
        return sum(map(nbytes_of, self.data.values()))

    def connections(self, owner: str) -> tuple[tuple[int, ...], list[tuple[int, int, int, int]]]:
        """Listening ports by rank, and (local port, remote port, sent, received) by connection."""
        mesh = self._meshes.get(owner)
        return ((), []) if mesh is None else (mesh.listening, mesh.counters())

    def close(self, owner: str) -> None:
        """Forget everything that belongs to a cluster that closes."""
        for key in [key for key in self.data if key.startswith(f"{owner}/")]:
            del self.data[key]
        self.drop_mesh(owner, self._meshes.get(owner))
        self._close_store(owner)
        self.mail.close(owner)

    # ---------------------------------------------------------------------- used by a launch

    def find(self, key: str) -> Any:
        """The kept object of a key."""
        try:
            return self.data[key]
        except KeyError:
            raise ShardLost(
                f"{self.address} holds no object {key}: it was on a worker that is gone, or was "
                "freed. Make it again, or distribute it anew."
            ) from None

    def mesh(self, owner: str, assignment: Assignment, interrupt: Interrupt) -> Mesh:
        """The group of an assignment: the owner's formed one, or a new one."""
        mesh = self._meshes.get(owner)
        if mesh is not None and mesh.assignment.name == assignment.name:
            mesh.attend(interrupt)
            return mesh
        self.drop_mesh(owner, mesh)
        mesh = self._meshes[owner] = Mesh(assignment, self.host, interrupt)
        return mesh

    def drop_mesh(self, owner: str, mesh: Mesh | None) -> None:
        """Cut and forget a group; a newer one of the same owner stays."""
        if mesh is None:
            return
        if self._meshes.get(owner) is mesh:
            del self._meshes[owner]
        mesh.drop()

    def emit(self, topic: str, items: list[dict[str, Any]]) -> None:
        """Ship messages to the client; from any thread."""
        self._worker.log_event(topic, items)

    async def publish(self, topic: str, items: list[dict[str, Any]]) -> None:
        """Ship messages to the client; returns once the scheduler has them."""
        await self._worker.scheduler.log_event(topic=topic, msg=items)

    async def claim(self, owner: str, name: str) -> bool:
        """Whether this is the first claim of a name, of all workers: the scheduler keeps them."""
        topic, mark = f"{owner}/claims", uuid.uuid4().hex
        await self._worker.scheduler.log_event(topic=topic, msg=[name, mark])
        claims = await self._worker.scheduler.events(topic=topic)
        return next(one for _, (claimed, one) in claims if claimed == name) == mark

    async def ask_peer(self, address: str, method: str, *args: Any) -> Any:
        """Call a method of another worker's runtime."""
        said = cloudpickle.dumps((method, *args))
        answer = await self._worker.rpc(address).run(function=_CALL, args=said, wait=True)
        if answer["status"] != "OK":
            raise OSError(f"{address} did not run {method}")
        value, raised = answer["result"]
        if raised is not None:
            raise raised
        return value

    def _of(self, owner: str, launch: int) -> Running | None:
        """A launch, if it is the one that runs here."""
        running = self._running
        if running is not None and (running.order.owner, running.order.launch) == (owner, launch):
            return running
        return None

    def _close_store(self, owner: str) -> None:
        store = self._stores.pop(owner, None)
        if isinstance(store, StoreServer):
            store.close()

    def _new_thread(self) -> RankThread:
        threads = self.threads
        return RankThread(lambda: devices.limit_threads(threads))


_CALL = cloudpickle.dumps(call)
_RUNTIMES: weakref.WeakKeyDictionary[Any, Runtime] = weakref.WeakKeyDictionary()
