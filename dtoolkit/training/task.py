"""What is to be learned: model, examples, loss; one loss a sample, so that weights are honest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils.parametrize import is_parametrized

from dtoolkit.sparsity import masks_of

__all__ = [
    "LOSSES",
    "Examples",
    "Task",
    "check_model",
    "check_task",
    "check_values",
    "load_examples",
    "per_sample",
]

Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Examples:
    """Samples: inputs and targets, one row each.

    Attributes
    ----------
    inputs, targets : torch.Tensor
        Shape (samples, ...).

    Raises
    ------
    ValueError
        They differ in length, or there are none.
    """

    inputs: torch.Tensor
    targets: torch.Tensor

    def __post_init__(self) -> None:
        for name in ("inputs", "targets"):
            value = getattr(self, name)
            if not isinstance(value, torch.Tensor):
                value = torch.as_tensor(value)
                object.__setattr__(self, name, value)
            if value.dim() == 0:
                raise ValueError(f"{name} has no rows (0 dimensions): wanted one row a sample")
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"inputs has {len(self.inputs)} rows and targets {len(self.targets)}: wanted one "
                "of each a sample"
            )
        if not len(self.inputs):
            raise ValueError("inputs and targets have no rows: there is nothing to learn from")

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of some samples."""
        there = ids.to(self.inputs.device)
        return self.inputs[there], self.targets[ids.to(self.targets.device)]

    def to(self, device: torch.device | str) -> Examples:
        """The same on another device."""
        return Examples(self.inputs.to(device), self.targets.to(device))


