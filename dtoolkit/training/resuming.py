"""What a run goes on from, and whether it fits what is asked for now.

A run goes on with what it began with: strategy and its settings, optimizer, schedule, compression,
batch norm, partition, batch, micro-batches and seed. Steps, evaluations, checkpoints, faults and
time limits may change. Who wants another learning rate begins a new run whose model is the saved
one: a ``task.model`` that makes the model and loads ``run.state.model``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dtoolkit.training.sparse import shapes_after
from dtoolkit.training.state import RunState
from dtoolkit.training.terms import differing, differing_partition, partition_terms

if TYPE_CHECKING:
    from dtoolkit.training.settings import Settings
    from dtoolkit.training.strategy import Strategy
    from dtoolkit.training.trial import Trial

__all__ = ["check_resumed", "state_to_resume"]


def state_to_resume(resume: Any) -> RunState | None:
    """The state that ``resume=`` names: a run, a state, or a file of either.

    Raises
    ------
    TypeError
        It is something else.
    FileNotFoundError, ValueError
        The file is not there, or holds no state.
    """
    if resume is None or isinstance(resume, RunState):
        return resume
    if isinstance(resume, str | os.PathLike):
        return RunState.load(resume)
    state = getattr(resume, "state", None)
    if isinstance(state, RunState):
        return state
    raise TypeError(
        f"resume is {type(resume).__name__}: wanted a Run, or the path of a saved run or checkpoint"
    )


def check_resumed(
    state: RunState, strategy: Strategy, settings: Settings, trial: Trial, *, ranks: int
) -> None:
    """Refuse to go on from a state with something else than it was made with.

    Raises
    ------
    ValueError
        The text names what differs, and both values.
    """
    if state.strategy != strategy.name:
        raise _differs("strategy", repr(state.strategy), repr(strategy.name))
    if state.seed != settings.seed:
        raise _differs("seed", state.seed, settings.seed)
    if settings.steps <= state.step:
        raise ValueError(
            f"steps={settings.steps} is the total, and the saved run has done {state.step} "
            f"already: ask for more than {state.step}"
        )
    if state.own and state.workers != ranks:
        raise ValueError(
            f"resume: the saved run was made by {state.workers} workers, this cluster has {ranks}, "
            f"and with {strategy.name} each worker has a state of its own: resume on "
            f"{state.workers} workers"
        )
    _check_model(state, trial)
    _check_sampler(state, settings, trial)
    if (state.schedule is not None) != bool(trial.schedule):
        had, has = ("one", "none") if state.schedule is not None else ("none", trial.schedule)
        raise _differs("schedule", had, has)
    saved = {name for group in state.optimizer.get("groups", ()) for name in group}
    if saved - trial.options:
        raise ValueError(
            f"resume: the optimizer of the saved run has {', '.join(sorted(saved - trial.options))}"
            f", which {trial.optimizer} does not have: a run goes on with what it began with"
            f"{_ANEW}"
        )
    _check_terms(state, settings, ranks)


def _check_terms(state: RunState, settings: Settings, ranks: int) -> None:
    """Hold what the run was asked for against what is asked now."""
    saved, here = state.terms, settings.terms
    if not saved:
        raise ValueError(
            "resume: the saved run is of an earlier version, which did not keep what it was asked "
            "for, so that nobody can tell whether it would go on as it began: begin a new run with "
            "a task.model that loads run.state.model"
        )
    found = differing(saved["strategy"], here["strategy"], by_class=False)
    if found is not None:
        raise _differs("strategy", *found)
    for name in ("optimizer", "schedule"):
        found = differing(saved[name], here[name])
        if found is not None:
            raise _differs(name, *found, hint=_ANEW)
    found = differing(saved["compression"], here["compression"])
    if found is not None:
        raise _differs("compression", *found)
    found = differing(saved.get("sparsity"), here["sparsity"])
    if found is not None:
        raise _differs("sparsity", *found)
    if saved["batch_norm"] != here["batch_norm"]:
        raise _differs("batch_norm", repr(saved["batch_norm"]), repr(here["batch_norm"]))
    partition = partition_terms(settings.partition, state.sampler["samples"], ranks)
    found = differing_partition(saved["partition"], partition, same_ranks=state.workers == ranks)
    if found is not None:
        raise _differs("partition", *found)


def _check_model(state: RunState, trial: Trial) -> None:
    saved = {name: (tuple(v.shape), str(v.dtype)) for name, v in state.model.items()}
    here = shapes_after(trial.shapes, state.sparsity.get("cuts", ()))
    for name in dict.fromkeys([*saved, *here]):
        if saved.get(name) != here.get(name):
            raise ValueError(
                f"resume: the saved model has {_tensor(name, saved.get(name))}, and the task's "
                f"model has {_tensor(name, here.get(name))}"
            )


def _check_sampler(state: RunState, settings: Settings, trial: Trial) -> None:
    saved = state.sampler
    if trial.samples is not None and saved["samples"] != trial.samples:
        raise _differs("samples in the training set", saved["samples"], trial.samples)
    batch = settings.batch if settings.batch is not None else saved["batch"]
    batch = min(batch, saved["samples"])
    if saved["batch"] != batch:
        raise _differs("batch", saved["batch"], batch)
    if saved["accumulate"] != settings.accumulate:
        raise _differs("accumulate", saved["accumulate"], settings.accumulate)


def _tensor(name: str, kind: tuple[tuple[int, ...], str] | None) -> str:
    return f"no {name!r}" if kind is None else f"{name!r} of shape {kind[0]} and {kind[1]}"


_ANEW = (
    "; with another optimizer or schedule begin a new run from its weights, with a task.model that "
    "makes the model and loads run.state.model"
)


def _differs(what: str, saved: Any, here: Any, *, hint: str = "") -> ValueError:
    return ValueError(
        f"resume: {what} of the saved run is {saved}, and {here} here: a run goes on with what it "
        f"began with{hint}"
    )
