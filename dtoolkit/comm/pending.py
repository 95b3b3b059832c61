"""Operations under way, and why a rank must stop waiting for them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from dtoolkit.errors import CommunicationError, PeerLost

__all__ = ["POLL", "Interrupt", "Pending", "Staged", "brief"]

_GLOO = re.compile(r"^\[\S*/gloo/\S*\]\s*")

POLL = 0.05
"""Seconds between two looks at the interrupt while a rank waits."""


class Interrupt:
    """Why a rank must stop waiting; set by the worker's event loop, read by the rank's thread.

    Parameters
    ----------
    elastic : bool
        A broken connection means that the group is to be formed again, whoever was lost.
    patience : float
        Seconds to wait, after a connection broke, for somebody to say who was lost.
    report : callable, optional
        Called when a connection has broken and nobody has said why.

    Attributes
    ----------
    broke : bool
        A connection has broken, whether or not anybody said why.
    """

    def __init__(
        self,
        *,
        elastic: bool = False,
        patience: float = 0.0,
        report: Callable[[], None] | None = None,
    ) -> None:
        self._reason: Callable[[], BaseException] | None = None
        self._told = threading.Event()
        self._elastic = elastic
        self._patience = patience
        self._report = report
        self.broke = False

    @property
    def is_set(self) -> bool:
        """Whether there is a reason to stop."""
        return self._told.is_set()

    def set(self, reason: Callable[[], BaseException]) -> None:
        """Make every operation that waits now, or starts later, raise what `reason` makes."""
        self._reason = reason
        self._told.set()

    def clear(self) -> None:
        """Forget the reason: the rank goes on in a new group."""
        self._told.clear()
        self._reason = None
        self.broke = False

    def check(self) -> None:
        """Raise the reason, if there is one."""
        reason = self._reason
        if reason is not None:
            raise reason()

    def sleep(self, seconds: float) -> bool:
        """Sleep so long, or until there is a reason to stop; returns whether there is one."""
        return self._told.wait(seconds)

    def broken(self, error: BaseException) -> CommunicationError | PeerLost:
        """What to raise where a connection broke; raises the reason if one comes in time."""
        if self._report is not None and not self.broke and not self.is_set:
            self._report()
        self.broke = True
        self._told.wait(self._patience)
        self.check()
        if self._elastic:
            return PeerLost(detail=f"a connection broke ({brief(error)})")
        return CommunicationError(f"a connection broke: {brief(error)}")


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
        self.interrupt = interrupt
        self._finish = finish
        self._done = threading.Event()
        self._guard = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
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
        with self._guard:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the messages have ended, on whatever thread; now if they have."""
        with self._guard:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    @property
    def failed(self) -> bool:
        """Whether the messages ended in an error."""
        return self._error is not None

    def join(self) -> None:
        """Block until the messages have ended, whatever the interrupt says.

        For threads that can be left behind. The operation's result is still to be made.

        Raises
        ------
        Exception
            What the messages ended in.
        """
        self._done.wait()
        if self._error is not None:
            raise self._error

    def wait(self) -> Any:
        """Block until done and return the operation's result.

        Raises
        ------
        CommunicationError
            A connection broke.
        """
        if self.finished:
            return self._result
        self._await()
        self._result = self._finish() if self._finish is not None else None
        self._finish = None  # it holds the buffers
        self.finished = True
        return self._result

    def _await(self) -> None:
        while not self._done.wait(POLL):
            self.interrupt.check()
        if self._error is not None:
            raise self.interrupt.broken(self._error) from self._error


class Staged(Pending):
    """Messages, and further ones that follow from what came.

    Parameters
    ----------
    first : Pending
        The first messages.
    following : callable or None
        Starts the messages that follow, and returns them; None if there are none.
    finish : callable
        Run once by the first :meth:`wait`; its result is the operation's.
    background : bool
        Start what follows as soon as the first messages have come, on their thread; else
        :meth:`wait` does.
    """

    def __init__(
        self,
        first: Pending,
        following: Callable[[], Pending] | None,
        finish: Callable[[], Any],
        *,
        background: bool,
    ) -> None:
        super().__init__(first.interrupt, finish)
        self._first = first
        self._following = following
        self._second: Pending | None = first if following is None else None
        self._start = threading.Lock()
        if background and following is not None:
            first.on_done(self._go_on)

    def done(self) -> bool:
        """Whether the messages have arrived and left."""
        return self._second is not None and self._second.done()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all messages have ended, on whatever thread; now if they have."""

        def then() -> None:
            self._go_on()
            (self._second or self._first).on_done(callback)  # the first ones, where they failed

        self._first.on_done(then)

    def _await(self) -> None:
        self._first._await()
        self._go_on()
        assert self._second is not None
        self._second.wait()
        self.ended = self._second.ended

    def _go_on(self) -> None:
        with self._start:
            if self._first.failed or self._first.finished:
                return
            try:
                self._first.wait()  # what came by way of the host is put where it belongs
                if self._following is not None:
                    self._second = self._following()
            except Exception as error:  # on the messages' thread nobody would hear of it
                self._first.finished = True
                self._second = Pending(self.interrupt)
                self._second.complete(error)
            self._following = None


def brief(error: BaseException) -> str:
    """The first line of an error's text, without where in Gloo it was raised and its advice."""
    text = _GLOO.sub("", str(error).strip()).partition(". This is typically caused by")[0]
    return text.splitlines()[0][:300] if text else repr(error)