def _classes(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    outputs = model(inputs)
    shape, wanted = tuple(outputs.shape), (len(outputs), *outputs.shape[2:])
    if outputs.dim() < 2 or tuple(targets.shape) not in (wanted, shape):
        raise ValueError(
            f"loss='cross-entropy': the model gave outputs of shape {shape} for targets of shape "
            f"{tuple(targets.shape)}: wanted outputs (n, classes, ...) and targets (n, ...), or "
            "probabilities of the outputs' shape"
        )
    return per_sample(cross_entropy(outputs, targets, reduction="none"))


def _squares(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    outputs = model(inputs)
    if outputs.shape != targets.shape:  # which would be the loss of each output and each target
        raise ValueError(
            f"loss='mse': the model gave outputs of shape {tuple(outputs.shape)} for targets of "
            f"shape {tuple(targets.shape)}: wanted equal shapes"
        )
    return per_sample(mse_loss(outputs, targets, reduction="none"))


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


LOSSES: dict[str, Loss] = {"cross-entropy": _classes, "mse": _squares}
"""Losses by name; each gives the mean over whatever a sample has of outputs."""


@dataclass(frozen=True)
class Task:
    """Something to learn. Any object with these attributes will do.

    Attributes
    ----------
    name : str
    model : callable
        ``model()`` makes an ``nn.Module``; called under a seed on every rank, and once more on rank
        0 for a parameter server. It is trained in train mode, also if it comes in eval mode, as
        pretrained ones do; parts that are in eval mode inside a model in train mode stay so. Hooks
        on modules and parameters work if they are set here: a module that is sent loses those of
        its parameters.
    train : Examples or callable
        A callable is called on the workers, so that nothing large is sent.
    loss : callable
        ``loss(model, inputs, targets)`` gives one loss a sample, shape (n,).
    test : Examples, callable or None
    metrics : mapping
        Names to callables like `loss`, which give one value a sample; means are reported.
    optimizer : callable
        ``optimizer(parameters)`` makes a ``torch.optim.Optimizer`` of a list of parameters.
    schedule : callable or None
        ``schedule(optimizer)`` makes a scheduler, which is stepped once an update.
    penalty : callable or None
        ``penalty(model)`` gives a scalar that is added to the mean loss once an update.
    batch : int
        Samples of a global batch.
    citation : str
    """

    name: str
    model: Callable[[], nn.Module]
    train: Examples | Callable[[], Examples]
    loss: Loss
    test: Examples | Callable[[], Examples] | None = None
    metrics: Mapping[str, Loss] = field(default_factory=dict)
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = _sgd
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    penalty: Callable[[nn.Module], torch.Tensor] | None = None
    batch: int = 64
    citation: str = ""

    @classmethod
    def of(
        cls,
        model: nn.Module | Callable[[], nn.Module],
        train: Any,
        loss: str | Loss = "cross-entropy",
        *,
        name: str = "task",
        **more: Any,
    ) -> Task:
        """Make a task of what a person has at hand.

        Parameters
        ----------
        model : nn.Module or callable
            A module is copied on every rank, its weights included.
        train : Examples, pair of tensors, or callable
        loss : "cross-entropy", "mse" or callable
        name : str
        **more
            Further attributes; a pair of tensors will do for `test` too.

        Raises
        ------
        TypeError
            The module cannot be copied and sent.
        ValueError
            There is no loss of that name.
        """
        if isinstance(model, nn.Module):
            _check_copies(model)
            model = partial(copy.deepcopy, model)
        if isinstance(loss, str):
            if loss not in LOSSES:
                raise ValueError(f"loss={loss!r}: wanted a callable or one of {', '.join(LOSSES)}")
            loss = LOSSES[loss]
        if isinstance(more.get("test"), tuple):
            more["test"] = Examples(*more["test"])
        return cls(
            name, model, Examples(*train) if isinstance(train, tuple) else train, loss, **more
        )


def _check_copies(model: nn.Module) -> None:
    """Refuse a module that only a function can make on every rank."""
    wanted = "give a function that makes it: Task.of(lambda: ..., ...)"
    for name, module in model.named_modules():
        if is_parametrized(module):
            raise TypeError(
                f"model: {name or 'it'} is parametrized ({type(module).__name__}), and PyTorch "
                f"sends no such module; {wanted}"
            )
    try:
        copy.deepcopy(model)
    except Exception as error:  # modules of others run here
        raise TypeError(
            f"model ({type(model).__name__}) cannot be copied; {wanted} ({error})"
        ) from error


def check_task(task: Any) -> None:
    """Refuse an object that lacks what a task must have.

    Raises
    ------
    TypeError
        An attribute is missing, or is not what it should be; the text names it.
    """
    kind = type(task).__name__
    for name in ("model", "train", "loss", "optimizer", "batch"):
        if not hasattr(task, name):
            raise TypeError(
                f"task ({kind}) has no attribute {name!r}: wanted a dtoolkit.training.Task, or an "
                "object with its attributes"
            )
    if isinstance(task.model, nn.Module):
        raise TypeError(
            "task.model is a module: wanted a callable that makes one (Task.of takes both)"
        )
    for name in ("model", "loss", "optimizer", "schedule", "penalty"):
        value = getattr(task, name, None)
        if value is not None and not callable(value):
            raise TypeError(f"task.{name} is {value!r}: wanted a callable")
    for name, metric in (getattr(task, "metrics", None) or {}).items():
        if not callable(metric):
            raise TypeError(f"task.metrics[{name!r}] is {metric!r}: wanted a callable")


def per_sample(values: torch.Tensor) -> torch.Tensor:
    """Mean over all but the first dimension: one value a sample."""
    return values if values.dim() == 1 else values.flatten(1).mean(1)


def check_values(values: Any, samples: int, name: str) -> torch.Tensor:
    """Refuse what a task's loss or metric gave, if it is not one value a sample.

    Raises
    ------
    ValueError
        The text names the attribute, what it gave, and what was wanted.
    """
    if not isinstance(values, torch.Tensor) or tuple(values.shape) != (samples,):
        got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
        raise ValueError(
            f"task.{name} gave {got} for {samples} samples: wanted one value a sample, shape "
            f"({samples},); PyTorch's losses give that with reduction='none'"
        )
    return values


def check_model(model: nn.Module) -> None:
    """Refuse a model that replicas cannot learn.

    Raises
    ------
    ValueError
        A parameter has no shape yet, or will get a sparse gradient; or the model carries masks of
        a sparsifier, which nobody would keep on the workers: ``sparsity=`` makes them there.
    TypeError
        The state dict holds something that is no tensor.
    """
    for name, value in model.named_parameters():
        if isinstance(value, nn.UninitializedParameter):
            raise ValueError(
                f"task.model: {name} has no shape yet (a lazy module): run the model once in the "
                "function that makes it"
            )
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ValueError(
                f"task.model: {name} is an embedding with sparse=True, whose gradient is a sparse "
                "tensor; gradients are exchanged dense: make it with sparse=False"
            )
    masks = masks_of(model)
    if masks:
        raise ValueError(
            f"task.model carries masks of a Sparsifier ({', '.join([*masks][:3])} ...): on the "
            "workers nothing keeps them, so that the weights would become dense; take them out "
            "(dt.sparsity.remove_masks(model)) and let every worker make them: "
            'sparsity={"method": ..., "density": ...}'
        )
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"task.model: its state_dict has {name!r}, which is {type(value).__name__}: wanted "
                "tensors alone, which can be averaged and compared (get_extra_state can give one)"
            )


def load_examples(source: Any, name: str) -> Any:
    """What a task has as a set of examples, or what its callable makes.

    Raises
    ------
    TypeError
        It is none.
    """
    examples = source() if callable(source) else source
    if isinstance(examples, tuple) and len(examples) == 2:
        examples = Examples(*examples)
    if not hasattr(examples, "take") or not hasattr(examples, "__len__"):
        raise TypeError(
            f"task.{name} gave {type(examples).__name__}: wanted dt.training.Examples(inputs, "
            "targets), or a tuple of these two tensors"
        )
    return examples
