"""Strategies whose ranks hold models of their own, computed by hand in one process."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from dtoolkit.training import Settings, Task
from dtoolkit.training.asked import strategy_of
from dtoolkit.training.averaging import average
from dtoolkit.training.loop import Job, learn
from dtoolkit.training.sampling import Sampler
from dtoolkit.training.seeds import seeded

PLAIN = partial(torch.optim.SGD, lr=0.3)


def plainly(task: Task) -> Task:
    """The task with SGD and nothing else."""
    return replace(task, optimizer=PLAIN)


def models(cluster: Any, runs: list[tuple[Task, Any, dict[str, Any]]]) -> list[Any]:
    """The one model after each of some runs (task, strategy, settings), all in one launch."""
    jobs = [
        Job(task, strategy_of(strategy), Settings(**settings)) for task, strategy, settings in runs
    ]
    return [ended.state.model for ended in cluster.run(_many, jobs, timeout=120)[0]]


def _many(ctx: Any, jobs: list[Job]) -> list[Any]:
    return [learn(ctx, job) for job in jobs]


class Alone:
    """Some ranks' models, optimizers and schedules, with nobody to talk to."""

    def __init__(self, task: Task, ranks: int, *, seed: int, accumulate: int, partition: Any):
        self.task = task
        self.sampler = Sampler(
            len(task.train),
            task.batch,
            seed=seed,
            ranks=ranks,
            accumulate=accumulate,
            partition=partition,
        )
        with seeded(seed, "model"):
            model = task.model()
        self.models = [copy.deepcopy(model) for _ in range(ranks)]
        self.optimizers = [
            task.optimizer([p for p in one.parameters() if p.requires_grad]) for one in self.models
        ]
        self.schedules = [task.schedule(o) if task.schedule else None for o in self.optimizers]

    def step(self, rank: int, step: int) -> int:
        """One step of a rank on its share; samples that it has used."""
        shares = self.sampler.share(step, rank)
        count = sum(map(len, shares))
        model, task = self.models[rank], self.task
        if count:
            self.optimizers[rank].zero_grad()
            for ids in shares:
                if len(ids):
                    (task.loss(model, *task.train.take(ids)).sum() / count).backward()
            if task.penalty is not None:
                task.penalty(model).backward()
            self.optimizers[rank].step()
        if self.schedules[rank] is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # ranks without samples
                self.schedules[rank].step()
        return count

    def states(self) -> list[dict[str, torch.Tensor]]:
        return [dict(model.state_dict()) for model in self.models]


def local_sgd(
    task: Task,
    steps: int,
    ranks: int,
    *,
    local_steps: int,
    seed: int = 0,
    accumulate: int = 1,
    partition: Any = None,
) -> dict[str, torch.Tensor]:
    """The one model after some steps of local SGD."""
    alone = Alone(task, ranks, seed=seed, accumulate=accumulate, partition=partition)
    used = [0] * ranks
    for step in range(steps):
        used = [used[rank] + alone.step(rank, step) for rank in range(ranks)]
        if (step + 1) % local_steps == 0:
            mean = average(alone.states(), used)
            for model in alone.models:
                model.load_state_dict(mean)
            used = [0] * ranks
    return average(alone.states(), used) if any(used) else alone.states()[0]


def close(got: dict[str, torch.Tensor], want: dict[str, torch.Tensor], tolerance: float) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        torch.testing.assert_close(
            got[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def same(a: Any, b: Any) -> None:
    """Two runs that ended in the same state, bit for bit."""
    assert a.state.differs_from(b.state) == []
    assert a.state.digest() == b.state.digest()
