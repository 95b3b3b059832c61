"""A task tried on the client with two samples: what is wrong with it is said before it is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtoolkit.errors import LayoutError
from dtoolkit.training.norm import has_batch_norm
from dtoolkit.training.plain import plain
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.seeds import seeded
from dtoolkit.training.settings import Settings
from dtoolkit.training.task import check_model, check_values, load_examples
from dtoolkit.training.untouched import untouched

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
    batch_norm : bool
        Whether the model has batch norm.
    """

    shapes: dict[str, tuple[tuple[int, ...], str]]
    samples: int | None
    optimizer: str
    schedule: str
    options: frozenset[str] = frozenset()
    batch_norm: bool = False


def try_task(task: Any, settings: Settings, *, ranks: int, shards: int | None) -> Trial:
    """Make what a rank would make, and take loss, metrics and penalty of two samples.

    A set that is a callable is not made here: it may be large, or lie on the workers. A model that
    is the user's own is as it was afterwards, and so are the generators of random numbers.

    Raises
    ------
    TypeError, ValueError
        Something that the task makes is not what it should be; the text names it.
    """
    train, test = _given(task, "train"), _given(task, "test")
    samples = None if train is None else len(train)
    if samples is not None:
        _try_sampler(task, settings, samples, ranks, shards)
    with _generators(), seeded(settings.seed, "model"):
        model = _called("task.model()", task.model)
        if not isinstance(model, nn.Module):
            raise TypeError(f"task.model() gave {model!r}: wanted an nn.Module")
        check_model(model)
        with untouched(model):
            made, schedule = _stepping(task, settings, model)
            optimizer, options = _kind(made), _options(made)
            _try_learning(task, model, train)
            _try_metrics(task, model, train, test)
            if settings.sparsity is not None:
                inputs = None if train is None else _two(train)[0]
                _called("sparsity=", settings.sparsity.tried, model, made, inputs)
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
        batch_norm=has_batch_norm(model),
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


def _stepping(task: Any, settings: Settings, model: nn.Module) -> tuple[torch.optim.Optimizer, str]:
    """The optimizer, and the kind of the schedule: made, and thrown away after the trial."""
    learned = [value for value in model.parameters() if value.requires_grad]
    make = settings.optimizer or task.optimizer
    optimizer = _called("the optimizer", make, learned or [nn.Parameter(torch.empty(0))])
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer gave {type(optimizer).__name__}: wanted a torch.optim.Optimizer made of "
            "the parameters it is called with"
        )
    if (lacking := _wanted_by(optimizer.step)) is not None:
        raise ValueError(
            f"optimizer: {type(optimizer).__name__}.step needs {lacking!r}, which a step over "
            "workers does not have: wanted an optimizer whose step takes the gradients that are "
            "there, such as SGD or Adam"
        )
    held = {id(value) for group in optimizer.param_groups for value in group["params"]}
    if learned and held - {id(value) for value in learned}:
        raise ValueError(
            "optimizer holds parameters that it was not called with: make it of its argument, "
            "not of a model made elsewhere"
        )
    plan = settings.schedule or getattr(task, "schedule", None)
    if plan is None:
        return optimizer, ""
    schedule = _called("the schedule", plan, optimizer)
    for name in ("step", "state_dict", "load_state_dict"):
        if not callable(getattr(schedule, name, None)):
            raise TypeError(
                f"schedule gave {type(schedule).__name__}, which has no {name}(): wanted a "
                "scheduler of torch.optim.lr_scheduler"
            )
    _check_schedule(schedule, settings.steps)
    # A state that cannot be kept would be found at the first checkpoint, or at the end.
    plain(schedule.state_dict(), f"the state of the schedule ({type(schedule).__name__})")
    return optimizer, type(schedule).__name__


def _check_schedule(schedule: Any, steps: int) -> None:
    """Refuse a schedule that cannot be stepped once an update, or not so often."""
    kind = type(schedule).__name__
    if (lacking := _wanted_by(schedule.step)) is not None:
        raise ValueError(
            f"schedule: {kind}.step needs {lacking!r}, and is called without: wanted a schedule "
            "that depends on the step alone"
        )
    if isinstance(schedule, torch.optim.lr_scheduler.OneCycleLR) and schedule.total_steps < steps:
        raise ValueError(
            f"schedule: {kind} is made for total_steps={schedule.total_steps}, and steps={steps}: "
            "wanted at least as many"
        )


def _wanted_by(step: Callable[..., Any]) -> str | None:
    """Name of the first argument without which a method cannot be called."""
    try:
        taken = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):  # one that is not written in Python
        return None
    for one in taken:
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            return one.name
    return None


def _options(optimizer: torch.optim.Optimizer) -> frozenset[str]:
    return frozenset(name for group in optimizer.param_groups for name in group)


def _kind(optimizer: torch.optim.Optimizer) -> str:
    rate = float(optimizer.param_groups[0]["lr"])
    return f"{type(optimizer).__name__}(lr={rate:g})"


def _given(task: Any, name: str) -> Any:
    """A set of the task that is there before the run; None where a callable makes it, or none."""
    source = getattr(task, name, None)
    if source is None or callable(source):
        return None
    examples = load_examples(source, name)
    if not callable(getattr(examples, "to", None)):
        raise TypeError(
            f"task.{name} is {type(examples).__name__}, which has no to(device): wanted Examples, "
            "or an object with take(ids), to(device) and a length"
        )
    if not len(examples):
        raise ValueError(f"task.{name} has no samples")
    return examples


def _try_learning(task: Any, model: nn.Module, train: Any) -> None:
    """The loss of two samples, as a rank takes it, and the penalty."""
    if not model.training:
        model.train()
    if train is not None:
        found = _called(f"task's loss, {_TRIED} 'train',", task.loss, model, *_two(train))
        check_values(found, 2, "loss")
    penalty = getattr(task, "penalty", None)
    if penalty is None or not any(value.requires_grad for value in model.parameters()):
        return
    value = _called("task.penalty", penalty, model)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"task.penalty gave {type(value).__name__}: wanted a tensor of one value")
    if value.numel() != 1:
        raise ValueError(
            f"task.penalty gave a tensor of shape {tuple(value.shape)}: wanted one value, say its "
            "sum"
        )


def _try_metrics(task: Any, model: nn.Module, train: Any, test: Any) -> None:
    """Loss and metrics of two samples, as they are evaluated: of the test set, if it is here."""
    if test is None and (train is None or getattr(task, "test", None) is None):
        return
    examples, which = (train, "train") if test is None else (test, "test")
    values = {"loss": task.loss, **(getattr(task, "metrics", None) or {})}
    model.eval()
    with torch.no_grad():
        for name, value in values.items():
            called = f"task's {name}, {_TRIED} {which!r} in eval mode,"
            check_values(_called(called, value, model, *_two(examples)), 2, name)


_TRIED = "tried on two samples of"


def _two(examples: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Two samples; of a set of one, that one twice, for batch norm takes no single one."""
    inputs, targets = examples.take(torch.arange(2) % len(examples))
    return inputs, targets


@contextmanager
def _generators() -> Iterator[None]:
    """Put back torch's generators, of GPUs too where some are in use."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(list(gpus)):
        yield


def _called(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a person's function; say in a note to its error who called it."""
    try:
        return function(*args)
    except Exception as error:
        error.add_note(f"{what} raised this on the client; nothing was sent to the workers")
        raise
