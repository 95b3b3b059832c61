"""The worker's side of a cluster: one :class:`Runtime` for each Dask worker.

The client reaches it through :func:`call`, an async function that Dask runs on the worker's event
loop; functions of launches run in a thread of their own, so that heartbeats and ordinary tasks go
on. The runtime is made at the first call: workers that join later need no preparation.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import socket
import threading
import time
import traceback
import weakref
from concurrent.futures import Future
from typing import Any

import cloudpickle
import torch

from dtoolkit.cluster import device as devices
from dtoolkit.cluster.context import Context
from dtoolkit.cluster.mesh import Assignment, Mesh, open_store
from dtoolkit.cluster.rank_thread import RankThread, Stop
from dtoolkit.cluster.wire import Order, Reply, load_call
from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.recorder import Recorder
from dtoolkit.comm.pending import POLL, Interrupt
from dtoolkit.errors import CommunicationError, PeerLost, ShardLost

__all__ = ["Runtime", "call"]

_GRACE = 0.25  # seconds in which a function must end once it was told to stop
_FORMING = 30.0  # seconds that a group may take to form
_PATIENCE = 5.0  # seconds that an elastic rank waits to hear who was lost
_BATCH = 0.03  # seconds between two shipments of metrics


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
        result = getattr(runtime, method)(*args)
        return (await result if asyncio.iscoroutine(result) else result), None
    except Exception as error:
        return None, error


class Runtime:
    """What a worker holds between launches: data, thread, device and the formed group.

    Parameters
    ----------
    worker : distributed.Worker
    """

    def __init__(self, worker: Any) -> None:
        # The worker holds its runtime through _RUNTIMES; a strong reference back would keep both.
        self._worker = weakref.proxy(worker)
        self.address: str = worker.address
        self.host: str = worker.address.split("://", 1)[-1].rsplit(":", 1)[0]
        self.threads: int = worker.state.nthreads
        self.data: dict[str, Any] = {}
        self.device = devices.of_this_process()
        self._thread = RankThread()
        self._launch: _Running | None = None
        self._mesh: Mesh | None = None
        self._stores: dict[str, Any] = {}
        devices.limit_threads(self.threads)

    # ------------------------------------------------------------------ called by the client

    def describe(self) -> dict[str, Any]:
        """Facts about the worker, and its clock now."""
        limit = self._worker.memory_manager.memory_limit
        return {
            "address": self.address,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot": _boot_id(),
            "device": str(self.device),
            "gpu": devices.gpu_identity(self.device),
            "threads": self.threads,
            "memory": int(limit) if limit else None,
            "clock": time.perf_counter(),
            "versions": versions(),
        }

    def open_store(self, name: str) -> tuple[str, int]:
        """Host the store of a group; returns where it is. Older stores are closed."""
        store = open_store(self.host)
        self._stores = {name: store}
        return self.host, store.port

    async def launch(self, order: Order) -> Reply:
        """Run this worker's part of a launch."""
        if self._launch is not None:  # left over from a client that gave up on this worker
            await self.stop(self._launch.order.launch, None)
        running = _Running(self, order)
        self._launch = running
        running.future = self._thread.submit(running.body)
        try:
            await asyncio.wait(
                [asyncio.wrap_future(running.future), running.given_up],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if self._launch is running:
                self._launch = None
        if running.future.done() and running.future.exception() is None:
            return running.future.result()
        return Reply("stopped", cause="did not stop in time; its thread was left behind")

    async def stop(self, launch: int, lost: list[int] | None) -> bool:
        """Stop a launch, promptly; returns whether its thread came free.

        Parameters
        ----------
        launch : int
        lost : list of int or None
            For elastic launches: the ranks that are gone. The function goes on and gets
            `PeerLost`. None: everything stops.
        """
        running = self._launch
        if running is None or running.order.launch != launch:
            return True
        if lost is not None:
            running.interrupt.set(lambda: PeerLost(lost))
            self._cut()
            return True
        running.interrupt.set(Stop)
        self._cut()
        future = running.future
        for delay in (0.03, _GRACE):
            await asyncio.wait([asyncio.wrap_future(future)], timeout=delay)
            if future.done():
                return True
            self._thread.stop_current()
        # Blocked in something that Python cannot interrupt: leave the thread and use a new one.
        self._thread.retire()
        self._thread = RankThread()
        self.drop_mesh()
        running.give_up()
        return False

    def assign(self, launch: int, assignment: Assignment) -> None:
        """Give the running elastic launch its place in the next group."""
        if self._launch is not None and self._launch.order.launch == launch:
            self._launch.next_assignment = assignment
            self._launch.assigned.set()

    def put(self, key: str, value: bytes) -> int:
        """Keep an object; returns its bytes."""
        self.data[key] = load_call(value, self.find)[0]
        return nbytes_of(self.data[key])

    def get(self, key: str) -> bytes:
        """The pickled object of a key."""
        return cloudpickle.dumps(self.find(key), protocol=5)

    def free(self, keys: list[str]) -> None:
        """Forget objects."""
        for key in keys:
            self.data.pop(key, None)

    def held(self) -> int:
        """Bytes of the objects that are kept."""
        return sum(map(nbytes_of, self.data.values()))

    def connections(self) -> tuple[tuple[int, ...], list[tuple[int, int, int, int]]]:
        """Listening ports by rank, and (local port, remote port, sent, received) by connection."""
        if self._mesh is None:
            return (), []
        found = self._mesh.connections()
        return self._mesh.listening, [(c.local, c.remote, c.sent, c.received) for c in found]

    def close(self) -> None:
        """Forget everything that belongs to a cluster that closes."""
        self.data.clear()
        self.drop_mesh()
        self._stores.clear()

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

    def mesh(self, assignment: Assignment, interrupt: Interrupt) -> Mesh:
        """The group of an assignment: the one there is, or a new one."""
        if self._mesh is not None and self._mesh.assignment.name == assignment.name:
            self._mesh.attend(interrupt)
            return self._mesh
        self.drop_mesh()
        self._mesh = Mesh(assignment, self.host, interrupt)
        return self._mesh

    def drop_mesh(self) -> None:
        """Cut and forget the group."""
        mesh, self._mesh = self._mesh, None
        if mesh is not None:
            mesh.drop()

    def emit(self, topic: str, items: list[dict[str, Any]]) -> None:
        """Ship messages to the client; from any thread."""
        self._worker.log_event(topic, items)

    def _cut(self) -> None:
        if self._mesh is not None:
            self._mesh.cut()


class _Running:
    """One launch on this worker, from its order to its reply."""

    def __init__(self, runtime: Runtime, order: Order) -> None:
        self.runtime = runtime
        self.order = order
        self.interrupt = Interrupt(
            elastic=order.elastic, patience=_PATIENCE if order.elastic else 0.0
        )
        self.future: Future[Reply] = Future()
        self.given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.next_assignment: Assignment | None = None
        self.assigned = _Flag(self.interrupt)
        self._deadline = time.perf_counter() + order.seconds
        self._log: list[dict[str, Any]] = []
        self._shipped = 0.0
        here = order.assignment
        self._recorder = Recorder(
            order.launch, here.rank, here.size, enabled=order.trace, offset=order.offset
        )

    def give_up(self) -> None:
        if not self.given_up.done():
            self.given_up.set_result(None)

    def body(self) -> Reply:
        """Runs in the rank's thread."""
        reply = self._run()
        reply.events = self._recorder.events
        reply.log, self._log = self._log, []
        if reply.kind != "done":
            self.runtime.drop_mesh()
        return reply

    def _run(self) -> Reply:
        name = "the function's arguments"
        try:
            function, args, kwargs = load_call(self.order.call, self.runtime.find)
            name = getattr(function, "__qualname__", type(function).__name__)
            context = self._context()
            result = function(context, *args, **kwargs)
            context.comm.finish()
            if self.order.keep:
                self.runtime.data[self.order.keep] = result
                return Reply("done", nbytes=nbytes_of(result))
            return Reply("done", value=cloudpickle.dumps(result, protocol=5))
        except Stop:
            return Reply("stopped", operation=name)
        except BaseException as error:
            kind = "broken" if _from_connection(error) else "raised"
            return Reply(
                kind,
                cause=f"{type(error).__name__}: {error}",
                traceback=_clean_traceback(error),
                operation=name,
                error=_pickled(error),
            )

    def _context(self) -> Context:
        return Context(
            comm=self._communicator(self.order.assignment),
            recorder=self._recorder,
            device=self.runtime.device,
            address=self.runtime.address,
            addresses=self.order.assignment.addresses,
            threads=self.runtime.threads,
            joined=self.order.joined,
            elastic=self.order.elastic,
            deadline=self._deadline,
            emit=self._emit,
            rebuild=self._rebuild if self.order.elastic else None,
        )

    def _communicator(self, assignment: Assignment) -> Communicator:
        mesh = self.runtime.mesh(assignment, self.interrupt)
        return Communicator(mesh.transport, self._recorder, deadline=self._remaining)

    def _remaining(self) -> float:
        return max(1.0, self._deadline - time.perf_counter())

    def _rebuild(self, context: Context, size: int | None, timeout: float) -> None:
        """Ask the client for the next group until one forms."""
        while True:
            self.runtime.drop_mesh()
            self.assigned.clear()
            self.interrupt.clear()
            ask = {"ask": self.order.launch, "address": self.runtime.address}
            self.runtime.emit(self.order.owner, [{**ask, "size": size, "timeout": timeout}])
            try:
                self.assigned.wait()
                assignment = self.next_assignment
                assert assignment is not None
                context.comm = self._communicator(assignment)
                context.addresses = assignment.addresses
                self._recorder.rank = assignment.rank
                self._recorder.ranks = max(self._recorder.ranks, assignment.size)
                return
            except (CommunicationError, PeerLost):
                continue  # another one was lost meanwhile

    def _emit(self, message: dict[str, Any]) -> None:
        self._log.append({"launch": self.order.launch, **message})
        now = time.perf_counter()
        if now - self._shipped > _BATCH:
            self._shipped = now
            items, self._log = self._log, []
            self.runtime.emit(self.order.owner, items)


class _Flag:
    """A flag that a thread waits for while it watches the interrupt."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._event = threading.Event()
        self._interrupt = interrupt
        self.set, self.clear = self._event.set, self._event.clear

    def wait(self) -> None:
        while not self._event.wait(POLL):
            self._interrupt.check()


def nbytes_of(value: Any) -> int:
    """Bytes of the tensors in an object, by its own word where it has one."""
    own = getattr(value, "nbytes", None)
    if isinstance(own, int):
        return own
    if isinstance(value, dict):
        return sum(map(nbytes_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(nbytes_of, value))
    return 0


def versions() -> dict[str, str]:
    """Versions that client and workers must share."""
    import dtoolkit

    python = platform.python_version_tuple()
    return {
        "python": f"{python[0]}.{python[1]}",
        "torch": torch.__version__.split("+")[0],
        "dtoolkit": dtoolkit.__version__,
    }


def _boot_id() -> str:
    """What tells hosts apart: equal on processes that share a monotonic clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _from_connection(error: BaseException) -> bool:
    """Whether a broken connection is the cause, or a cause of the cause."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, CommunicationError | PeerLost):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _clean_traceback(error: BaseException) -> str:
    """The traceback from the user's function on, without the frames that called it."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__") == __name__:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame))


def _pickled(error: BaseException) -> bytes:
    try:
        data = cloudpickle.dumps(error, protocol=5)
        pickle.loads(data)  # some exceptions can be dumped but not loaded
        return data
    except Exception:
        return b""


_RUNTIMES: weakref.WeakKeyDictionary[Any, Runtime] = weakref.WeakKeyDictionary()
