"""DropCompute on workers: dropping micro-batches gives the gradient of the samples really used."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dtoolkit import train
from dtoolkit.errors import RankError
from dtoolkit.faults import Slow
from dtoolkit.faults.delays import Exponential
from dtoolkit.training import Replica, Sampler, Settings, Task
from dtoolkit.training.seeds import seeded
from dtoolkit.training.state import MEASURED
from dtoolkit.training.strategies import DataParallel, DropCompute
from dtoolkit.training.strategy import Strategy
from tests.training import cases

STEPS, PIECES = 5, 6


class Scripted(DropCompute):
    """Drops by the book: so many micro-batches a step and rank, whatever the clock says."""

    def over(self, elapsed: float, *, step: int, rank: int, micro: int) -> bool:
        return micro + 1 >= kept(step, rank)


def kept(step: int, rank: int) -> int:
    """From one micro-batch to all of them; rank 1 drops all but one in every step."""
    return 1 if rank == 1 else 1 + (3 * step + 2 * rank) % PIECES


def learn(ctx: Any, task: Task, settings: Settings, strategy: Strategy) -> dict[str, Any]:
    strategy.check(settings)
    replica = Replica(ctx, task, settings, batch_norm=strategy.batch_norm)
    strategy.configure(replica)
    reports = [strategy.step(replica, step) for step in range(settings.steps)]
    strategy.finish(replica)
    return {**replica.state(), "reports": reports, "summary": strategy.summary()}


def by_hand(task: Task, settings: Settings, ranks: int, average: str) -> tuple[Any, list[int]]:
    """One process on the samples that are left; the model, and how many there were a step."""
    sampler = Sampler(
        len(task.train),
        task.batch,
        seed=settings.seed,
        ranks=ranks,
        partition=settings.partition,
        accumulate=settings.accumulate,
    )
    with seeded(settings.seed, "model"):
        model = task.model()
    optimizer = task.optimizer([value for value in model.parameters() if value.requires_grad])
    counts = []
    for step in range(settings.steps):
        shares = [sampler.share(step, rank)[: kept(step, rank)] for rank in range(ranks)]
        ids = torch.cat([one for share in shares for one in share])
        counts.append(len(ids))
        optimizer.zero_grad()
        if len(ids):
            whole = len(ids) if average == "used" else sampler.planned(step)
            (task.loss(model, *task.train.take(ids)).sum() / whole).backward()
            if task.penalty is not None:
                task.penalty(model).backward()
            optimizer.step()
    return model, counts


def same_bits(got: list[dict[str, Any]]) -> None:
    for other in got[1:]:
        assert all(torch.equal(got[0]["model"][k], v) for k, v in other["model"].items())


# ------------------------------------------------------------------------------- what is used


@pytest.mark.parametrize("average", ["used", "planned"])
@pytest.mark.parametrize("partition", ["even", "uneven"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_equal_to_one_process_on_the_samples_used(
    cluster_of: Any, workers: int, partition: str, average: str
) -> None:
    task = cases.task("tied", "sgd", penalty=True)
    owners = cases.PARTITIONS[partition](workers)
    settings = Settings(STEPS, seed=3, batch=9, accumulate=PIECES, partition=owners)
    if partition == "even":  # larger, so that more than the first ranks have samples
        task = cases.task("plain", "adam", batch=23)
        settings = Settings(STEPS, seed=3, accumulate=PIECES)
    got = cluster_of(workers).run(learn, task, settings, Scripted(math.inf, average=average))
    same_bits(got)
    model, counts = by_hand(task, settings, workers, average)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(got[0]["model"][name], value, rtol=1e-12, atol=1e-12)
    for step, count in enumerate(counts):
        reports = [state["reports"][step] for state in got]
        assert sum(report.samples for report in reports) == count
        for rank, report in enumerate(reports):
            assert report.extra == {"micro_batches": kept(step, rank)}
            assert report.planned >= report.samples
    planned = sum(report.planned for state in got for report in state["reports"])
    for state in got:
        assert state["summary"]["dropped"] == pytest.approx(1 - sum(counts) / planned)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("model", ["plain", "tied", "chosen"])
def test_bit_equal_to_data_parallel_if_nothing_is_dropped(
    cluster_of: Any, model: str, workers: int
) -> None:
    task = cases.task(model, "adamw", schedule=True, penalty=True)
    settings = Settings(STEPS, accumulate=PIECES, partition=cases.PARTITIONS["uneven"](workers))
    plain = cluster_of(workers).run(learn, task, settings, DataParallel())
    for strategy in (DropCompute(math.inf), DropCompute(warmup=STEPS)):
        got = cluster_of(workers).run(learn, task, settings, strategy)
        for want, state in zip(plain, got, strict=True):
            assert all(torch.equal(state["model"][k], v) for k, v in want["model"].items())
            assert state["summary"]["dropped"] == 0.0


def test_a_threshold_of_nothing_leaves_one_micro_batch(cluster2: Any) -> None:
    task = cases.task(batch=23)
    run = train(cluster2, task, DropCompute(0.0), steps=3, accumulate=PIECES)
    assert run.history["micro_batches_0"].tolist() == [1, 1, 1]
    assert run.history["micro_batches_1"].tolist() == [1, 1, 1]
    assert run.history["samples"].tolist() == [4, 4, 4]
    assert run.history["dropped"].tolist() == [19, 19, 19]


def test_batch_norm_is_each_ranks_own_and_its_buffers_are_pooled(cluster2: Any) -> None:
    task = cases.task("batch norm", batch=23)
    settings = Settings(STEPS, accumulate=PIECES)
    got = cluster2.run(learn, task, settings, Scripted(math.inf))
    same_bits(got)
    tracked = got[0]["model"]["norm.num_batches_tracked"]
    # Each step adds what the rank that did most has done.
    assert int(tracked) == sum(max(kept(step, 0), 1) for step in range(STEPS))


def test_nothing_is_sent_that_data_parallel_does_not_send(cluster2: Any) -> None:
    task = cases.task("plain", "sgd")
    settings = Settings(STEPS, accumulate=PIECES)

    def sent(strategy: Strategy) -> list[tuple[Any, ...]]:
        cluster2.trace.clear()
        cluster2.run(learn, task, settings, strategy)
        return sorted((e.rank, e.operation, e.phase, e.sent) for e in cluster2.trace.events)

    plain = sent(DataParallel(overlap=False))
    assert sent(Scripted(math.inf)) == plain
    chosen = sent(DropCompute(warmup=2))
    assert len(chosen) - len(plain) == 2  # the table of times: a message of each rank
    assert {one[2] for one in chosen} - {one[2] for one in plain} == {"threshold"}


def test_compressed_gradients_go_with_it(cluster2: Any) -> None:
    from dtoolkit.training.compression import TopK

    task = cases.task(batch=23)
    settings = Settings(STEPS, accumulate=PIECES, compression=TopK(1.0))
    got = cluster2.run(learn, task, settings, Scripted(math.inf))
    model, _ = by_hand(task, settings, 2, "used")
    for name, value in model.state_dict().items():
        torch.testing.assert_close(got[0]["model"][name], value, rtol=1e-12, atol=1e-12)


# -------------------------------------------------------------------------------- the threshold


def test_the_threshold_is_the_rules_and_the_same_on_all_ranks(cluster2: Any) -> None:
    task = cases.task(batch=23)
    faults = (Slow(0, seconds=0.02),)
    settings = Settings(6, accumulate=8, faults=faults)
    got = cluster2.run(learn, task, settings, DropCompute(warmup=2))
    assert len({state["summary"]["threshold"] for state in got}) == 1
    summary = got[0]["summary"]
    assert 0 < summary["threshold"] < 0.16
    assert summary["expected_gain"] > 0.5
    for report in got[0]["reports"][:3]:  # one step to begin with, two to measure
        assert report.extra["micro_batches"] == 8
    for report in got[0]["reports"][3:]:
        assert report.extra["micro_batches"] < 8
    assert got[0]["reports"][4].planned == sum(
        len(ids) for ids in Sampler(23, 23, seed=0, ranks=2, accumulate=8).share(4, 0)
    )


def test_the_table_holds_what_was_measured(cluster2: Any) -> None:
    task = cases.task(batch=23)
    faults = (Slow(delay=Exponential(0.004)),)
    settings = Settings(5, accumulate=6, faults=faults)
    strategy = DropCompute(warmup=9)
    owns = cluster2.run(own_after, task, settings, strategy)
    tables = [table for own in owns for table in own[MEASURED].values()]
    times = torch.tensor(tables, dtype=torch.float64).numpy()
    assert times.shape == (2, 4, 7)  # without the first step; micro-batches, then the whole step
    drawn = Exponential(0.004).table(0, workers=2, steps=5, micro_batches=6)[:, 1:]
    assert (times[:, :, :6] > drawn).all()
    assert (times[:, :, 6] >= times[:, :, :6].sum(2)).all()


def own_after(ctx: Any, task: Task, settings: Settings, strategy: Strategy) -> dict[str, Any]:
    replica = Replica(ctx, task, settings, batch_norm=strategy.batch_norm)
    strategy.configure(replica)
    for step in range(settings.steps):
        strategy.step(replica, step)
    strategy.finish(replica)
    return strategy.own_state()


def test_where_no_gain_is_expected_nothing_is_dropped(cluster1: Any) -> None:
    def limits(ctx: Any) -> list[float]:
        found = []
        for gain in (0.1, 0.0, -0.1):
            strategy = DropCompute()
            strategy.configure(Replica(ctx, cases.task(batch=23), Settings(1, accumulate=6)))
            strategy.restore({MEASURED: {"threshold, gain, drop": [0.5, gain, 0.2]}})
            found.append(strategy.summary()["threshold"])
        return found

    assert cluster1.run(limits) == [[0.5, math.inf, math.inf]]


def test_by_name_shares_are_cut_where_the_run_does_not_accumulate(cluster2: Any) -> None:
    from dtoolkit.training import tasks

    run = train(cluster2, tasks.digits(), "dropcompute", steps=2, seed=0)
    assert run.summary["micro_batches"] == 8
    plain = train(cluster2, tasks.digits(), "data-parallel", steps=2, seed=0)
    for name, value in plain.state.model.items():
        torch.testing.assert_close(run.state.model[name], value, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------- resume


@pytest.mark.parametrize("stop", [1, 3])
def test_resume_is_bit_equal_where_the_same_is_dropped(cluster2: Any, stop: int) -> None:
    task = cases.task("batch norm", "adam", batch=23, schedule=True)
    strategy = Scripted(math.inf)
    whole = train(cluster2, task, strategy, steps=STEPS, seed=1, accumulate=PIECES)
    first = train(cluster2, task, strategy, steps=stop, seed=1, accumulate=PIECES)
    again = train(cluster2, task, strategy, steps=STEPS, accumulate=PIECES, resume=first)
    assert again.state.digest() == whole.state.digest()


def test_what_was_measured_and_chosen_goes_on(cluster2: Any) -> None:
    task = cases.task(batch=23)
    strategy = DropCompute(warmup=3)
    options = {"seed": 1, "accumulate": PIECES, "faults": [Slow(0, seconds=0.02)]}
    one = train(cluster2, task, strategy, steps=3, **options)
    assert one.summary["threshold"] == math.inf
    for own in one.state.own:
        assert [len(rows) for rows in own[MEASURED].values()] == [2]
    two = train(cluster2, task, strategy, steps=5, resume=one, **options)
    threshold = two.summary["threshold"]
    assert threshold < 0.12  # one more step to begin with, and the third to measure
    three = train(cluster2, task, strategy, steps=7, resume=two, **options)
    assert three.summary["threshold"] == threshold
    assert three.history["dropped"].min() > 0


def test_the_clock_is_no_part_of_the_digest(cluster1: Any) -> None:
    runs = [
        train(cluster1, cases.task(batch=23), DropCompute(warmup=9), steps=3, accumulate=PIECES)
        for _ in range(2)
    ]
    assert runs[0].state.own != runs[1].state.own
    assert runs[0].state.digest() == runs[1].state.digest()


def test_other_workers_measure_for_themselves(cluster1: Any, cluster2: Any) -> None:
    task, strategy = cases.task(batch=23), DropCompute(warmup=2)
    first = train(cluster2, task, strategy, steps=2, accumulate=PIECES)
    assert first.state.own
    again = train(cluster1, task, strategy, steps=4, accumulate=PIECES, resume=first)
    (table,) = again.state.own[0][MEASURED].values()
    assert len(table) == 1  # of two steps: the first one pays for what is made once


def test_other_workers_go_on_with_a_given_threshold(cluster1: Any, cluster2: Any) -> None:
    task, strategy = cases.task(batch=23), DropCompute(math.inf)
    whole = train(cluster1, task, strategy, steps=4, accumulate=PIECES)
    first = train(cluster2, task, strategy, steps=2, accumulate=PIECES)
    again = train(cluster1, task, strategy, steps=4, accumulate=PIECES, resume=first)
    for name, value in whole.state.model.items():
        torch.testing.assert_close(again.state.model[name], value, rtol=1e-12, atol=1e-12)


# ----------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: DropCompute(-1.0), ValueError, r"threshold=-1\.0"),
        (lambda: DropCompute(float("nan")), ValueError, "threshold=nan"),
        (lambda: DropCompute("fast"), TypeError, "threshold='fast'"),
        (lambda: DropCompute(warmup=0), ValueError, "warmup=0"),
        (lambda: DropCompute(average="all"), ValueError, "average='all'"),
        (lambda: DropCompute(micro_batches=2.5), TypeError, r"micro_batches=2\.5"),
        (
            lambda: DropCompute().check(Settings(5, accumulate=5)),
            ValueError,
            "accumulate=5 gives 5 micro-batch",
        ),
        (
            lambda: DropCompute(1.0).check(Settings(5, batch_norm="sync")),
            ValueError,
            "batch_norm='sync'",
        ),
    ],
)
def test_what_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_what_it_says_of_itself(cluster1: Any) -> None:
    assert repr(DropCompute(0.5, average="planned")) == (
        "DropCompute(threshold=0.5, warmup=8, average='planned', micro_batches=8)"
    )
    run = train(cluster1, cases.task(), DropCompute(math.inf), steps=1)
    assert "DropCompute" in run.cite()


def test_a_share_too_small_to_be_cut(cluster2: Any) -> None:
    with pytest.raises(RankError, match="a share of 4 samples a rank gives 4 micro-batch"):
        train(cluster2, cases.task(batch=9), "dropcompute", steps=2)
    train(cluster2, cases.task(batch=9), DropCompute(1.0), steps=2)
    DropCompute(1.0).check(Settings(5, accumulate=2))
