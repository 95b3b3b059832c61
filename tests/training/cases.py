"""Small tasks that hold what a strategy may trip over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from dtoolkit.training import Examples, Task

SAMPLES, INPUTS, CLASSES = 23, 6, 3


class Tied(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INPUTS, INPUTS, bias=False)
        self.outer = nn.Linear(INPUTS, INPUTS)
        self.outer.weight = self.inner.weight
        self.last = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.outer(torch.tanh(self.inner(x)))))


class Chosen(nn.Module):
    """A layer that some batches use, one that none uses, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(INPUTS, 5).requires_grad_(False)
        self.sometimes = nn.Linear(5, 5)
        self.never = nn.Linear(4, 4)
        self.last = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.frozen(x))
        rows = x[:, 0] > 0.8  # few samples: on some ranks and steps none
        if bool(rows.any()):
            h = torch.where(rows[:, None], self.sometimes(h), h)
        return self.last(h)


class Normed(nn.Module):
    """Convolutions with batch norm, and a view that no empty batch survives."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 2, bias=False)  # the norm takes a bias out
        self.norm = nn.BatchNorm1d(3)
        self.flat = nn.BatchNorm1d(6, momentum=None)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.conv(x.view(x.shape[0], 2, -1))))
        return self.last(self.flat(h.view(h.shape[0], -1)))


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.Tanh(), nn.Linear(7, CLASSES))


def mixed() -> nn.Module:
    """Parameters of two dtypes."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(INPUTS, 4)
            self.second = nn.Linear(4, CLASSES, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x.float())).double())

    return Mixed()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "tied": Tied,
    "chosen": Chosen,
    "batch norm": Normed,
}

OPTIMIZERS: dict[str, Any] = {
    "sgd": partial(torch.optim.SGD, lr=0.3, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": partial(torch.optim.Adam, lr=0.05),
    "adamw": partial(torch.optim.AdamW, lr=0.05, weight_decay=0.1),
}

PARTITIONS: dict[str, Callable[[int], Any]] = {
    "even": lambda ranks: None,
    "cyclic": lambda ranks: "cyclic",
    "uneven": lambda ranks: [(i * i // 5) % ranks for i in range(SAMPLES)],
    "all on the last": lambda ranks: [ranks - 1] * SAMPLES,
}


def loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(inputs), targets, reduction="none")


def right(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (model(inputs).argmax(1) == targets).double()


def shrink(model: nn.Module) -> torch.Tensor:
    return 0.02 * sum(p.abs().sum() for p in model.parameters() if p.requires_grad)


def examples(dtype: torch.dtype = torch.float64) -> Examples:
    generator = torch.Generator().manual_seed(5)
    X = torch.randn(SAMPLES, INPUTS, generator=generator, dtype=torch.float64)
    return Examples(X.to(dtype), torch.randint(0, CLASSES, (SAMPLES,), generator=generator))


def task(
    model: str = "plain",
    optimizer: str = "sgd",
    *,
    dtype: torch.dtype = torch.float64,
    schedule: bool = False,
    penalty: bool = False,
    batch: int = 9,
) -> Task:
    return Task(
        name=model,
        model=lambda: MODELS[model]().to(dtype),
        train=examples(dtype),
        loss=loss,
        test=examples(dtype),
        metrics={"accuracy": right},
        optimizer=OPTIMIZERS[optimizer],
        schedule=partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5)
        if schedule
        else None,
        penalty=shrink if penalty else None,
        batch=batch,
    )
