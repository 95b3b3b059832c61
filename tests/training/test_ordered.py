"""Ordered sums: the same bits on any number of workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dtoolkit.training import Replica, Settings, Task
from dtoolkit.training.strategies import Ordered
from tests.training import cases
from tests.training.reference import trained

STEPS = 4


class Dropping(nn.Module):
    """Dropout, batch norm, and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(cases.INPUTS, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, cases.CLASSES)
        self.register_buffer("largest", torch.tensor(0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.first(x))
        if self.training:
            self.largest = torch.maximum(self.largest, h.detach().abs().max())
        return self.last(self.drop(torch.relu(h)))


def dropping() -> Task:
    return Task(
        "dropping",
        Dropping,
        cases.examples(torch.float32),
        cases.loss,
        optimizer=cases.OPTIMIZERS["adam"],
        batch=12,  # and 11 in the second batch
    )


def learn(ctx: Any, task: Task, settings: Settings, shards: int) -> dict[str, Any]:
    strategy = Ordered(shards=shards)
    replica = Replica(ctx, task, settings, batch_norm=strategy.batch_norm, shards=strategy.shards)
    strategy.configure(replica)
    sent = ctx.recorder.sent
    reports = [strategy.step(replica, step) for step in range(settings.steps)]
    sent = ctx.recorder.sent - sent
    strategy.finish(replica)
    return {**replica.state(), "reports": reports, "sent": sent, "summary": strategy.summary()}


def bits(state: dict[str, Any]) -> list[bytes]:
    tensors = [*state["model"].values()]
    for fields in state["optimizer"]["state"].values():
        tensors += [value for value in fields.values() if isinstance(value, torch.Tensor)]
    return [value.numpy().tobytes() for value in tensors]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("shards", [3, 5])
def test_same_bits_on_any_number_of_workers(cluster_of: Any, shards: int, accumulate: int) -> None:
    # Batch norm takes two samples a shard at least.
    if accumulate == 2:
        shards = 2
    settings = Settings(STEPS, accumulate=accumulate)
    task = dropping()
    (want,) = cluster_of(1).run(learn, task, settings, shards)
    for workers in (2, 3, 4):
        for state in cluster_of(workers).run(learn, task, settings, shards):
            assert bits(state) == bits(want)


@pytest.mark.parametrize("model", ["plain", "tied", "chosen"])
def test_equal_to_one_process(cluster2: Any, model: str) -> None:
    task = cases.task(model, "adam", schedule=True, penalty=True)
    here, there = cluster2.run(learn, task, Settings(STEPS, accumulate=2), 4)
    assert bits(here) == bits(there)
    want = trained(task, STEPS, accumulate=2)[0].state_dict()
    for name, value in want.items():
        torch.testing.assert_close(here["model"][name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shards", [2, 6])
def test_bytes_beyond_an_all_reduce_are_said(cluster2: Any, shards: int) -> None:
    task = cases.task("plain")
    states = cluster2.run(learn, task, Settings(STEPS), shards)
    size = 8 * sum(value.numel() for value in states[0]["model"].values())
    flags, reduced = 2 * 16, 2 * size
    sent = shards // 2 * size + size  # slices, and the sums of slices
    summary = {"shards": shards, "extra_bytes_a_step": sent - reduced}
    assert states[0]["summary"] == summary
    assert sum(state["sent"] for state in states) == STEPS * (sent + flags)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="shards=0"):
        Ordered(shards=0)
    for words, more in (
        ("compression=", {"compression": "sign"}),
        ("partition=", {"partition": "block"}),
        ("batch_norm='sync'", {"batch_norm": "sync"}),
    ):
        with pytest.raises(ValueError, match=words):
            Ordered().check(Settings(1, **more))
