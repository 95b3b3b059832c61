"""A thread on one rank that answers all ranks while they compute.

Ranks ask, and wait for their answer. Rank 0 hosts the thread; what its own rank asks that rank
answers itself, in its turn, without a byte on the wire. The thread has a communicator of its own (a
twin), so that collectives in the ranks' own threads go on beside it.

The thread ends when all ranks have closed their end, at once when the hosting rank abandons it,
and in any case with the launch: it looks at the launch's interrupt as every rank does that waits.
What goes wrong while it answers is raised on every rank that asks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

import torch

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.mailbox import Mailbox
from dtoolkit.comm.pending import POLL, Pending
from dtoolkit.comm.threads import start_thread
from dtoolkit.training.message import Message, pack, unpack

__all__ = ["Answer", "Service"]

Answer = Callable[[int, Message], Iterable[tuple[int, Message]]]
"""``answer(source, message)`` gives the replies that follow: (rank, message) pairs, for the rank
that asked or for others that asked before; each rank that asks gets one in the end, and who told
something gets none. One message at a time is answered."""

_HOST = 0
_CLOSE, _FAILED = -1, -2  # kinds of a service's own messages
_NOT_FINITE = f"{FloatingPointError.__name__}:"  # how the text of such a failure begins
_PATIENCE = 5.0  # seconds that a closing host waits for the others to close


class Service:
    """One rank's end of a service, and on rank 0 its thread.

    Parameters
    ----------
    comm : Communicator
        The ranks to serve. Collective: all of them make their end.
    answer : callable
        See :data:`Answer`; used on rank 0 alone.
    threads : int
        Threads that the answers may compute with.

    Attributes
    ----------
    hosts : bool
        Whether the thread is on this rank.
    """

    def __init__(self, comm: Communicator, answer: Answer, *, threads: int = 1) -> None:
        own = comm.twin()
        self._mailbox = Mailbox(own)
        self.hosts = own.rank == _HOST
        self._open = True
        self._leaving: list[Pending] = []  # what was told last
        self._host: _Host | None = None
        if self.hosts:
            self._host = _Host(own, self._mailbox, answer, threads)

    def ask(self, message: Message) -> Message:
        """Send a message to the service and wait for the answer.

        Raises
        ------
        Exception
            On rank 0: what the thread ended in.
        RuntimeError
            On the other ranks: the service has failed; the text says how. FloatingPointError where
            that is what it failed with: whoever is heard first, the owner learns the cause.
        """
        if self._host is not None:
            return self._host.ask(message)
        reply = unpack(self._mailbox.ask(pack(message), _HOST))
        if reply.kind == _FAILED:
            text = bytes(reply.tensors[0].tolist()).decode()
            kind = FloatingPointError if text.startswith(_NOT_FINITE) else RuntimeError
            raise kind(f"the service on rank {_HOST} failed: {text}")
        return reply

    def tell(self, message: Message) -> None:
        """Send a message to which there is no answer; go on at once.

        What it makes the service fail with is raised by the next question.

        Raises
        ------
        Exception
            On rank 0: what the thread ended in.
        """
        if self._host is not None:
            self._host.told(message)
            return
        for call in self._leaving:
            call.wait()
        self._leaving = self._mailbox.tell(pack(message), _HOST)

    def close(self) -> None:
        """End this rank's part; all ranks call. Rank 0 waits for the others, a few seconds at most.

        Raises
        ------
        Exception
            On rank 0: what the thread ended in.
        """
        if not self._open:
            return
        self._open = False
        if self._host is not None:
            self._host.close(_PATIENCE)
        else:
            self.tell(Message(_CLOSE))
            for call in self._leaving:
                call.wait()

    def end(self, *, quiet: bool) -> None:
        """End this rank's part whatever happened: an error goes by, or not all has been answered.

        Parameters
        ----------
        quiet : bool
            Nothing is under way.
        """
        if quiet and sys.exc_info()[0] is None:
            self.close()
        else:
            self.abandon()

    def abandon(self) -> None:
        """End the thread at once, whatever is under way: after an error, on any rank."""
        self._open = False
        if self._host is not None:
            self._host.abandon()


class _Host:
    """The thread, and how its own rank talks to it."""

    def __init__(self, comm: Communicator, mailbox: Mailbox, answer: Answer, threads: int) -> None:
        self._comm, self._mailbox, self._answer, self._threads = comm, mailbox, answer, threads
        self._inbox: SimpleQueue[Message | Pending | None] = SimpleQueue()
        self._replies: SimpleQueue[Message] = SimpleQueue()
        self._turn = threading.Lock()  # of whoever answers: the thread, or its own rank
        self._asking: set[int] = set()
        self._sending: dict[int, Pending] = {}
        self._clients = set(range(comm.size))  # ranks that have not closed
        self._failure: Exception | None = None  # what an answer raised
        self._error: BaseException | None = None  # what the thread ended in
        self._ended = threading.Event()
        start_thread("dtoolkit-service", self._run)

    # ------------------------------------------------------------------ in the rank's thread

    def ask(self, message: Message) -> Message:
        self.told(message)
        while True:
            try:
                reply = self._replies.get(timeout=POLL)
            except Empty:
                self._check()
                continue
            if reply.kind == _FAILED:
                assert self._failure is not None
                raise self._failure
            return reply

    def told(self, message: Message) -> None:
        self._check()
        with self._turn:  # here, not in the thread: nobody is to be woken for it
            self._one(self._comm.rank, message)

    def abandon(self) -> None:
        self._inbox.put(None)
        self._ended.wait(1.0)

    def close(self, seconds: float) -> None:
        self._inbox.put(Message(_CLOSE))
        end = time.perf_counter() + seconds
        while not self._ended.wait(POLL):
            self._comm.check()
            if time.perf_counter() > end:
                self.abandon()
        if self._failure is not None:
            raise self._failure
        self._check()

    def _check(self) -> None:
        self._comm.check()
        if self._ended.is_set() and self._error is not None:
            raise self._error

    # ---------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            torch.set_num_threads(self._threads)
            self._listen()
            while self._clients:
                source, message = self._next()
                with self._turn:
                    self._one(source, message)
            while self._sending:
                self._sending.popitem()[1].wait()
        except BaseException as error:  # a stop is one that no `except Exception` takes
            self._error = error
        finally:
            self._ended.set()

    def _next(self) -> tuple[int, Message]:
        """The next message, and who sent it."""
        while True:
            try:
                item = self._inbox.get(timeout=POLL)
            except Empty:
                self._comm.check()
                continue
            if item is None:
                raise RuntimeError("the service was abandoned")
            if isinstance(item, Message):
                return self._comm.rank, item
            data, source = item.wait()
            message = unpack(data)
            if message.kind == _CLOSE:
                self._clients.discard(source)
            self._listen()
            return source, message

    def _listen(self) -> None:
        """Take the next message from any other rank, as long as there are some that may send."""
        if self._clients - {self._comm.rank}:
            call = self._mailbox.take()
            call.on_done(lambda: self._inbox.put(call))

    def _one(self, source: int, message: Message) -> None:
        if message.kind == _CLOSE:
            self._clients.discard(source)
            return
        self._asking.add(source)
        if self._failure is None:
            try:
                self._reply(self._answer(source, message))
            except Exception as error:
                self._failure = error
        if self._failure is not None:
            failed = _told(self._failure)
            self._reply([(target, failed) for target in sorted(self._asking)])

    def _reply(self, replies: Iterable[tuple[int, Message]]) -> None:
        """Send replies; this rank's own comes last, when the others' bytes are counted."""
        said = dict(replies)
        self._asking -= said.keys()
        own = said.pop(self._comm.rank, None)
        for target in self._sending.keys() & said.keys():
            self._sending.pop(target).wait()  # it was taken: the rank has asked again
        self._sending |= self._mailbox.answer({rank: pack(one) for rank, one in said.items()})
        if own is not None or self._inbox.empty():
            while self._sending:
                self._sending.popitem()[1].wait()
        if own is not None:
            self._replies.put(own)


def _told(error: Exception) -> Message:
    text = f"{type(error).__name__}: {error}".encode()
    return Message(_FAILED, (), (torch.frombuffer(bytearray(text), dtype=torch.uint8),))
