"""A run as it goes on: live history, progress, stop, cancel, errors, waiting in a notebook."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dtoolkit as dt
from dtoolkit.errors import LaunchCancelled, LaunchTimeout, RankError, WorkerLost
from dtoolkit.training import RunState, StepReport
from dtoolkit.training.records import FIELDS, Records
from dtoolkit.training.strategies import DataParallel
from tests.training.toys import toy


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_history_and_status_while_it_runs(cluster2: dt.Cluster) -> None:
    rows: list[dict[str, Any]] = []
    training = dt.submit_training(cluster2, toy(), steps=100_000, seed=3, evaluate_every=5)
    training.on_step(rows.append)
    until(lambda: training.step > 8)
    seen = training.history
    assert seen["step"].tolist() == list(range(len(seen)))
    assert (seen["samples"] > 0).all()
    assert seen["test_loss"].notna().any()
    assert training.status.startswith(f"step {training.step:,}"[:5])
    assert "of 100,000, loss" in training.status
    assert "toy by data-parallel" in repr(training)
    assert not training.done()
    training.stop()
    run = training.result(30)
    assert training.done()
    assert training.status == "done"
    assert training.result() is run
    assert training.history["loss"].tolist() == run.history["loss"].tolist()
    steps = [row["step"] for row in rows]
    assert steps == list(range(steps[0], len(run.history)))
    assert {"loss", "samples", "throughput", "idle", "bytes", "lr"} <= set(rows[-1])
    assert rows[-1]["loss"] == run.history["loss"].iloc[-1]


def test_step_counts_those_of_the_run_before(cluster1: dt.Cluster) -> None:
    first = dt.train(cluster1, toy(), steps=4)
    training = dt.submit_training(cluster1, toy(), steps=9, resume=first)
    training.result(30)
    assert (training.step, training.steps) == (9, 9)


def test_a_listener_that_fails_does_no_harm(cluster2: dt.Cluster) -> None:
    rows: list[Any] = []
    training = dt.submit_training(cluster2, toy(), steps=30)
    training.on_step(lambda row: 1 / 0)
    training.on_step(rows.append)
    assert len(training.result(30).history) == 30
    assert rows


def test_cancel(cluster2: dt.Cluster) -> None:
    training = dt.submit_training(cluster2, toy(), steps=100_000)
    until(lambda: training.step > 1)
    assert training.cancel()
    with pytest.raises(LaunchCancelled):
        training.result(10)
    assert not training.cancel()
    assert not training.stop()
    assert len(training.history) > 1
    assert len(dt.train(cluster2, toy(), steps=2).history) == 2


def test_runs_queue(cluster2: dt.Cluster) -> None:
    first = dt.submit_training(cluster2, toy(), steps=100_000)
    second = dt.submit_training(cluster2, toy(), steps=2)
    until(lambda: first.step > 0)
    assert second.status.startswith("queued behind")
    first.stop()
    assert second.result(30).state.step == 2


def test_awaited_in_an_event_loop(cluster2: dt.Cluster) -> None:
    async def body() -> int:
        training = dt.submit_training(cluster2, toy(), steps=5)
        return len((await training.wait()).history)

    assert asyncio.run(asyncio.wait_for(body(), 30)) == 5


class Dying(DataParallel):
    """A worker that ends in the middle of a step."""

    name = "dying"

    def step(self, replica: Any, step: int) -> StepReport:
        if step == 3 and replica.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(replica, step)


def test_a_lost_worker_and_a_deadline_end_it_in_words() -> None:
    with dt.Cluster(workers=2, device="cpu", timeout=100) as cluster:
        with pytest.raises(WorkerLost, match="rank 1"):
            dt.train(cluster, toy(), Dying(), steps=9)
        with pytest.raises(LaunchTimeout, match="learn did not end within 1 s"):
            dt.train(cluster, toy(), steps=10**6, timeout=1)
        assert dt.train(cluster, toy(), steps=2).state.step == 2


def test_an_interrupt_of_the_keyboard_cancels(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os, signal, threading
        import dtoolkit as dt
        from tests.training.toys import toy

        # A shell starts what it puts in the background with interrupts ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        if __name__ == "__main__":
            with dt.Cluster(workers=2, device="cpu", timeout=100) as cluster:
                dt.train(cluster, toy(), steps=1)
                threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                try:
                    dt.train(cluster, toy(), steps=10**7)
                except KeyboardInterrupt:
                    print("interrupted,", cluster.run(lambda ctx: ctx.rank))
        """)
    )
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert "interrupted, [0, 1]" in done.stdout


