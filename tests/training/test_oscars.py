"""Oscars-style rounds over workers: what equals what, counts, resume and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import RankError
from dtoolkit.training import Settings, Task, tasks
from dtoolkit.training.oscars import local_steps, simulate
from dtoolkit.training.state import MEASURED
from dtoolkit.training.strategies import Oscars
from tests.training import cases
from tests.training.reference import trained
from tests.training.test_parameter_server import services

STEPS = 5


def task(model: str = "plain", **changes: Any) -> Task:
    made = cases.task(model, **changes)
    return Task.of(
        made.model,
        made.train,
        loss=made.loss,
        test=made.test,
        metrics=made.metrics,
        batch=made.batch,
        optimizer=partial(torch.optim.SGD, lr=0.3, weight_decay=0.01),
        schedule=made.schedule,
        penalty=made.penalty,
    )


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("model", ["plain", "tied"])
def test_equal_speeds_are_synchronous(cluster_of: Any, model: str, workers: int) -> None:
    one = task(model, schedule=True, penalty=True)
    want, _ = trained(one, STEPS)
    run = dt.train(cluster_of(workers), one, Oscars([2.5] * workers), steps=STEPS)
    for name, value in want.state_dict().items():
        torch.testing.assert_close(run.state.model[name], value, rtol=1e-12, atol=1e-12)
    assert (run.by_worker()["local_steps"] == 1).all()
    assert run.state.own == ()
    assert run.state.schedule["last_epoch"] == STEPS


def test_momentum_too_where_it_is_averaged(cluster4: dt.Cluster) -> None:
    one = cases.task("tied")
    want, _ = trained(one, STEPS)
    strategy = Oscars([1] * 4, optimizer_state="average")
    run = dt.train(cluster4, one, strategy, steps=STEPS)
    for name, value in want.state_dict().items():
        torch.testing.assert_close(run.state.model[name], value, rtol=1e-12, atol=1e-12)


def test_modelled_speeds_give_the_rules_counts(cluster4: dt.Cluster) -> None:
    run = dt.train(cluster4, task(), Oscars([1, 2, 4, 8]), steps=3)
    counts = run.by_worker().groupby("worker")["local_steps"].apply(list)
    assert counts.tolist() == [[7] * 3, [3] * 3, [1] * 3, [1] * 3]
    assert run.summary["local steps (modelled)"] == [7, 3, 1, 1]
    again = dt.train(cluster4, task(), Oscars([1, 2, 4, 8]), steps=3)
    assert again.state.digest() == run.state.digest()


def test_what_is_averaged_is_weighted_by_samples(cluster2: dt.Cluster) -> None:
    """Two local steps on one rank and one on the other, by hand."""
    one = task()
    run = dt.train(cluster2, one, Oscars([2, 5]), steps=1)
    assert run.by_worker()["local_steps"].tolist() == [2, 1]
    locals_, counts = [], []
    for rank, steps in ((0, 2), (1, 1)):
        from dtoolkit.training import Sampler
        from dtoolkit.training.seeds import seeded

        sampler = Sampler(cases.SAMPLES, one.batch, seed=0, ranks=2)
        with seeded(0, "model"):
            model = one.model()
        optimizer = one.optimizer(list(model.parameters()))
        for step in range(steps):
            (ids,) = sampler.share(step, rank)
            optimizer.zero_grad()
            one.loss(model, *one.train.take(ids)).mean().backward()
            optimizer.step()
        locals_.append(model.state_dict())
        counts.append(sum(len(sampler.share(step, rank)[0]) for step in range(steps)))
    for name, value in run.state.model.items():
        mean = sum(c * m[name] for c, m in zip(counts, locals_, strict=True)) / sum(counts)
        torch.testing.assert_close(value, mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("compression", [None, "top-k"])
@pytest.mark.parametrize("model", ["plain", "batch norm"])
def test_resume_is_bit_equal_on_modelled_clocks(
    cluster2: dt.Cluster, model: str, compression: str | None, tmp_path: Any
) -> None:
    one = cases.task(model, "adam", schedule=True, batch=12)
    go = partial(dt.train, cluster2, one, Oscars([1, 3]), seed=1, compression=compression)
    whole = go(steps=6)
    for stop in (1, 4):
        go(steps=stop).save(tmp_path / "run")
        assert go(steps=6, resume=tmp_path / "run").state.digest() == whole.state.digest()


@pytest.mark.slow
def test_really_slow_workers_make_about_the_rules_counts(cluster4: dt.Cluster) -> None:
    """Speeds 8, 4, 2, 1 by sleeping: 7, 3, 1 and 1 local steps where the machine is quick.

    Where it is not, what the rule says of the times that steps really took, give or take one.
    """
    unit = 0.06
    slow = [dt.faults.Slow(rank=rank, seconds=unit * 2**rank) for rank in range(4)]
    run = dt.train(cluster4, task(), "oscars", steps=6, faults=slow)
    table = run.by_worker()
    later = table[table["step"] > 0].groupby("worker")
    counts = later["local_steps"].mean()
    took = later["compute"].sum() / later["local_steps"].sum()
    assert table[table["step"] == 0]["local_steps"].tolist() == [1] * 4
    for count, want in zip(counts, local_steps(took.tolist()), strict=True):
        assert abs(count - want) <= 1.2
    assert 3 <= counts[0] <= 7.5
    assert counts[3] == 1
    # Each waits less than its own step and half the fastest, if the machine lets it.
    idle = later["idle"].median()
    assert idle[0] < 4 * unit
    assert idle[3] < 4 * unit
    assert run.state.own[0][MEASURED]["seconds"] > unit
    # Step times are known after a stop: no round of single steps.
    more = dt.train(cluster4, task(), "oscars", steps=7, faults=slow, resume=run)
    assert more.by_worker()["local_steps"].tolist()[0] > 3


def test_workers_without_samples(cluster4: dt.Cluster) -> None:
    owners = [i % 2 + 1 for i in range(cases.SAMPLES)]
    for strategy in ("oscars", Oscars([1, 1, 2, 1])):
        run = dt.train(cluster4, task(), strategy, steps=3, partition=owners)
        steps = run.by_worker().groupby("worker")["local_steps"].sum()
        assert steps[0] == steps[3] == 0
        assert steps[1] >= 3
        assert all(torch.isfinite(v).all() for v in run.state.model.values())


def test_a_stop_is_between_rounds(cluster2: dt.Cluster) -> None:
    slow = [dt.faults.Slow(rank=1, seconds=0.01)]
    training = dt.submit_training(cluster2, task(), "oscars", steps=2000, faults=slow)
    while training.step < 2:
        time.sleep(0.01)
    training.stop()
    run = training.result(30)
    assert run.stopped
    assert 2 <= run.state.step < 2000
    steps = run.state.step + 2
    assert dt.train(cluster2, task(), "oscars", steps=steps, resume=run).state.step == steps
    assert cluster2.run(services) == [0, 0]


def test_an_error_of_a_worker_ends_all(cluster_of: Callable[[int], dt.Cluster]) -> None:
    def failing(model: Any, inputs: Any, targets: Any) -> Any:
        value = cases.loss(model, inputs, targets)
        return value * float("nan") if bool((targets == 2).all()) else value

    one = cases.task()
    bad = Task.of(one.model, one.train, loss=failing, batch=9)
    start = time.perf_counter()
    with pytest.raises((RankError, FloatingPointError), match="loss is nan"):
        dt.train(cluster_of(4), bad, "oscars", steps=60)
    assert time.perf_counter() - start < 10
    assert cluster_of(4).run(services) == [0] * 4


def test_what_makes_no_sense_is_refused(cluster2: dt.Cluster) -> None:
    with pytest.raises(ValueError, match=r"times\[1\] is -1"):
        Oscars([1, -1])
    with pytest.raises(ValueError, match="batch_norm='sync': oscars has 'local' alone"):
        Oscars().check(Settings(3, batch_norm="sync"))
    with pytest.raises(ValueError, match="wanted 'own' or 'average'"):
        Oscars(optimizer_state="none")
    with pytest.raises((RankError, ValueError), match="times: 3 for 2 workers"):
        dt.train(cluster2, task(), Oscars([1, 2, 3]), steps=2)


@pytest.mark.slow
def test_unequal_speeds_pay(cluster4: dt.Cluster) -> None:
    """Speeds 8, 4, 2, 1 on digits: the accuracy of lock step for fewer bytes, above that of async.

    Rounds and lock step run on modelled clocks, where both take as long as the slowest worker;
    asynchronous workers really sleep.
    """
    digits = tasks.digits(optimizer=partial(torch.optim.SGD, lr=0.5, momentum=0.9))
    go = partial(dt.train, cluster4, digits, seed=0, evaluate_every=4)
    slow = [dt.faults.Slow(rank=rank, seconds=0.003 * 2**rank) for rank in range(4)]
    lock_step = go("data-parallel", steps=48)
    rounds = go(Oscars([1, 2, 4, 8]), steps=16)
    free = go("parameter-server-async", steps=48, faults=slow)
    reached = [
        run.history["test_accuracy"].dropna().pipe(lambda a: a[a >= 0.94]).index[0] + 1
        for run in (lock_step, rounds)
    ]
    assert reached[1] <= reached[0] / 2, reached  # in time, and in bytes:
    sent = [run.trace.total / run.state.step for run in (lock_step, rounds)]
    assert sent[1] < 1.1 * sent[0]
    used = [run.by_worker()["samples"].sum() for run in (lock_step, rounds, free)]
    assert used[1] < 1.1 * used[2]
    best = [run.history["test_accuracy"].dropna().iloc[-1] for run in (rounds, free)]
    assert best[0] > best[1] + 0.01, best
    assert simulate([1, 2, 4, 8], rounds=5).utilisation > 1.5 * (15 / 32)
