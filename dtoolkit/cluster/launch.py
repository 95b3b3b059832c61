"""A launch as its owner sees it: result, progress, cancellation."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dtoolkit.cluster.letters import Outbox, check_message
from dtoolkit.errors import LaunchCancelled

__all__ = ["Launch"]

_log = logging.getLogger(__name__)


class Launch:
    """A function that runs, or will run, on every rank.

    Attributes
    ----------
    number : int
        Order on the cluster.
    name : str
        The function's name.
    events : list of dict
        What the ranks sent by ``ctx.log`` and ``ctx.step`` so far: rank, step, time, metrics. Once
        the launch is done, all of them are there.
    keeps_events : bool
        While False, events go to the listeners alone: for who makes something smaller of very many.
    homes : list of str
        Addresses of the workers, by rank, that gave the results.
    """

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.events: list[dict[str, Any]] = []
        self.keeps_events = True
        self.created = time.time()
        self._status = "queued"
        self.homes: list[str] = []
        self._future: Future[Any] = Future()
        self._future.set_running_or_notify_cancel()  # nobody ends it but the gang
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cancel: Callable[[], object] | None = None
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._guard = threading.Lock()
        self.outbox = Outbox()

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
        self._check_thread()
        return self._future.result(timeout)

    async def wait(self) -> Any:
        """Like :meth:`result`, to be awaited in a notebook or a callback.

        Cancelling the wait leaves the launch running; :meth:`cancel` ends it.
        """
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def exception(self) -> BaseException | None:
        """The error it ended with; None if it succeeded. Waits for the end."""
        self._check_thread()
        return self._future.exception()

    def cancel(self) -> bool:
        """Ask all ranks to stop; returns False if it had ended already."""
        if self.done():
            return False
        if self._cancel is not None:
            self._cancel()
        return True

    def send(self, message: Any) -> None:
        """Send a message to every rank, which finds it in ``ctx.messages()``; from any thread.

        It is not waited for. Messages arrive in the order in which they were sent; those sent
        while the launch waits for its turn are there when it begins. A rank that enters an elastic
        launch later gets those that are sent from then on.

        Parameters
        ----------
        message : None, bool, int, float, str, list or dict
            A plain value.

        Raises
        ------
        TypeError
            The message is not plain.
        RuntimeError
            The launch has ended: nobody would read it.
        """
        check_message(message)
        if not self.outbox.put(message):
            raise RuntimeError(
                f"launch {self.number} ({self.name}) has ended ({self._status}): a message would "
                "reach nobody"
            )

    def on_event(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call `listener` for every event from now on, on Dask's thread.

        It must not wait for anything there. What it raises is logged and otherwise ignored.
        """
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
            if self.keeps_events:
                self.events.extend(events)
            listeners = tuple(self._listeners)
        for event in events:
            for listener in listeners:
                try:
                    listener(event)
                except Exception:
                    _log.exception("a listener of %r failed", self)

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """End the launch."""
        if self._future.done():
            return
        self.outbox.close()
        if error is not None:
            cancelled = isinstance(error, LaunchCancelled)
            self._status = "cancelled" if cancelled else f"failed: {type(error).__name__}"
            self._future.set_exception(error)
        else:
            self._status = "done"
            self._future.set_result(value)

    def _check_thread(self) -> None:
        if self._loop is not None and asyncio._get_running_loop() is self._loop and not self.done():
            raise RuntimeError(
                "waiting for a launch in a callback on Dask's thread would stop that thread, which "
                "the launch needs: use add_done_callback, or await launch.wait()"
            )
