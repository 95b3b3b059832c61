"""Small models, and optimizers in all their variants, that the tests of sparse training share."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

OPTIMIZERS = {
    "SGD": lambda p, **how: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, **how),
    "Adam": lambda p, **how: torch.optim.Adam(p, lr=1e-2, **how),
    "AdamW": lambda p, **how: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, **how),
    "NAdam": lambda p, **how: torch.optim.NAdam(p, lr=1e-2, **how),
}
VARIANTS = {
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def variants(optimizer: str) -> list[str]:
    """Variants that an optimizer has on a CPU."""
    return [name for name in VARIANTS if (optimizer, name) != ("NAdam", "fused")]


def small_network(seed: int = 0) -> nn.Module:
    """Convolutions (one depthwise), batch norm, linear layers; sides that 4 does not divide."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 10, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(40, 24),
        nn.ReLU(),
        nn.Linear(24, 5),
    )


class Tied(nn.Module):
    """Embedding and output layer share one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.hidden = nn.Linear(16, 16)
        self.output = nn.Linear(16, 20, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.output(torch.tanh(self.hidden(self.embedding(tokens))))


def batch(step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Four samples for the small network."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(4, 3, 4, 4, generator=generator)
    return inputs, torch.randint(5, (4,), generator=generator)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """One step of the optimizer."""
    inputs, labels = batch(step)
    optimizer.zero_grad()
    cross_entropy(model(inputs).float(), labels).backward()
    optimizer.step()