# ------------------------------------------------------------------------------------ records


def report(step: int, **changes: float) -> list[float]:
    values = {
        "step": step, "epoch": 0, "loss_sum": 4.0, "samples": 2, "planned": 2, "compute": 0.1,
        "idle": 0.2, "staleness": 0, "local_steps": 1, "bytes": 10, "lr": 0.1,
        "start": float(step), "end": step + 0.5, **changes,
    }  # fmt: skip
    return [values[name] for name in FIELDS]


def test_a_step_is_shown_when_all_have_told() -> None:
    records = Records(2)
    assert records.take({"rank": 0, "row": report(0, samples=3, loss_sum=3)}) is None
    assert records.done == 0
    assert len(records.frame()) == 0
    assert len(records.frame(partial=True)) == 1
    assert records.take({"rank": 1, "row": report(0, samples=1, loss_sum=5, planned=4)}) == 0
    row = records.row(0)
    assert row["loss"] == 2.0
    assert (row["samples"], row["dropped"], row["bytes"]) == (4, 2, 20)
    assert row["throughput"] == 8.0
    assert records.take({"rank": 1, "row": report(0)}) is None  # heard again


def test_ranks_that_run_free_are_shown_as_they_come() -> None:
    records = Records(3, free=True)
    for step in range(4):
        assert records.take({"rank": 0, "row": report(step)}) == step
    records.take({"rank": 1, "row": report(0, staleness=2)})
    frame = records.frame()
    assert len(frame) == 4
    assert frame["samples"].tolist() == [4, 2, 2, 2]
    assert frame["staleness"].tolist() == [2, 0, 0, 0]
    assert frame["samples_1"].tolist() == pytest.approx([2, *[float("nan")] * 3], nan_ok=True)
    assert frame["samples_2"].isna().all()


def test_a_run_that_was_resumed_begins_at_its_step() -> None:
    records = Records(1)
    for step in range(100, 300):
        records.take({"rank": 0, "row": report(step)})
    records.take({"rank": 0, "scores": ["test_loss"], "values": [0.5], "after": 200})
    frame = records.frame()
    assert frame["step"].tolist() == list(range(100, 300))
    assert frame["test_loss"].dropna().to_dict() == {99: 0.5}
    assert records.done == 200


def test_what_only_one_strategy_reports_is_a_column() -> None:
    records = Records(2)
    for rank, step in itertools.product(range(2), range(3)):
        records.take(
            {"rank": rank, "row": report(step), "extra.share": rank + step, "extra.why": "so"}
        )
    frame = records.frame()
    assert frame["share"].tolist() == [0.5, 1.5, 2.5]
    assert frame["share_1"].tolist() == [1, 2, 3]
    assert "why" not in frame


def test_a_rank_that_used_nothing_counts_for_nothing() -> None:
    records = Records(2)
    records.take({"rank": 0, "row": report(0)})
    records.take({"rank": 1, "row": report(0, samples=0, planned=0, loss_sum=0)})
    assert records.frame()["loss"].tolist() == [2.0]
    records.take({"rank": 0, "row": report(1, samples=0, loss_sum=0)})
    records.take({"rank": 1, "row": report(1, samples=0, loss_sum=0)})
    assert records.frame()["loss"].isna().tolist() == [False, True]


def test_ten_thousand_steps() -> None:
    records = Records(4)
    for step, rank in itertools.product(range(10_000), range(4)):
        records.take({"rank": rank, "row": report(step, samples=step % 7 + 1)})
    frame = records.frame()
    assert records.done == len(frame) == 10_000
    assert frame["samples"].tolist() == [4 * (step % 7 + 1) for step in range(10_000)]


def test_on_somebody_elses_workers(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as dask,
        Client(dask, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        client.run(lambda: bool(__import__("dtoolkit.training")))  # may take long on a busy machine
        with dt.Cluster(client=client, timeout=100) as cluster:
            training = dt.submit_training(
                cluster, toy(), steps=10**6, seed=3, checkpoint=tmp_path / "run"
            )
            until(lambda: training.step > 2, 60)
            training.stop()
            run = training.result(60)
            assert run.stopped
            assert RunState.load(tmp_path / "run").digest() == run.state.digest()
            with pytest.raises(RankError, match="there is no folder"):
                dt.train(cluster, toy(), steps=2, checkpoint=tmp_path / "no" / "run")
