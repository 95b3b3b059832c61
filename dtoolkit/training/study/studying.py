"""A study as its owner sees it while it goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtoolkit.training.study.measuring import Measuring
from dtoolkit.training.study.plan import StudyPlan
from dtoolkit.training.study.result import Study
from dtoolkit.training.study.setting import Setting
from dtoolkit.training.study.studyfile import read_study, write_study
from dtoolkit.training.study.trials import Measurement, Trial, next_trial

if TYPE_CHECKING:
    from dtoolkit.cluster import Cluster

__all__ = ["StudyProgress", "Studying"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is, told after each trial.

    Attributes
    ----------
    done, most : int
        Trials that are done, and that there are at most.
    trial : Trial
        The one that has ended.
    measurement : Measurement
    """

    done: int
    most: int
    trial: Trial
    measurement: Measurement

    def __str__(self) -> str:
        one = self.measurement
        what = one.error or f"loss {one.loss:.4g} after {one.samples:,} samples"
        return f"{self.done:,} of at most {self.most:,} trials: {self.trial.setting}: {what}"


class Studying:
    """A study that goes on; :func:`dtoolkit.training.study.submit_study` gives one.

    Attributes
    ----------
    plan : StudyPlan
    """

    def __init__(
        self,
        cluster: Cluster | None,
        plan: StudyPlan,
        *,
        file: str | os.PathLike[str] | None = None,
        on_progress: Callable[[StudyProgress], object] | None = None,
    ) -> None:
        self.plan = plan
        self._cluster, self._file = cluster, file
        self._measured: dict[tuple[Setting, int], Measurement] = {}
        if file is not None:
            self._measured = read_study(file, plan)
            write_study(file, plan, self._measured)  # a place that takes no file is found now
        self._listeners = [] if on_progress is None else [on_progress]
        self._guard = threading.Lock()
        self._stop = False
        self._trial: Trial | None = None
        self._measuring = None if cluster is None else Measuring(cluster, plan)
        self._future: Future[Study] = Future()
        self._future.set_running_or_notify_cancel()
        threading.Thread(target=self._run, name="dtoolkit-study", daemon=True).start()

    @property
    def study(self) -> Study:
        """What is known so far."""
        with self._guard:
            return Study(self.plan, dict(self._measured))

    @property
    def done_trials(self) -> int:
        """Trials that are done, those of a file included."""
        with self._guard:
            return len(self._measured)

    @property
    def status(self) -> str:
        """In words: what is measured now, or how it ended."""
        if self._future.done():
            error = self._future.exception()
            if error is not None:
                return f"failed: {type(error).__name__}"
            return "done" if self._future.result().complete else "stopped"
        trial, most = self._trial, self.plan.trials
        what = "" if trial is None else f": {trial.setting}"
        return f"{self.done_trials:,} of at most {most:,} trials{what}"

    def stop(self) -> bool:
        """Ask it to end after the trial that goes on; returns False if it had ended already."""
        self._stop = True
        return not self._future.done()

    def cancel(self) -> bool:
        """End it now, without a result; what was measured is in its file.

        Returns
        -------
        bool
            False if it had ended already.
        """
        running = self.stop()
        if running and self._measuring is not None:
            self._measuring.cancel()
        return running

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> Study:
        """Wait for the end and return what was found; of a study that was stopped, a part.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait here; the study itself goes on after that.

        Raises
        ------
        LaunchCancelled, ClusterClosed, ClusterTooSmall
            How it ended early.
        OSError
            Its file could not be written.
        TimeoutError
            It has not ended within `timeout`.
        """
        return self._future.result(timeout)

    async def wait(self) -> Study:
        """Like :meth:`result`, to be awaited in a notebook or a callback."""
        return await asyncio.shield(asyncio.wrap_future(self._future))

    def on_progress(self, listener: Callable[[StudyProgress], object]) -> None:
        """Call `listener` after each trial from now on, on the study's own thread.

        What it raises is logged and otherwise ignored.
        """
        with self._guard:
            self._listeners.append(listener)

    def __repr__(self) -> str:
        return f"<Studying: {len(self.plan.entries):,} settings, {self.status}>"

    def _run(self) -> None:
        try:
            self._measure()
            self._future.set_result(self.study)
        except BaseException as error:  # whoever waits for the result gets it
            self._future.set_exception(error)

    def _measure(self) -> None:
        measuring = self._measuring
        if measuring is None:
            return
        try:
            while not self._stop:
                self._trial = next_trial(self.plan, self._measured)
                if self._trial is None:
                    return
                self._take(self._trial, measuring.measure(self._trial))
        finally:
            measuring.close()

    def _take(self, trial: Trial, measurement: Measurement) -> None:
        with self._guard:
            self._measured[trial.setting, trial.rung] = measurement
            listeners = tuple(self._listeners)
            told = StudyProgress(len(self._measured), self.plan.trials, trial, measurement)
        if self._file is not None:
            write_study(self._file, self.plan, self._measured)
        for listener in listeners:
            try:
                listener(told)
            except Exception:
                _log.exception("a listener of %r failed", self)
