"""Stop, and go on: bit-equal to not stopping, at every step, in another process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dtoolkit as dt
from dtoolkit.arrays import Layout
from dtoolkit.training import Checkpoint, Run, RunState, StepReport
from dtoolkit.training.compression import TopK
from dtoolkit.training.strategies import (
    STRATEGIES,
    DataParallel,
    LocalSGD,
    Ordered,
    Oscars,
    ParameterServer,
)
from dtoolkit.training.terms import Stepping, differing
from tests.training.toys import SAMPLES, toy

STEPS = 7


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("at", range(1, STEPS))
def test_resume_is_bit_equal_at_every_step(
    at: int, workers: int, cluster_of: Callable[[int], dt.Cluster]
) -> None:
    cluster = cluster_of(workers)
    whole = dt.train(cluster, toy(), steps=STEPS, seed=3)
    first = dt.train(cluster, toy(), steps=at, seed=3)
    second = dt.train(cluster, toy(), steps=STEPS, resume=first)
    assert second.state.differs_from(whole.state) == []
    assert second.state.digest() == whole.state.digest()
    losses = [*first.history["loss"], *second.history["loss"]]
    assert losses == whole.history["loss"].tolist()
    assert second.history["step"].tolist() == list(range(at, STEPS))
    assert second.history["epoch"].tolist() == whole.history["epoch"].tolist()[at:]
    assert second.history["lr"].tolist() == whole.history["lr"].tolist()[at:]


OPTIMIZERS = {
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "adam": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "adamw": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
    "adagrad": partial(torch.optim.Adagrad, lr=0.1),
}
SCHEDULES = {
    "one cycle": partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=20),
    "cosine": partial(torch.optim.lr_scheduler.CosineAnnealingWarmRestarts, T_0=3),
    "lambda": partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (1 + step)),
}


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [("momentum", "one cycle"), ("adam", "cosine"), ("adamw", "lambda"), ("adagrad", "cosine")],
)
def test_optimizers_and_schedules_go_on(
    optimizer: str, schedule: str, cluster2: dt.Cluster
) -> None:
    task = toy(optimizer=OPTIMIZERS[optimizer], schedule=SCHEDULES[schedule])
    whole = dt.train(cluster2, task, steps=6, seed=1)
    half = dt.train(cluster2, task, steps=2, seed=1)
    assert dt.train(cluster2, task, steps=6, resume=half).state.digest() == whole.state.digest()


def test_other_workers_go_on_to_rounding(cluster_of: Callable[[int], dt.Cluster]) -> None:
    task = toy(model=lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)))
    first = dt.train(cluster_of(2), task, steps=3, seed=3)
    whole = dt.train(cluster_of(2), task, steps=6, seed=3)
    for workers in (1, 4):
        run = dt.train(cluster_of(workers), task, steps=6, resume=first)
        for name, value in run.state.model.items():
            torch.testing.assert_close(value, whole.state.model[name], rtol=1e-5, atol=1e-6)


def test_other_workers_go_on_to_the_bit_where_it_is_promised(
    cluster_of: Callable[[int], dt.Cluster],
) -> None:
    task = toy(model=lambda: nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.3), nn.Linear(5, 2)))
    first = dt.train(cluster_of(4), task, "ordered", steps=3, seed=3)
    whole = dt.train(cluster_of(2), task, "ordered", steps=6, seed=3)
    for workers in (1, 2, 4):
        run = dt.train(cluster_of(workers), task, "ordered", steps=6, resume=first)
        assert run.state.digest() == whole.state.digest()


def test_stop_at_a_meeting_then_go_on(cluster2: dt.Cluster) -> None:
    task = toy()
    training = dt.submit_training(cluster2, task, steps=100_000, seed=5)
    until(lambda: training.step > 3)
    assert training.stop()
    run = training.result(30)
    assert run.stopped
    assert 3 < run.state.step < 100_000
    assert run.state.step == len(run.history)
    assert run.history["test_loss"].notna().tolist()[-1]
    assert not training.stop()
    further = run.state.step + 3
    gone_on = dt.train(cluster2, task, steps=further, resume=run)
    assert gone_on.state.digest() == dt.train(cluster2, task, steps=further, seed=5).state.digest()


class Rounds(DataParallel):
    """Ranks that say they meet at every fifth step alone."""

    name = "rounds"

    def meets(self, step: int) -> bool:
        return step % 5 == 4


class Never(DataParallel):
    """Ranks that do not meet by themselves."""

    name = "never"

    def meets(self, step: int) -> bool:
        return False


@pytest.mark.parametrize("strategy", [Rounds(), Never()], ids=["rounds", "never"])
def test_a_stop_waits_for_a_meeting(strategy: DataParallel, cluster2: dt.Cluster) -> None:
    training = dt.submit_training(cluster2, toy(), strategy, steps=100_000, seed=5)
    training.stop()  # it may still be waiting for its turn
    run = training.result(30)
    assert run.stopped
    assert strategy.name == "never" or run.state.step % 5 == 0


def test_a_stop_is_heard_where_every_step_is_a_meeting(cluster2: dt.Cluster) -> None:
    training = dt.submit_training(cluster2, toy(), steps=100_000, evaluate_every=1)
    training.stop()
    assert training.result(30).stopped


@pytest.mark.parametrize("owner", [0, 1])
def test_a_stop_is_heard_where_ranks_run_free_and_one_has_no_samples(
    owner: int, cluster2: dt.Cluster
) -> None:
    task = toy(model=lambda: nn.Linear(4, 2))
    training = dt.submit_training(
        cluster2, task, "parameter-server-async", steps=100_000, partition=[owner] * SAMPLES
    )
    until(lambda: training.step > 2)
    training.stop()
    run = training.result(30)
    assert run.stopped
    assert run.history[f"samples_{owner}"].sum() == run.history["samples"].sum()
    assert dt.train(cluster2, toy(), steps=2).state.step == 2


class Interrupted(Exception):
    """The run comes to a bad end."""


class Failing(DataParallel):
    """Fails at a step, as a worker may."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def step(self, replica: Any, step: int) -> StepReport:
        if step == self.at and replica.rank == 1:
            raise Interrupted(f"at {step}")
        return super().step(replica, step)


