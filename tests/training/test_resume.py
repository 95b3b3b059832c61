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
from dtoolkit.training import Checkpoint, Run, RunState, StepReport
from dtoolkit.training.strategies import DataParallel
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


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)
