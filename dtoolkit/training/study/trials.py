"""What was measured so far, what is to be measured next, and what all of it says (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dtoolkit.training.study.halving import Rung, judge
from dtoolkit.training.study.plan import StudyPlan
from dtoolkit.training.study.setting import Setting

__all__ = ["Measurement", "Trial", "Verdicts", "next_trial", "verdicts"]


@dataclass(frozen=True)
class Trial:
    """One training of a study.

    Attributes
    ----------
    setting : Setting
    rung : int
        Round of the funnel, from 0.
    share : float
        Part of the samples that it has seen at its end, those of earlier rounds included.
    """

    setting: Setting
    rung: int
    share: float


@dataclass(frozen=True)
class Measurement:
    """What a trial gave (measured).

    Attributes
    ----------
    steps, samples : int
        At its end, those of earlier rounds included; samples really used.
    loss : float or None
        On the test set, if the task has one, else of the training samples of the last tenth of the
        steps. None: it failed.
    samples_per_second : float or None
        Of all workers, from the end of the first step.
    bytes : float or None
        That a worker sent in a step, in the mean.
    memory : float or None
        Bytes: the most that a worker's process had above what it had before the run, of the worker
        with most; None where the system does not tell.
    state : float or None
        Bytes of weights, gradients and the optimizer's state that the worker with most holds
        between steps, where the strategy counts them.
    error : str
        Why it failed.
    """

    steps: int
    samples: int
    loss: float | None
    samples_per_second: float | None
    bytes: float | None
    memory: float | None
    state: float | None = None
    error: str = ""


Measured = Mapping[tuple[Setting, int], Measurement]


@dataclass(frozen=True)
class Verdicts:
    """How a group of rivals stands.

    Attributes
    ----------
    open : Trial or None
        What is to be measured next; None: nothing is.
    stopped : dict of Setting to str
        Those that stopped early, and why.
    """

    open: Trial | None
    stopped: dict[Setting, str]


def verdicts(group: tuple[Setting, ...], funnel: tuple[Rung, ...], measured: Measured) -> Verdicts:
    """Go through the rounds of a group as far as it was measured."""
    alive, stopped = list(group), dict[Setting, str]()
    for number, rung in enumerate(funnel):
        for setting in alive:
            if (setting, number) not in measured:
                return Verdicts(Trial(setting, number, rung.share), stopped)
        found = [measured[setting, number] for setting in alive]
        keep = rung.keep if number + 1 < len(funnel) else len(alive)
        verdict = judge([one.loss for one in found], keep, [_rate(setting) for setting in alive])
        for place, why in verdict.stopped.items():
            after = f"after {found[place].samples:,} samples"
            stopped[alive[place]] = found[place].error or f"{after}: {why}"
        alive = [alive[place] for place in verdict.going_on]
    return Verdicts(None, stopped)


def next_trial(plan: StudyPlan, measured: Measured) -> Trial | None:
    """What is to be measured next; None once the study is through."""
    return next(_open(plan, measured), None)


def _open(plan: StudyPlan, measured: Measured) -> Iterator[Trial]:
    for group in plan.groups:
        trial = verdicts(group, plan.funnel(len(group)), measured).open
        if trial is not None:
            yield trial


def _rate(setting: Setting) -> str:
    rate = setting.learning_rate
    return "the task's learning rate" if rate is None else f"learning rate {rate:g}"
