"""One process that trains as a person would by hand: what strategies are held against."""

from __future__ import annotations

from typing import Any

from dtoolkit.training import Sampler


def trained(task: Any, steps: int, *, seed: int = 0, accumulate: int = 1) -> Any:
    """Model and optimizer after some steps of mean losses over whole (micro-)batches."""
    from dtoolkit.training.seeds import seeded

    sampler = Sampler(len(task.train), task.batch, seed=seed, ranks=1, accumulate=accumulate)
    with seeded(seed, "model"):
        model = task.model()
    learned = [value for value in model.parameters() if value.requires_grad]
    optimizer = task.optimizer(learned)
    schedule = None if task.schedule is None else task.schedule(optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        count = sampler.planned(step)
        for ids in sampler.micro_batches(step):
            if len(ids):
                (task.loss(model, *task.train.take(ids)).sum() / count).backward()
        if task.penalty is not None:
            task.penalty(model).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return model, optimizer
