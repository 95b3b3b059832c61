"""recovery="restart": from the last checkpoint, with every strategy, under the client's eyes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster
from torch import nn

import dtoolkit as dt
from dtoolkit.errors import LaunchCancelled, LaunchTimeout, RankError
from dtoolkit.faults import Kill, Raise
from dtoolkit.figures.recovery import recovery_timeline
from dtoolkit.training import Checkpoint, Run, StepReport
from dtoolkit.training.recovery import Abort, Restart
from dtoolkit.training.strategies import DataParallel, DropCompute
from tests.training.toys import toy

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=2, device="cpu", timeout=60) as one:
        yield one


class Failing(DataParallel):
    """Raises at a step, as often as files say."""

    name = "data-parallel"

    def __init__(self, folder: Path, *, step: int, times: int) -> None:
        super().__init__()
        self._folder, self._step, self._times = str(folder), step, times

    def step(self, replica: Any, step: int) -> StepReport:
        if step == self._step and replica.rank == 1:
            failed = len(os.listdir(self._folder))
            if failed < self._times:
                Path(self._folder, str(failed)).touch()
                raise RuntimeError("something in the task")
        return super().step(replica, step)


@pytest.mark.parametrize(
    "strategy",
    [
        "ordered",
        "parameter-server",
        "gossip",
        "gossip-pairs",
        "local-sgd",
        DropCompute(threshold=1e3),
    ],
    ids=str,
)
def test_every_strategy_goes_on_from_its_checkpoint(cluster: dt.Cluster, strategy: Any) -> None:
    task = toy(optimizer=_sgd, schedule=None)
    whole = dt.train(cluster, task, strategy, steps=8)
    fault = Kill(1, at_step=5)
    run = dt.train(cluster, task, strategy, steps=8, recovery="restart", faults=[fault])
    assert run.state.step == 8
    assert len(run.history) == 8
    assert [entry.kind for entry in run.recoveries] == ["lost"]
    assert run.state.differs_from(whole.state) == []


def _sgd(parameters: list[nn.Parameter]) -> Any:
    import torch

    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@pytest.mark.parametrize("strategy", ["parameter-server-async", "oscars", "bounded-staleness"])
def test_strategies_of_no_fixed_order_come_through(cluster: dt.Cluster, strategy: str) -> None:
    task = toy(model=_plain, optimizer=_sgd, schedule=None)
    faults = [Kill(1, at_step=3)]
    run = dt.train(cluster, task, strategy, steps=6, recovery="restart", faults=faults)
    assert run.state.step == 6
    assert not run.stopped


def _plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def test_what_it_cost_is_in_the_report_and_in_files(cluster: dt.Cluster, tmp_path: Path) -> None:
    path, task = tmp_path / "run.pt", toy()
    whole = dt.train(cluster, task, steps=12)
    run = dt.train(
        cluster,
        task,
        steps=12,
        recovery="restart",
        faults=[Kill(0, at_step=8, where="backward")],
        checkpoint=Checkpoint(path, every=5),
        evaluate_every=4,
    )
    (entry,) = run.recoveries
    assert (entry.step, entry.steps_lost, entry.steps_repeated) == (8, 3, 3)
    assert entry.how == "started again from step 5"
    assert "kill rank 0 at step 8" in str(entry)
    assert run.faults == [str(Kill(0, at_step=8, where="backward"))]
    assert run.state.differs_from(whole.state) == []
    assert run.history["loss"].tolist() == whole.history["loss"].tolist()
    assert run.history["test_loss"].notna().sum() == 3
    table = run.recoveries.table()
    assert table["steps_lost"].tolist() == [3]
    assert table["recovery"].item() == entry.recovery
    kept = Run.load(path)  # the checkpoint knows of the steps before it too
    assert kept.history["loss"].tolist() == whole.history["loss"].tolist()
    assert kept.history["test_loss"].notna().sum() == 3
    run.save(tmp_path / "saved.pt")
    again = Run.load(tmp_path / "saved.pt")
    assert again.recoveries == run.recoveries
    assert again.recoveries.policy == "restart"
    assert "went on after" in repr(again)


def test_a_checkpoint_of_an_earlier_run_is_no_place_to_go_on(
    cluster: dt.Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "run.pt"
    dt.train(cluster, toy(), steps=9, checkpoint=path)
    whole = dt.train(cluster, toy(), steps=6, seed=5)
    kept = Checkpoint(path, every=100)
    faults = [Raise(0, at_step=4)]
    run = dt.train(
        cluster, toy(), steps=6, seed=5, recovery="restart", faults=faults, checkpoint=kept
    )
    assert run.recoveries[0].how == "started again from step 0"
    assert run.state.differs_from(whole.state) == []


def test_the_same_failure_without_progress_ends_it(cluster: dt.Cluster, tmp_path: Path) -> None:
    strategy = Failing(tmp_path, step=5, times=100)
    with pytest.raises(RankError, match="something in the task") as caught:
        dt.train(cluster, toy(), strategy, steps=9, recovery="restart")
    assert "this came 3 times after 5 steps" in caught.value.__notes__[0]
    assert len(os.listdir(tmp_path)) == 3


def test_it_starts_again_so_often_and_no_more(cluster: dt.Cluster, tmp_path: Path) -> None:
    policy = Restart(most=2, without_progress=10)
    strategy = Failing(tmp_path, step=5, times=2)
    run = dt.train(cluster, toy(), strategy, steps=9, recovery=policy)
    assert len(run.recoveries) == 2
    assert run.recoveries[0].fault == "rank 1: RuntimeError: something in the task"
    strategy = Failing(tmp_path, step=5, times=5)
    with pytest.raises(RankError):
        dt.train(cluster, toy(), strategy, steps=9, recovery=policy)
    assert len(os.listdir(tmp_path)) == 5


def test_temporary_checkpoints_go(cluster: dt.Cluster, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dt.train(cluster, toy(), steps=5, recovery="restart", faults=[Raise(1, at_step=3)])
    training = dt.submit_training(cluster, toy(), steps=10**6, recovery="restart")
    until(lambda: any(tmp_path.iterdir()))
    training.cancel()
    with pytest.raises(LaunchCancelled):
        training.result(20)
    until(lambda: not any(tmp_path.iterdir()))


def test_stop_and_cancel_reach_whatever_attempt_runs(cluster: dt.Cluster) -> None:
    faults = [Kill(1, at_step=30)]
    rows: list[Any] = []
    for end in ("stop", "cancel"):
        training = dt.submit_training(
            cluster, toy(), steps=10**6, recovery="restart", faults=faults
        )
        training.on_step(rows.append)
        until(lambda t=training: t.step > 60)
        assert "of 1,000,000" in training.status
        assert getattr(training, end)()
        if end == "cancel":
            with pytest.raises(LaunchCancelled):
                training.result(20)
            continue
        run = training.result(20)
        assert run.stopped
        assert run.history["step"].tolist() == list(range(run.state.step))
        assert rows[-1]["step"] == run.state.step - 1
        assert len(run.recoveries) == 1


def test_a_stop_is_told_again_to_the_next_attempt(cluster: dt.Cluster, tmp_path: Path) -> None:
    strategy = Failing(tmp_path, step=0, times=1)
    training = dt.submit_training(cluster, toy(), strategy, steps=10**6, recovery="restart")
    training.stop()  # heard after its first step, to which the first attempt does not come
    assert training.result(20).stopped
    assert len(os.listdir(tmp_path)) == 1


def test_time_for_all_attempts_together(cluster: dt.Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(LaunchTimeout):
        dt.train(cluster, toy(), steps=10**7, recovery="restart", timeout=2)
    assert time.monotonic() - began < 30


def test_a_worker_that_dies_by_itself_is_restarted_too(cluster: dt.Cluster) -> None:
    pids = cluster.pids
    whole = dt.train(cluster, toy(), steps=400)
    training = dt.submit_training(cluster, toy(), steps=400, recovery="restart")
    until(lambda: training.step > 100)
    os.kill(pids[1], signal.SIGKILL)
    run = training.result(40)
    assert run.recoveries[0].fault == "rank 1 lost"
    assert run.recoveries[0].injected is None
    assert run.state.differs_from(whole.state) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"recovery": "resurrect"}, "recovery='resurrect': there is no such policy; wanted one of"),
        ({"recovery": Restart}, r"make one of it: Restart\(\)"),
        ({"recovery": 3}, "recovery is 3"),
        ({"deadline": 0}, "deadline=0: wanted seconds above 0"),
        ({"deadline": float("nan")}, "deadline=nan"),
        ({"faults": [Kill(7, at_step=1)]}, "7"),
        ({"faults": ["kill"]}, "faults: 'kill' is no fault"),
    ],
)
def test_refusals(cluster: dt.Cluster, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        dt.train(cluster, toy(), steps=3, **wrong)


def test_settings_of_policies() -> None:
    assert Restart(most=3).attempts == 3
    assert Abort().attempts == 0
    for wrong in ({"most": 0}, {"most": True}, {"without_progress": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            Restart(**wrong)
    with pytest.raises(TypeError, match="most='x'"):
        Restart(most="x")  # type: ignore[arg-type]


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_faults_that_are_injected_around_a_run(cluster: dt.Cluster) -> None:
    whole = dt.train(cluster, toy(), steps=6)
    with dt.faults.inject(cluster, Kill(1, at_step=3), Raise(0, at_step=4)) as faults:
        run = dt.train(cluster, toy(), steps=6, recovery="restart")
    assert faults.left() == ()
    assert [entry.fault for entry in run.recoveries] == [str(one) for one in faults.fired]
    assert run.faults == [str(fault) for fault in faults.faults]
    assert run.state.differs_from(whole.state) == []
    assert "<svg" in run.recoveries._repr_html_()
    assert recovery_timeline(run).data


def test_a_cluster_of_somebody_else(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers, set_as_default=False) as client,
        dt.Cluster(client=client, workers=2, device="cpu", timeout=60) as cluster,
    ):
        with pytest.raises(ValueError, match=r"recovery='restart' needs checkpoint=: the workers"):
            dt.train(cluster, toy(), steps=6, recovery="restart")
        whole = dt.train(cluster, toy(), steps=6)
        for policy, checkpoint in (("restart", tmp_path / "run.pt"), ("shrink", None)):
            faults = [Kill(rank, at_step=4) for rank in range(2)]
            run = dt.train(
                cluster, toy(model=_plain), steps=6, recovery=policy, faults=faults,
                checkpoint=checkpoint,
            )  # fmt: skip
            again = 4 if checkpoint else 0
            assert run.recoveries[0].how == f"started again from step {again}"
            assert run.state.step == whole.state.step
