"""The process group of a launch: formed on the workers, cut when somebody is lost.

Groups are objects, never torch's default group, and every one has a fresh name in its store. The
store lives on a worker, where the others can reach it. Forming and dropping a group both can block
for long when a peer dies in the middle, so they run on threads that can be left behind.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore

from dtoolkit.cluster import sockets
from dtoolkit.cluster.store import StoreClient
from dtoolkit.comm.emulated import EmulatedTransport
from dtoolkit.comm.network import Network
from dtoolkit.comm.occupancy import Occupancy
from dtoolkit.comm.pending import POLL, Interrupt, brief
from dtoolkit.comm.threads import start_thread
from dtoolkit.comm.transport import GlooTransport, NcclTransport, Transport
from dtoolkit.errors import CommunicationError, PeerLost

__all__ = ["Assignment", "Mesh", "open_tcp_store"]

_MESSAGE_TIMEOUT = timedelta(hours=24)  # launches have their own deadline, set by the client


@dataclass(frozen=True, slots=True)
class Assignment:
    """A rank's place in a group.

    Attributes
    ----------
    name : str
        Name of the group, never used twice.
    rank, size : int
    host, port :
        Where the store of the group is; unused by a group of one.
    addresses : tuple of str
        Addresses of the Dask workers, by rank.
    nccl : bool
        Each rank has a GPU of its own.
    timeout : float
        Seconds that forming may take.
    emulate : Network or None
        The network by which messages are held back.
    """

    name: str
    rank: int
    size: int
    host: str
    port: int
    addresses: tuple[str, ...]
    nccl: bool
    timeout: float
    emulate: Network | None = None


def open_tcp_store(host: str) -> TCPStore:
    """Start torch's own store at `host`; it lives as long as the object."""
    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