def test_a_checkpoint_is_left_by_a_run_that_fails(cluster2: dt.Cluster, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    with pytest.raises(dt.errors.RankError, match="Interrupted: at 5"):
        dt.train(cluster2, toy(), Failing(5), steps=9, seed=3, checkpoint=Checkpoint(path, every=2))
    assert os.listdir(tmp_path) == ["run.pt"]
    left = Run.load(path)
    assert left.state.step == 4
    assert left.history["step"].tolist() == [0, 1, 2, 3]
    assert left.settings["steps"] == 9
    assert left.stopped
    whole = dt.train(cluster2, toy(), steps=9, seed=3)
    assert left.history["loss"].tolist() == whole.history["loss"].tolist()[:4]
    gone_on = dt.train(cluster2, toy(), steps=9, resume=path, checkpoint=path)
    assert gone_on.state.digest() == whole.state.digest()
    assert RunState.load(path).digest() == whole.state.digest()


def test_checkpoints_change_nothing_and_hold_evaluations(
    cluster2: dt.Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "run.pt"
    plain = dt.train(cluster2, toy(), steps=6, seed=3, evaluate_every=2)
    run = dt.train(
        cluster2, toy(), steps=6, seed=3, evaluate_every=2, checkpoint=Checkpoint(path, every=1)
    )
    assert run.state.digest() == plain.state.digest()
    saved = Run.load(path)
    assert list(saved.history.columns) == list(run.history.columns)
    for name in ("step", "loss", "samples", "test_loss", "test_accuracy", "idle_1"):
        assert saved.history[name].equals(run.history[name]), name


def test_a_path_alone_is_ten_checkpoints(cluster1: dt.Cluster, tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "a").interval(1000) == 100
    assert Checkpoint(tmp_path / "a").interval(3) == 1
    dt.train(cluster1, toy(), steps=3, checkpoint=str(tmp_path / "b"))
    assert RunState.load(tmp_path / "b").step == 3


def test_another_process_goes_on(cluster2: dt.Cluster, tmp_path: Path) -> None:
    dt.train(cluster2, toy(), steps=3, seed=3).save(tmp_path / "half")
    program = (
        "import dtoolkit as dt\n"
        "from tests.training.toys import SAMPLES, toy\n"
        "if __name__ == '__main__':\n"
        "    with dt.Cluster(workers=2, device='cpu', timeout=100) as cluster:\n"
        f"        run = dt.train(cluster, toy(), steps=7, resume={str(tmp_path / 'half')!r})\n"
        "        print(run.state.digest())\n"
    )
    (tmp_path / "script.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONHASHSEED": "5"}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env=environment, capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    whole = dt.train(cluster2, toy(), steps=7, seed=3)
    assert done.stdout.strip() == whole.state.digest()


# -------------------------------------------------------------- with what the run began with


def sgd(lr: float, **more: Any) -> dict[str, Any]:
    return {"optimizer": partial(torch.optim.SGD, lr=lr, **more)}


def adam(lr: float, **more: Any) -> dict[str, Any]:
    return {"optimizer": partial(torch.optim.Adam, lr=lr, **more)}


def step_lr(steps: int) -> dict[str, Any]:
    return {"schedule": partial(torch.optim.lr_scheduler.StepLR, step_size=steps)}


COSINE = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=8)
ADAMW = partial(torch.optim.AdamW, lr=0.05, weight_decay=0.5)
ONE = [0] * 15 + [1] * 7
OTHER = [0] * 14 + [1] * 8
TERMS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (sgd(0.1), sgd(0.001), r"optimizer .* is SGD\(lr=0.1\), and SGD\(lr=0.001\) here.*state.model"),
    (sgd(0.1, momentum=0.9), sgd(0.1), r"SGD\(momentum=0.9\), and SGD\(momentum=0\) here"),
    (adam(0.02), {"optimizer": ADAMW}, r"is Adam\(lr=0.02, .*, and AdamW\(lr=0.05, .*decay=0.5"),
    (adam(0.02), adam(0.02, betas=(0.8, 0.99)), r"betas=\[0.9, 0.999\]\), and Adam\(betas=\[0.8"),
    (
        step_lr(2),
        step_lr(100),
        r"schedule .* is StepLR\(step_size=2\), and StepLR\(step_size=100\)",
    ),
    (step_lr(2), {"schedule": COSINE}, r"is StepLR\(step_size=2.*, and CosineAnnealingLR\(T_max=8"),
    ({"compression": "top-k"}, {}, r"compression of the saved run is TopK\(.*\), and none here"),
    ({}, {"compression": "sign"}, r"compression of the saved run is none, and Sign\("),
    ({"compression": "top-k"}, {"compression": TopK(share=0.5)}, r"and TopK\(share=0.5\) here"),
    ({"partition": ONE}, {}, r"partition of the saved run is a vector of owners .*, and none here"),
    ({"partition": ONE}, {"partition": OTHER}, "partition .* vector of owners .* vector of owners"),
    ({"partition": "block"}, {"partition": "cyclic"}, "partition .* is 'block', and 'cyclic' here"),
    ({}, {"batch_norm": "local"}, "batch_norm of the saved run is 'sync', and 'local' here"),
    (
        {"strategy": ParameterServer(None), "batch_norm": "local"},
        {"strategy": "parameter-server", "batch_norm": "local"},
        r"strategy .* is ParameterServer\(bound=None.*\), and ParameterServer\(bound=0",
    ),
    (
        {"strategy": LocalSGD(3)},
        {"strategy": "local-sgd"},
        r"strategy of .* LocalSGD\(local_steps=3\), and LocalSGD\(local_steps=4\) here",
    ),
    (
        {"strategy": Oscars([1, 2])},
        {"strategy": "oscars"},
        r"Oscars\(times=\[1.0, 2.0\]\), and Oscars\(times=None\) here",
    ),
    (
        {"strategy": Ordered(shards=3)},
        {"strategy": "ordered"},
        r"strategy .* Ordered\(shards=3\), and Ordered\(shards=8\) here",
    ),
]


