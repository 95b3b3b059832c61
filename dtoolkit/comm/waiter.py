"""Threads that await messages, so that a rank never blocks inside Gloo.

Gloo forgets to wake a receiver whose message was half read when the connection broke, and a wait
with a time-out breaks every other message of the group. So works are awaited on threads that can be
left behind.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any, ClassVar

from dtoolkit.comm.pending import Pending
from dtoolkit.comm.threads import start_thread

__all__ = ["await_works"]


def await_works(works: list[Any], pending: Pending, keep: object) -> None:
    """Complete `pending` once all `works` have ended; `keep` holds their buffers until then."""
    pending.keep = keep
    if works:
        _Waiter.take().queue.put((works, pending))
    else:
        pending.keep = None
        pending.complete()


class _Waiter:
    """A thread that awaits works; idle ones are used again, stuck ones are left behind."""

    _idle: ClassVar[list[_Waiter]] = []
    _guard = threading.Lock()

    def __init__(self) -> None:
        self.queue: SimpleQueue[tuple[list[Any], Pending]] = SimpleQueue()
        start_thread("dtoolkit-waiter", self._run)

    @classmethod
    def take(cls) -> _Waiter:
        with cls._guard:
            if cls._idle:
                return cls._idle.pop()
        return cls()

    def _run(self) -> None:
        while True:
            works, pending = self.queue.get()
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
