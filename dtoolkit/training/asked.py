"""What a training run is asked for, checked on the client before anything is sent."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from dtoolkit.cluster import Cluster
from dtoolkit.faults.fault import Fault
from dtoolkit.faults.injection import Injection
from dtoolkit.training.checkpoint import Checkpoint
from dtoolkit.training.loop import Job
from dtoolkit.training.recovery.policies import policy_of
from dtoolkit.training.recovery.policy import Policy
from dtoolkit.training.resuming import check_resumed, state_to_resume
from dtoolkit.training.settings import Settings
from dtoolkit.training.sparse import recipe_of
from dtoolkit.training.state import RunState
from dtoolkit.training.strategy import Strategy
from dtoolkit.training.task import check_task
from dtoolkit.training.terms import Stepping, terms_of
from dtoolkit.training.trial import Trial, try_task

__all__ = ["Asked", "injection_of", "job_of", "strategy_of"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Arguments of :func:`dtoolkit.train`, as they came."""

    task: Any
    strategy: Any
    steps: Any
    seed: Any
    batch: Any
    accumulate: Any
    partition: Any
    optimizer: Any
    schedule: Any
    compression: Any
    batch_norm: Any
    faults: Any
    recovery: Any
    deadline: Any
    checkpoint: Any
    resume: Any
    evaluate_every: Any
    sparsity: Any


def job_of(cluster: Cluster, asked: Asked) -> Job:
    """What the ranks are told, once all of it makes sense.

    Raises
    ------
    TypeError, ValueError
        An argument does not; the text names it.
    """
    if not isinstance(cluster, Cluster):
        raise TypeError(f"cluster is {type(cluster).__name__}: wanted a dtoolkit.Cluster")
    check_task(asked.task)
    strategy = strategy_of(asked.strategy)
    policy = policy_of(asked.recovery)
    state = state_to_resume(asked.resume)
    settings = _settings(asked, state)
    ranks = cluster.size
    injected = tuple(fault for fault in _listed(asked.faults) if isinstance(fault, Fault))
    for fault in (*settings.faults, *injected):
        check = getattr(fault, "check", None)
        if check is not None:
            check(ranks)
    strategy.check(settings)
    _check_sparsity(strategy, settings, policy)
    _check_batch_norm(strategy, settings)
    settings, trial = _tried(asked.task, strategy, settings, ranks)
    policy.check(strategy, settings, batch_norm=trial.batch_norm, ranks=ranks)
    if state is not None:
        state = state.for_workers(ranks)
        check_resumed(state, strategy, settings, trial, ranks=ranks)
    checkpoint = Checkpoint.of(asked.checkpoint)
    if checkpoint is not None:
        checkpoint = checkpoint.located(here=cluster.is_local)
    return Job(
        asked.task,
        strategy,
        settings,
        state=state,
        checkpoint=checkpoint,
        about=_about(asked.task, strategy, settings, trial, ranks, policy, injected),
        policy=policy,
        deadline=_deadline(asked.deadline, policy),
    )


def strategy_of(value: Any) -> Strategy:
    """A strategy by its name, or the object itself.

    Raises
    ------
    ValueError
        No strategy has this name; the text lists those there are.
    TypeError
        It is neither a name nor a strategy.
    """
    from dtoolkit.training.strategies import STRATEGIES

    if isinstance(value, str):
        if value not in STRATEGIES:
            raise ValueError(
                f"strategy={value!r}: there is no such strategy; wanted one of "
                f"{', '.join(STRATEGIES)}, or a Strategy"
            )
        made: Strategy = STRATEGIES[value]()
        return made
    if isinstance(value, Strategy):
        return value
    hint = f"; make one of it: {value.__name__}()" if isinstance(value, type) else ""
    raise TypeError(
        f"strategy is {value!r}: wanted one of {', '.join(STRATEGIES)}, or a "
        f"dtoolkit.training.Strategy{hint}"
    )


def _tried(task: Any, strategy: Strategy, settings: Settings, ranks: int) -> tuple[Settings, Trial]:
    """Try the task; the settings with what optimizer and schedule were when they were made."""
    stepping = Stepping()
    make = settings.optimizer or task.optimizer
    plan = settings.schedule or getattr(task, "schedule", None)
    watched = replace(
        settings,
        optimizer=stepping.made_by_optimizer(make),
        schedule=None if plan is None else stepping.made_by_schedule(plan),
    )
    trial = try_task(task, watched, ranks=ranks, shards=strategy.shards)
    return replace(settings, terms=terms_of(strategy, settings, stepping)), trial


def _settings(asked: Asked, state: RunState | None) -> Settings:
    seed, batch = asked.seed, asked.batch
    if state is not None:  # what is not said is as it was
        seed = state.seed if seed is None else seed
        batch = state.sampler.get("batch") if batch is None else batch
    for name in ("optimizer", "schedule"):
        value = getattr(asked, name)
        if value is not None and not callable(value):
            takes = "parameters" if name == "optimizer" else "the optimizer"
            raise TypeError(
                f"{name} is {value!r}: wanted a callable that takes {takes} and makes one, such "
                "as functools.partial(torch.optim.Adam, lr=0.01)"
            )
    steps, recipe = _whole("steps", asked.steps, 1), recipe_of(asked.sparsity)
    if recipe is not None:
        recipe = recipe.over(steps, None if state is None else state.terms.get("sparsity"))
    return Settings(
        steps=steps,
        seed=_whole("seed", 0 if seed is None else seed, None),
        batch=None if batch is None else _whole("batch", batch, 1),
        accumulate=_whole("accumulate", asked.accumulate, 1),
        partition=asked.partition,
        optimizer=asked.optimizer,
        schedule=asked.schedule,
        compression=_compressor(asked.compression),
        faults=_faults(asked.faults),
        batch_norm=_batch_norm(asked.batch_norm),
        evaluate_every=(
            None
            if asked.evaluate_every is None
            else _whole("evaluate_every", asked.evaluate_every, 1)
        ),
        sparsity=recipe,
    )