@pytest.mark.parametrize(
    ("began", "here", "words"), TERMS, ids=[words[:40] for _, _, words in TERMS]
)
def test_other_terms_are_refused(
    began: dict[str, Any], here: dict[str, Any], words: str, cluster2: dt.Cluster, tmp_path: Path
) -> None:
    task = toy(schedule=None)
    dt.train(cluster2, task, steps=2, **began).save(tmp_path / "run")
    with pytest.raises(ValueError, match=words):
        dt.train(cluster2, task, steps=4, resume=tmp_path / "run", **here)
    again = dt.train(cluster2, task, steps=3, resume=tmp_path / "run", **began)
    assert again.state.step == 3


def test_the_same_in_other_words_goes_on(cluster_of: Callable[[int], dt.Cluster]) -> None:
    task = toy(schedule=None)
    block = {**sgd(1), "strategy": "data-parallel", "partition": "block", "compression": None}
    first = dt.train(cluster_of(2), task, steps=2, **block)
    whole = dt.train(cluster_of(2), task, steps=4, **block)
    vector = {
        **sgd(1.0),
        "strategy": DataParallel(),
        "partition": Layout.block(SAMPLES, 2).owner(range(SAMPLES)),
        "evaluate_every": 1,
        "faults": [dt.faults.Slow(rank=0, seconds=0.001)],
    }
    again = dt.train(cluster_of(2), task, steps=4, resume=first, **vector)
    assert again.state.digest() == whole.state.digest()
    other = {**block, "partition": Layout.block(SAMPLES, 4)}
    assert dt.train(cluster_of(4), task, steps=4, resume=first, **other).state.step == 4
    with pytest.raises(ValueError, match="partition of the saved run is 'block', and 'cyclic'"):
        dt.train(cluster_of(4), task, steps=4, resume=first, **{**block, "partition": "cyclic"})


