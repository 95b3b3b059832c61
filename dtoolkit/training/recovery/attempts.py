"""A launch that is made again from the run's checkpoint when it fails."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtoolkit.errors import LaunchCancelled, LaunchTimeout
from dtoolkit.training.ended import state_in
from dtoolkit.training.recovery.policy import not_finite
from dtoolkit.training.statefile import state_of

if TYPE_CHECKING:
    from dtoolkit.cluster import Launch
    from dtoolkit.training.loop import Job
    from dtoolkit.training.records import Records
    from dtoolkit.training.recovery.kept import Kept
    from dtoolkit.training.recovery.noted import Noted
    from dtoolkit.training.recovery.policy import Policy

__all__ = ["Attempts"]


class Attempts:
    """To its owner one launch, whatever fails in between; a thread watches and starts again.

    Parameters
    ----------
    begin : callable
        ``begin(job, seconds)`` starts a launch that has so many seconds.
    job : Job
    policy : Policy
    kept : Kept or None
        Where to go on; None: where the run began.
    records : Records
        Reports of the run; those of steps that are lost are forgotten.
    noted : Noted
        Told of each new beginning.
    seconds : float or None
        For all attempts together.

    Attributes
    ----------
    numbers : list of int
        The launches so far.
    earlier : float
        Seconds from the beginning of the first launch to that of the last one.
    events, keeps_events
        As of a launch.
    """

    def __init__(
        self,
        begin: Callable[[Job, float | None], Launch],
        job: Job,
        *,
        policy: Policy,
        kept: Kept | None,
        records: Records,
        noted: Noted,
        seconds: float | None,
    ) -> None:
        self._begin, self._job, self._policy = begin, job, policy
        self._kept, self._records, self._noted = kept, records, noted
        self._seconds = seconds
        self._guard = threading.Lock()
        self._future: Future[Any] = Future()
        self._future.set_running_or_notify_cancel()
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._sent: list[Any] = []
        self._cancelled = False
        self._again = ""  # in words, while the next attempt is prepared
        self._failures: tuple[Any, int] = (None, 0)  # the last one, and how often in a row
        self.numbers: list[int] = []
        self.earlier = 0.0
        self.events: list[dict[str, Any]] = []
        self.keeps_events = True
        self._started = time.perf_counter()
        self._launch = self._start(job)
        threading.Thread(target=self._watch, name="dtoolkit-recovery", daemon=True).start()

    @property
    def number(self) -> int:
        """That of the last launch."""
        return self._launch.number

    @property
    def status(self) -> str:
        """In words, as of a launch."""
        return self._again or self._launch.status

    def on_event(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call `listener` for every event of every attempt."""
        with self._guard:
            self._listeners.append(listener)

    def send(self, message: Any) -> None:
        """Send a message to the ranks of this attempt and of all that follow.

        Raises
        ------
        RuntimeError
            The last one has ended.
        """
        with self._guard:
            self._sent.append(message)
            try:
                self._launch.send(message)
            except RuntimeError:
                if self._future.done():
                    raise

    def cancel(self) -> bool:
        """End the attempt that runs, and make no other; False if all had ended already."""
        with self._guard:
            if self._future.done():
                return False
            self._cancelled = True
            self._launch.cancel()
            return True

    def done(self) -> bool:
        """Whether the last attempt has ended."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Any:
        """Results of the attempt that came through; as of a launch."""
        self._launch._check_thread()
        return self._future.result(timeout)

    async def wait(self) -> Any:
        """Like :meth:`result`, to be awaited."""
        return await asyncio.shield(asyncio.wrap_future(self._future))

    # ---------------------------------------------------------------------------- its thread

    def _watch(self) -> None:
        try:
            while True:
                try:
                    ended = self._launch.result()
                    state_in(ended)  # an elastic launch may have lost it after the last step
                except BaseException as error:
                    self._go_on_after(error)
                else:
                    self._noted.ended(time.perf_counter())
                    self._settle(value=ended)
                    return
        except BaseException as error:
            self._settle(error=error)

    def _go_on_after(self, error: BaseException) -> None:
        """Start again; raise the error where the policy does not, or it would be of no use."""
        seen, policy = time.perf_counter(), self._policy
        if self._cancelled and not isinstance(error, LaunchCancelled):
            raise LaunchCancelled(f"the run was cancelled after {error}") from error
        if not policy.restarts_after(error) or len(self.numbers) > policy.attempts:
            raise error
        reached = max(self._records.reached, _step_of(self._job))
        self._count(error, reached)
        self._again = f"starting again after {type(error).__name__}"
        job, content = self._next_job()
        self._records.forget(_step_of(job))
        if content is not None:
            self._records.unpack(content)
        self._noted.restarting(
            error, at=seen, reached=reached, again=_step_of(job), launch=self.number
        )
        launch = self._start(job)
        self.earlier = time.perf_counter() - self._started
        with self._guard:
            self._launch, self._again = launch, ""
            for message in self._sent:
                launch.send(message)
            if self._cancelled:
                launch.cancel()

    def _next_job(self) -> tuple[Job, dict[str, Any] | None]:
        """The job from the last checkpoint on, and the reports that lie in it."""
        parts = None if self._kept is None else self._kept.read()
        if parts is None:
            return self._job, None
        state = state_of(parts, "the checkpoint")
        content = parts.get("records")
        return replace(self._job, state=state, records=content), content

    def _count(self, error: BaseException, reached: int) -> None:
        """Raise the error where the same has come too often at the same step."""
        about = getattr(error, "cause", None) or getattr(error, "ranks", None)
        if not_finite(error):  # all ranks find it at once, and any of them may be heard first
            about = "not finite"
        failure = type(error), about, reached
        before, times = self._failures
        times = times + 1 if failure == before else 1
        self._failures = failure, times
        if times >= self._policy.repeats:
            error.add_note(
                f"the run was started again {len(self.numbers) - 1} times, and this came {times} "
                f"times after {reached} steps"
            )
            raise error

    def _start(self, job: Job) -> Launch:
        left = None
        if self._seconds is not None:
            left = self._seconds - (time.perf_counter() - self._started)
            if left <= 0:
                raise LaunchTimeout(
                    ranks=[],
                    addresses=[],
                    timeout=self._seconds,
                    operation="training",
                    detail="the time was over before it could start again",
                )
        launch = self._begin(job, left)
        self.numbers.append(launch.number)
        launch.on_event(self._take)
        launch.keeps_events = False
        for event in launch.events:  # what came before; to hear a report twice does no harm
            self._take(event)
        return launch

    def _take(self, event: dict[str, Any]) -> None:
        with self._guard:
            if self.keeps_events:
                self.events.append(event)
            listeners = tuple(self._listeners)
        self._noted.take(event)
        for listener in listeners:
            listener(event)

    def _settle(self, *, value: Any = None, error: BaseException | None = None) -> None:
        if self._kept is not None:
            self._kept.close()
        self._again = ""
        if error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)


def _step_of(job: Job) -> int:
    return 0 if job.state is None else job.state.step
