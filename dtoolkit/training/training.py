"""A training run as its owner sees it while it goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dtoolkit.errors import RankError, ReplicaMismatch
from dtoolkit.training.agreement import STOP
from dtoolkit.training.ended import state_in
from dtoolkit.training.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.cluster import Cluster, Launch
    from dtoolkit.training.ended import Ended
    from dtoolkit.training.loop import Job
    from dtoolkit.training.records import Records
    from dtoolkit.training.recovery.attempts import Attempts
    from dtoolkit.training.recovery.noted import Noted
    from dtoolkit.training.recovery.report import RecoveryReport

__all__ = ["Training"]

_log = logging.getLogger(__name__)


class Training:
    """A run that goes on; :func:`dtoolkit.submit_training` gives one.

    Attributes
    ----------
    launch : Launch or Attempts
        Attempts where the run is started again when it fails.
    steps : int
        Steps in all.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        launch: Launch | Attempts,
        *,
        records: Records,
        noted: Noted,
    ) -> None:
        self.launch = launch
        self.steps = job.settings.steps
        self._trace = cluster.trace
        self._about = job.about
        self._began = 0 if job.state is None else job.state.step
        self._records, self._noted = records, noted
        self._guard = threading.Lock()
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._run: Run | None = None
        launch.on_event(self._take)
        launch.keeps_events = (
            False  # a report as an event is eight times as large as in the records
        )
        for event in launch.events:  # what came before; to hear a report twice does no harm
            self._take(event)
        launch.events.clear()

    @property
    def history(self) -> pd.DataFrame:
        """The history so far, as :class:`~dtoolkit.training.run.Run` describes it."""
        return self._records.frame()

    @property
    def recoveries(self) -> RecoveryReport:
        """What has gone wrong so far, and how the run went on."""
        return self._noted.report()

    @property
    def step(self) -> int:
        """Steps that are done, those of the run that was resumed included."""
        return self._began + self._records.done

    @property
    def status(self) -> str:
        """In words: what it waits for, how far it is, or how it ended."""
        status = self.launch.status
        if not status.startswith("running"):
            return status
        done = self.step
        loss = ""
        if done > self._began:
            loss = f", loss {self._records.row(done - 1)['loss']:.4g}"
        return f"step {done:,} of {self.steps:,}{loss}, {status}"

    def stop(self) -> bool:
        """Ask the run to end where its ranks meet next; its result can be resumed.

        Returns
        -------
        bool
            False if it had ended already.
        """
        try:
            self.launch.send(STOP)
        except RuntimeError:
            return False
        return True

    def cancel(self) -> bool:
        """End the run now, without a result; returns False if it had ended already."""
        return self.launch.cancel()

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.launch.done()

    def result(self, timeout: float | None = None) -> Run:
        """Wait for the end and return the run.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait here; the run itself goes on after that.

        Raises
        ------
        FloatingPointError
            A loss or a gradient is not finite: where and when is in the text.
        ReplicaMismatch
            Ranks that must hold the same state do not.
        RankError, WorkerLost, LaunchTimeout, LaunchCancelled, ClusterTooSmall
            How else it failed.
        TimeoutError
            It has not ended within `timeout`.
        """
        try:
            ended = self.launch.result(timeout)
        except RankError as error:
            raise _plainly(error) from error
        return self._made(ended)

    async def wait(self) -> Run:
        """Like :meth:`result`, to be awaited in a notebook or a callback."""
        try:
            ended = await self.launch.wait()
        except RankError as error:
            raise _plainly(error) from error
        return self._made(ended)

    def on_step(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Call `listener` with the history's row of each step from now on, on Dask's thread.

        It must not wait for anything there. What it raises is logged and otherwise ignored.
        """
        with self._guard:
            self._listeners.append(listener)

    def __repr__(self) -> str:
        about = self._about
        return f"<Training: {about['task']} by {about['settings']['strategy']}, {self.status}>"

    def _take(self, event: dict[str, Any]) -> None:
        step = self._records.take(event)
        with self._guard:
            listeners = tuple(self._listeners)
        if step is None or not listeners:
            return
        row = self._records.row(step)
        for listener in listeners:
            try:
                listener(row)
            except Exception:
                _log.exception("a listener of %r failed", self)

    def _made(self, ended: list[Ended]) -> Run:
        with self._guard:
            if self._run is None:
                state, summary = state_in(ended)
                launches = getattr(self.launch, "numbers", None) or self.launch.number
                earlier = getattr(self.launch, "earlier", 0.0)
                self._run = Run(
                    state=state,
                    history=self._records.frame(partial=True),
                    trace=self._trace.filter(launch=launches),
                    summary=summary,
                    seconds=earlier + max(one.seconds for one in ended),
                    recoveries=self._noted.report(state),
                    **self._about,
                )
            return self._run


def _plainly(error: RankError) -> BaseException:
    """What a rank raised, where it says itself which rank and why; the error of the rank else."""
    cause = error.__cause__
    return cause if isinstance(cause, FloatingPointError | ReplicaMismatch) else error
