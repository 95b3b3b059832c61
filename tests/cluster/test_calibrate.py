"""Calibration: a cluster measured as a network, on which products are predicted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dtoolkit as dt
from dtoolkit.cluster import calibrate
from dtoolkit.cluster.calibrate import Workload
from dtoolkit.cluster.fits import errors_of, line_through, pair_lines
from dtoolkit.comm import Network

QUICK = {"seconds": 0.4, "sizes": (10_000, "400kB")}
SLOW = Network.two_tier(
    nodes=2,
    ranks_per_node=2,
    inter="20MB/s",
    intra="100MB/s",
    inter_latency="40ms",
    intra_latency="10ms",
)


@pytest.fixture(scope="module")
def slow() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=120, emulate=SLOW) as one:
        yield one


@pytest.fixture(scope="module")
def found(slow: dt.Cluster) -> Network:
    """The emulated network, as it was measured."""
    return calibrate(slow, seconds=3.0, sizes=(10_000, 2_000_000, 6_000_000))


def test_a_cluster_is_a_measured_network(cluster4: dt.Cluster) -> None:
    network = calibrate(cluster4, **QUICK)
    assert (network.kind, network.ranks) == ("measured", 4)
    assert network.nodes.tolist() == [0] * 4
    table, off = network.table, ~np.eye(4, dtype=bool)
    assert (table.latency[off] > 0).all()
    assert np.array_equal(table.latency, table.latency.T)
    assert (table.bandwidth[off] > 0).all()
    assert table.host_capacity.shape == (1,)
    assert table.message >= 0
    assert 0 <= table.error < np.inf
    assert network.rate_of("float32") > 0
    assert network.rate_of("float64") > 0
    assert network.overhead > 0
    assert 0 <= network.overlap <= 1


@pytest.mark.parametrize("workers", [1, 2])
def test_few_workers(cluster_of: Any, workers: int) -> None:
    network = calibrate(cluster_of(workers), **QUICK)
    assert network.ranks == workers
    assert network.rate_of("float32") > 0
    plan = dt.plan(sp.eye_array(50, format="csr"), parts=workers)
    assert 0 < plan.predict(network).seconds < np.inf


def test_nothing_is_left_and_nothing_recorded(cluster2: dt.Cluster) -> None:
    cluster2.run(lambda ctx: ctx.comm.barrier())
    events, held = len(cluster2.trace), cluster2.held
    calibrate(cluster2, **QUICK)
    assert len(cluster2.trace) == events
    assert cluster2.trace.enabled
    end = time.monotonic() + 20
    while cluster2.held != held:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_recording_stays_off_where_it_was_off(cluster2: dt.Cluster) -> None:
    cluster2.trace.enabled = False
    try:
        with pytest.raises(ZeroDivisionError):
            calibrate(cluster2, **QUICK, progress=lambda share, text: 1 / 0)
        assert not cluster2.trace.enabled
    finally:
        cluster2.trace.enabled = True


def test_it_tells_how_far_it_is(cluster2: dt.Cluster) -> None:
    said: list[tuple[float, str]] = []
    calibrate(cluster2, **QUICK, progress=lambda share, text: said.append((share, text)))
    shares = [share for share, _ in said]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert said[-1] == (1.0, "done")
    assert [text for _, text in said] == [
        *("launches", "pairs", "all at once", "computing", "overlap"),
        "done",
    ]


def test_a_persons_own_work(cluster2: dt.Cluster) -> None:
    def work(ctx: Any, dtype: str, seed: int) -> Any:
        assert seed == 5
        return 1000.0 if dtype == "float32" else 500.0, lambda: time.sleep(0.02)

    network = calibrate(cluster2, **QUICK, work=Workload(work), seed=5)
    assert 1000 / 2 < network.rate_of("float32") <= 1000 / 0.02
    assert 500 / 2 < network.rate_of("float64") <= 500 / 0.02


def test_a_network_with_its_launches_travels_as_a_file(
    cluster2: dt.Cluster, tmp_path: Path
) -> None:
    network = calibrate(cluster2, **QUICK)
    network.save(tmp_path / "a.json")
    again = Network.load(tmp_path / "a.json")
    assert again == network
    assert (again.overhead, again.overlap) == (network.overhead, network.overlap)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seconds": 0}, "seconds must be above 0"),
        ({"sizes": (1000,)}, "sizes must be two numbers"),
        ({"sizes": (0, 1000)}, "sizes must be two numbers"),
        ({"sizes": (1000, "4Mb")}, r"sizes\[1\]='4Mb' counts bits"),
        ({"sizes": (1000, 1.5)}, r"sizes\[1\]=1\.5"),
        ({"sizes": (1000, None)}, r"sizes\[1\]=None is None"),
        ({"sizes": 5}, "sizes must be a sequence of .*, got 5 of type int"),
        ({"sizes": None}, "sizes must be a sequence of .*, got None"),
        ({"sizes": "4MB"}, "sizes must be a sequence of .*, got '4MB' of type str"),
        ({"seconds": -1}, "seconds=-1: wanted a finite time"),
        ({"seconds": "4"}, "seconds='4' has no unit"),
        ({"seconds": float("inf")}, "seconds=inf: wanted a finite time"),
        ({"seconds": float("nan")}, "seconds=nan: wanted a finite time"),
        ({"seconds": None}, "seconds=None is None: wanted seconds as a number"),
        ({"seconds": True}, "seconds=True is of type bool"),
        ({"work": 3}, r"work must be a .*Workload\(compute, launch\) or None, got 3"),
        ({"work": Workload(3)}, "work.compute must be callable, got 3"),  # type: ignore[arg-type]
        ({"work": Workload(max, 3)}, "work.launch must be callable"),  # type: ignore[arg-type]
        ({"progress": 3}, "progress must be callable or None, got 3"),
        ({"seed": "x"}, "seed must be an integer of at least 0, got 'x'"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"seed": 1.5}, r"seed must be an integer of at least 0, got 1\.5"),
        ({"seed": True}, "seed must be an integer of at least 0, got True"),
        ({"cluster": None}, "cluster must be a dtoolkit.Cluster, got None"),
        ({"cluster": 4}, "cluster must be a dtoolkit.Cluster, got 4 of type int"),
    ],
)
def test_what_makes_no_sense(cluster1: dt.Cluster, wrong: Any, words: str) -> None:
    said: list[str] = []
    arguments = {"progress": lambda share, text: said.append(text), **wrong}
    cluster = arguments.pop("cluster", cluster1)
    with pytest.raises((ValueError, TypeError), match=words):
        calibrate(cluster, **arguments)
    assert said == [], "nothing has run"


def test_seconds_are_text_too(cluster1: dt.Cluster) -> None:
    network = calibrate(
        cluster1, seconds="400ms", sizes=np.array([10_000, 400_000]), seed=np.int64(1)
    )
    assert network.ranks == 1


# ------------------------------------------------- a network that is known: the emulated one
# Bounds are generous: lines through few times of a busy machine.


def test_latencies_of_tiers(found: Network) -> None:
    near, far = found.table.latency[0, 1], found.table.latency[0, 2]
    assert 0.010 / 2 <= near < 0.2
    assert 0.040 / 2 <= far < 0.4


def test_bandwidths_of_tiers(found: Network) -> None:
    assert 10e6 <= found.table.bandwidth[0, 1] <= 300e6
    assert 2e6 <= found.table.bandwidth[1, 2] <= 60e6


def test_nodes_have_their_capacity(found: Network) -> None:
    assert found.nodes.tolist() == [0, 0, 1, 1]
    # While all send to all, 2 ranks send 3 messages each and 4 come from the other node; two of
    # them share a rank's way of 20 MB/s: 10 messages while two pass, 100 MB/s.
    assert found.table.host_capacity.shape == (2,)
    assert all(10e6 <= capacity <= 300e6 for capacity in found.table.host_capacity)


def test_its_own_errors_are_told(found: Network) -> None:
    assert 0 <= found.table.error < 1


def test_a_product_is_predicted_on_what_was_measured(slow: dt.Cluster, found: Network) -> None:
    n = 4000
    A = dt.data.power_law(n, 8, seed=0, values="normal").astype("float32")
    plan = dt.plan(A, parts=4, strategy="column")
    dA = dt.distribute(slow, A, plan)
    dB = dt.distribute(slow, np.ones((n, 64), np.float32), plan)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        dA @ dB
        times.append(time.perf_counter() - start)
    measured, predicted = statistics.median(times[1:]), plan.predict(found)
    assert predicted.phases["phase"].tolist() == ["launch", "spmm"]
    assert measured / 5 < predicted.seconds < measured * 5


# ------------------------------------------------------------------------------------ lines


def test_a_line_through_exact_times() -> None:
    sizes = [8, 1000, 1_000_000]
    at_once, per_byte = line_through(sizes, [0.001 + size * 2e-9 for size in sizes])
    assert at_once == pytest.approx(0.001, rel=1e-6)
    assert per_byte == pytest.approx(2e-9, rel=1e-6)


@pytest.mark.parametrize("seconds", [[0.5, 0.3, 0.1], [0.1, 0.1, 0.1]])
def test_larger_messages_that_were_not_slower(seconds: list[float]) -> None:
    at_once, per_byte = line_through([10, 100, 1000], seconds)
    assert at_once >= 0
    assert per_byte > 0


def test_errors_are_relative() -> None:
    assert errors_of((1.0, 0.5), [2, 4], [2.0, 4.0]) == [0.0, 0.25]


def test_pairs_of_a_kind_are_alike_unless_one_stands_apart() -> None:
    kinds = {(0, 1): True} | {(a, b): False for a in (0, 1) for b in range(2, 7)}
    sizes = [0, 1000]
    times = {
        (0, 1): [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]],
        **{(0, b): [[4.0, 4.0, 4.0], [8.0, 8.0, 8.0]] for b in (2, 4, 5, 6)},
        (0, 3): [[4.0, 9.0, 9.0], [8.0, 30.0, 30.0]],  # the machine was busy: not at all times
        (1, 2): [[4.0, 4.0, 4.0], [24.0, 24.0, 25.0]],  # a slow connection
    }
    lines, errors = pair_lines(times, kinds, sizes)
    assert set(lines) == {True, False, (1, 2)}
    assert lines[True] == pytest.approx((1.0, 0.001))
    assert lines[False] == pytest.approx((4.0, 0.004))
    assert lines[1, 2] == pytest.approx((4.0, 0.020))
    assert max(errors) < 1e-9
