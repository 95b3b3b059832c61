"""Small tasks of single precision for what happens around the steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from dtoolkit.training import Examples, Task

SAMPLES = 22


def examples() -> Examples:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(SAMPLES, 4, generator=generator)
    return Examples(X, (X.sum(1) > 0).long())


def model() -> nn.Module:
    """With dropout and batch norm: what is random and what is a buffer go on as well."""
    return nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.25), nn.Linear(6, 2)
    )


def right(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x).argmax(1) == y).float()


def toy(**changes: Any) -> Task:
    """NAdam and a schedule of milestones, by default, and a last batch that is smaller."""
    chosen: dict[str, Any] = {
        "name": "toy",
        "test": examples(),
        "metrics": {"accuracy": right},
        "optimizer": partial(torch.optim.NAdam, lr=0.05),
        "schedule": partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[3, 6], gamma=0.5),
        "batch": 8,
        "citation": "A toy.",
        **changes,
    }
    learned = chosen.pop("model", model)
    return Task.of(learned, chosen.pop("train", examples()), **chosen)
