"""Messages from the owner of a launch to its ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

import dtoolkit as dt
from dtoolkit.cluster.letters import Mailbox, Outbox, check_message


def collect(ctx: Any, last: Any, seconds: float = 20.0) -> list[Any]:
    """Read until the last message has come."""
    found: list[Any] = []
    end = time.monotonic() + seconds
    while last not in found and time.monotonic() < end:
        found += ctx.messages()
        time.sleep(0.001)
    return found


def exchange(cluster: dt.Cluster) -> None:
    launch = cluster.submit(collect, "end")
    said = [{"stop": True, "at": [1, 2.5, None]}, *range(20), "end"]
    for message in said:
        launch.send(message)
    assert launch.result(30) == [said] * cluster.size
    with pytest.raises(RuntimeError, match=r"collect\) has ended \(done\).*reach nobody"):
        launch.send("late")


def test_every_rank_gets_all_in_order(cluster2: dt.Cluster) -> None:
    exchange(cluster2)
    exchange(cluster2)


def test_one_rank_gets_them_too(cluster1: dt.Cluster) -> None:
    exchange(cluster1)


def test_through_dask_on_an_attached_cluster() -> None:
    for dask_client in attached():
        with dt.Cluster(client=dask_client) as cluster:
            exchange(cluster)


def attached() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as dask,
        Client(dask, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


def test_sent_while_the_launch_waits_for_its_turn(cluster2: dt.Cluster) -> None:
    first = cluster2.submit(collect, "go")
    second = cluster2.submit(collect, "b")
    second.send("a")
    second.send("b")
    first.send("go")
    assert first.result(30) == [["go"]] * 2
    assert second.result(30) == [["a", "b"]] * 2


def test_the_next_launch_finds_no_old_messages(cluster2: dt.Cluster) -> None:
    launch = cluster2.submit(lambda ctx: ctx.comm.barrier())
    try:
        launch.send("for nobody")
    except RuntimeError:
        pass  # it was quicker
    launch.result(30)
    assert cluster2.run(lambda ctx: ctx.messages()) == [[], []]


def test_a_cancelled_launch_takes_none(cluster2: dt.Cluster) -> None:
    launch = cluster2.submit(collect, "never")
    launch.cancel()
    launch.exception()
    with pytest.raises(RuntimeError, match=r"has ended \(cancelled\)"):
        launch.send(1)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (object(), "message is object"),
        ({"a": [1, {2}]}, r"message\['a'\]\[1\] is set"),
        ({1: 2}, "a name in message is 1; names are text"),
        ((1, 2), "message is tuple"),
    ],
)
def test_only_plain_values_travel(message: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        check_message(message)


def test_plain_values() -> None:
    check_message({"a": [None, True, 1, 1.5, math.inf, "text", [], {}]})


def test_mailbox_forgets_what_has_ended() -> None:
    box = Mailbox()
    box.put("a", 1, ["early"])
    box.put("a", 2, ["next"])
    box.put("b", 1, ["other"])
    assert box.take("a", 1) == ["early"]
    assert box.take("a", 1) == []
    box.end("a", 1)
    box.put("a", 1, ["late"])
    assert box.take("a", 1) == []
    assert box.take("a", 2) == ["next"]
    assert box.take("b", 1) == ["other"]
    box.put("a", 3, [1])
    box.close("a")
    assert box.take("a", 3) == []


def test_outbox_wakes_for_what_waits() -> None:
    box, woken = Outbox(), []
    assert box.put(1)
    box.open(lambda: woken.append(box.take()))
    assert box.put(2)
    assert woken == [[1], [2]]
    box.close()
    assert not box.put(3)
    assert box.take() == []
