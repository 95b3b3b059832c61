"""Local SGD over workers, against the same by hand in one process."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

import dtoolkit as dt
from dtoolkit.training.compression import TopK
from dtoolkit.training.strategies import LocalSGD
from tests.training import by_hand, cases
from tests.training.by_hand import close, same
from tests.training.reference import trained

STEPS = 7  # of rounds of 3: two whole ones and a bit; the third batch is a small one


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_one_local_step_of_plain_sgd_is_one_process(cluster_of, workers):
    runs, wants = [], []
    for model, partition in product(("plain", "tied", "chosen"), cases.PARTITIONS):
        number = len(runs)
        accumulate, owners = 1 + number % 3, cases.PARTITIONS[partition](workers)
        task = cases.task(model, schedule=number % 2 == 0, penalty=number % 4 == 1)
        task = by_hand.plainly(task)
        strategy = LocalSGD(1, optimizer_state=["own", "average"][number % 2])
        settings = {"steps": 5, "seed": 4, "accumulate": accumulate, "partition": owners}
        runs.append((task, strategy, settings))
        wants.append(trained(task, 5, seed=4, accumulate=accumulate)[0].state_dict())
    for got, want in zip(by_hand.models(cluster_of(workers), runs), wants, strict=True):
        close(got, dict(want), 1e-12)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_rounds_are_as_by_hand(cluster_of, workers):
    runs, wants = [], []
    for model, partition in product(cases.MODELS, cases.PARTITIONS):
        number = len(runs)
        if model == "batch norm" and partition in ("cyclic", "uneven"):
            continue  # a share of one sample has no variance
        optimizer = list(cases.OPTIMIZERS)[number % 3]
        task = cases.task(model, optimizer, schedule=number % 2 == 0, batch=12)
        accumulate = 1 if model == "batch norm" else 1 + number % 2
        owners = cases.PARTITIONS[partition](workers)
        settings = {"seed": number, "accumulate": accumulate, "partition": owners}
        runs.append((task, LocalSGD(3), {"steps": STEPS, **settings}))
        wants.append(by_hand.local_sgd(task, STEPS, workers, local_steps=3, **settings))
    for got, want in zip(by_hand.models(cluster_of(workers), runs), wants, strict=True):
        close(got, want, 1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_averaged_optimizers_are_the_same_everywhere(cluster4, optimizer):
    """With even shares and one local step: the momentum of one process."""
    task = cases.task("plain", optimizer, batch=8)
    task = replace(task, train=dt.training.Examples(*task.train.take(torch.arange(16))))
    run = dt.train(cluster4, task, LocalSGD(1, optimizer_state="average"), steps=4)
    assert run.state.own == ()
    if optimizer == "sgd":
        want, _ = trained(task, 4)
        close(run.state.model, dict(want.state_dict()), 1e-12)
    kept = run.state.optimizer["state"]["0.weight"]
    if optimizer == "adam":
        assert float(kept["step"]) == 4


def test_averaged_optimizers_where_some_have_no_samples(cluster4):
    task = cases.task("chosen", "adam")
    settings = {"seed": 1, "partition": [1 + (i % 3 == 0) for i in range(cases.SAMPLES)]}
    strategy = LocalSGD(2, optimizer_state="average")
    whole = dt.train(cluster4, task, strategy, steps=6, **settings)
    first = dt.train(cluster4, task, strategy, steps=4, **settings)
    assert first.state.own == ()
    same(dt.train(cluster4, task, strategy, steps=6, resume=first, **settings), whole)


@pytest.mark.parametrize(
    ("model", "compression", "stop"),
    [("chosen", None, 3), ("batch norm", None, 4), ("batch norm", TopK(share=0.2), 5)],
)
def test_resume_to_the_bit(cluster2, tmp_path, compression, model, stop):
    task = cases.task(model, "sgd", schedule=True)
    settings = {"seed": 3, "accumulate": 1, "compression": compression}
    whole = dt.train(cluster2, task, LocalSGD(3), steps=STEPS, **settings)
    first = dt.train(cluster2, task, LocalSGD(3), steps=stop, **settings)
    first.save(tmp_path / "run")
    again = dt.train(cluster2, task, LocalSGD(3), steps=STEPS, resume=tmp_path / "run", **settings)
    same(again, whole)
    assert again.history["loss"].tolist() == whole.history["loss"].tolist()[stop:]


def test_resume_with_other_workers(cluster_of):
    task = by_hand.plainly(cases.task("plain"))
    within = dt.train(cluster_of(2), task, LocalSGD(3), steps=4)
    with pytest.raises(ValueError, match="2 workers"):
        dt.train(cluster_of(4), task, LocalSGD(3), steps=7, resume=within)
    # Between rounds, and with an optimizer that keeps nothing, no rank has anything of its own.
    between = dt.train(cluster_of(2), task, LocalSGD(3), steps=3)
    assert between.state.own == ()
    run = dt.train(cluster_of(4), task, LocalSGD(3), steps=6, resume=between)
    assert run.state.step == 6
    momentum = dt.train(cluster_of(2), cases.task("plain", "sgd"), LocalSGD(3), steps=3)
    with pytest.raises(ValueError, match="2 workers"):
        dt.train(cluster_of(4), cases.task("plain", "sgd"), LocalSGD(3), steps=6, resume=momentum)


def test_resume_with_new_compression_is_refused(cluster2):
    task = cases.task("plain")
    within = dt.train(cluster2, task, LocalSGD(3), steps=2)
    with pytest.raises(ValueError, match="compression of the saved run is none, and Sign"):
        dt.train(cluster2, task, LocalSGD(3), steps=4, resume=within, compression="sign")


@pytest.mark.parametrize("workers", [1, 4])
def test_compressed_to_everything_is_no_compression(cluster_of, workers):
    runs = []
    for partition in ("even", "uneven", "all on the last"):
        settings = {"steps": 5, "seed": 2, "partition": cases.PARTITIONS[partition](workers)}
        task = cases.task("chosen", "sgd")
        runs += [(task, LocalSGD(2), settings)]
        runs += [(task, LocalSGD(2), {**settings, "compression": TopK(share=1)})]
    ended = by_hand.models(cluster_of(workers), runs)
    for plain, compressed in zip(ended[::2], ended[1::2], strict=True):
        close(compressed, plain, 1e-12)


def test_bytes_and_history(cluster4):
    task = cases.task("plain", "sgd", dtype=torch.float32)
    run = dt.train(cluster4, task, LocalSGD(3), steps=STEPS)
    # Two rounds in which all tell all: when and how many samples, and so small a model with it,
    # of which each tensor begins at a multiple of 16 bytes.
    ends = [32]
    for value in run.state.model.values():
        ends.append(-(-ends[-1] // 16) * 16 + value.nbytes)
    assert run.trace.filter(phase="averaging").total == 2 * 4 * 3 * ends[-1]
    rounds = run.history["bytes"].to_numpy() > 1000
    assert rounds.tolist() == [False, False, True] * 2 + [False]
    assert run.summary["rounds"] == 2
    assert (run.history["local_steps_0"] == 1).all()


def test_compressed_bytes(cluster4):
    task = cases.task("plain", "sgd", dtype=torch.float32)
    coder = TopK(k=10)
    run = dt.train(cluster4, task, LocalSGD(3), steps=STEPS, compression=coder)
    sent = run.trace.filter(phase="averaging", operation="all_gather").total
    assert coder.payload_bytes(1000, torch.float32) == 10 * 8
    assert sent == 2 * 4 * 3 * (32 + 10 * 8)  # rounds x ranks x peers x (when and samples, payload)


def test_settings_are_checked():
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="local_steps"):
            LocalSGD(wrong)
    for wrong in (1.5, True):
        with pytest.raises(TypeError, match="local_steps"):
            LocalSGD(wrong)
    with pytest.raises(ValueError, match="optimizer_state"):
        LocalSGD(optimizer_state="mean")
