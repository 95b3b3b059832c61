"""How a study is planned: arguments are read, and every setting is measured, modelled, left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtoolkit.comm.amounts import bytes_text, plural
from dtoolkit.comm.network import Network
from dtoolkit.comm.units import size
from dtoolkit.training.asked import strategy_of
from dtoolkit.training.sharding.formulas import STAGES, memory
from dtoolkit.training.strategies.zero import Zero
from dtoolkit.training.study.cost import estimate
from dtoolkit.training.study.device import Device
from dtoolkit.training.study.plan import Place, Planned, StudyPlan
from dtoolkit.training.study.setting import Axes, Setting, Way, settings_of
from dtoolkit.training.study.sizes import ModelSize, model_of
from dtoolkit.training.tasks.options import count, number

if TYPE_CHECKING:
    from dtoolkit.cluster import Cluster

__all__ = ["plan_study"]

_PRECISIONS = ("mixed", "fp32")
_WHOLE = {"data-parallel": 0, "ordered": 0}  # strategies that cost what stage 0 does, in memory


def plan_study(
    cluster: Cluster | None,
    models: Any,
    *,
    workers: Sequence[int],
    stages: Sequence[int] = STAGES,
    strategies: Sequence[Any] | Any = (),
    micro_batches: Sequence[int] | int = (8,),
    learning_rates: Sequence[float] | float | None = None,
    batch: int | None = None,
    scaling: Sequence[str] | str = ("strong", "weak"),
    samples: int = 4096,
    eta: int = 3,
    tokens: int = 512,
    device: Any = None,
    network: Network | None = None,
    memory_limit: int | str | None = None,
    precision: str = "mixed",
    seed: int = 0,
) -> StudyPlan:
    """Plan a study without running anything; arguments as of :func:`dtoolkit.study`.

    Returns
    -------
    StudyPlan

    Raises
    ------
    TypeError, ValueError
        Naming the argument that makes no sense.
    """
    place = _place(cluster)
    sizes = _models(models, count("tokens", tokens), seed)
    axes = Axes(
        models=sizes,
        batches=tuple(_batch(model, batch) for model in sizes),
        workers=tuple(sorted(set(_counts("workers", workers)))),
        ways=_ways(stages, strategies),
        micro_batches=_counts("micro_batches", micro_batches),
        learning_rates=_rates(learning_rates),
        scaling=_scaling(scaling),
    )
    if not isinstance(network, Network | None):
        raise TypeError(f"network is {type(network).__name__}: wanted a dtoolkit.comm.Network")
    if precision not in _PRECISIONS:
        raise ValueError(f"precision={precision!r}: wanted one of {', '.join(_PRECISIONS)}")
    draft = StudyPlan(
        axes=axes,
        entries=(),
        samples=count("samples", samples),
        eta=count("eta", eta, 2),
        seed=seed,
        memory_limit=None if memory_limit is None else size(memory_limit, "memory_limit"),
        precision=precision,
        place=place,
        device=None if device is None else Device.of(device),
        network=network,
    )
    plan = replace(draft, entries=tuple(_entries(draft, cluster)))
    _check_something(plan)
    return plan


def _entries(plan: StudyPlan, cluster: Cluster | None) -> Iterable[Planned]:
    """Every setting once: with each learning rate where it is measured, else with none."""
    seen: set[Setting] = set()
    for model, setting in settings_of(plan.axes, plan.axes.learning_rates):
        reason = _not_measured(plan, model, setting, cluster)
        if reason == "":
            limit, whose = _limit(plan, measured=True)
            needed = _memory(model, setting, "fp32")
            if limit is None or needed <= limit:
                yield Planned(setting, "measured", "it fits the workers", True, needed)
                continue
            reason = _too_large(needed, limit, whose)
        if setting.rivals not in seen:
            seen.add(setting.rivals)
            yield _modelled(plan, model, setting.rivals, reason)


def _not_measured(
    plan: StudyPlan, model: ModelSize, setting: Setting, cluster: Cluster | None
) -> str:
    """Why a setting cannot be measured, whatever memory it takes; empty where it can."""
    if model.task is None:
        return "of the model only its size is known"
    if plan.place is None or cluster is None:
        return "there is no cluster"
    if setting.workers > plan.place.workers:
        return f"the cluster has {plural(plan.place.workers, 'worker')}"
    if not setting.divides:
        return _uneven(setting)
    if cluster.emulate is not None:
        try:
            cluster.emulate.with_ranks(setting.workers)
        except ValueError as error:
            return f"the emulated network: {error}"
    return ""


def _modelled(plan: StudyPlan, model: ModelSize, setting: Setting, reason: str) -> Planned:
    """Model a setting that cannot be measured, or say why that is impossible too."""
    if not setting.divides:
        return Planned(setting, "left out", _uneven(setting), False, float("nan"))
    if setting.stage is None:
        why = f"{reason}, and the cost model knows ZeRO's stages alone"
        return Planned(setting, "left out", why, False, float("nan"))
    needed = _memory(model, setting, plan.precision)
    if plan.device is None or plan.network is None:
        lacking = [n for n in ("device", "network") if getattr(plan, n) is None]
        why = f"{reason}, and to model it {' and '.join(f'{n}=' for n in lacking)} is needed"
        return Planned(setting, "left out", why, False, needed)
    try:
        network = plan.network.with_ranks(setting.workers)
    except ValueError as error:
        return Planned(setting, "left out", f"{reason}; network: {error}", False, needed)
    found = estimate(
        model,
        workers=setting.workers,
        stage=setting.stage,
        micro_batch=setting.micro_batch,
        accumulate=setting.accumulate,
        device=plan.device,
        network=network,
        precision=plan.precision,
    )
    limit, whose = _limit(plan, measured=False)
    if limit is None or needed <= limit:
        return Planned(setting, "modelled", reason, True, needed, found)
    why = f"{reason}; {_too_large(needed, limit, whose)}"
    return Planned(setting, "modelled", why, False, needed, found)


def _memory(model: ModelSize, setting: Setting, precision: str) -> float:
    stage = 0 if setting.stage is None else setting.stage
    state = memory(model.parameters, setting.workers, stage, precision=precision)
    return state + model.activation * setting.micro_batch


def _limit(plan: StudyPlan, *, measured: bool) -> tuple[int | None, str]:
    """The least limit of a worker's memory, and whose it is."""
    limits: list[tuple[int, str]] = []
    if plan.memory_limit is not None:
        limits.append((plan.memory_limit, "memory_limit"))
    if measured and plan.place is not None and plan.place.memory is not None:
        limits.append((plan.place.memory, "a worker"))
    if not measured and plan.device is not None:
        limits.append((int(plan.device.memory), f"the {plan.device.name}"))
    return min(limits) if limits else (None, "")