class Mesh:
    """A formed group, with its sockets.

    Parameters
    ----------
    assignment : Assignment
    host : str
        Address that this rank's sockets bind.
    interrupt : Interrupt
        Ends the forming, and every wait of the transport.

    Raises
    ------
    CommunicationError
        A peer was lost, or did not come in time, while the group formed.
    """

    def __init__(self, assignment: Assignment, host: str, interrupt: Interrupt) -> None:
        self.assignment = assignment
        self._host = host
        self._interrupt = interrupt
        self._ports: set[int] = set()
        self._transports: list[GlooTransport] = []
        self._store: Any = None
        self._device: Any = None
        # Which connection leads to whom: listening port of each rank, in rank order.
        self.listening: tuple[int, ...] = ()
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        self.transport: Transport = self._patiently(self._form_all)

    def attend(self, interrupt: Interrupt) -> None:
        """Serve the next launch: obey its interrupt."""
        self._interrupt = self.transport.interrupt = interrupt

    def drop_subgroups(self) -> None:
        """Let go of the groups that a launch has made of this one; their counts stay."""
        if len(self._transports) > 1:
            self._count()
            _drop_later(_released(self._transports[1:]))
            del self._transports[1:]

    def cut(self) -> int:
        """Break every connection of the group and of its store; returns how many."""
        return sockets.cut(self._ports)

    def cut_off(self, peer: int, callers: Collection[int]) -> int:
        """Break the connections to one rank; returns how many.

        Parameters
        ----------
        peer : int
        callers : collection of int
            The ports from which that rank's own connections to this one go out.
        """
        mine, theirs = self.listening[self.assignment.rank], self.listening[peer]
        pairs = {(one.local, one.remote) for one in sockets.connections({mine, theirs})}
        return sockets.cut_pairs(
            {p for p in pairs if p[1] == theirs or (p[0] == mine and p[1] in callers)}
        )

    def counters(self) -> list[tuple[int, int, int, int]]:
        """(local port, remote port, sent, received) of every connection that the group has had.

        The kernel's counts, without the store's connections; those of subgroups are in it, also of
        subgroups that are gone.
        """
        self._count()
        return [(*ports, *counts) for ports, counts in self._counted.items()]

    def drop(self) -> None:
        """Cut and forget the group without waiting for its threads."""
        self.cut()
        groups = [*_released(self._transports), self._store, self._device]
        self._transports, self._store, self._device = [], None, None
        _drop_later(groups)

    def _count(self) -> None:
        for one in sockets.connections(set(self.listening)):
            self._counted[one.local, one.remote] = (one.sent, one.received)

    def _patiently(self, work: Callable[[], Transport]) -> Transport:
        """Run `work` on its own thread; leave it behind when the interrupt is set."""
        future: Future[Transport] = Future()

        def body() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        start_thread("dtoolkit-form", body)
        try:
            while True:
                try:
                    return future.result(timeout=POLL)
                except TimeoutError:
                    if future.done():
                        raise
                    self._interrupt.check()
        except (RuntimeError, OSError) as error:
            self.cut()  # the others must not wait for this rank
            broken = self._interrupt.broken(error)
            if isinstance(broken, PeerLost):
                raise broken from error
            raise CommunicationError(f"the group could not be formed: {brief(error)}") from error
        except BaseException:
            self.cut()
            raise

    def _form_all(self) -> Transport:
        here = self.assignment
        if here.size > 1:
            self._ports.add(here.port)
            if here.nccl:  # it uses more of a store than Gloo does
                wait = timedelta(seconds=here.timeout)
                self._store = TCPStore(here.host, here.port, is_master=False, timeout=wait)
            else:
                self._store = StoreClient(here.host, here.port, here.timeout)
        else:
            self._store = torch.distributed.HashStore()
        before = sockets.listening_ports()
        device = ProcessGroupGloo.create_device(hostname=self._host, lazy_init=False)
        mine = sorted(sockets.listening_ports() - before)
        self._ports.update(mine)
        self._device = device
        if here.size > 1:
            self._store.set(f"ports/{here.rank}", json.dumps(mine))
            ports = [json.loads(self._store.get(f"ports/{r}")) for r in range(here.size)]
            self._ports.update(port for some in ports for port in some)
            self.listening = tuple(some[0] if some else -1 for some in ports)
        if here.emulate is None or here.size == 1:
            return self._form(range(here.size), "all")
        return self._form_emulated(here.emulate)

    def _form_emulated(self, network: Network) -> Transport:
        here = self.assignment
        occupancy = Occupancy(network, here.name, here.rank)
        try:
            transport = self._form(range(here.size), "all")
        except BaseException:
            occupancy.forget()
            raise
        if not occupancy.gathered(here.size):
            raise CommunicationError(
                "the workers do not share a folder for temporary files, which an emulated network "
                "needs: start them on one machine, in one container"
            )
        return EmulatedTransport(transport, occupancy, range(here.size))

    def _form(self, members: Sequence[int], name: str) -> Transport:
        """Form the group of `members` (ranks of the whole group, this one included)."""
        here = self.assignment
        rank = list(members).index(here.rank)
        store = PrefixStore(f"{here.name}/{name}", self._store)
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [self._device]
        options._timeout = timedelta(seconds=here.timeout)
        options._threads = 2
        group = ProcessGroupGloo(PrefixStore("gloo", store), rank, len(members), options)
        group.set_timeout(_MESSAGE_TIMEOUT)

        def subgroup(inner: Sequence[int], inner_name: str) -> Transport:
            return self._patiently(
                lambda: self._form([members[i] for i in inner], f"{name}/{inner_name}")
            )

        if not here.nccl:
            self._transports.append(GlooTransport(group, self._interrupt, subgroup))
            return self._transports[-1]
        nccl = torch.distributed.ProcessGroupNCCL(
            PrefixStore("nccl", store),
            rank,
            len(members),
            torch.distributed.ProcessGroupNCCL.Options(),
        )
        self._transports.append(NcclTransport(group, nccl, self._interrupt, subgroup))
        return self._transports[-1]


def _released(transports: Sequence[GlooTransport]) -> list[Any]:
    return [group for transport in transports for group in transport.release()]


def _drop_later(objects: list[Any]) -> None:
    """Let go of groups, and of their store after them, on a thread; the list is emptied.

    Their destructors join threads of Gloo's, which may wait for a peer: no reference must stay
    here that could be the last one.
    """
    queue = deque(objects)
    objects.clear()

    def drop() -> None:
        while queue:
            queue.popleft()

    if queue:
        start_thread("dtoolkit-drop", drop)


if sys.platform == "win32":
    raise ImportError("dtoolkit runs on Linux and macOS; on Windows use WSL2")
