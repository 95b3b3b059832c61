"""Clusters on somebody else's Dask cluster: workers come and go, others use it too."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from distributed import Client, LocalCluster

import dtoolkit as dt
from dtoolkit.cluster import facts
from dtoolkit.errors import ClusterTooSmall, LaunchTimeout, VersionMismatch, WorkerLost

OPTIONS: dict[str, Any] = {
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": ":0",
    "silence_logs": 50,
}


@pytest.fixture(scope="module")
def dask() -> Iterator[LocalCluster]:
    """A Dask cluster with nannies, as a user has one."""
    with LocalCluster(n_workers=2, **OPTIONS) as one:
        yield one


@pytest.fixture
def client(dask: LocalCluster) -> Iterator[Client]:
    dask.scale(2)
    with Client(dask, set_as_default=False) as one:
        one.wait_for_workers(2, timeout=30)
        end = time.monotonic() + 20
        while len(one.scheduler_info(n_workers=-1)["workers"]) != 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        yield one


def total(ctx: Any) -> tuple[int, float]:
    return ctx.size, ctx.comm.all_reduce(torch.ones(50_000))[-1].item()


def test_it_uses_the_workers_and_leaves_them(client: Client) -> None:
    with dt.Cluster(client=client) as cluster:
        assert cluster.run(total, timeout=30) == [(2, 2.0)] * 2
        remote = cluster.keep(lambda ctx: torch.ones(100))
        assert cluster.held == [400, 400]
        assert cluster.fetch(remote, 1).sum() == 100
        assert cluster.trace.matrix().shape == (2, 2)
    assert client.submit(lambda: 3).result(10) == 3
    with dt.Cluster(client=client) as cluster:
        assert cluster.held == [0, 0], "a closed cluster leaves no data"


def test_workers_come_and_go_between_launches(dask: LocalCluster, client: Client) -> None:
    with dt.Cluster(client=client) as cluster:
        assert cluster.run(total) == [(2, 2.0)] * 2
        before = [w.address for w in cluster.workers]
        dask.scale(3)
        client.wait_for_workers(3, timeout=30)
        assert cluster.run(total) == [(3, 3.0)] * 3
        assert [w.address for w in cluster.workers][:2] == before, "workers keep their ranks"
        dask.scale(1)
        end = time.monotonic() + 20
        while cluster.size != 1:
            assert time.monotonic() < end
        assert cluster.run(total) == [(1, 1.0)]


def test_too_few_workers(client: Client) -> None:
    with dt.Cluster(3, client=client) as cluster:
        launch = cluster.submit(total, timeout=0.5)
        time.sleep(0.2)
        assert launch.status == "waiting for workers: 2 of 3 are there"
        with pytest.raises(ClusterTooSmall, match=r"needs 3 worker\(s\) and 2 are there"):
            launch.result(10)
    with dt.Cluster(1, client=client) as cluster:
        assert cluster.run(total) == [(1, 1.0)]


def test_a_worker_is_retired_during_a_launch() -> None:
    def endless(ctx: Any) -> None:
        while True:
            ctx.comm.barrier()

    with (
        LocalCluster(n_workers=2, **OPTIONS) as own,
        Client(own, set_as_default=False) as client,
        dt.Cluster(client=client) as cluster,
    ):
        launch = cluster.submit(endless, timeout=30)
        time.sleep(0.3)
        leaving = cluster.workers[1].address
        start = time.monotonic()
        client.retire_workers([leaving], close_workers=True)
        with pytest.raises(WorkerLost) as caught:
            launch.result(20)
        assert time.monotonic() - start < 4
        assert caught.value.ranks == (1,)
        assert cluster.run(total, timeout=30)[0][0] in (1, 2)


def test_a_killed_and_a_stopped_worker(client: Client) -> None:
    def endless(ctx: Any) -> None:
        while True:
            ctx.comm.all_reduce(torch.ones(100_000))

    with dt.Cluster(2, client=client) as cluster:
        pids = cluster.pids
        launch = cluster.submit(endless, timeout=30)
        time.sleep(0.3)
        start = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(WorkerLost) as caught:
            launch.result(20)
        assert time.monotonic() - start < 2
        assert caught.value.ranks == (0,)
        assert cluster.run(total, timeout=40) == [(2, 2.0)] * 2
        pids = cluster.pids
        os.kill(pids[1], signal.SIGSTOP)
        with pytest.raises(LaunchTimeout) as late:
            cluster.run(total, timeout=1)
        assert late.value.ranks == (1,)
        os.kill(pids[1], signal.SIGCONT)
        assert cluster.run(total, timeout=40) == [(2, 2.0)] * 2
        assert cluster.pids == pids


def test_other_versions_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dtoolkit.cluster.roster.versions", lambda: {**facts.versions(), "torch": "1.0"}
    )
    with (
        dt.Cluster(client=client) as cluster,
        pytest.raises(VersionMismatch, match="install the same versions"),
    ):
        cluster.run(total)


def test_an_asynchronous_client_is_refused() -> None:
    async def main() -> None:
        client = Client("tcp://127.0.0.1:9", asynchronous=True, set_as_default=False)
        with pytest.raises(ValueError, match="asynchronous=True"):
            dt.Cluster(client=client)

    asyncio.run(main())


def test_workers_that_are_threads_are_refused() -> None:
    options = {**OPTIONS, "processes": False}
    with (
        LocalCluster(n_workers=2, **options) as threads,
        Client(threads, set_as_default=False) as client,
        dt.Cluster(client=client) as cluster,
        pytest.raises(ClusterTooSmall, match="processes=True"),
    ):
        cluster.run(total)


@pytest.mark.parametrize("clients", [1, 2])
def test_two_clusters_take_turns(dask: LocalCluster, client: Client, clients: int) -> None:
    def exclusive(ctx: Any, owner: str) -> list[str]:
        """What this worker runs at a time; each launch looks whether it is alone."""
        import builtins
        import time as clock

        running = builtins.__dict__.setdefault("_dtoolkit_running", [])
        running.append(owner)
        ctx.comm.barrier()
        clock.sleep(0.02)
        seen = list(running)
        ctx.comm.barrier()
        running.remove(owner)
        return seen

    other = client if clients == 1 else Client(dask, set_as_default=False)
    first, second = dt.Cluster(client=client), dt.Cluster(client=other)
    try:
        data = [
            c.keep(lambda ctx, n: torch.full((10,), n), n) for n, c in enumerate((first, second))
        ]
        launches = []
        for _ in range(8):
            launches.append((first.submit(exclusive, "first"), "first"))
            launches.append((second.submit(exclusive, "second"), "second"))
        for launch, owner in launches:
            assert launch.result(60) == [[owner]] * 2
        hold = first.submit(lambda ctx: time.sleep(0.6), timeout=30)
        time.sleep(0.2)
        waiting = second.submit(total, timeout=30)
        time.sleep(0.2)
        number = hold.number
        assert waiting.status == (
            f"queued behind 1 of another Cluster object: launch {number} "
            "(test_two_clusters_take_turns.<locals>.<lambda>) first"
        )
        with pytest.raises(LaunchTimeout, match=r"waited for its turn behind \d of another"):
            dt.Cluster(client=client).run(total, timeout=0.1)
        assert waiting.result(30) == [(2, 2.0)] * 2
        for group in (first, second, first, second):
            before = time.monotonic()
            assert group.run(total) == [(2, 2.0)] * 2
            assert time.monotonic() - before < 5
        first.close()
        assert second.fetch(data[1], 0)[0] == 1, "one that closes leaves the data of the other"
        assert second.run(total) == [(2, 2.0)] * 2
        assert second.held == [80, 80]
    finally:
        first.close()
        second.close()
        if other is not client:
            other.close()


def test_a_local_cluster_attached_to_once_more() -> None:
    with dt.Cluster(workers=2, device="cpu") as first, dt.Cluster(client=first.client) as second:
        launches = [c.submit(total) for _ in range(5) for c in (first, second)]
        for launch in launches:
            assert launch.result(30) == [(2, 2.0)] * 2


def test_what_a_dead_kernel_leaves_is_forgotten(dask: LocalCluster, client: Client) -> None:
    script = textwrap.dedent(
        """
        import os, sys, time, torch, dtoolkit as dt
        from distributed import Client
        cluster = dt.Cluster(client=Client(sys.argv[1]))
        kept = cluster.keep(lambda ctx: torch.ones(1000))
        cluster.submit(lambda ctx: time.sleep(1.0))
        time.sleep(0.3)
        print("ready", flush=True)
        time.sleep(60)
        """
    )
    kernel = subprocess.Popen(
        [sys.executable, "-c", script, dask.scheduler_address], stdout=subprocess.PIPE, text=True
    )
    assert kernel.stdout is not None
    try:
        assert kernel.stdout.readline().strip() == "ready"
        with dt.Cluster(client=client) as cluster:
            assert cluster.held == [4000, 4000]
            kernel.kill()
            kernel.wait()
            assert cluster.run(total, timeout=30) == [(2, 2.0)] * 2
            assert cluster.held == [0, 0]
    finally:
        kernel.kill()
        kernel.stdout.close()


def test_a_dropped_cluster_leaves_no_data(client: Client) -> None:
    cluster = dt.Cluster(client=client)
    kept = cluster.keep(lambda ctx: torch.ones(1000))
    with dt.Cluster(client=client) as other:
        assert other.held == [4000, 4000]
        del cluster, kept
        gc.collect()
        end = time.monotonic() + 10
        while other.held != [0, 0]:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.mark.slow
def test_workers_without_nannies() -> None:
    script = [sys.executable, "-m", "distributed.cli.dask_worker"]
    with (
        LocalCluster(n_workers=0, **OPTIONS) as scheduler,
        Client(scheduler, set_as_default=False) as client,
    ):
        workers = [
            subprocess.Popen(
                [*script, scheduler.scheduler_address, "--no-nanny", "--nthreads", "1",
                 "--host", "127.0.0.1", "--no-dashboard"],
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            for _ in range(3)
        ]  # fmt: skip
        try:
            client.wait_for_workers(3, timeout=60)
            with dt.Cluster(2, client=client) as cluster:
                assert cluster.run(total) == [(2, 2.0)] * 2
                stopped = cluster.pids[1]
                os.kill(stopped, signal.SIGSTOP)
                with pytest.raises(LaunchTimeout):
                    cluster.run(total, timeout=1)
                # Nobody can end it; it is left out while it is silent, and the third steps in.
                assert cluster.run(total, timeout=40) == [(2, 2.0)] * 2
                assert stopped not in cluster.pids
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