def _whole(name: str, value: Any, least: int | None) -> int:
    wanted = "an integer" if least is None else f"an integer of at least {least}"
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        raise (TypeError if number is None else ValueError)(f"{name}={value!r}: wanted {wanted}")
    return number


def _compressor(value: Any) -> Any:
    if value is None:
        return None
    from dtoolkit.training.compression import as_compressor

    return as_compressor(value)


def _batch_norm(value: Any) -> str | None:
    if value is not None and value not in ("sync", "local"):
        raise ValueError(
            f"batch_norm={value!r}: wanted 'sync' (statistics of all workers' samples), 'local' "
            "(each worker its own), or None for the strategy's choice"
        )
    return None if value is None else str(value)


def _check_batch_norm(strategy: Strategy, settings: Settings) -> None:
    """Refuse joint statistics where workers do not step together: they would wait for ever."""
    if settings.batch_norm == "sync" and strategy.batch_norm == "local":
        raise ValueError(
            f"batch_norm='sync': with {strategy.name} workers do not step together, and have no "
            "joint batch whose statistics these could be; it has 'local' alone"
        )


def _check_sparsity(strategy: Strategy, settings: Settings, policy: Policy) -> None:
    """Refuse sparsity where ranks would not keep the same masks or shapes."""
    recipe = settings.sparsity
    if recipe is None:
        return
    if not (strategy.cuts if recipe.cuts else strategy.masks):
        from dtoolkit.training.strategies import STRATEGIES

        what, attribute = ("cuts channels", "cuts") if recipe.cuts else ("masks weights", "masks")
        fitting = [name for name, kind in STRATEGIES.items() if getattr(kind, attribute)]
        raise ValueError(
            f"sparsity: {recipe} {what}, which all workers must do alike, and with "
            f"{strategy.name} they cannot; wanted strategy={' or '.join(map(repr, fitting))}"
        )
    if settings.compression is not None:
        raise ValueError(
            f"sparsity: live values travel as they are, and compression={settings.compression!r} "
            "would choose among masked ones as well; wanted one of the two"
        )
    if policy.elastic:
        raise ValueError(
            f"sparsity: recovery={policy.name!r} hands over dense states; wanted recovery='abort' "
            "or 'restart'"
        )


def _faults(value: Any) -> tuple[Any, ...]:
    """What makes workers slow; :func:`injection_of` has the others."""
    return tuple(fault for fault in _listed(value) if not isinstance(fault, Fault))


def injection_of(value: Any) -> Injection | None:
    """The faults of ``faults=`` that strike at a point; None if there are none."""
    faults = [fault for fault in _listed(value) if isinstance(fault, Fault)]
    return Injection(faults) if faults else None


def _listed(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    one = isinstance(value, Fault | str) or hasattr(value, "pause")
    one = one or not isinstance(value, Iterable)
    faults = (value,) if one else tuple(value)
    for fault in faults:
        if not isinstance(fault, Fault) and not callable(getattr(fault, "pause", None)):
            raise TypeError(
                f"faults: {fault!r} is no fault; wanted those of dtoolkit.faults, such as "
                "Kill(rank=2, at_step=5) or Slow(rank=1, factor=3)"
            )
    return faults


def _deadline(value: Any, policy: Policy) -> float | None:
    if value is None or value == -1:
        return policy.deadline if value == -1 else None
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 0 < float(value) < math.inf:
        raise ValueError(f"deadline={value!r}: wanted seconds above 0, or None")
    return float(value)


def _about(
    task: Any,
    strategy: Strategy,
    settings: Settings,
    trial: Trial,
    ranks: int,
    policy: Policy,
    injected: Sequence[Fault],
) -> dict[str, Any]:
    """What a run says of itself, in plain values."""
    cite = getattr(strategy, "cite", None)
    return {
        "task": str(getattr(task, "name", type(task).__name__)),
        "citation": str(getattr(task, "citation", "")),
        "faults": [repr(fault) for fault in settings.faults] + [str(one) for one in injected],
        "settings": {
            "strategy": strategy.name,
            "strategy_settings": repr(strategy),
            "workers": ranks,
            "steps": settings.steps,
            "seed": settings.seed,
            "batch": settings.batch or int(task.batch),
            "accumulate": settings.accumulate,
            "partition": _partition_text(settings.partition),
            "optimizer": trial.optimizer,
            "schedule": trial.schedule,
            "compression": "" if settings.compression is None else repr(settings.compression),
            "batch_norm": settings.batch_norm or strategy.batch_norm,
            "evaluate_every": settings.evaluate_every,
            "sparsity": "" if settings.sparsity is None else str(settings.sparsity),
            "recovery": policy.name,
            "citation": str(cite()) if callable(cite) else "",
        },
    }


def _partition_text(partition: Any) -> str:
    if partition is None or isinstance(partition, str):
        return partition or ""
    if isinstance(partition, Sequence) or hasattr(partition, "shape"):
        return f"a vector of {len(partition)} owners"
    return repr(partition)
