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

    Parameters
    ----------
    prepare : callable
        Run first, in the thread: for settings that libraries hold by thread.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = prepare
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
                _raise_in(self._thread.ident, Stop)

    def retire(self) -> None:
        """Let the thread end after what it runs now."""
        self._queue.put(None)

    def _run(self) -> None:
        self._prepare()
        while (item := self._queue.get()) is not None:
            self._one(*item)
            del item

    def _one(self, work: Callable[[], Any], future: Future[Any]) -> None:
        try:
            try:
                with self._guard:
                    self._busy = True
                result = work()
            finally:
                self._no_more_stops()
        except BaseException as error:
            self._no_more_stops()  # once more, for one that came as the first call began
            future.set_exception(error)
        else:
            future.set_result(result)

    def _no_more_stops(self) -> None:
        """From here on nothing is raised into the thread; what was about to be is taken back."""
        while True:
            try:
                with self._guard:
                    self._busy = False
                    if self._thread.ident is not None:
                        _raise_in(self._thread.ident, None)
                return
            except Stop:  # came a moment after the function had ended
                continue


def _raise_in(ident: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(ident), None if error is None else ctypes.py_object(error)
    )
