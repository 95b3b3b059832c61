"""The thread in which a rank's functions run, apart from Dask's tasks and event loop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import CodeType, FrameType
from typing import Any

from dtoolkit.cluster.memory import give_back
from dtoolkit.comm.threads import raise_in, start_thread

__all__ = ["RankThread", "Stop"]

_IDLE = 0.5  # seconds without work, after which a rank holds no free memory any more


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
        self._guard = threading.Lock()
        self._stoppable = False
        self._raised = False  # a stop was raised since the last word that there are no more
        self._thread = start_thread("dtoolkit-rank", self._run)

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Run `work` next; the future gets its result or exception."""
        future: Future[Any] = Future()
        self._queue.put((work, future))
        return future

    def stop_current(self) -> bool:
        """Raise :class:`Stop` in the running function, at its next Python instruction.

        Not while it imports or compiles: what a library keeps for the whole process would stay
        half done. (Numba goes through its registries by generators: a stop in one ends it for good,
        and whatever is compiled in this process later fails.)

        Returns
        -------
        bool
            False if it must be asked again a moment later.
        """
        with self._guard:
            if self._stoppable:
                if _in_the_middle(self._thread):
                    return False
                self._raised = True
                raise_in(self._thread, Stop)
            return True

    def no_more_stops(self) -> None:
        """From here on nothing is raised into the thread; what was about to be is taken back.

        Called in the thread, by work that has something to do whatever happens. A stop is taken
        back by letting it come here: one that is only withdrawn leaves Python looking for it at
        every call from then on, and Python 3.11 in an endless loop if it is profiled meanwhile.
        """
        while True:
            try:
                with self._guard:
                    self._stoppable = False
                    raised, self._raised = self._raised, False
                if not raised:
                    return
                raise_in(self._thread, Stop)
                while True:  # it comes at the next turn
                    pass
            except Stop:
                continue

    def inside(self, codes: Collection[CodeType]) -> bool:
        """Whether the thread is in one of these functions, or in what they call."""
        return any(frame.f_code in codes for frame in _frames(self._thread))

    def in_library(self) -> bool:
        """Whether the thread imports, or compiles."""
        return _in_the_middle(self._thread)

    def retire(self) -> None:
        """Let the thread end after what it runs now."""
        self._queue.put(None)

    def _run(self) -> None:
        self._prepare()
        while (item := self._next()) is not None:
            self._one(*item)
            del item

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        """Wait for what comes next; where nothing does, other processes get the free memory."""
        try:
            return self._queue.get(timeout=_IDLE)
        except Empty:
            give_back()
            return self._queue.get()

    def _one(self, work: Callable[[], Any], future: Future[Any]) -> None:
        try:
            try:
                with self._guard:
                    self._stoppable = True
                result = work()
            finally:
                self.no_more_stops()
        except BaseException as error:
            self.no_more_stops()  # once more, for one that came as the first call began
            future.set_exception(error)
        else:
            future.set_result(result)


_LIBRARIES = (
    "numba.",
    "llvmlite.",
    "importlib._bootstrap",
    "torch._dynamo.",
    "torch._inductor.",
    "distributed.gc",  # hears of every garbage collection, in whatever thread
)


def _in_the_middle(thread: threading.Thread) -> bool:
    """Whether a thread is inside code that keeps state of the whole process, and imports such."""
    names = (str(frame.f_globals.get("__name__", "")) for frame in _frames(thread))
    return any(name.startswith(_LIBRARIES) for name in names)


def _frames(thread: threading.Thread) -> Iterator[FrameType]:
    """What a thread is in now, from the inside out."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back
