"""Shapes of subnetwork data parallelism on handwritten digits, over seeds, on four workers.

``python -m tests.training.subnetwork_shapes [--quick]`` prints test accuracies (measured; mean and
range of three seeds) of a small residual network, and exits 1 where a shape is missed: by block no
worse than by neuron, and near dense at coverage 0.5. Forward masking makes 1/coverage
times the steps. Controls: dense with the same steps; dropout and stochastic depth, of which all
workers hold everything, with the steps of forward masking. ``--quick``: one seed, coverage 0.5.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.training import Strategy, Task
from dtoolkit.training.strategies import DataParallel, Subnetwork
from dtoolkit.training.tasks import digits

WORKERS, STEPS, SEEDS = 4, 120, (0, 1, 2)
WIDTH, DEPTH = 32, 4
NEAR, WORSE = 0.02, 0.01  # of test accuracy: near dense; what by block may lose to by neuron


class Branch(nn.Module):
    """What a residual block adds to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(torch.relu(self.inner(x)))


def network() -> nn.Module:
    blocks = [Branch() for _ in range(DEPTH)]
    return nn.Sequential(nn.Linear(64, WIDTH), nn.Sequential(*blocks), nn.Linear(WIDTH, 10))


def task() -> Task:
    return replace(digits(batch=64), model=network, optimizer=partial(torch.optim.Adam, lr=0.003))


@dataclass(frozen=True)
class Way:
    """A strategy and how long it trains."""

    name: str
    strategy: Strategy
    steps: int = STEPS


def ways(coverages: tuple[float, ...]) -> list[Way]:
    """All that are compared."""
    found = [Way("dense", DataParallel())]
    for coverage in coverages:
        longer = round(STEPS / coverage)
        for by in ("block", "neuron"):
            parts = partial(Subnetwork, coverage, by=by)
            found += [
                Way(f"backward, {by}, {coverage:g}", parts()),
                Way(f"forward, {by}, {coverage:g}", parts(masking="forward"), longer),
            ]
            control = "stochastic depth" if by == "block" else "dropout"
            drawn = parts(masking="forward", redraw=True)
            found += [Way(f"{control}, {coverage:g}", drawn, longer)]
        found += [Way(f"dense, steps of {coverage:g}", DataParallel(), longer)]
    return found


def main(arguments: list[str]) -> int:
    """Train all ways, print the table, and say which shapes hold."""
    quick = "--quick" in arguments
    seeds, coverages = (SEEDS[:1], (0.5,)) if quick else (SEEDS, (0.25, 0.5))
    found: dict[str, list[float]] = {}
    with dt.Cluster(workers=WORKERS, device="cpu") as cluster:
        for way in ways(coverages):
            runs = [
                dt.train(cluster, task(), way.strategy, steps=way.steps, seed=seed)
                for seed in seeds
            ]
            values = [float(run.history["test_accuracy"].iloc[-1]) for run in runs]
            found[way.name] = values
            print(line(way, values, runs[0]), flush=True)
    return verdict({name: sum(values) / len(values) for name, values in found.items()}, coverages)


def line(way: Way, values: list[float], run: Any) -> str:
    """One way: accuracy, steps, bytes and memory."""
    mean, held = sum(values) / len(values), run.summary.get("memory_bytes")
    memory = "" if held is None else f"{max(held):9,} B a worker"
    return (
        f"{way.name:26} {mean:6.1%} ({min(values):.1%} to {max(values):.1%}) "
        f"{way.steps:5} steps {int(run.history['bytes'].sum()):13,} B sent {memory}"
    )


def verdict(means: dict[str, float], coverages: tuple[float, ...]) -> int:
    """Print which shapes hold; 1 if one does not."""
    checks = []
    for coverage in coverages:
        for masking in ("backward", "forward"):
            block, neuron = (means[f"{masking}, {by}, {coverage:g}"] for by in ("block", "neuron"))
            said = f"{masking} {coverage:g}: by block no worse than by neuron"
            checks.append((said, block >= neuron - WORSE))
            if coverage >= 0.5:
                said = f"{masking} {coverage:g}: by block near dense"
                checks.append((said, block >= means["dense"] - NEAR))
    for said, holds in checks:
        print(f"{'holds' if holds else 'MISSED'}: {said}")
    return 0 if all(holds for _, holds in checks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
