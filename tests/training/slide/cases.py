"""Small layers, batches and a plain softmax to hold them against."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.functional import linear

from dtoolkit.training.slide import ActiveSets, SlideLinear

FEATURES, CLASSES, SAMPLES = 24, 300, 30


def layer(**more) -> SlideLinear:
    settings = {"tables": 8, "hashes": 2, "family": "dwta", "seed": 3, **more}
    return SlideLinear(FEATURES, CLASSES, **settings)


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and up to 3 labels each, padded with -1; one sample has none."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(SAMPLES, FEATURES, generator=generator).relu()
    labels = torch.randint(0, CLASSES, (SAMPLES, 3), generator=generator)
    labels[::2, 1:] = -1
    labels[7] = -1
    labels[8] = torch.tensor([5, 5, 9])  # one of them twice
    return hidden, labels


def label_sets(labels: torch.Tensor) -> list[set[int]]:
    return [{one for one in row if one >= 0} for row in labels.tolist()]


def mask_of(sets: ActiveSets) -> torch.Tensor:
    """True where a neuron is active, shape (samples, rows)."""
    mask = torch.zeros(len(sets), sets.rows, dtype=torch.bool)
    sample = np.repeat(np.arange(len(sets)), sets.sizes)
    mask[torch.from_numpy(sample), torch.from_numpy(sets.ids).long()] = True
    return mask


def masked_losses(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    labels: torch.Tensor,
    mask: torch.Tensor,
) -> torch.Tensor:
    """Cross-entropy over the active neurons by autograd on dense matrices."""
    logits = linear(hidden, weight, bias)
    logs = torch.log_softmax(logits.masked_fill(~mask, -torch.inf), 1)
    losses = [
        -logs[sample, sorted(true)].mean() if true else logits[sample].sum() * 0
        for sample, true in enumerate(label_sets(labels))
    ]
    return torch.stack(losses)


class Recorded:
    """Peers that give back what several processes would have exchanged, call by call."""

    def __init__(self, answers: list[torch.Tensor] | None = None) -> None:
        self.said: list[torch.Tensor] = []
        self.answers = answers or []

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        return self._next(values)

    def total(self, values: torch.Tensor) -> torch.Tensor:
        return self._next(values)

    def _next(self, values: torch.Tensor) -> torch.Tensor:
        self.said.append(values.clone())
        place = len(self.said) - 1
        return self.answers[place] if place < len(self.answers) else values
