"""Clusters that emulate a network: errors come in time in the middle of a delay; all is marked."""

from __future__ import annotations

import glob
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed import Client, LocalCluster

import dtoolkit as dt
from dtoolkit.cluster.member import Member
from dtoolkit.cluster.nodes import check_emulation, nodes_of
from dtoolkit.comm.network import Network
from dtoolkit.comm.transport import GlooTransport
from dtoolkit.errors import LaunchCancelled, LaunchTimeout, PeerLost, RankError, WorkerLost

CRAWL = Network.flat(3, bandwidth="1MB/s", latency="1ms", rate=1e9)  # 4 MB take 4 s
IN_TIME = 2.0


@pytest.fixture(scope="module")
def crawling() -> Iterator[dt.Cluster]:
    """A cluster of this module, whose workers are killed."""
    with dt.Cluster(workers=3, device="cpu", timeout=60, emulate=CRAWL) as one:
        yield one


def long_messages(ctx: Any, megabytes: int = 50) -> None:
    """Messages that are on their way for minutes."""
    ctx.step(0)
    ctx.comm.all_to_all([torch.ones(megabytes * 250_000 // 3)] * ctx.size)


def one_long_message(ctx: Any) -> None:
    ctx.step(0)
    if ctx.rank == 0:
        ctx.comm.send(torch.ones(5_000_000), 1)
    elif ctx.rank == 1:
        ctx.comm.recv()
    else:
        time.sleep(0.01)
        ctx.comm.recv(0)


def started(launch: Any, ranks: int = 3) -> None:
    end = time.monotonic() + 20
    while len(launch.events) < ranks:
        assert time.monotonic() < end, launch
        time.sleep(0.005)
    time.sleep(0.3)  # the real messages have come by now: what is waited for is the model


def works(cluster: dt.Cluster) -> None:
    """The links are free at once, whatever a stopped launch had put on them."""
    start = time.monotonic()
    assert cluster.run(lambda ctx: int(ctx.comm.all_reduce(torch.ones(1)))) == [3] * 3
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("work", [long_messages, one_long_message])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_kill_in_the_middle_of_a_delay(crawling: dt.Cluster, work: Any, victim: int) -> None:
    pids = crawling.pids
    launch = crawling.submit(work)
    started(launch)
    start = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    with pytest.raises(WorkerLost) as caught:
        launch.result(20)
    assert time.monotonic() - start < IN_TIME
    assert caught.value.ranks == (victim,)
    works(crawling)


def test_a_deadline_in_the_middle_of_a_delay(crawling: dt.Cluster) -> None:
    start = time.monotonic()
    with pytest.raises(LaunchTimeout):
        crawling.run(long_messages, timeout=1.0)
    assert 1.0 <= time.monotonic() - start < 1.0 + IN_TIME
    works(crawling)


def test_a_cancel_in_the_middle_of_a_delay(crawling: dt.Cluster) -> None:
    pids = crawling.pids
    launch = crawling.submit(long_messages)
    started(launch)
    start = time.monotonic()
    launch.cancel()
    with pytest.raises(LaunchCancelled):
        launch.result(20)
    assert time.monotonic() - start < IN_TIME
    works(crawling)
    assert crawling.pids == pids, "no process was replaced: all of them stopped by themselves"


def test_a_rank_that_raises_while_others_wait_for_a_message(crawling: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        call = ctx.comm.all_to_all([torch.ones(3_000_000)] * ctx.size, wait=False)
        if ctx.rank == 1:
            raise KeyError("what went wrong")
        call.wait()

    start = time.monotonic()
    with pytest.raises(RankError, match="what went wrong"):
        crawling.run(work)
    assert time.monotonic() - start < IN_TIME
    works(crawling)


def test_an_elastic_launch_goes_on_in_an_emulated_group(crawling: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        lost = []
        ctx.step(0)
        if not ctx.joined:
            try:
                ctx.comm.all_to_all([torch.ones(5_000_000)] * ctx.size)
            except PeerLost as error:
                lost += error.ranks
                ctx.rebuild(3, timeout=20)
        start = time.perf_counter()
        total = ctx.comm.all_reduce(torch.ones(30_000))  # 40 kB leave each rank, twice
        return lost, float(total[0]), ctx.size, time.perf_counter() - start

    pids = crawling.pids
    launch = crawling.submit(work, elastic=True)
    started(launch)
    os.kill(pids[1], signal.SIGKILL)
    answers = launch.result(40)
    assert [a[:3] for a in answers] == [([1], 3.0, 3), ([], 3.0, 3), ([1], 3.0, 3)]
    assert all(0.16 <= a[3] < 10 for a in answers)
    works(crawling)


def test_nothing_is_left_in_the_folder_for_temporary_files(crawling: dt.Cluster) -> None:
    works(crawling)
    assert glob.glob(f"{tempfile.gettempdir()}/{crawling._gang.topic}*.links") == []


# ----------------------------------------------------------------------------- what is said


def test_everything_is_marked(crawling: dt.Cluster, tmp_path: Path) -> None:
    from dtoolkit.figures import timeline, traffic

    works(crawling)
    name, trace = CRAWL.name, crawling.trace
    assert crawling.emulate is CRAWL
    assert trace.emulated == name
    assert f"emulated: {name}" in repr(crawling)
    assert f"emulated: {name}" in repr(trace)
    assert trace.filter(launch=1).emulated == name
    trace.save(tmp_path / "a.trace")
    assert dt.comm.Trace.load(tmp_path / "a.trace").emulated == name
    assert trace.chrome()["otherData"]["emulated_network"] == name
    assert "emulated" in crawling._repr_html_()
    assert "emulated" in trace._repr_html_()
    for figure in (timeline(trace), traffic(trace)):
        title = figure.layout.title
        assert "mulated network" in title.text
        assert name in title.subtitle.text


def test_what_is_not_emulated_is_not_marked(cluster2: dt.Cluster, tmp_path: Path) -> None:
    from dtoolkit.figures import timeline, traffic

    def work(ctx: Any) -> str:
        ctx.comm.barrier()
        return type(ctx.comm._transport).__name__

    assert cluster2.run(work) == [GlooTransport.__name__] * 2, "nothing lies between"
    assert cluster2.emulate is None
    assert cluster2.trace.emulated == ""
    shown = [repr(cluster2), repr(cluster2.trace), cluster2._repr_html_()]
    shown += [f.layout.title.text for f in (timeline(cluster2.trace), traffic(cluster2.trace))]
    cluster2.trace.save(tmp_path / "a.trace")
    shown.append((tmp_path / "a.trace").read_text())
    assert not any("mulated" in text for text in shown)
    assert dt.comm.Trace.load(tmp_path / "a.trace").emulated == ""


def test_a_trace_with_another_kind_of_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    dt.comm.Trace(emulated="flat").save(path)
    path.write_text(path.read_text().replace('"flat"', "3"))
    with pytest.raises(ValueError, match="emulated is not the name"):
        dt.comm.Trace.load(path)


# ------------------------------------------------------------------------ nodes, and refusals


def test_nodes_are_those_of_the_network(crawling: dt.Cluster) -> None:
    assert crawling.nodes == (0, 1, 2)


def test_nodes_are_the_hosts(cluster2: dt.Cluster) -> None:
    assert cluster2.nodes == (0, 0)


def member(rank: int, host: str, boot: str = "") -> Member:
    return Member(f"tcp://{rank}", rank, host, "cpu", "", 1, None, 0.0, 0.0, boot=boot, rank=rank)


def test_nodes_are_numbered_as_they_come() -> None:
    assert nodes_of([member(n, host) for n, host in enumerate("babc")]) == (0, 1, 0, 2)
    assert nodes_of([member(0, "a", "x"), member(1, "b", "x"), member(2, "c", "y")]) == (0, 0, 1)


def test_workers_on_several_machines_are_refused() -> None:
    network = Network.flat(2, bandwidth="1GB/s")
    check_emulation(network, [member(0, "a", "x"), member(1, "b", "x")])
    with pytest.raises(ValueError, match=r"workers on one machine.* on 2: a, b.*calibrate"):
        check_emulation(network, [member(0, "a", "x"), member(1, "b", "y")])


def test_as_many_ranks_as_workers() -> None:
    network = Network.flat(4, bandwidth="1GB/s")
    with pytest.raises(ValueError, match=r"network of 4 ranks .* has 2 workers"):
        dt.Cluster(workers=2, emulate=network)
    with pytest.raises(ValueError, match=r"network of 4 ranks .* 5 workers"):
        check_emulation(network, [member(n, "a") for n in range(5)])


def test_only_networks_are_emulated() -> None:
    with pytest.raises(TypeError, match=r"emulate must be a dtoolkit\.comm\.Network, got str"):
        dt.Cluster(workers=2, emulate="40MB/s")  # type: ignore[arg-type]


def test_a_network_of_one_rank() -> None:
    with dt.Cluster(device="cpu", emulate=Network.flat(1, bandwidth="1kB/s")) as one:
        assert one.run(lambda ctx: float(ctx.comm.all_reduce(torch.ones(10_000))[0])) == [1.0]
        assert one.nodes == (0,)


def test_workers_of_a_client_on_this_machine() -> None:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True
        ) as workers,
        Client(workers) as client,
    ):
        with pytest.raises(ValueError, match=r"network of 3 ranks .* has 2 workers"):
            dt.Cluster(client=client, emulate=CRAWL)
        network = Network.flat(2, bandwidth="10MB/s", latency="50ms")
        with dt.Cluster(client=client, emulate=network) as cluster:

            def work(ctx: Any) -> float:
                ctx.comm.barrier()
                start = time.perf_counter()
                ctx.comm.all_gather(torch.ones(250_000))
                return time.perf_counter() - start

            assert all(0.1 <= took < 10 for took in cluster.run(work))