def _too_large(memory: float, limit: int, whose: str) -> str:
    return f"it needs {bytes_text(memory)} a worker, and {whose} has {bytes_text(limit)}"


def _uneven(setting: Setting) -> str:
    return (
        f"a batch of {setting.batch:,} is no whole number of {setting.workers:,} x "
        f"{setting.micro_batch:,} samples"
    )


def _check_something(plan: StudyPlan) -> None:
    """Refuse a study of which nothing would come, and say what it lacks."""
    if not plan.measured and not plan.modelled:
        setting, why = plan.left_out[0]
        raise ValueError(
            f"nothing of this study can be measured or modelled; the first of "
            f"{plural(len(plan.left_out), 'setting')}, {setting}: {why}"
        )


# ------------------------------------------------------------------------------- arguments


def _place(cluster: Any) -> Place | None:
    from dtoolkit.cluster import Cluster

    if cluster is None:
        return None
    if not isinstance(cluster, Cluster):
        raise TypeError(
            f"cluster is {type(cluster).__name__}: wanted a dtoolkit.Cluster, or None to model all"
        )
    members = cluster.workers
    limits = [member.memory for member in members if member.memory is not None]
    devices = ", ".join(sorted({member.device.partition(":")[0] for member in members}))
    emulated = "" if cluster.emulate is None else f", emulated: {cluster.emulate.name}"
    words = f"{plural(len(members), 'worker')} ({devices}{emulated})"
    return Place(len(members), min(limits) if limits else None, words)


def _models(models: Any, tokens: int, seed: int) -> tuple[ModelSize, ...]:
    if isinstance(models, Mapping):
        found = [model_of(v, name=str(k), tokens=tokens, seed=seed) for k, v in models.items()]
    else:
        many = isinstance(models, Iterable) and not isinstance(models, str)
        listed = list(models) if many else [models]
        found = [model_of(one, tokens=tokens, seed=seed) for one in listed]
    if not found:
        raise ValueError("models is empty: wanted at least one task or size")
    names = [model.name for model in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"models: {len(found)} are given, and {', '.join(twice)} names several: give a "
            'mapping, {"small": task, "large": task}'
        )
    return tuple(found)


def _batch(model: ModelSize, batch: int | None) -> int:
    if batch is not None:
        return count("batch", batch)
    if model.task is None:
        raise ValueError(
            f"batch=None: {model.name} is a size, which has no batch of its own: wanted the "
            "samples of a step on the least number of workers"
        )
    return count("task.batch", model.task.batch)


def _ways(stages: Any, strategies: Any) -> tuple[Way, ...]:
    found = []
    for stage in _listed(stages):
        if isinstance(stage, bool) or stage not in STAGES:
            raise ValueError(f"stages: {stage!r} is no stage of ZeRO: wanted some of 0, 1, 2, 3")
        found.append(Way(f"zero-{stage}", int(stage), Zero(stage=int(stage))))
    named = isinstance(strategies, Mapping)
    for own, one in strategies.items() if named else ((None, s) for s in _listed(strategies)):
        made = strategy_of(one)
        stage = getattr(made, "stage", None) if made.name == "zero" else _WHOLE.get(made.name)
        name = made.name if made.name != "zero" else f"zero-{stage}"
        found.append(Way(name if own is None else str(own), stage, made))
    names = [way.name for way in found]
    if len(set(names)) < len(names):
        raise ValueError(f"stages and strategies name one twice: {', '.join(names)}")
    if not found:
        raise ValueError("stages and strategies are both empty: wanted at least one of either")
    return tuple(found)


def _listed(values: Any) -> list[Any]:
    many = isinstance(values, Iterable) and not isinstance(values, str)
    return list(values) if many else [values]


def _counts(name: str, values: Any) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(count(name, value) for value in _listed(values)))
    if not found:
        raise ValueError(f"{name} is empty: wanted at least one number")
    return found


def _rates(values: Any) -> tuple[float | None, ...]:
    if values is None:
        return (None,)
    found = tuple(
        dict.fromkeys(number("learning_rates", value, above=0.0) for value in _listed(values))
    )
    if not found:
        raise ValueError("learning_rates is empty: wanted at least one, or None for the task's own")
    return found


def _scaling(values: Any) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(_listed(values)))
    wrong = [one for one in found if one not in ("strong", "weak")]
    if wrong or not found:
        raise ValueError(f"scaling={values!r}: wanted 'strong', 'weak', or both")
    return found
