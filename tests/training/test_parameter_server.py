"""Parameter servers over workers: what equals what, staleness, stops and errors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import LaunchCancelled, RankError, WorkerLost
from dtoolkit.training import Settings, Task
from dtoolkit.training.ended import Ended
from dtoolkit.training.loop import Job, learn
from dtoolkit.training.strategies import (
    STRATEGIES,
    AsyncParameterServer,
    BoundedStaleness,
    ParameterServer,
)
from tests.training import cases
from tests.training.reference import trained

STEPS = 5  # the third batch is the small one of the first epoch: 9, 9, 5


def many(ctx: Any, jobs: list[Job]) -> list[Ended]:
    return [learn(ctx, job) for job in jobs]


def check(got: Ended, want: tuple[Any, Any], tolerance: float) -> None:
    model, optimizer = want
    assert got.state is not None
    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    for name, value in model.state_dict().items():
        close(got.state.model[name], value, msg=lambda m: f"{name}: {m}")  # noqa: B023
    kept = list(got.state.optimizer["state"].values())
    for mine, theirs in zip(kept, optimizer.state_dict()["state"].values(), strict=True):
        for key, value in theirs.items():
            if isinstance(value, torch.Tensor):
                close(mine[key], value)


def equal(one: Any, other: Any, *names: str) -> None:
    """Two states hold the same bits but for their strategy."""
    assert [n for n in one.differs_from(other) if n not in ("strategy", *names)] == []


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("model", cases.MODELS)
def test_synchronous_is_one_process(cluster_of: Any, model: str, workers: int) -> None:
    jobs, wants = [], []
    for number, (accumulate, partition) in enumerate(product((1, 3), cases.PARTITIONS)):
        optimizer = list(cases.OPTIMIZERS)[number % 3]
        task = cases.task(model, optimizer, schedule=number % 2 == 0, penalty=number % 4 == 1)
        if model == "batch norm" and accumulate == 3:
            task = cases.task(model, optimizer, batch=12)
        owners = cases.PARTITIONS[partition](workers)
        settings = Settings(STEPS, seed=number, accumulate=accumulate, partition=owners)
        jobs.append(Job(task, ParameterServer(), settings))
        # Adam divides by what is near 0 where batch norm leaves little to learn: rounding grows.
        tolerance = 1e-10 if model == "batch norm" and optimizer != "sgd" else 1e-12
        wants.append((trained(task, STEPS, seed=number, accumulate=accumulate), tolerance))
    done = cluster_of(workers).run(many, jobs, timeout=120)[0]
    for got, (want, tolerance) in zip(done, wants, strict=True):
        check(got, want, tolerance)


def test_a_bound_of_zero_is_synchronous_to_the_bit(cluster4: dt.Cluster) -> None:
    task = cases.task("tied", schedule=True, penalty=True)
    one = dt.train(cluster4, task, "parameter-server", steps=STEPS)
    other = dt.train(cluster4, task, BoundedStaleness(bound=0), steps=STEPS)
    equal(one.state, other.state)
    equal(one.state, dt.train(cluster4, task, "data-parallel", steps=STEPS).state)
    assert (one.history["staleness"] == 0).all()
    assert one.history["samples"].tolist() == [9, 9, 5, 9, 9]
    assert one.summary["updates"] == STEPS


@pytest.mark.parametrize("model", cases.MODELS)
def test_asynchronous_with_one_worker_is_sequential(cluster1: dt.Cluster, model: str) -> None:
    task = cases.task(model, "adam", schedule=True, penalty=True, batch=8)
    sequential = dt.train(cluster1, task, "data-parallel", steps=STEPS, accumulate=2)
    for strategy in ("parameter-server", "parameter-server-async", "bounded-staleness"):
        run = dt.train(cluster1, task, strategy, steps=STEPS, accumulate=2)
        equal(run.state, sequential.state, "own.0.pushes", "own.0.updates", "own.0.largest")
        assert run.history["loss"].tolist() == sequential.history["loss"].tolist()


@pytest.mark.parametrize(
    "strategy", [BoundedStaleness(1), BoundedStaleness(3), "parameter-server-async"]
)
def test_staleness_stays_within_its_bound(cluster4: dt.Cluster, strategy: Any) -> None:
    slow = [dt.faults.Slow(rank=3, seconds=0.03), dt.faults.Slow(rank=2, seconds=0.01)]
    run = dt.train(cluster4, cases.task(), strategy, steps=10, faults=slow)
    table = run.by_worker().dropna(subset=["samples"])
    assert len(table) == 40  # as many pushes as synchronously
    counts = table.groupby("worker").size()
    assert counts[3] < counts[0]
    largest = table["staleness"].max()
    assert run.summary["pushes"] == 40
    assert run.summary["largest staleness"] == largest > 0
    if isinstance(strategy, BoundedStaleness):
        assert largest <= strategy.bound
        # Fast workers wait for slow ones, who wait for nobody.
        idle = table.groupby("worker")["idle"].sum()
        assert idle[0] > idle[3]
    else:
        assert run.summary["updates"] == 40
        assert table["idle"].max() < 0.03
    assert run.history["test_loss"].iloc[-1] < 1.0 or run.history["test_loss"].notna().any()


@pytest.mark.parametrize("bound", [0, 1, None])
def test_workers_without_samples(cluster4: dt.Cluster, bound: int | None) -> None:
    owners = [i % 2 + 1 for i in range(cases.SAMPLES)]  # none on ranks 0 and 3
    strategy = ParameterServer(bound)
    run = dt.train(
        cluster4, cases.task("batch norm", batch=23), strategy, steps=4, partition=owners
    )
    assert run.state.step == 4
    assert run.summary["pushes"] == (16 if bound == 0 else 8)
    assert all(torch.isfinite(v).all() for v in run.state.model.values())


@pytest.mark.parametrize("strategy", ["parameter-server", "parameter-server-async"])
def test_resume_is_as_if_it_had_not_stopped(
    cluster_of: Callable[[int], dt.Cluster], strategy: str, tmp_path: Any
) -> None:
    """To the bit where it is synchronous, or one worker."""
    for workers in (1, 2) if strategy == "parameter-server" else (1,):
        cluster = cluster_of(workers)
        for compression in (None, "top-k"):
            go = partial(
                dt.train, cluster, cases.task("batch norm", "adam", schedule=True), strategy,
                seed=4, compression=compression,
            )  # fmt: skip
            whole = go(steps=7)
            for stop in (1, 4):
                go(steps=stop).save(tmp_path / "run")
                assert go(steps=7, resume=tmp_path / "run").state.digest() == whole.state.digest()


def test_resume_with_other_workers(cluster_of: Callable[[int], dt.Cluster]) -> None:
    task = cases.task("plain", "adam", schedule=True)
    first = dt.train(cluster_of(2), task, "parameter-server", steps=3)
    then = dt.train(cluster_of(4), task, "parameter-server", steps=6, resume=first)
    whole = dt.train(cluster_of(1), task, "parameter-server", steps=6)
    for name, value in whole.state.model.items():
        torch.testing.assert_close(then.state.model[name], value, rtol=1e-12, atol=1e-12)
    free = dt.train(cluster_of(2), task, "bounded-staleness", steps=3)
    with pytest.raises(ValueError, match="resume on 2 workers"):
        dt.train(cluster_of(4), task, "bounded-staleness", steps=6, resume=free)


@pytest.mark.parametrize("strategy", ["parameter-server", "parameter-server-async"])
def test_a_stop_leaves_nothing_under_way(cluster2: dt.Cluster, strategy: str) -> None:
    slow = [dt.faults.Slow(seconds=0.005)]
    task = cases.task()
    training = dt.submit_training(cluster2, task, strategy, steps=2000, faults=slow)
    while training.step < 3:
        time.sleep(0.01)
    training.stop()
    run = training.result(30)
    assert 3 <= run.state.step < 2000
    assert run.stopped
    more = run.state.step + 5
    go_on = dt.train(cluster2, task, strategy, steps=more, resume=run)
    assert go_on.state.step == more
    pushes = len(go_on.by_worker().dropna(subset=["samples"])["step"])
    assert pushes in (2 * 5, 2 * 5 - 1)  # one more than whole steps may have been made before
    if strategy == "parameter-server":
        whole = dt.train(cluster2, task, strategy, steps=more)
        assert whole.state.digest() == go_on.state.digest()


def test_evaluated_on_the_way_to_the_same_end(cluster2: dt.Cluster) -> None:
    task = cases.task("batch norm", schedule=True)
    for strategy in ("parameter-server", "bounded-staleness"):
        run = dt.train(cluster2, task, strategy, steps=7, evaluate_every=3)
        scored = run.history["test_loss"].notna()
        assert scored[:7].tolist() == [False, False, True, False, False, True, True]
        if strategy == "parameter-server":
            assert run.state.digest() == dt.train(cluster2, task, strategy, steps=7).state.digest()


@pytest.mark.parametrize("strategy", ["parameter-server", "parameter-server-async"])
def test_the_schedule_goes_by_whole_steps(cluster2: dt.Cluster, strategy: str) -> None:
    run = dt.train(cluster2, cases.task(schedule=True), strategy, steps=6)
    assert run.state.schedule is not None
    assert run.state.schedule["last_epoch"] == 6
    assert run.history["lr"].iloc[-1] == pytest.approx(0.3 / 4)


@pytest.mark.parametrize("compression", ["top-k", "random-k", "sign"])
def test_compressed_pushes_are_smaller(cluster2: dt.Cluster, compression: str) -> None:
    whole = dt.train(cluster2, cases.task(), "parameter-server", steps=3)
    small = dt.train(cluster2, cases.task(), "parameter-server", steps=3, compression=compression)
    sent = [run.trace.filter(rank=1, operation="send").total for run in (whole, small)]
    assert 0 < sent[1] < sent[0] / 2


@pytest.mark.parametrize("compression", ["top-k", "random-k", "sign"])
def test_compressed_with_all_samples_on_one_worker(cluster2: dt.Cluster, compression: str) -> None:
    """A worker that has nothing to push pushes nothing, also compressed."""
    for strategy in ("parameter-server", "parameter-server-async", "oscars"):
        run = dt.train(
            cluster2, cases.task("chosen"), strategy, steps=3, compression=compression,
            partition=[1] * cases.SAMPLES,
        )  # fmt: skip
        assert run.state.step == 3
        assert all(torch.isfinite(v).all() for v in run.state.model.values())


def test_bytes_are_those_of_pushes_and_versions(cluster2: dt.Cluster) -> None:
    task = cases.task()
    numbers = sum(p.numel() for p in task.model().parameters())
    run = dt.train(cluster2, task, "parameter-server", steps=10)
    for rank in (0, 1):
        sent = run.trace.filter(rank=rank, operation="send").total
        assert 10 * 8 * numbers <= sent <= 10 * (8 * numbers + 300) + 100
    assert run.history["bytes"].sum() >= 20 * 8 * numbers


def test_an_error_of_a_worker_ends_all(cluster4: dt.Cluster) -> None:
    def failing(model: Any, inputs: Any, targets: Any) -> Any:
        value = cases.loss(model, inputs, targets)
        return value * float("nan") if bool((targets == 2).all()) else value

    task = cases.task()
    task = Task.of(task.model, task.train, loss=failing, batch=9)
    start = time.perf_counter()
    with pytest.raises((RankError, FloatingPointError), match="loss is nan"):
        dt.train(cluster4, task, "bounded-staleness", steps=30)
    assert time.perf_counter() - start < 10
    assert dt.train(cluster4, cases.task(), "bounded-staleness", steps=2).state.step == 2
    assert cluster4.run(services) == [0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["parameter-server", "parameter-server-async", "oscars"])
def test_a_killed_worker_ends_all(strategy: str) -> None:
    """The host of the server, and another one; and the next run finds nothing of the last."""
    slow = [dt.faults.Slow(seconds=0.005)]
    with dt.Cluster(workers=3, device="cpu", timeout=60) as cluster:
        for rank in (0, 2):
            training = dt.submit_training(cluster, cases.task(), strategy, steps=3000, faults=slow)
            while training.step < 3:
                time.sleep(0.01)
            start = time.perf_counter()
            os.kill(cluster.pids[rank], signal.SIGKILL)
            with pytest.raises(WorkerLost):
                training.result(20)
            assert time.perf_counter() - start < 3
            assert cluster.run(services, timeout=60) == [0] * 3
            assert dt.train(cluster, cases.task(), strategy, steps=2).state.step == 2
        training = dt.submit_training(cluster, cases.task(), strategy, steps=3000, faults=slow)
        while training.step < 3:
            time.sleep(0.01)
        training.cancel()
        with pytest.raises(LaunchCancelled):
            training.result(20)
        assert cluster.run(services, timeout=60) == [0] * 3


def services(ctx: Any) -> int:
    end = time.monotonic() + 2
    while time.monotonic() < end:
        if not any(t.name == "dtoolkit-service" for t in threading.enumerate()):
            return 0
        time.sleep(0.02)
    return 1


def test_what_makes_no_sense_is_refused(cluster2: dt.Cluster) -> None:
    with pytest.raises(ValueError, match="bound must be 0 or more"):
        ParameterServer(-1)
    with pytest.raises(TypeError, match="bound=1"):
        ParameterServer(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="has no bound"):
        BoundedStaleness(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_norm='sync': a parameter server with bound=None"):
        AsyncParameterServer().check(Settings(3, batch_norm="sync"))
    assert {"parameter-server", "parameter-server-async", "bounded-staleness"} <= set(STRATEGIES)


def hooked(*, batch_norm: bool) -> nn.Module:
    """Weights that a hook keeps as they are, and a hook that uses a layer of its own model."""
    norm = nn.BatchNorm1d(4) if batch_norm else nn.Identity()
    model = nn.Sequential(nn.Linear(cases.INPUTS, 4), norm, nn.Linear(4, cases.CLASSES)).double()
    model[0].weight.register_hook(torch.zeros_like)
    model[2].register_forward_hook(lambda module, args, out: out + model[0].bias.mean())
    return model


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_hooks_work(cluster_of: Any, workers: int, batch_norm: bool) -> None:
    task = Task(
        "hooked", partial(hooked, batch_norm=batch_norm), cases.examples(), cases.loss, batch=9
    )
    run = dt.train(cluster_of(workers), task, "parameter-server", steps=STEPS)
    model, _ = trained(task, STEPS)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(run.state.model[name], value, rtol=1e-9, atol=1e-9)


def test_one_module_for_server_and_worker(cluster2: dt.Cluster) -> None:
    plain, hooks = hooked(batch_norm=True), nn.Linear(cases.INPUTS, cases.CLASSES).double()
    plain[2]._forward_hooks.clear()
    task = Task("same", lambda: plain, cases.examples(), cases.loss, batch=9)
    want = dt.train(cluster2, task, "data-parallel", steps=STEPS).state.model
    got = dt.train(cluster2, task, "parameter-server", steps=STEPS).state.model
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=1e-9, atol=1e-9)

    def same() -> nn.Module:
        if not hooks._forward_hooks:
            hooks.register_forward_hook(lambda module, args, out: out * 2)
        return hooks

    with pytest.raises(RankError, match=r"task.model\(\) gave the same module twice"):
        dt.train(cluster2, replace(task, model=same), "parameter-server", steps=STEPS)
