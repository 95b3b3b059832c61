"""What a panel does in the background: one job at a time, on the kernel's event loop.

A job is a coroutine. The button's handler starts it and returns, so that the kernel is free for the
next click: long pure computations go to threads, launches are awaited. A newer job supersedes the
one before, and a stopped job ends at once: what its thread still computes is dropped when it comes.

All of a panel happens on one loop, where it was made. Kernels with subshells bring what a browser
sends on a thread of their own, whose loop is another: :func:`at_home` brings it back.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Job", "Superseded", "Throttle", "Work", "at_home"]

T = TypeVar("T")

MAX_ABANDONED = 2
"""Threads of stopped jobs that may still compute before a new job waits for one of them."""

_BREATH = 4  # what a throttled call took, times this, until it is called again


def at_home(function: Callable[..., object]) -> Callable[..., None]:
    """Return a callback that calls `function` on the event loop that runs now.

    It is called at once on that loop, in a plain script, and where the loop has ended; from other
    threads soon, in the order of the calls. What is sent to the browser then answers the cell that
    the callback was made in: answers to it come to the same loop.
    """
    home, context = _running_loop(), contextvars.copy_context()

    def call(*args: Any) -> None:
        if home is None or not home.is_running() or home is _running_loop():
            function(*args)
        else:
            home.call_soon_threadsafe(lambda: function(*args), context=context)

    return call


class Superseded(Exception):
    """Raised by :meth:`Job.check` in a thread whose job is no longer wanted."""


class Job:
    """One run of something in the background.

    Attributes
    ----------
    name : str
        What is done, in words.
    wanted : bool
        False once the job was stopped or superseded.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.wanted = True
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Give up here if the job is no longer wanted; for threads, between two steps.

        Raises
        ------
        Superseded
        """
        if not self.wanted:
            raise Superseded(self.name)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run a function on a thread of its own and wait for it without blocking the kernel.

        Cancelling the wait leaves the thread to itself: it is a daemon, and what it returns is
        dropped.
        """
        while sum(thread.is_alive() for thread in _abandoned) >= MAX_ABANDONED:
            await asyncio.sleep(0.05)
        _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
        loop = self._loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        thread = threading.Thread(
            target=_compute, args=(loop, done, function, args), name="dtoolkit-panel", daemon=True
        )
        thread.start()
        try:
            return await done
        except asyncio.CancelledError:
            _abandoned.append(thread)
            raise

    def from_thread(self, function: Callable[..., object], *args: Any) -> None:
        """Let the event loop call a function, if the job is still wanted then; for threads."""

        def call() -> None:
            if self.wanted:
                function(*args)

        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)


class Work:
    """The one job of a panel.

    Parameters
    ----------
    failed : callable
        ``failed(error)`` is told of what a job raised.
    stopped : callable
        ``stopped(job)`` is told of a job that was stopped, and not of one that was superseded.
    """

    def __init__(
        self, failed: Callable[[BaseException], object], stopped: Callable[[Job], object]
    ) -> None:
        self._failed = failed
        self._stopped = stopped
        self._job: Job | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def job(self) -> Job | None:
        """What runs, if anything."""
        return self._job

    def start(self, name: str, make: Callable[[Job], Coroutine[Any, Any, None]]) -> Job:
        """Start a job, in place of the one that runs.

        Where no event loop runs, as in a plain script, it runs here and now to its end.

        Parameters
        ----------
        name : str
        make : callable
            ``make(job)`` returns the coroutine.
        """
        self._end(quiet=True)
        job = self._job = Job(name)
        loop = _running_loop()
        if loop is None:
            asyncio.run(self._run(job, make))
            return job
        self._task = loop.create_task(self._run(job, make), name=f"dtoolkit: {name}")
        return job

    def stop(self) -> bool:
        """End what runs; returns False if nothing did."""
        return self._end(quiet=False)

    async def wait(self) -> None:
        """Wait until nothing runs any more, whatever superseded what."""
        while (task := self._task) is not None and not task.done():
            await asyncio.wait([task])

    def _end(self, *, quiet: bool) -> bool:
        job, self._job = self._job, None
        if job is None:
            return False
        job.wanted = False
        if self._task is not None:
            self._task.cancel()
        if not quiet:
            self._stopped(job)
        return True

    async def _run(self, job: Job, make: Callable[[Job], Coroutine[Any, Any, None]]) -> None:
        try:
            job.check()
            await make(job)
        except (asyncio.CancelledError, Superseded):
            return  # who ended it has said so
        except Exception as error:
            if job.wanted:
                self._failed(error)
        finally:
            if self._job is job:
                self._job = None


class Throttle:
    """Calls a function at once and then at most once in every interval, the last call included.

    The interval grows with what a call takes, so that a browser's clicks find the loop free: calls
    have a fifth of the time at most.

    Parameters
    ----------
    function : callable
        Without arguments.
    seconds : float
    """

    def __init__(self, function: Callable[[], object], seconds: float = 0.1) -> None:
        self._function = function
        self._seconds = seconds
        self._next = -math.inf  # earliest time of the next call
        self._later: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        """Call the function, now or when the interval is over."""
        left = self._next - time.monotonic()
        if left <= 0:
            self.flush()
            return
        if self._later is None:
            loop = _running_loop()
            if loop is None:
                self.flush()
                return
            self._later = loop.call_later(left, self.flush)

    def flush(self) -> None:
        """Call now, in place of what was put off."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        start = time.monotonic()
        self._next = start + self._seconds
        self._function()
        end = time.monotonic()
        self._next = max(self._next, end + _BREATH * (end - start))


_abandoned: list[threading.Thread] = []


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _compute(
    loop: asyncio.AbstractEventLoop,
    done: asyncio.Future[T],
    function: Callable[..., T],
    args: tuple[Any, ...],
) -> None:
    """Run on the thread, and hand the result to the loop if it is still waited for."""
    error: BaseException | None = None
    result: Any = None
    try:
        result = function(*args)
    except BaseException as raised:
        error = raised

    def settle() -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody waits
        return