def test_another_learning_rate_is_a_new_run_from_the_weights(cluster2: dt.Cluster) -> None:
    first = dt.train(cluster2, toy(), steps=2)

    def learned() -> nn.Module:
        model = toy().model()
        model.load_state_dict(first.state.model)
        return model

    run = dt.train(cluster2, toy(model=learned, schedule=None), steps=1, **sgd(0.0))
    torch.testing.assert_close(run.state.model["0.weight"], first.state.model["0.weight"])
    assert run.settings["optimizer"] == "SGD(lr=0)"


def test_what_a_strategy_is_asked_for_is_kept_whatever_it_chooses(cluster2: dt.Cluster) -> None:
    task = toy(model=lambda: nn.Linear(4, 2))
    asked = {"strategy": STRATEGIES["dropcompute"](warmup=2), "accumulate": 6}
    first = dt.train(cluster2, task, steps=4, **asked)
    assert first.state.terms["strategy"]["settings"]["threshold"] is None
    assert dt.train(cluster2, task, steps=6, resume=first, **asked).state.step == 6


L = torch.optim.lr_scheduler
MADE: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (
        partial(L.OneCycleLR, max_lr=0.1, total_steps=8),
        partial(L.OneCycleLR, max_lr=0.1, total_steps=8, pct_start=0.5),
    ),
    (
        partial(L.OneCycleLR, max_lr=0.1, total_steps=8),
        partial(L.OneCycleLR, max_lr=0.2, total_steps=8),
    ),
    (
        lambda o: L.SequentialLR(o, [L.LinearLR(o), L.StepLR(o, 2)], [3]),
        lambda o: L.SequentialLR(o, [L.LinearLR(o), L.StepLR(o, 2)], [4]),
    ),
    (
        lambda o: L.ChainedScheduler([L.LinearLR(o), L.StepLR(o, 2)]),
        lambda o: L.ChainedScheduler([L.LinearLR(o), L.StepLR(o, 3)]),
    ),
    (partial(L.ReduceLROnPlateau, patience=3), partial(L.ReduceLROnPlateau, patience=4)),
    (partial(L.MultiStepLR, milestones=[3]), partial(L.MultiStepLR, milestones=[3, 6])),
]


@pytest.mark.parametrize("number", range(len(MADE)))
def test_schedules_are_told_apart_by_their_settings(number: int) -> None:
    def written(make: Callable[..., Any]) -> Any:
        stepping = Stepping()
        optimizer = stepping.made_by_optimizer(partial(torch.optim.SGD, lr=0.1, momentum=0.9))
        stepping.made_by_schedule(make)(optimizer([nn.Parameter(torch.ones(2))]))
        return stepping.schedule

    one, other = MADE[number]
    assert differing(written(one), written(one)) is None
    assert differing(written(one), written(other)) is not None


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)
