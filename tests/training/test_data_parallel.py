"""Data parallel over workers, against one process that trains by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtoolkit as dt
from dtoolkit.training import Examples, Replica, Settings, Task
from dtoolkit.training.strategies import STRATEGIES, DataParallel
from tests.training import cases
from tests.training.reference import trained

STEPS = 5  # the third batch is the small one of the first epoch: 9, 9, 5


def learn(ctx: Any, task: Task, settings: Settings, options: dict[str, Any]) -> dict[str, Any]:
    strategy = DataParallel(**options)
    strategy.check(settings)
    replica = Replica(ctx, task, settings, batch_norm=strategy.batch_norm)
    strategy.configure(replica)
    reports = [strategy.step(replica, step) for step in range(settings.steps)]
    strategy.finish(replica)
    return {**replica.state(), "reports": reports, "evaluation": replica.evaluate()}


def many(ctx: Any, runs: list[tuple[Task, Settings, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [learn(ctx, *run) for run in runs]


def check(got: list[dict[str, Any]], want: tuple[nn.Module, Any], tolerance: float) -> None:
    model, optimizer = want
    for state in got[1:]:  # the same bits on all ranks
        assert all(torch.equal(state["model"][k], v) for k, v in got[0]["model"].items())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(
            got[0]["model"][name],
            value,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda m: f"{name}: {m}",  # noqa: B023
        )
    mine, theirs = got[0]["optimizer"], optimizer.state_dict()
    assert mine["state"].keys() == theirs["state"].keys()
    for number, fields in theirs["state"].items():
        for key, value in fields.items():
            have = mine["state"][number][key]
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(have, value, rtol=tolerance, atol=tolerance)
    assert mine["param_groups"][0]["lr"] == theirs["param_groups"][0]["lr"]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("model", cases.MODELS)
def test_equal_to_one_process(cluster_of: Any, model: str, workers: int) -> None:
    runs, wants = [], []
    for number, (accumulate, partition) in enumerate(product((1, 3), cases.PARTITIONS)):
        optimizer = list(cases.OPTIMIZERS)[number % 3]
        task = cases.task(model, optimizer, schedule=number % 2 == 0, penalty=number % 4 == 1)
        if model == "batch norm" and accumulate == 3:
            task = cases.task(model, optimizer, batch=12)
        owners = cases.PARTITIONS[partition](workers)
        settings = Settings(STEPS, seed=number, accumulate=accumulate, partition=owners)
        runs.append((task, settings, {"megabytes": 1e-4} if number % 2 else {}))
        wants.append(trained(task, STEPS, seed=number, accumulate=accumulate))
    by_rank = cluster_of(workers).run(many, runs)
    # Adam divides by what is near 0 where batch norm leaves little to learn: rounding grows.
    tolerance = 1e-10 if model == "batch norm" else 1e-12
    for number, want in enumerate(wants):
        check([of[number] for of in by_rank], want, tolerance)


@pytest.mark.parametrize("optimizer", cases.OPTIMIZERS)
def test_in_float32(cluster2: Any, optimizer: str) -> None:
    task = cases.task("batch norm", optimizer, dtype=torch.float32, schedule=True)
    got = cluster2.run(learn, task, Settings(STEPS), {})
    check(got, trained(task, STEPS), 1e-4)


def test_reports_say_what_was_used(cluster2: Any) -> None:
    task = cases.task()
    settings = Settings(3, partition=[0] * 4 + [1] * 19)
    got = cluster2.run(learn, task, settings, {})
    used = [sum(state["reports"][step].samples for state in got) for step in range(3)]
    assert used == [9, 9, 5]
    assert sum(r.samples for r in got[0]["reports"]) == 4
    first = sum(state["reports"][0].loss_sum for state in got)
    model, _ = trained(task, 0)
    sampler_ids = cluster2.run(first_batch, task)[0]
    want = task.loss(model, *task.train.take(sampler_ids)).sum().detach()
    assert first == pytest.approx(float(want), rel=1e-12)
    for state in got:
        assert all(report.idle >= 0 and report.compute > 0 for report in state["reports"])


def first_batch(ctx: Any, task: Task) -> torch.Tensor:
    return Replica(ctx, task, Settings(1)).sampler.batch(0)


def mixed_dtypes(ctx: Any) -> tuple[list[torch.dtype], torch.Tensor]:
    task = Task("mixed", cases.mixed, cases.examples(), cases.loss, batch=9)
    state = learn(ctx, task, Settings(3), {})["model"]
    return [v.dtype for v in state.values()], state["second.weight"]


def test_several_dtypes(cluster2: Any) -> None:
    (dtypes, here), (_, there) = cluster2.run(mixed_dtypes)
    assert dtypes == [torch.float32] * 2 + [torch.float64] * 2
    assert torch.equal(here, there)
    task = Task("mixed", cases.mixed, cases.examples(), cases.loss, batch=9)
    want = trained(task, 3)[0].state_dict()["second.weight"]
    torch.testing.assert_close(here, want, rtol=1e-5, atol=1e-6)


class Counting(nn.Module):
    """Counts its samples, and keeps a running mean of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(cases.INPUTS, cases.CLASSES)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("middle", torch.zeros(cases.INPUTS))
        self.register_buffer("constant", torch.rand(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
            self.middle = 0.5 * self.middle + 0.5 * x.mean(0).detach()
        return self.last(x)


def test_other_buffers_are_pooled(cluster2: Any) -> None:
    task = Task("counting", lambda: Counting().double(), cases.examples(), cases.loss, batch=9)
    settings = Settings(3, partition=[0] * 20 + [1] * 3)
    here, there = (state["model"] for state in cluster2.run(learn, task, settings, {}))
    assert all(torch.equal(here[k], there[k]) for k in here)
    want = trained(task, 3)[0].state_dict()
    assert int(here["seen"]) == 3
    torch.testing.assert_close(here["middle"], want["middle"], rtol=1e-12, atol=1e-12)
    assert torch.equal(here["constant"], want["constant"])


def test_local_batch_norm_is_pooled(cluster2: Any) -> None:
    settings = Settings(3, batch_norm="local")
    here, there = cluster2.run(learn, cases.task("batch norm"), settings, {})
    assert all(torch.equal(here["model"][k], v) for k, v in there["model"].items())
    assert int(here["model"]["norm.num_batches_tracked"]) == 3


def explode(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cases.loss(model, inputs, targets).clamp(max=1e30) * 1.0 + (model[2].bias[0] * 0).sqrt()


class Twice(nn.Module):
    """A layer inside two backward passes that run inside backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(cases.INPUTS, cases.INPUTS)
        self.last = nn.Linear(cases.INPUTS, cases.CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.clone().requires_grad_()
        for _ in range(2):
            h = torch.tanh(checkpoint(self.inner, h, use_reentrant=True))
        return self.last(h)


def test_backward_inside_backward(cluster2: Any) -> None:
    task = Task("twice", lambda: Twice().double(), cases.examples(), cases.loss, batch=9)
    for options in ({"overlap": False}, {"overlap": False, "megabytes": 1e-4}):
        check(cluster2.run(learn, task, Settings(3), options), trained(task, 3), 1e-12)
    with pytest.raises(Exception, match=r"inner\.\w+ got a gradient after .*overlap=False"):
        cluster2.run(learn, task, Settings(3), {"megabytes": 1e-4})


def test_overlap_changes_no_bits(cluster2: Any) -> None:
    task, settings = cases.task("tied"), Settings(3, accumulate=2)
    results = [
        cluster2.run(learn, task, settings, {"overlap": overlap, "megabytes": size})[0]["model"]
        for overlap in (True, False)
        for size in (1e-4, 1.0)
    ]
    for other in results[1:]:
        assert all(torch.equal(other[name], value) for name, value in results[0].items())


def test_bad_numbers_are_named(cluster2: Any) -> None:
    good = cases.task()
    bad = Examples(good.train.inputs.clone(), good.train.targets)
    bad.inputs[3] = float("nan")
    task = Task("bad", good.model, bad, cases.loss, batch=23)
    with pytest.raises(Exception, match=r"the loss is nan on rank 0 at step 0"):
        cluster2.run(learn, task, Settings(1), {})
    task = Task("bad", good.model, good.train, explode, batch=23)
    with pytest.raises(Exception, match=r"gradient of 2.bias is not finite on rank \d at step 0"):
        cluster2.run(learn, task, Settings(1), {})


def test_refusals(cluster1: Any) -> None:
    for words, make in (
        ("embedding with sparse=True", lambda: nn.Embedding(4, 2, sparse=True)),
        ("has no shape yet", lambda: nn.LazyLinear(3)),
    ):
        task = Task("odd", make, cases.examples(), cases.loss)
        with pytest.raises(Exception, match=words):
            cluster1.run(learn, task, Settings(1), {})
    with pytest.raises(ValueError, match="megabytes=0"):
        DataParallel(megabytes=0)
    with pytest.raises(ValueError, match="batch_norm='shard'"):
        DataParallel().check(Settings(1, batch_norm="shard"))


MASK = torch.tensor([[1.0] * cases.INPUTS, [0.0] * cases.INPUTS] * 2, dtype=torch.float64)


def pruned() -> nn.Module:
    """Rows of weights that a hook keeps at zero, before a layer whose hook looks at the model."""
    model = nn.Sequential(
        nn.Linear(cases.INPUTS, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, cases.CLASSES)
    ).double()
    with torch.no_grad():
        model[0].weight.mul_(MASK)
    model[0].weight.register_hook(lambda grad: grad * MASK)

    def add_mean(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        return out + model[0].bias.mean()

    model[3].register_forward_hook(add_mean)
    return model


@pytest.mark.parametrize("workers", [1, 2])
def test_hooks_work(cluster_of: Any, workers: int) -> None:
    task = Task("pruned", pruned, cases.examples(), cases.loss, batch=9)
    want = trained(task, 4)
    assert not bool(want[0][0].weight[1::2].any())
    check(cluster_of(workers).run(learn, task, Settings(4), {}), want, 1e-9)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "dslide"])
def test_shares_of_one_sample_with_batch_norm(cluster4: Any, strategy: str) -> None:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(37, 5, generator=generator)  # the last batch has 5 samples for 4 workers
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    task = Task.of(model, (X, (X.sum(1) > 0).long()), batch=16)
    options = {"threshold": 9.0, "micro_batches": 2} if strategy == "dropcompute" else {}
    run = dt.train(cluster4, task, STRATEGIES[strategy](**options), steps=3)
    assert all(bool(value.isfinite().all()) for value in run.state.model.values())
    assert int(run.state.model["1.num_batches_tracked"]) > 0
