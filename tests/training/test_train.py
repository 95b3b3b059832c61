"""dt.train from end to end: history, evaluation, what it sends, what it says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import ReplicaMismatch
from dtoolkit.training import Promise, StepReport, Strategy, Task
from tests.training.toys import SAMPLES, examples, toy

COLUMNS = [
    "step", "epoch", "loss", "samples", "dropped", "seconds", "throughput", "idle", "staleness",
    "bytes", "lr", "test_loss", "test_accuracy",
]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_history(workers: int, cluster_of: Callable[[int], dt.Cluster]) -> None:
    cluster = cluster_of(workers)
    run = dt.train(cluster, toy(), "data-parallel", steps=7, seed=3, evaluate_every=3)
    history = run.history
    assert list(history.columns[: len(COLUMNS)]) == COLUMNS
    assert history["step"].tolist() == list(range(7))
    assert history["epoch"].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert history["samples"].tolist() == [8, 8, 6, 8, 8, 6, 8]
    assert (history["dropped"] == 0).all()
    assert history["lr"].tolist() == pytest.approx([0.05] * 3 + [0.025] * 3 + [0.0125])
    assert np.isfinite(history["loss"]).all()
    assert (history["seconds"] > 0).all()
    assert (history["throughput"] > 0).all()
    scored = history["test_loss"].notna()
    assert scored.tolist() == [False, False, True, False, False, True, True]
    assert history["test_accuracy"][scored].between(0, 1).all()
    assert [history[c].dtype.kind for c in ("step", "samples", "bytes", "samples_0")] == ["i"] * 4
    own = [f"samples_{rank}" for rank in range(workers)]
    assert (history[own].sum(axis=1) == history["samples"]).all()
    assert (history["bytes"] > 0).all() == (workers > 1)
    assert run.state.step == 7
    assert not run.stopped
    assert run.recoveries == []
    assert run.faults == []


def test_by_worker_is_the_same_the_long_way(cluster2: dt.Cluster) -> None:
    run = dt.train(cluster2, toy(), steps=4, seed=0)
    table = run.by_worker()
    assert len(table) == 8
    assert {"samples", "idle", "staleness", "throughput", "local_steps"} <= set(table.columns)
    for rank in range(2):
        mine = table[table["worker"] == rank].reset_index(drop=True)
        pd.testing.assert_series_equal(mine["idle"], run.history[f"idle_{rank}"], check_names=False)


def test_bytes_of_the_steps_are_those_of_the_trace(cluster2: dt.Cluster) -> None:
    run = dt.train(cluster2, toy(), steps=5, seed=0)
    around = ["setup", "agreement", "comparison", "evaluation", "state"]
    rest = run.trace.filter(phase=around).total
    assert int(run.history["bytes"].sum()) == run.trace.total - rest
    assert {event.launch for event in run.trace} == {run.trace.events[0].launch}
    assert run.trace.ranks == 2


def test_bytes_are_counted_where_nothing_is_traced(cluster2: dt.Cluster) -> None:
    traced = dt.train(cluster2, toy(), steps=2, seed=0)
    cluster2.trace.enabled = False
    try:
        run = dt.train(cluster2, toy(), steps=2, seed=0)
    finally:
        cluster2.trace.enabled = True
    assert len(run.trace) == 0
    assert run.history["bytes"].tolist() == traced.history["bytes"].tolist()


def test_one_worker_is_one_process_and_repeats_to_the_bit(cluster_of: Any) -> None:
    task = toy(model=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
    runs = {n: dt.train(cluster_of(n), task, steps=6, seed=1) for n in (1, 2, 4)}
    again = dt.train(cluster_of(2), task, steps=6, seed=1)
    assert again.state.digest() == runs[2].state.digest()
    assert dt.train(cluster_of(1), task, steps=6, seed=2).state.digest() != runs[1].state.digest()
    for workers in (2, 4):
        for name, value in runs[workers].state.model.items():
            torch.testing.assert_close(value, runs[1].state.model[name], rtol=1e-5, atol=1e-6)


def test_everything_may_be_defined_where_it_is_used(cluster2: dt.Cluster) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    class Mine:
        """A task without Task."""

        model, batch = Net, 5
        train = examples()
        metrics: dict[str, Any] = {}  # noqa: RUF012

        @staticmethod
        def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(model(x), y, reduction="none")

        @staticmethod
        def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
            return torch.optim.SGD(parameters, lr=0.2)

    class Alone(Strategy):
        """Every rank does all, and nobody says anything."""

        name = "alone"
        promise = Promise("one process", "bit-equal", "bit-equal")

        def configure(self, replica: Any) -> None:
            self.known = replica.size

        def step(self, replica: Any, step: int) -> StepReport:
            loss, samples = replica.backward(
                replica.sampler.batch(step), step=step, micro=0, item=0
            )
            replica.update(samples)
            share = samples if replica.rank == 0 else 0
            return StepReport(
                loss * (share > 0), share, share, 0.1, 0.0, extra={"norm": 2.0 + replica.rank}
            )

        def summary(self) -> dict[str, Any]:
            return {"ranks known": self.known}

    for _ in range(2):
        run = dt.train(cluster2, Mine(), Alone(), steps=4)
    assert run.task == "Mine"
    assert run.summary == {"ranks known": 2}
    assert run.history["norm"].tolist() == [2.5] * 4
    assert run.history["norm_1"].tolist() == [3.0] * 4
    assert run.history["samples_1"].tolist() == [0] * 4
    assert "test_loss" not in run.history
    alone = dt.train(cluster2, Mine(), steps=4).state.model["layer.weight"]
    torch.testing.assert_close(run.state.model["layer.weight"], alone)


def test_a_training_set_made_on_the_workers_is_not_made_here(cluster2: dt.Cluster) -> None:
    import os

    client = os.getpid()

    def made() -> Any:
        assert os.getpid() != client
        return examples()

    run = dt.train(cluster2, toy(train=made), steps=2)
    assert run.history["samples"].sum() == 16


def test_a_rank_without_samples_and_more_steps_than_an_epoch(cluster4: dt.Cluster) -> None:
    owners = [0] * 10 + [3] * (SAMPLES - 10)
    run = dt.train(cluster4, toy(), steps=4, partition=owners, accumulate=2)
    assert run.history["samples_1"].tolist() == [0] * 4
    assert run.history["samples"].tolist() == [8, 8, 6, 8]
    assert run.settings["partition"] == "a vector of 22 owners"


def test_replicas_that_differ_are_named(cluster4: dt.Cluster) -> None:
    """A model that learns something else on ranks 1 and 3, by a buffer and by a weight."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.rank = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    class Drifting(Strategy):
        name = "drifting"
        promise = Promise("none", "none", "none")

        def configure(self, replica: Any) -> None:
            """Nothing."""

        def step(self, replica: Any, step: int) -> StepReport:
            loss, samples = replica.backward(
                replica.sampler.batch(step), step=step, micro=0, item=0
            )
            if step == 2 and replica.rank % 2:
                replica.model.layer.bias.grad += 1e-3
            replica.update(samples)
            return StepReport(loss, samples, samples, 0.0, 0.0)

    task = toy(model=Odd, optimizer=torch.optim.Adam)
    assert dt.train(cluster4, task, Drifting(), steps=2).state.step == 2
    with pytest.raises(
        ReplicaMismatch, match=r"after 3 steps rank\(s\) 1, 3 hold something"
    ) as got:
        dt.train(cluster4, task, Drifting(), steps=3)
    assert got.value.ranks == (1, 3)
    assert got.value.step == 3
    names = {"model.layer.bias", "optimizer.layer.bias.exp_avg", "optimizer.layer.bias.exp_avg_sq"}
    assert set(got.value.fields) == names
    assert cluster4.run(lambda ctx: ctx.rank) == [0, 1, 2, 3]


