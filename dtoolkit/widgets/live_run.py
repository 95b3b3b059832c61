"""A training that a panel shows while it goes on, and stops so that it can be resumed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from dtoolkit.training import Run, Training
from dtoolkit.widgets.work import Job, Throttle

__all__ = ["LiveRun"]

_PATIENCE = 10.0  # seconds for ranks to meet after a stop, before the run is ended


class LiveRun:
    """One training under a panel.

    Parameters
    ----------
    training : Training
    changed : callable
        Called on the panel's loop when steps have come, at most every 0.2 s.

    Attributes
    ----------
    training : Training
    run : Run or None
        How it ended; a part of it where it was stopped.
    """

    def __init__(self, training: Training, changed: Callable[[], object]) -> None:
        self.training = training
        self.run: Run | None = None
        self._changed = Throttle(changed, 0.2)
        self._ending: asyncio.Task[None] | None = None

    async def follow(self, job: Job) -> Run:
        """Wait for the end, and tell of what comes meanwhile.

        Where the job is stopped, the ranks are asked to end where they meet next, and the run is
        there after :meth:`ended`.

        Raises
        ------
        Exception
            What the training failed with.
        """
        self.training.on_step(lambda row: job.from_thread(self._changed))
        try:
            self.run = await self.training.wait()
        except asyncio.CancelledError:
            self._pause()
            raise
        return self.run

    async def ended(self) -> Run | None:
        """Wait until a run that was stopped has ended; None where it left no result."""
        if self._ending is not None:
            await asyncio.wait([self._ending])
        return self.run

    def _pause(self) -> None:
        """Ask for an end that can be resumed; nobody waits for it here."""
        self.training.stop()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the kernel ends
            self._ending = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        try:
            self.run = await asyncio.wait_for(self.training.wait(), _PATIENCE)
        except Exception:  # it hangs, or has failed since: there is nothing to resume
            self.training.cancel()

    def cancel(self) -> None:
        """End it now, without a result."""
        self.training.cancel()
