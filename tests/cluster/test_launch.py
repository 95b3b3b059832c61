"""A launch as its owner sees it: queue, progress, cancellation, events; Dask's own tasks beside."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import LaunchCancelled, RankError


def long(ctx: Any, seconds: float = 30.0) -> None:
    """All ranks agree on when it is over."""
    end = time.monotonic() + seconds
    while ctx.comm.broadcast(torch.tensor(time.monotonic() < end)):
        pass


def until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_launches_queue_and_say_behind_what(cluster2: dt.Cluster) -> None:
    first = cluster2.submit(long, 2.0)
    second = cluster2.submit(lambda ctx: "second")
    third = cluster2.submit(lambda ctx: "third")
    until(lambda: first.status == "running on 2 ranks")
    # Each takes its place on Dask's thread, in the order of submission: the last one tells.
    until(lambda: third.status != "queued")
    assert second.status == f"queued behind 1: launch {first.number} (long) first"
    assert third.status.startswith("queued behind 2")
    assert "2 waiting" in cluster2.status
    assert third.result(30) == ["third"] * 2
    assert second.done()
    assert [launch.status for launch in (first, second, third)] == ["done"] * 3
    assert cluster2.status == "idle"


def test_cancel_a_running_launch(cluster2: dt.Cluster) -> None:
    launch = cluster2.submit(long)
    until(lambda: launch.status.startswith("running"))
    assert launch.cancel()
    with pytest.raises(LaunchCancelled, match=r"long.* was cancelled"):
        launch.result(10)
    assert launch.status == "cancelled"
    assert launch.cancel() is False
    assert cluster2.run(lambda ctx: 1, timeout=10) == [1, 1]


def test_cancel_a_queued_launch(cluster2: dt.Cluster) -> None:
    first = cluster2.submit(long, 0.3)
    second = cluster2.submit(lambda ctx: ctx.nothing)
    second.cancel()
    with pytest.raises(LaunchCancelled):
        second.result(10)
    assert first.result(10) == [None, None]


def test_cancel_at_once_and_many_times(cluster2: dt.Cluster) -> None:
    for _ in range(20):
        launch = cluster2.submit(long)
        for _ in range(3):
            launch.cancel()
        with pytest.raises(LaunchCancelled):
            launch.result(10)
    for wait in (0.001, 0.003, 0.01):
        launch = cluster2.submit(long)
        time.sleep(wait)
        launch.cancel()
        launch.cancel()
        with pytest.raises(LaunchCancelled):
            launch.result(10)
    assert cluster2.run(lambda ctx: ctx.comm.all_reduce(torch.ones(1)).item()) == [2.0, 2.0]


def test_events_arrive_while_it_runs_and_all_before_it_is_done(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        for n in range(200):
            ctx.step(n)
            ctx.log({"loss": torch.tensor(1.0 / (n + 1))}, name="x", flags=[True, None])
            if n == 10:
                time.sleep(0.3)

    launch = cluster2.submit(work)
    heard: list[dict[str, Any]] = []
    launch.on_event(heard.append)
    until(lambda: len(launch.events) >= 30)
    assert not launch.done(), "what was logged before the pause came during it"
    launch.result(30)
    assert len(launch.events) == 800
    for rank in range(2):
        mine = [e for e in launch.events if e["rank"] == rank]
        assert [e["step"] for e in mine] == [n for n in range(200) for _ in range(2)]
        assert [e["loss"] for e in mine if "loss" in e] == pytest.approx(
            [1 / (n + 1) for n in range(200)]
        )
        assert all(a["time"] <= b["time"] for a, b in itertools.pairwise(mine))
    assert {k: v for k, v in mine[1].items() if k in ("name", "flags")} == {
        "name": "x",
        "flags": [True, None],
    }


def test_events_of_many_short_launches(cluster2: dt.Cluster) -> None:
    for count in (0, 1, 2, 3, 7):
        for _ in range(5):
            launch = cluster2.submit(
                lambda ctx, n: [ctx.log(k=k) for k in range(n)] and None, count
            )
            launch.result(10)
            assert sorted((e["rank"], e["k"]) for e in launch.events) == [
                (r, k) for r in range(2) for k in range(count)
            ]


def test_a_failing_listener_disturbs_nobody(cluster2: dt.Cluster) -> None:
    def fail(event: Any) -> None:
        raise ZeroDivisionError

    launch = cluster2.submit(lambda ctx: ctx.log(a=1))
    launch.on_event(fail)
    launch.result(10)
    assert len(launch.events) == 2


def test_what_cannot_be_logged_is_named(cluster1: dt.Cluster) -> None:
    with pytest.raises(RankError, match="'loss' is a tensor of 2 elements"):
        cluster1.run(lambda ctx: ctx.log(loss=torch.ones(2)))
    with pytest.raises(RankError, match="'x' is dict"):
        cluster1.run(lambda ctx: ctx.log({"x": {}}))


def test_done_callbacks_and_the_rule_against_waiting_in_them(cluster2: dt.Cluster) -> None:
    said: list[Any] = []

    def done(launch: Any) -> None:
        said.append(launch.result())
        for call in (lambda: cluster2.run(print), lambda: cluster2.workers):
            try:
                call()
            except RuntimeError as error:
                said.append(str(error))
        said.append(cluster2.submit(lambda ctx: "next"))

    # What has ended already is told on this thread, where a callback may wait.
    cluster2.submit(long, 0.3).add_done_callback(done)
    until(lambda: len(said) == 4)
    assert said[0] == [None, None]
    assert "callback on Dask's thread" in said[1]
    assert "callback on Dask's thread" in said[2]
    assert said[3].result(10) == ["next"] * 2


def test_it_can_be_awaited_in_a_running_loop(cluster2: dt.Cluster) -> None:
    async def main() -> list[Any]:
        launch = cluster2.submit(long, 0.2)
        waiting = asyncio.ensure_future(launch.wait())
        await asyncio.sleep(0.05)
        waiting.cancel()  # gives up waiting; the launch goes on
        assert not launch.done()
        blocking = cluster2.run(lambda ctx: "in a running loop")
        failing = cluster2.submit(lambda ctx: 1 / 0)
        with pytest.raises(RankError):
            await failing.wait()
        return [await launch.wait(), blocking]

    assert asyncio.run(main()) == [[None, None], ["in a running loop"] * 2]


def test_result_with_a_time_of_its_own(cluster1: dt.Cluster) -> None:
    launch = cluster1.submit(long, 0.4)
    with pytest.raises(TimeoutError):
        launch.result(0.05)
    assert launch.exception() is None


def test_tasks_of_dask_run_beside_a_launch(cluster2: dt.Cluster) -> None:
    launch = cluster2.submit(long, 1.0)
    until(lambda: launch.status.startswith("running"))
    start = time.monotonic()
    total = cluster2.client.submit(sum, cluster2.client.map(lambda x: x + 1, range(50)))
    assert total.result(10) == 1275
    assert not launch.done()
    assert time.monotonic() - start < 1.0, "tasks do not wait for the launch"
    launch.result(10)


def test_a_launch_runs_beside_tasks_of_dask(cluster2: dt.Cluster) -> None:
    tasks = cluster2.client.map(lambda x: time.sleep(0.2), range(20), pure=False)
    start = time.monotonic()
    assert cluster2.run(lambda ctx: ctx.comm.all_reduce(torch.ones(1)).item()) == [2.0, 2.0]
    assert time.monotonic() - start < 1.5, "a launch does not wait for tasks"
    assert any(not task.done() for task in tasks)
    cluster2.client.cancel(tasks)
