"""One trial of a study on real workers."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dtoolkit.cluster import Cluster
from dtoolkit.errors import LaunchTimeout, RankError, ReplicaMismatch, WorkerLost
from dtoolkit.training.run import Run
from dtoolkit.training.study.memory import PeakMemory
from dtoolkit.training.study.plan import StudyPlan
from dtoolkit.training.study.setting import Setting
from dtoolkit.training.study.trials import Measurement, Trial
from dtoolkit.training.train import submit_training

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.training.training import Training

__all__ = ["Measuring"]

# How a trial may fail without that all others would.
_FAILURES = (
    FloatingPointError,
    RankError,
    WorkerLost,
    LaunchTimeout,
    ReplicaMismatch,
    MemoryError,
    TypeError,
    ValueError,
)


class Measuring:
    """Trains settings on the first so many workers of a cluster, one trial after the other.

    Each number of workers has a cluster of its own on the same workers, whose launches take turns
    with those of the cluster given.

    Parameters
    ----------
    cluster : Cluster
    plan : StudyPlan
    """

    def __init__(self, cluster: Cluster, plan: StudyPlan) -> None:
        self._whole, self._plan = cluster, plan
        self._parts: dict[int, Cluster] = {}
        self._warm: set[tuple[str, int, str]] = set()
        self._runs: dict[Setting, Run] = {}  # of the rivals that are trained now
        self._now: Training | None = None
        self._cancelled = False

    def measure(self, trial: Trial) -> Measurement:
        """Train a setting on, or from its beginning, until it has seen its share of the samples.

        Raises
        ------
        LaunchCancelled, ClusterClosed, ClusterTooSmall
            No other trial would do better.
        """
        setting = trial.setting
        steps = self._plan.steps(setting, trial.share)
        before = self._resumable(setting, steps)
        watch = PeakMemory()
        try:
            self._warm_up(setting)
            run = self._train(setting, steps, before, watch)
        except _FAILURES as error:
            return Measurement(0, 0, None, None, None, None, error=_words(error))
        self._runs[setting] = run
        return _measured(run, setting, steps, watch.most)

    def cancel(self) -> None:
        """End the training that goes on."""
        self._cancelled = True
        if self._now is not None:
            self._now.cancel()

    def close(self) -> None:
        """Give the parts of the cluster back."""
        for part in self._parts.values():
            part.close()
        self._parts.clear()

    def _resumable(self, setting: Setting, steps: int) -> Run | None:
        """What the setting's last round ended with; runs of other rivals are forgotten."""
        rivals = setting.rivals
        self._runs = {one: run for one, run in self._runs.items() if one.rivals == rivals}
        run = self._runs.get(setting)
        return run if run is not None and run.state.step < steps else None

    def _warm_up(self, setting: Setting) -> None:
        """Let the workers import, load and compile what the first run takes beside its steps."""
        kind = (setting.model, setting.workers, setting.strategy)
        if kind not in self._warm:
            self._train(setting, 2, None, None)
            self._warm.add(kind)

    def _train(
        self, setting: Setting, steps: int, resume: Run | None, watch: PeakMemory | None
    ) -> Run:
        axes = self._plan.axes
        task = next(model.task for model in axes.models if model.name == setting.model)
        way = next(way for way in axes.ways if way.name == setting.strategy)
        cluster = self._part(setting.workers)
        with cluster.instrumented(*([] if watch is None else [watch])):
            self._now = submit_training(
                cluster,
                task,
                way.strategy,
                steps=steps,
                seed=self._plan.seed,
                batch=setting.batch,
                accumulate=setting.accumulate,
                optimizer=_optimizer(task, setting.learning_rate),
                resume=resume,
            )
        try:
            if self._cancelled:
                self._now.cancel()
            return self._now.result()
        finally:
            self._now = None
            cluster.trace.clear()

    def _part(self, workers: int) -> Cluster:
        if workers not in self._parts:
            whole = self._whole
            self._parts[workers] = Cluster(
                client=whole.client,
                workers=workers,
                timeout=whole.timeout,
                emulate=None if whole.emulate is None else whole.emulate.with_ranks(workers),
            )
        return self._parts[workers]


def _optimizer(task: Any, rate: float | None) -> Any:
    return None if rate is None else partial(_with_rate, task.optimizer, rate)


def _with_rate(make: Any, rate: float, parameters: Any) -> torch.optim.Optimizer:
    """What the task makes, with another learning rate in all groups of parameters."""
    optimizer: torch.optim.Optimizer = make(parameters)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


def _measured(run: Run, setting: Setting, steps: int, memory: int | None) -> Measurement:
    history = run.history
    scores = run.scores()
    loss = scores.get("test_loss")
    sent = float(history["bytes"].sum()) / max(1, len(history)) / setting.workers
    return Measurement(
        steps=steps,
        samples=steps * setting.batch if not len(history) else _samples(run, setting),
        loss=_last_loss(history) if loss is None else loss,
        samples_per_second=_speed(history, setting.workers),
        bytes=sent,
        memory=memory,
        state=max(run.summary.get("memory_bytes", ()), default=None),
    )


def _samples(run: Run, setting: Setting) -> int:
    """Samples used: those of this part of the run, and as many a step before it."""
    history = run.history
    used = int(history["samples"].sum())
    earlier = run.state.step - len(history)
    return used + max(0, round(earlier * used / len(history)))


def _last_loss(history: pd.DataFrame) -> float:
    """Mean over the samples of the last tenth of the steps; NaN without any."""
    last = history.tail(max(1, len(history) // 10))
    used = float(last["samples"].sum())
    return float((last["loss"] * last["samples"]).sum()) / used if used else math.nan


def _speed(history: pd.DataFrame, workers: int) -> float | None:
    """Samples a second of all workers, from the end of the first step of the slowest."""
    ends = history[[f"end_{rank}" for rank in range(workers)]].to_numpy(float)
    if len(ends) < 2:
        return None
    # Where workers run free, some have made more steps than others.
    began, used = np.nanmax(ends[0]), history["samples"].iloc[1:].sum()
    seconds = float(np.nanmax(ends) - began)
    return float(used) / seconds if seconds > 0 else None


def _words(error: BaseException) -> str:
    """The error in a line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
