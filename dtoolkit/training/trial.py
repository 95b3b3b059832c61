"""A task tried on the client with two samples: what is wrong with it is said before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtoolkit.errors import LayoutError
from dtoolkit.training.plain import plain
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.seeds import seeded
from dtoolkit.training.settings import Settings
from dtoolkit.training.task import Examples, check_values

__all__ = ["Trial", "try_task"]


@dataclass(frozen=True)
class Trial:
    """What a trial has found.

    Attributes
    ----------
    shapes : dict
        Shape and dtype of each parameter and buffer.
    samples : int or None
        Samples of the training set; None where it is made on the workers.
    optimizer, schedule : str
        Their kinds, in words; the schedule's is empty where there is none.
    options : frozenset of str
        Names of the optimizer's settings.
    """

    shapes: dict[str, tuple[tuple[int, ...], str]]
    samples: int | None
    optimizer: str
    schedule: str
    options: frozenset[str] = frozenset()


def try_task(task: Any, settings: Settings, *, ranks: int, shards: int | None) -> Trial:
    """Make what a rank would make, and take the loss of two samples.

    A training set that is a callable is not made here: it may be large, or lie on the workers.

    Raises
    ------
    TypeError, ValueError
        Something that the task makes is not what it should be; the text names it.
    """
    examples = task.train
    if isinstance(examples, tuple) and len(examples) == 2:
        examples = Examples(*examples)
    here = not callable(examples)
    samples = len(examples) if here else None
    if samples is not None:
        _try_sampler(task, settings, samples, ranks, shards)
    with seeded(settings.seed, "model"):
        model = _called("task.model()", task.model)
        if not isinstance(model, nn.Module):
            raise TypeError(f"task.model() gave {model!r}: wanted an nn.Module")
        optimizer, schedule, options = _stepping(task, settings, model)
        if samples is not None and samples > 1:
            _try_values(task, model, examples, torch.arange(2))
    plain(dict(model.state_dict()), "the state of task.model()", copy=False)
    return Trial(
        shapes={
            name: (tuple(value.shape), str(value.dtype))
            for name, value in model.state_dict().items()
            if isinstance(value, torch.Tensor)
        },
        samples=samples,
        optimizer=optimizer,
        schedule=schedule,
        options=options,
    )


def _try_sampler(
    task: Any, settings: Settings, samples: int, ranks: int, shards: int | None
) -> None:
    try:
        Sampler(
            samples,
            settings.batch or task.batch,
            seed=settings.seed,
            ranks=ranks,
            partition=settings.partition,
            accumulate=settings.accumulate,
            shards=shards,
        )
    except LayoutError as error:
        raise LayoutError(f"partition: {error}") from None


def _stepping(task: Any, settings: Settings, model: nn.Module) -> tuple[str, str, frozenset[str]]:
    """Kinds of optimizer and schedule, which are made and thrown away, and names of settings."""
    learned = [value for value in model.parameters() if value.requires_grad]
    make = settings.optimizer or task.optimizer
    optimizer = _called("the optimizer", make, learned or [nn.Parameter(torch.empty(0))])
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer gave {type(optimizer).__name__}: wanted a torch.optim.Optimizer made of "
            "the parameters it is called with"
        )
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    if learned and held - {id(value) for value in learned}:
        raise ValueError(
            "optimizer holds parameters that it was not called with: make it of its argument, "
            "not of a model made elsewhere"
        )
    plan = settings.schedule or getattr(task, "schedule", None)
    if plan is None:
        return _kind(optimizer), "", _options(optimizer)
    schedule = _called("the schedule", plan, optimizer)
    for name in ("step", "state_dict", "load_state_dict"):
        if not callable(getattr(schedule, name, None)):
            raise TypeError(
                f"schedule gave {type(schedule).__name__}, which has no {name}(): wanted a "
                "scheduler of torch.optim.lr_scheduler"
            )
    # A state that cannot be kept would be found at the first checkpoint, or at the end.
    plain(schedule.state_dict(), f"the state of the schedule ({type(schedule).__name__})")
    return _kind(optimizer), type(schedule).__name__, _options(optimizer)


def _options(optimizer: torch.optim.Optimizer) -> frozenset[str]:
    return frozenset(name for group in optimizer.param_groups for name in group)


def _kind(optimizer: torch.optim.Optimizer) -> str:
    rate = float(optimizer.param_groups[0]["lr"])
    return f"{type(optimizer).__name__}(lr={rate:g})"


def _try_values(task: Any, model: nn.Module, examples: Any, ids: torch.Tensor) -> None:
    inputs, targets = examples.take(ids)
    values = {"loss": task.loss, **(getattr(task, "metrics", None) or {})}
    for name, value in values.items():
        found = _called(f"task's {name}, tried on two samples,", value, model, inputs, targets)
        check_values(found, len(ids), name)


def _called(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a person's function; say in a note to its error who called it."""
    try:
        return function(*args)
    except Exception as error:
        error.add_note(f"{what} raised this on the client; nothing was sent to the workers")
        raise
