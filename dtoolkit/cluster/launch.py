"""A launch as its owner sees it: result, progress, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Launch"]


class Launch:
    """A function that runs, or will run, on every rank.

    Attributes
    ----------
    number : int
        Order on the cluster.
    name : str
        The function's name.
    events : list of dict
        What the ranks sent by ``ctx.log`` and ``ctx.step`` so far: rank, step, time, metrics.
    """

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.created = time.time()
        self._status = "queued"
        self._future: Future[Any] = Future()
        self._cancel: Callable[[], None] | None = None
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._guard = threading.Lock()

    @property
    def status(self) -> str:
        """In words: queued behind what, running on how many ranks, done, failed, cancelled."""
        return self._status

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the results by rank.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait here; the launch itself goes on after that.

        Raises
        ------
        RankError, WorkerLost, LaunchTimeout, LaunchCancelled, ClusterTooSmall
            How the launch failed.
        TimeoutError
            It has not ended within `timeout`.
        """
        return self._future.result(timeout)

    async def wait(self) -> Any:
        """Like :meth:`result`, to be awaited in a notebook or a callback."""
        return await asyncio.wrap_future(self._future)

    def exception(self) -> BaseException | None:
        """The error it ended with; None if it succeeded. Waits for the end."""
        return self._future.exception()

    def cancel(self) -> bool:
        """Ask all ranks to stop; returns False if it had ended already."""
        if self.done():
            return False
        if self._cancel is not None:
            self._cancel()
        return True

    def on_event(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call `listener` for every event from now on, on Dask's thread."""
        with self._guard:
            self._listeners.append(listener)

    def add_done_callback(self, callback: Callable[[Launch], None]) -> None:
        """Call `callback(launch)` when it has ended, on Dask's thread."""
        self._future.add_done_callback(lambda _: callback(self))

    def __repr__(self) -> str:
        return f"<Launch {self.number} {self.name}: {self._status}>"

    # ------------------------------------------------------------------- used by the gang

    def tell(self, status: str) -> None:
        """Set the status."""
        self._status = status

    def receive(self, events: list[dict[str, Any]]) -> None:
        """Take in events from the ranks."""
        with self._guard:
            self.events.extend(events)
            listeners = tuple(self._listeners)
        for event in events:
            for listener in listeners:
                listener(event)

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """End the launch."""
        if self._future.done():
            return
        if error is not None:
            self._status = f"failed: {type(error).__name__}"
            self._future.set_exception(error)
        else:
            self._status = "done"
            self._future.set_result(value)