def test_a_model_that_begins_differently_is_noticed_before_the_first_step(
    cluster2: dt.Cluster,
) -> None:
    def by_process() -> nn.Module:
        import os

        layer = nn.Linear(4, 2)
        nn.init.constant_(layer.weight, float(os.getpid()))
        return layer

    with pytest.raises(ReplicaMismatch, match=r"after 0 steps rank\(s\) 1 .* model.weight"):
        dt.train(cluster2, toy(model=by_process), steps=3)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_not_finite_is_named(
    workers: int, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    data = examples()
    data.inputs[13] = float("nan")
    with pytest.raises(FloatingPointError, match=r"loss is nan on rank \d at step \d"):
        dt.train(cluster_of(workers), toy(train=data), steps=9)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gradient_that_is_not_finite_is_named_before_it_is_shared(
    workers: int, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    def root(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x).sum(1).mul(0).abs().sqrt()  # 0, with a gradient of 0 times infinity

    task = toy(model=lambda: nn.Linear(4, 2), loss=root)
    with pytest.raises(FloatingPointError, match=r"gradient of \w+ .* on rank \d at step 0"):
        dt.train(cluster_of(workers), task, steps=2)


def test_faults_are_in_the_run(cluster2: dt.Cluster) -> None:
    slow = dt.faults.Slow(rank=1, seconds=0.01)
    run = dt.train(cluster2, toy(), steps=3, faults=[slow])
    assert run.faults == [repr(slow)]
    assert (run.history["compute_1"] > 0.01).all()
    assert run.history["idle_0"].sum() > run.history["idle_1"].sum()


def test_it_says_what_it_is(cluster2: dt.Cluster) -> None:
    run = dt.train(cluster2, toy(), steps=3, seed=5)
    text = repr(run)
    assert text.startswith("toy by data-parallel on 2 workers (measured)")
    assert "3 of 3, in" in text
    assert run.state.digest()[:12] in text
    assert "A toy." in run.cite()
    wanted = {"strategy": "data-parallel", "workers": 2, "steps": 3, "seed": 5, "batch": 8}
    assert {name: run.settings[name] for name in wanted} == wanted
    assert run.settings["optimizer"] == "NAdam(lr=0.05)"
    assert run.settings["schedule"] == "MultiStepLR"


def test_what_is_passed_replaces_what_the_task_says(cluster1: dt.Cluster) -> None:
    run = dt.train(
        cluster1,
        toy(schedule=None),
        steps=2,
        batch=4,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
        schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    )
    assert run.history["samples"].tolist() == [4, 4]
    assert run.history["lr"].tolist() == [0.5, 0.25]
    assert "optimizer.4.weight.momentum_buffer" in run.state.fields()


def test_a_task_without_parameters_to_learn(cluster2: dt.Cluster) -> None:
    task = Task("nothing", nn.Identity, examples(), lambda m, x, y: m(x).sum(1), batch=8)
    run = dt.train(cluster2, task, steps=3)
    assert run.state.model == {}
    assert len(run.history) == 3


def test_whose_statistics_batch_norm_uses_can_be_chosen(cluster_of: Any) -> None:
    def trained(workers: int, **more: Any) -> dict[str, torch.Tensor]:
        task = toy(model=normed, optimizer=partial(torch.optim.SGD, lr=0.1))
        run = dt.train(cluster_of(workers), task, steps=2, seed=1, **more)
        assert run.settings["batch_norm"] == more.get("batch_norm", "sync")
        return run.state.model

    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))

    alone, local = trained(1), trained(2, batch_norm="local")
    for joint in (trained(2), trained(2, batch_norm="sync")):
        torch.testing.assert_close(joint, alone)
    assert not torch.allclose(local["0.weight"], alone["0.weight"], atol=1e-5)
