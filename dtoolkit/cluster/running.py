"""One launch on one worker: from its order to its reply."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
import traceback
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import cloudpickle

from dtoolkit.cluster.context import Context
from dtoolkit.cluster.facts import nbytes_of
from dtoolkit.cluster.hooks import Hooks
from dtoolkit.cluster.instrument import Site
from dtoolkit.cluster.mesh import Assignment, Mesh
from dtoolkit.cluster.rank_thread import RankThread, Stop
from dtoolkit.cluster.shipping import Shipping
from dtoolkit.cluster.wire import Order, Reply, load_call
from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.emulated import sleep_until
from dtoolkit.comm.held import HeldTransport, Hold
from dtoolkit.comm.pending import POLL, Interrupt, Pending
from dtoolkit.comm.recorder import Recorder
from dtoolkit.comm.transport import GlooTransport
from dtoolkit.errors import CommunicationError, PeerLost

if TYPE_CHECKING:
    from dtoolkit.cluster.runtime import Runtime

__all__ = ["Running"]

_FORMING = 30.0  # seconds to wait for the size of the first group
_PATIENCE = 5.0  # seconds that an elastic rank waits to hear who was lost
_HEARD = 2.0  # seconds that an announcement may take to the scheduler


class Running:
    """One launch on this worker; made on its event loop.

    Parameters
    ----------
    runtime : Runtime
    order : Order
    thread : RankThread

    Attributes
    ----------
    interrupt : Interrupt
    future : Future of Reply
    group : Assignment
        The place in the group that the function is in, or has asked to leave.
    mesh : Mesh or None
        That group, formed.
    hooks : Hooks or None
        Who is told what the rank does; None where nobody asked.
    newcomers : int
        Workers that the next group would take in, as the client said last.
    """

    def __init__(self, runtime: Runtime, order: Order, thread: RankThread) -> None:
        self.runtime = runtime
        self.order = order
        self._thread = thread
        self.interrupt = Interrupt(
            elastic=order.elastic,
            patience=_PATIENCE if order.elastic else 0.0,
            report=self._report_break if order.elastic else None,
        )
        self.mesh: Mesh | None = None
        self._loop = asyncio.get_running_loop()
        self.given_up: asyncio.Future[None] = self._loop.create_future()
        self.group = order.assignment
        self._next = order.assignment
        self._left = ""
        self._assigned = threading.Event()
        self._deadline = time.perf_counter() + order.seconds
        self._log = Shipping(order.launch, self._loop, lambda m: runtime.emit(order.owner, m))
        here = order.assignment
        self._recorder = Recorder(
            order.launch, here.rank, here.size, enabled=order.trace, offset=order.offset
        )
        self.newcomers = 0
        self._calling = False
        self._holds: dict[str, Hold] = {}
        self.hooks = self._recorder.watch = Hooks() if order.hooks else None

    # ---------------------------------------------------------------------- on the event loop

    def start(self) -> None:
        """Run the function in the rank's thread."""
        self.future: Future[Reply] = self._thread.submit(self.body)

    def give_up(self) -> None:
        """The thread does not come back: the order is answered without it."""
        if not self.given_up.done():
            self.given_up.set_result(None)

    def assign(self, assignment: Assignment) -> None:
        """Say which group an elastic launch goes on in."""
        self.newcomers = 0
        self._next = assignment
        self._assigned.set()

    def belongs_to(self, group: str) -> bool:
        """Whether the function is in a group that it has not left, or is to go on in it."""
        return group in (self.group.name, self._next.name) and group != self._left

    def pulse(self) -> int | None:
        """Count of the signs of life; None while the rank waits for others, or loads, or ends."""
        if self.hooks is None or not self._calling or self._thread.inside(_WAITS):
            return None
        return None if self._thread.in_library() else self.hooks.signs

    def cut(self) -> None:
        """Break the connections of the group."""
        mesh = self.mesh
        if mesh is not None:
            mesh.cut()

    # -------------------------------------------------------------------- in the rank's thread

    def body(self) -> Reply:
        """Run the function; whatever happens, a reply."""
        try:
            reply = self._run()
            self._thread.no_more_stops()
        except Stop:  # came as the function had ended, or as that call began
            reply = Reply("stopped")
            self._thread.no_more_stops()
        self.interrupt.set(_over)
        if self.hooks is not None:
            self.hooks.close()
        reply.events = list(self._recorder.events)
        reply.log, reply.shipped = self._log.rest()
        if self.mesh is not None:
            if reply.kind == "done":
                self.mesh.drop_subgroups()
            else:
                self.runtime.drop_mesh(self.order.owner, self.mesh)
            self.mesh = None
        return reply

    def _run(self) -> Reply:
        name = "the function's arguments"
        comm = None
        try:
            function, args, kwargs = load_call(self.order.call, self.runtime.find)
            name = getattr(function, "__qualname__", type(function).__name__)
            context = self._context()
            if self.order.instruments:
                self._attach(context)
            self._calling = True
            result = function(context, *args, **kwargs)
            self._calling = False
            comm = context.comm
            name = f"{name}: operations that it did not wait for"
            comm.finish()
            name = f"{name.partition(':')[0]}: its result"
            return self._done(result)
        except Stop:
            return Reply("stopped", operation=name)
        except BaseException as error:
            return Reply(
                "broken" if _from_connection(error) else "raised",
                cause=f"{type(error).__name__}: {error}",
                traceback=_clean_traceback(error),
                operation=name,
                error=_pickled(error),
            )

    def _done(self, result: Any) -> Reply:
        if not self.order.keep:
            return Reply("done", value=cloudpickle.dumps(result, protocol=5))
        if self.interrupt.is_set and not self.order.elastic:
            raise Stop  # told to stop in the last moment: nobody will ask for the result
        self.runtime.data[self.order.keep] = result
        return Reply("done", nbytes=nbytes_of(result))

    def _context(self) -> Context:
        try:
            comm, assignment = self._communicator(self.order.assignment), self.order.assignment
        except (CommunicationError, PeerLost):
            if not self.order.elastic:
                raise
            comm, assignment = self._next_group(None, _FORMING)
        return Context(
            comm=comm,
            recorder=self._recorder,
            device=self.runtime.device,
            address=self.runtime.address,
            addresses=assignment.addresses,
            threads=self.runtime.threads,
            joined=self.order.joined,
            elastic=self.order.elastic,
            emit=self._log.add,
            messages=self._messages,
            newcomers=lambda: self.newcomers,
            rebuild=self._rebuild if self.order.elastic else None,
            hooks=self.hooks,
        )

    def _attach(self, context: Context) -> None:
        for number, instrument in enumerate(pickle.loads(self.order.instruments)):
            instrument.attach(Site(self, context, number))

    def announce(self, item: dict[str, Any]) -> None:
        """Bring something to the client, and wait until the scheduler has it."""
        words = {"announced": self.order.launch, "rank": self.group.rank, **item}
        self._said("announce", self.runtime.publish(self.order.owner, [words]))

    def claim(self, name: str) -> bool:
        """Whether this is the first claim of a name on the cluster."""
        return bool(self._said("claim", self.runtime.claim(self.order.owner, name)))

    def cut_off(self, address: str) -> int:
        """Break the connections to another member of the group; returns how many."""
        mesh, group = self.mesh, self.group
        if mesh is None:
            return 0
        owner, mine = self.order.owner, mesh.listening[group.rank]
        answer = self._said("cut", self.runtime.ask_peer(address, "connections", owner))
        found = [] if answer is None else answer[1]
        callers = {local for local, remote, *_ in found if remote == mine}
        return mesh.cut_off(group.addresses.index(address), callers)

    def delay(self, address: str, seconds: float, bandwidth: float | None) -> bool:
        """Make the link to another member slow, at both ends; returns whether the other did."""
        self.hold(address, seconds, bandwidth)
        words = self.order.owner, self.order.launch, self.runtime.address, seconds, bandwidth
        return bool(self._said("delay", self.runtime.ask_peer(address, "hold", *words)))

    def hold(self, address: str, seconds: float, bandwidth: float | None) -> None:
        """Make the link from another member slow at this end; as it was, if it takes nothing."""
        if seconds or bandwidth:
            self._holds[address] = Hold(seconds, bandwidth)
        else:
            self._holds.pop(address, None)

    def _said(self, what: str, words: Coroutine[Any, Any, Any]) -> Any:
        """What the scheduler answers to words of an instrument; None if it does not in time."""
        if asyncio._get_running_loop() is self._loop:
            words.close()
            raise RuntimeError(f"{what}: it waits for Dask's thread, and must not be called there")
        heard = asyncio.run_coroutine_threadsafe(words, self._loop)
        try:
            return heard.result(_HEARD)
        except (TimeoutError, OSError):  # nobody would hear more by waiting longer
            return None

    def _messages(self) -> list[Any]:
        """What the owner of the launch has sent since the last call."""
        return self.runtime.mail.take(self.order.owner, self.order.launch)

    def _communicator(self, assignment: Assignment) -> Communicator:
        self.interrupt.check()
        self.mesh = self.runtime.mesh(self.order.owner, assignment, self.interrupt)
        self.interrupt.check()  # a stop that came while the group formed cut nothing
        transport = self.mesh.transport
        if self.order.instruments:  # which may make links slow
            transport = HeldTransport(transport, self._holds, assignment.addresses)
        return Communicator(
            transport,
            self._recorder,
            device=self.runtime.device,
            deadline=self._remaining,
        )

    def _remaining(self) -> float:
        return max(1.0, self._deadline - time.perf_counter())

    def _report_break(self) -> None:
        """Tell the client that a connection broke, so that it looks whether somebody is lost."""
        words = {"broke": self.order.launch, "address": self.runtime.address}
        self.runtime.emit(self.order.owner, [words | {"group": self.group.name}])

    def _rebuild(self, context: Context, size: int | None, alone: bool, timeout: float) -> None:
        """Go on in the next group."""
        if not (self.interrupt.is_set or self.interrupt.broke):
            # Nobody is lost: a peer may still be in the last operation, and must not be cut off.
            try:
                context.comm.barrier()
            except (CommunicationError, PeerLost):
                pass
        context.comm, assignment = self._next_group(size, timeout, alone)
        context.addresses = assignment.addresses
        if self.hooks is not None:
            self.hooks.rebuilt()

    def _next_group(
        self, size: int | None, timeout: float, alone: bool = False
    ) -> tuple[Communicator, Assignment]:
        """Ask the client for the next group until one forms."""
        while True:
            mesh, self.mesh = self.mesh, None
            self.runtime.drop_mesh(self.order.owner, mesh)
            self._assigned.clear()
            self._left = self.group.name  # words about it that are still on their way do not count
            self.interrupt.clear()
            # By the name of the group that is left the client knows an old question.
            ask = {"ask": self.order.launch, "address": self.runtime.address}
            ask |= {"group": self.group.name, "size": size, "alone": alone, "timeout": timeout}
            self.runtime.emit(self.order.owner, [ask])
            try:
                while self._next.name == self.group.name:
                    self._assigned.wait(POLL)
                    self.interrupt.check()
                self.group = self._next
                self.interrupt.check()  # it may be over already
                comm = self._communicator(self.group)
                self._recorder.rank = self.group.rank
                self._recorder.ranks = max(self._recorder.ranks, self.group.size)
                return comm, self.group
            except (CommunicationError, PeerLost):
                self.group = self._next  # another one was lost meanwhile: that one is over too


# Where a rank waits for others, or for the client: whoever is there is not hung.
_WAITS = frozenset(
    function.__code__
    for function in (
        Pending._await,
        GlooTransport._await,
        Mesh._patiently,
        Running._next_group,
        Running.announce,
        sleep_until,
    )
)


def _over() -> CommunicationError:
    """What threads get that the function has left waiting for messages."""
    return CommunicationError("the launch is over")


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
