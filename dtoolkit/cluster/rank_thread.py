"""The thread in which a rank's functions run, apart from Dask's tasks and event loop."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

__all__ = ["RankThread", "Stop"]


class Stop(BaseException):
    """Raised inside a function that must end; not an Exception, so that `except` lets it pass."""


class RankThread:
    """Runs one function after the other; a function that does not stop is left behind.

    A thread of its own, kept between launches: what numerical libraries hold by thread (OpenMP
    teams, autograd state) is built once.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="dtoolkit-rank", daemon=True)
        self._guard = threading.Lock()
        self._busy = False
        self._thread.start()

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` next; the future gets its result or exception."""
        future: Future[Any] = Future()
        self._queue.put((work, future))
        return future

    def stop_current(self) -> None:
        """Raise :class:`Stop` in the running function, at its next Python instruction."""
        with self._guard:
            if self._busy and self._thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident), ctypes.py_object(Stop)
                )

    def retire(self) -> None:
        """Let the thread end after what it runs now."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get()
                if item is None:
                    return
                self._one(*item)
                del item
            except Stop:  # came a moment after the function had ended
                continue

    def _one(self, work: Callable[[], Any], future: Future[Any]) -> None:
        with self._guard:
            self._busy = True
        try:
            try:
                result = work()
            finally:
                with self._guard:
                    self._busy = False
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
