"""How bytes leave a rank: the narrow layer between the communicator and ``torch.distributed``.

Two primitives carry everything: :meth:`Transport.headers`, one fixed-size block to every peer in
one Gloo all-to-all, and :meth:`Transport.exchange`, point-to-point messages of any size. Gloo
forgets to wake a receiver whose message was half read when the connection broke, so nothing here
blocks inside Gloo for longer than :data:`POLL` seconds without looking at the launch's
:class:`Interrupt`: messages are awaited on threads of their own, which can be left behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol

import torch

from dtoolkit.errors import CommunicationError

__all__ = ["HEADER", "POLL", "GlooTransport", "Interrupt", "NcclTransport", "Pending", "Transport"]

HEADER = 256
"""Bytes of a header block, small messages included."""

POLL = 0.05
"""Seconds between two looks at the interrupt while a rank waits."""

_SLICE = 1 << 28  # bytes of one message: far below what 32-bit lengths anywhere could break


class Interrupt:
    """Why a rank must stop waiting; set by the worker's event loop, read by the rank's thread.

    Parameters
    ----------
    patience : float
        Seconds to wait, after a connection broke, for somebody to say who was lost.
    """

    def __init__(self, patience: float = 0.0) -> None:
        self._reason: Callable[[], BaseException] | None = None
        self._told = threading.Event()
        self._patience = patience

    def set(self, reason: Callable[[], BaseException]) -> None:
        """Make every operation that waits now, or starts later, raise what `reason` makes."""
        self._reason = reason
        self._told.set()

    def clear(self) -> None:
        """Forget the reason: the rank goes on in a new group."""
        self._told.clear()
        self._reason = None

    def check(self) -> None:
        """Raise the reason, if there is one."""
        if self._reason is not None:
            raise self._reason()

    def broken(self, error: BaseException) -> CommunicationError:
        """What to raise where a connection broke; raises the reason if one comes in time."""
        self._told.wait(self._patience)
        self.check()
        return CommunicationError(f"a connection broke: {_brief(error)}")


class Pending:
    """A message or operation under way.

    Parameters
    ----------
    interrupt : Interrupt
        Looked at while waiting.
    finish : callable, optional
        Run once by the first :meth:`wait`; its result is the operation's.
    """

    def __init__(self, interrupt: Interrupt, finish: Callable[[], Any] | None = None) -> None:
        self._interrupt = interrupt
        self._finish = finish
        self._done = threading.Event()
        self._error: BaseException | None = None
        self.finished = False
        self._result: Any = None
        self.ended = 0.0
        self.keep: object = None  # buffers must outlive the messages, whatever the caller drops

    def done(self) -> bool:
        """Whether the messages have arrived and left."""
        return self._done.is_set()

    def complete(self, error: BaseException | None = None) -> None:
        """Mark as ended; called by whoever awaits the messages."""
        self._error = error
        self.ended = time.perf_counter()
        self._done.set()

    def wait(self) -> Any:
        """Block until done and return the operation's result.

        Raises
        ------
        CommunicationError
            A connection broke.
        """
        if self.finished:
            return self._result
        while not self._done.wait(POLL):
            self._interrupt.check()
        if self._error is not None:
            raise self._interrupt.broken(self._error) from self._error
        self._result = self._finish() if self._finish is not None else None
        self.finished = True
        return self._result


class Transport(Protocol):
    """What a communicator needs of a process group."""

    rank: int
    size: int
    interrupt: Interrupt

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        """Exchange one block of :data:`HEADER` bytes with every rank; uint8, (size, HEADER)."""
        ...

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
    ) -> Pending:
        """Send to and receive from each rank: flat uint8 tensors, None or empty for nothing."""
        ...

    def send(self, data: torch.Tensor, target: int, tag: int) -> Pending:
        """Send one flat uint8 tensor."""
        ...

    def receive(self, data: torch.Tensor, source: int | None, tag: int) -> tuple[Pending, Any]:
        """Receive one flat uint8 tensor; the second value tells the source when done."""
        ...

    def subgroup(self, members: Sequence[int], name: str) -> Transport:
        """Form the group of some of the ranks; every one of `members` must call."""
        ...


class GlooTransport:
    """Gloo over TCP, for tensors in host memory.

    Parameters
    ----------
    group : torch.distributed.ProcessGroupGloo
    interrupt : Interrupt
    form : callable
        ``form(members, name)`` makes a transport over some of the ranks.
    """

    def __init__(
        self,
        group: Any,
        interrupt: Interrupt,
        form: Callable[[Sequence[int], str], Transport],
    ) -> None:
        self.group = group
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.interrupt = interrupt
        self._form = form

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        """See :meth:`Transport.headers`."""
        received = torch.empty_like(blocks)
        options = torch.distributed.AllToAllOptions()
        options.timeout = timedelta(seconds=timeout)
        try:
            work = self.group.alltoall_base(received.view(-1), blocks.view(-1), [], [], options)
            self._await(work)
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
        return received

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
    ) -> Pending:
        """See :meth:`Transport.exchange`."""
        sends = [None if t is None else t.cpu() for t in sends]
        receives, landed = _on_host(receives)
        # All pieces between two ranks share the tag: Gloo keeps the order within a tag.
        works = []
        try:
            for step in range(1, self.size):
                source = (self.rank + step) % self.size
                works += [
                    self.group.recv([piece], source, tag) for piece in _pieces(receives[source])
                ]
            for step in range(1, self.size):
                target = (self.rank - step) % self.size
                works += [self.group.send([piece], target, tag) for piece in _pieces(sends[target])]
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
        pending = Pending(self.interrupt, landed)
        if works:
            _Waiter.take().wait_for(works, pending, (sends, receives))
        else:
            pending.complete()
        return pending

    def send(self, data: torch.Tensor, target: int, tag: int) -> Pending:
        """See :meth:`Transport.send`."""
        pending = Pending(self.interrupt)
        works = [self.group.send([piece], target, tag) for piece in _pieces(data)]
        _Waiter.take().wait_for(works, pending, data)
        return pending

    def receive(self, data: torch.Tensor, source: int | None, tag: int) -> tuple[Pending, Any]:
        """See :meth:`Transport.receive`."""
        pending = Pending(self.interrupt)
        if source is None:
            works = [self.group.recv_anysource([data], tag)]
        else:
            works = [self.group.recv([piece], source, tag) for piece in _pieces(data)]
        _Waiter.take().wait_for(works, pending, data)
        return pending, (works[0]._source_rank if works else lambda: source)

    def subgroup(self, members: Sequence[int], name: str) -> Transport:
        """See :meth:`Transport.subgroup`."""
        return self._form(members, name)

    def _await(self, work: Any) -> None:
        # An all-to-all is run by a thread of Gloo's; a wait that times out leaves it untouched.
        while True:
            try:
                work.wait(timedelta(seconds=POLL))
                return
            except RuntimeError:
                self.interrupt.check()
                if work.is_completed():
                    raise


class NcclTransport(GlooTransport):
    """NCCL for tensors on one GPU a rank; headers and tagged messages still go over Gloo.

    Parameters
    ----------
    group : torch.distributed.ProcessGroupGloo
    nccl : torch.distributed.ProcessGroupNCCL
    interrupt : Interrupt
    form : callable
    """

    def __init__(
        self,
        group: Any,
        nccl: Any,
        interrupt: Interrupt,
        form: Callable[[Sequence[int], str], Transport],
    ) -> None:
        super().__init__(group, interrupt, form)
        self.nccl = nccl

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
    ) -> Pending:
        """See :meth:`Transport.exchange`."""
        # Both ends of a message must take the same road: tensors of the host go by the GPU too.
        empty = torch.empty(0, dtype=torch.uint8)
        there = [(empty if t is None else t).cuda() for t in sends]
        here = [(empty if t is None else t).cuda() for t in receives]
        work = self.nccl.alltoall(here, there)

        def landed() -> None:
            for want, got in zip(receives, here, strict=True):
                if want is not None and not want.is_cuda:
                    want.copy_(got)

        pending = Pending(self.interrupt, landed)
        _Waiter.take().wait_for([work], pending, (sends, receives))
        return pending


def _pieces(data: torch.Tensor | None) -> list[torch.Tensor]:
    if data is None or data.numel() == 0:
        return []
    return [data[start : start + _SLICE] for start in range(0, data.numel(), _SLICE)]


def _on_host(
    tensors: Sequence[torch.Tensor | None],
) -> tuple[list[torch.Tensor | None], Callable[[], None] | None]:
    """Buffers in host memory to receive into, and what copies them where they belong."""
    if not any(t is not None and t.is_cuda for t in tensors):
        return list(tensors), None
    host = [None if t is None else torch.empty_like(t, device="cpu") for t in tensors]

    def landed() -> None:
        for want, got in zip(tensors, host, strict=True):
            if want is not None and got is not None:
                want.copy_(got)

    return host, landed


def _brief(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else repr(error)


class _Waiter(threading.Thread):
    """A daemon thread that awaits works; idle ones are used again, stuck ones are left behind."""

    _idle: ClassVar[list[_Waiter]] = []
    _guard = threading.Lock()

    def __init__(self) -> None:
        super().__init__(name="dtoolkit-waiter", daemon=True)
        self._queue: SimpleQueue[tuple[list[Any], Pending]] = SimpleQueue()
        self.start()

    @classmethod
    def take(cls) -> _Waiter:
        with cls._guard:
            if cls._idle:
                return cls._idle.pop()
        return cls()

    def wait_for(self, works: list[Any], pending: Pending, keep: object) -> None:
        pending.keep = keep
        self._queue.put((works, pending))

    def run(self) -> None:
        while True:
            works, pending = self._queue.get()
            error: BaseException | None = None
            for work in works:
                try:
                    work.wait()
                except Exception as failure:  # handed to whoever waits
                    error = error or failure
            pending.keep = None
            pending.complete(error)
            del works, pending, error
            with self._guard:
                self._idle.append(self)
