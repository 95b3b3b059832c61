"""Networks that several tests look at."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.comm import Dimension, Network
from tests.comm.networks import GB, KINDS, all_kinds, measured, one, two_tier


def test_flat():
    network = dt.comm.Network.flat(4, bandwidth="400Gb/s", latency="5us")
    assert (network.kind, network.ranks, network.shape) == ("flat", 4, (4,))
    assert network.dimensions == (Dimension("switch", 4, 50e9, 5e-6),)
    assert network.nodes.tolist() == [0, 1, 2, 3]
    assert network.nodes.dtype == np.int32
    assert network.ranks_per_node == 1
    assert network.name == "flat, 4 ranks at 50 GB/s and 5 µs"


def test_two_tier():
    network = Network.two_tier(nodes=128, ranks_per_node=8, inter="50GB/s", intra="450GB/s")
    assert (network.ranks, network.shape, network.ranks_per_node) == (1024, (8, 128), 8)
    assert network.nodes.tolist() == np.repeat(np.arange(128), 8).tolist()
    assert network.node_bandwidth == 8 * 50e9
    assert network.name == ("two-tier, 128 nodes × 8 ranks: 450 GB/s inside, 50 GB/s between nodes")
    assert two_tier(node="1.5GB/s").name.endswith(", 1.5 GB/s a node")


def test_dims():
    network = Network.dims(
        [("Ring", 4, "100GB/s", "1us"), ("FullyConnected", 2, 5e10), Dimension("sw", 3, 1e9)]
    )
    assert [d.kind for d in network.dimensions] == ["ring", "fc", "switch"]
    assert [d.latency for d in network.dimensions] == [1e-6, 0.0, 0.0]
    assert network.shape == (4, 2, 3)
    assert network.ranks == 24
    assert network.nodes.tolist() == np.repeat(np.arange(6), 4).tolist()


def test_measured():
    network = measured(4, host_capacity=[1e9, 2e9], nodes=[0, 1, 0, 0], error=0.1)
    assert network.nodes.tolist() == [0, 1, 0, 0]
    assert network.ranks_per_node is None
    assert network.dimensions == ()
    assert network.shape == (4,)
    assert network.table.error == 0.1
    assert network.name == "measured, 4 ranks on 2 hosts"
    with pytest.raises(ValueError, match="read-only"):
        network.table.latency[0, 1] = 1.0


def test_different_networks_differ():
    networks = [*all_kinds().values(), two_tier(), two_tier(node=1e9), measured(error=0.2)]
    assert len(set(networks)) == len(networks)
    assert two_tier() != 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Network.flat(0, bandwidth=1), "ranks=0"),
        (lambda: Network.flat(2.0, bandwidth=1), r"ranks=2\.0"),
        (lambda: Network.flat(True, bandwidth=1), "ranks=True"),
        (lambda: Network.flat(2, bandwidth=0), "bandwidth=0"),
        (lambda: Network.flat(2, bandwidth="50G"), "bandwidth='50G' leaves open"),
        (lambda: Network.flat(2, bandwidth=1, latency=-1), "latency=-1"),
        (lambda: Network.flat(2, bandwidth=1, rate=0), "rate=0"),
        (lambda: Network.flat(2, bandwidth=1, rate={}), "rate is an empty mapping"),
        (lambda: Network.flat(2, bandwidth=1, rate={"float32": -1}), "rate=-1"),
        (lambda: Network.two_tier(nodes=0, ranks_per_node=1, inter=1, intra=1), "nodes=0"),
        (lambda: Network.two_tier(nodes=1, ranks_per_node=0, inter=1, intra=1), "ranks_per_node=0"),
        (lambda: Network.two_tier(nodes=1, ranks_per_node=1, inter=0, intra=1), "inter=0"),
        (lambda: Network.two_tier(nodes=1, ranks_per_node=1, inter=1, intra="x"), "intra='x'"),
        (lambda: two_tier(inter_latency="5"), "inter_latency='5'"),
        (lambda: two_tier(intra_latency=-1), "intra_latency=-1"),
        (lambda: two_tier(node=0), "node=0"),
        (lambda: two_tier(node=None, rate={"float33": 1}), "rate's dtype='float33' is no dtype"),
        (lambda: two_tier(rate={"O": 1}), "rate's dtype='O' is no dtype of numbers"),
        (lambda: two_tier(rate={"torch.nn": 1}), "rate's dtype='torch.nn' is no dtype"),
        (lambda: two_tier(rate={"float32": 1, "f4": 2}), "one dtype twice: got float32, f4"),
        (lambda: two_tier(rate=10**400), "wanted nonzeros times columns a second, finite"),
        (lambda: Network.flat(2**31, bandwidth=1), "ranks=2147483648: wanted at most"),
        (lambda: Network.dims([]), "dimensions is empty"),
        (lambda: Network.dims(None), r"dimensions=None: wanted a list of \(kind, ranks"),
        (lambda: Network.dims(4), "dimensions=4: wanted a list"),
        (lambda: Network.dims("ring"), "dimensions='ring': wanted a list"),
        (lambda: Network.dims([None]), "dimension 0 is None"),
        (lambda: Network.dims([("sw", 2**30, 1)] * 2), "ranks of all dimensions together="),
        (lambda: Network.dims([("ring", 2)]), r"dimension 0 is \('ring', 2\)"),
        (lambda: Network.dims([("ring", 2, 1), ("mesh", 2, 1)]), "dimension 1: kind='mesh'"),
        (lambda: Network.dims([("ring", 0, 1)]), "dimension 0: ranks=0"),
        (lambda: Network.dims([("ring", 2, -1)]), "dimension 0: bandwidth=-1"),
        (lambda: Network.dims([("ring", 2, 1, "1")]), "dimension 0: latency='1'"),
        (lambda: Network.dims(["ring"]), "dimension 0 is 'ring'"),
        (lambda: Dimension(3, 2, 1), "kind=3"),
        (lambda: measured(latency=np.ones((2, 3))), r"latency has shape \(2, 3\)"),
        (lambda: measured(latency="1us"), r"latency: wanted numbers"),
        (lambda: measured(latency=[["1"] * 4] * 4), r"latency: wanted numbers"),
        (lambda: measured(latency=[[1], [1, 2]]), r"latency: wanted numbers"),
        (lambda: measured(nodes=[[0], [0, 1]]), "nodes: wanted 4 integers"),
        (lambda: measured(host_capacity=[[1], [1, 2]]), r"host_capacity\[0\]=\[1\]"),
        (lambda: measured(host_capacity=None), "host_capacity=None"),
        (lambda: measured(error="x"), "error='x' is of type str: wanted a finite number"),
        (lambda: measured(error=np.inf), "error=inf"),
        (lambda: measured(overlap="x"), "overlap='x' is of type str: wanted a share"),
        (lambda: measured(overlap=1.5), r"overlap=1\.5: wanted a share from 0 to 1"),
        (lambda: measured(bandwidth=np.ones((2, 2))), "latency is of 4 ranks and bandwidth of 2"),
        (lambda: measured(bandwidth=np.zeros((4, 4))), "bandwidth has entries"),
        (lambda: measured(latency=-np.ones((4, 4))), "latency has entries"),
        (lambda: measured(nodes=[0, 1]), "nodes has shape"),
        (lambda: measured(nodes=[0, 0, 2, 2]), r"nodes has hosts \[0, 2\]"),
        (lambda: measured(nodes=[0.0, 0, 0, 0]), "dtype float64"),
        (lambda: measured(host_capacity=[1e9, 1e9]), "host_capacity has 2 entries"),
        (lambda: measured(host_capacity=0), "host_capacity=0"),
        (lambda: measured(host_capacity=[0]), r"host_capacity\[0\]=0"),
        (lambda: measured(message=-1), "message=-1"),
        (lambda: measured(error=-0.1), r"error=-0\.1"),
    ],
)
def test_wrong_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_time_of_one_message_by_hand():
    flat = Network.flat(4, bandwidth=2 * GB, latency=1e-3)
    assert flat.time(0, 3, GB) == pytest.approx(0.501)
    tiers = two_tier(inter_latency=1e-3, intra_latency=1e-4)
    assert tiers.time(0, 1, GB) == pytest.approx(0.1 + 1e-4)
    assert tiers.time(0, 2, GB) == pytest.approx(1.0 + 1e-3)
    assert two_tier(node=GB // 2).time(0, 2, GB) == pytest.approx(2.0)
    grid = Network.dims([("ring", 5, 4 * GB, 1e-3), ("fc", 2, GB, 1e-2), ("sw", 2, 2 * GB, 1e-1)])
    assert grid.time(0, 2, GB) == pytest.approx(0.25 + 2e-3)  # two hops of the ring
    assert grid.time(0, 4, GB) == pytest.approx(0.25 + 1e-3)  # one hop the short way
    assert grid.time(0, 5, GB) == pytest.approx(1.0 + 1e-2)
    assert grid.time(0, 19, GB) == pytest.approx(1.0 + 1e-3 + 1e-2 + 1e-1)
    assert measured(message=1e-3).time(0, 1, "1GB") == pytest.approx(1.0 + 1e-5 + 1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_time_broadcasts_and_is_nothing_to_oneself(kind):
    network = all_kinds()[kind]
    ranks = np.arange(network.ranks)
    every = network.time(ranks[:, None], ranks[None, :], 1000)
    assert every.shape == (network.ranks,) * 2
    assert (np.diag(every) == 0).all()
    assert isinstance(network.time(0, 1, 1000), float)
    assert every[0, 1] == network.time(0, 1, 1000)


def test_time_refuses_what_is_no_rank():
    for source in (-1, 4, 0.5, "a"):
        with pytest.raises(ValueError, match="source="):
            two_tier().time(source, 0, 1)
    with pytest.raises(ValueError, match="nbytes"):
        two_tier().time(0, 1, -1)
    with pytest.raises(ValueError, match="nbytes"):
        two_tier().time(0, 1, [1.5])


@pytest.mark.parametrize("kind", KINDS)
def test_one_message_loads_its_links_for_as_long_as_it_takes_alone(kind):
    network = all_kinds()[kind]
    for source, target in itertools.permutations(range(network.ranks), 2):
        sent = one(network.ranks, source, target, 10**6)
        longest = max(g.seconds.max() for g in network.loads(sent))
        assert longest == pytest.approx(network.time(source, target, 10**6))


def test_rate_by_dtype():
    assert two_tier().rate_of("float32") is None
    assert two_tier(rate=2e9).rate_of(np.float64) == 2e9
    network = two_tier(rate={"float32": 2e9, "torch.float64": 1e9})
    for dtype in ("float64", np.float64, np.dtype("float64"), torch.float64):
        assert network.rate_of(dtype) == 1e9
    with pytest.raises(ValueError, match="dtype='int8'"):
        network.rate_of("int8")
    with pytest.raises(ValueError, match="say which dtype"):
        network.rate_of()
    for none in (object(), "float33", "torch.nn", "f4,,"):
        with pytest.raises(ValueError, match="no dtype"):
            network.rate_of(none)
    assert two_tier(rate={"float32": 2e9}).rate_of() == 2e9
    others = two_tier(rate={"bfloat16": 4e9, "half": 3e9, "torch.float": 2e9})
    assert others.rate == {"bfloat16": 4e9, "float16": 3e9, "float32": 2e9}


def test_with_ranks():
    assert Network.flat(4, bandwidth=1e9).with_ranks(1024) == Network.flat(1024, bandwidth=1e9)
    wide = two_tier().with_ranks(8)
    assert wide == Network.two_tier(nodes=4, ranks_per_node=2, inter=1e9, intra=1e10)
    assert two_tier().with_ranks(1).node_bandwidth == 1e9
    assert two_tier(node=1.5e9).with_ranks(8).node_bandwidth == 1.5e9
    with pytest.raises(ValueError, match="ranks=3 fill no whole number of nodes"):
        two_tier().with_ranks(3)
    for kind in ("dims", "measured"):
        assert all_kinds()[kind].with_ranks(12) is not None
        with pytest.raises(ValueError, match="does not say what it is with 13"):
            all_kinds()[kind].with_ranks(13)
