from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dtoolkit as dt
from dtoolkit.comm import Dimension, Network

GB = 10**9


def two_tier(**more):
    return Network.two_tier(nodes=2, ranks_per_node=2, inter="1GB/s", intra="10GB/s", **more)


def measured(ranks=4, hosts=1, **more):
    values = {
        "latency": np.full((ranks, ranks), 1e-5),
        "bandwidth": np.full((ranks, ranks), 1e9),
        "host_capacity": 7e8,
        "nodes": np.arange(ranks) * hosts // ranks,
    }
    return Network.measured(**{**values, **more})


def by_name(network, sent):
    """Bytes and seconds of each link that has any, by name."""
    return {
        group.name(i): (int(group.bytes[i]), float(group.seconds[i]))
        for group in network.loads(sent)
        for i in np.flatnonzero(group.bytes)
    }


def one(ranks, source, target, nbytes):
    sent = np.zeros((ranks, ranks), dtype=np.int64)
    sent[source, target] = nbytes
    return sent


def all_kinds():
    return {
        "flat": Network.flat(12, bandwidth=2e9, latency=1e-6),
        "two-tier": Network.two_tier(
            nodes=3, ranks_per_node=4, inter=1e9, intra=5e9, inter_latency=3e-6, node=2e9
        ),
        "dims": Network.dims([("ring", 3, 4e9, 1e-6), ("fc", 2, 3e9, 2e-6), ("sw", 2, 1e9, 3e-6)]),
        "measured": measured(12, 3, message=1e-6),
    }


KINDS = list(all_kinds())


# --------------------------------------------------------------------------------- what it is


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


@pytest.mark.parametrize("kind", KINDS)
def test_json_pickle_and_files_bring_the_same_network(kind, tmp_path):
    network = all_kinds()[kind]
    for again in (Network.from_json(network.to_json()), pickle.loads(pickle.dumps(network))):
        assert again == network
        assert hash(again) == hash(network)
    network.save(tmp_path / "network.json")
    assert Network.load(tmp_path / "network.json") == network
    json.loads(network.to_json(), parse_constant=pytest.fail)  # no Infinity, no NaN
    rated = Network.from_json(
        network.to_json().replace('"kind"', '"rate": {"float32": 1e9}, "kind"')
    )
    assert rated != network
    assert Network.from_json(rated.to_json()) == rated
    assert repr(network) == f"<Network: {network.name}>"


def test_different_networks_differ():
    networks = [*all_kinds().values(), two_tier(), two_tier(node=1e9), measured(error=0.2)]
    assert len(set(networks)) == len(networks)
    assert two_tier() != 3


# ------------------------------------------------------------------------------- what is refused


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "does not say"),
        ('{"format": "dtoolkit trace"}', "does not say"),
        ('{"format": "dtoolkit network", "version": 99}', "version 99"),
        ('{"format": "dtoolkit network", "version": 1, "kind": "x"}', "kind='x'"),
        ('{"format": "dtoolkit network", "version": true, "kind": "flat"}', "version True"),
        ('{"format": "dtoolkit network", "version": 1, "kind": ["flat"], "ranks": 4}', r"\['flat'"),
        ('{"format": "dtoolkit network", "version": 1, "kind": "flat"}', "not a whole flat"),
        (
            '{"format": "dtoolkit network", "version": 1, "kind": "dims", "dimensions": null}',
            "dimensions=None",
        ),
        ("[" * 100_000, "not JSON"),
        (
            '{"format": "dtoolkit network", "version": 1, "kind": "flat", "ranks": 2, '
            '"bandwidth": 0}',
            "bandwidth=0",
        ),
    ],
)
def test_broken_json_is_refused_in_words(text, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        Network.from_json(text)
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json"):
        Network.load(path)
    with pytest.raises(FileNotFoundError):
        Network.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (np.zeros((3, 3), int), "of 3 ranks, the network of 4"),
        (np.zeros((4, 3), int), r"shape \(4, 3\)"),
        (np.zeros((4, 4)), "dtype float64"),
        (np.zeros((4, 4), bool), "dtype bool"),
        (-np.ones((4, 4), int), "negative"),
        (np.full((4, 4), 2**60), "more bytes than 64 bits"),
    ],
)
def test_wrong_bytes_are_refused(sent, words):
    with pytest.raises(ValueError, match=words):
        two_tier().loads(sent)


# ---------------------------------------------------------------------------- one message alone


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


# ------------------------------------------------------------------------------- loads by hand


def test_flat_loads():
    sent = np.array([[7, 1, 2], [0, 0, 4], [0, 0, 0]]) * GB  # the diagonal loads nothing
    assert by_name(Network.flat(3, bandwidth=GB, latency=0.5), sent) == {
        "rank 0's way out": (3 * GB, 3.5),
        "rank 1's way out": (4 * GB, 4.5),
        "rank 1's way in": (1 * GB, 1.5),
        "rank 2's way in": (6 * GB, 6.5),
    }


def test_two_tier_loads():
    sent = one(4, 0, 1, 20 * GB) + one(4, 0, 2, 3 * GB) + one(4, 1, 3, 1 * GB)
    assert by_name(two_tier(node="1GB/s", inter_latency=0.5, intra_latency=0.25), sent) == {
        "rank 0's way out inside its node": (20 * GB, 2.25),
        "rank 1's way in inside its node": (20 * GB, 2.25),
        "rank 0's way out to other nodes": (3 * GB, 3.5),
        "rank 1's way out to other nodes": (1 * GB, 1.5),
        "rank 2's way in from other nodes": (3 * GB, 3.5),
        "rank 3's way in from other nodes": (1 * GB, 1.5),
        "node 0's way out": (4 * GB, 4.5),
        "node 1's way in": (4 * GB, 4.5),
    }


def test_dims_go_in_order_by_way_of_the_rank_that_has_turned():
    # 2 x 2: from (0, 0) to (1, 1) by way of (1, 0), which is rank 1
    network = Network.dims([("switch", 2, GB, 0.25), ("fc", 2, 2 * GB, 0.5)])
    assert by_name(network, one(4, 0, 3, 2 * GB)) == {
        "rank 0's way out in dimension 0 (switch of 2)": (2 * GB, 2.75),
        "rank 1's way in in dimension 0 (switch of 2)": (2 * GB, 2.75),
        "rank 1's way out in dimension 1 (fc of 2)": (2 * GB, 1.75),
        "rank 3's way in in dimension 1 (fc of 2)": (2 * GB, 1.75),
    }


def test_a_ring_forwards_the_short_way():
    ring = Network.dims([("ring", 5, GB)])
    where = "in dimension 0 (ring of 5)"
    assert by_name(ring, one(5, 0, 3, 4)) == {  # two steps down: 0, 4, 3
        f"rank 0's way out {where}": (4, 4e-9),
        f"rank 4's way in {where}": (4, 4e-9),
        f"rank 4's way out {where}": (4, 4e-9),
        f"rank 3's way in {where}": (4, 4e-9),
    }


def test_a_ring_splits_what_may_go_either_way():
    ring = Network.dims([("ring", 4, GB)])
    out = ring.loads(one(4, 1, 3, 7))[0].bytes
    assert out.tolist() == [3, 7, 4, 0]  # four bytes by way of 2, three by way of 0
    assert ring.loads(one(4, 1, 3, 7))[1].bytes.tolist() == [3, 0, 4, 7]


def test_a_ring_under_even_traffic_has_the_average_of_hops():
    n, each = 8, 10
    out, into = Network.dims([("ring", n, GB)]).loads(np.full((n, n), each))
    hops = sum(min(h, n - h) for h in range(n))
    assert out.bytes.tolist() == into.bytes.tolist() == [each * hops] * n


def test_measured_loads():
    network = measured(
        3,
        bandwidth=np.array([[1, 1, 2], [1, 1, 1], [1, 1, 1]]) * 1e9,
        latency=np.array([[9, 1, 2], [0, 9, 0], [0, 0, 9]]) * 0.125,
        message=1.0,
        host_capacity=GB / 2,
    )
    sent = one(3, 0, 1, GB) + one(3, 0, 2, 2 * GB) + one(3, 1, 2, GB)
    links = by_name(network, sent)
    assert links["rank 0's way out"] == (3 * GB, 1 + 1 + 0.25 + 2)  # two messages
    assert links["rank 1's way out"] == (GB, 1 + 1)
    assert links["rank 1's way in"] == (GB, 1 + 0.125)
    assert links["rank 2's way in"] == (3 * GB, 1 + 1 + 0.25)
    # 2 GB while both talk, at half a GB/s; the last 2 GB of rank 0 at the 2 GB/s of a pair
    assert links["host 0, all of its ranks"][1] == pytest.approx(4 + 1 + 2.25)


def test_a_host_counts_what_comes_from_others():
    network = measured(4, 2, host_capacity=[1e9, 1e9])
    sent = one(4, 0, 1, 5) + one(4, 2, 1, 7)
    assert by_name(network, sent)["host 0, all of its ranks"][0] == 12
    assert by_name(network, sent)["host 1, all of its ranks"][0] == 7


def test_a_single_rank():
    for network in (
        Network.flat(1, bandwidth=1),
        Network.two_tier(nodes=1, ranks_per_node=1, inter=1, intra=1),
        Network.dims([("ring", 1, 1)]),
        measured(1),
    ):
        assert by_name(network, np.array([[5]])) == {}
        assert network.time(0, 0, 5) == 0.0
        assert network.ranks_per_node == 1


@pytest.mark.parametrize("latency", [0.0, 1e-3])
@pytest.mark.parametrize("kind", ["ring", "fc", "switch"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_dimension_of_one_rank_carries_nothing_and_changes_nothing(kind, place, latency):
    four = ("switch", 4, GB, 1e-6)
    dimensions = [four]
    dimensions.insert(place, (kind, 1, GB, latency))
    network, plain = Network.dims(dimensions), Network.dims([four])
    sent = np.full((4, 4), 10 * GB)
    links = network.loads(sent)
    for group in links:
        if group.tier == place:
            assert group.bytes.tolist() == [0] * 4
            assert group.seconds.tolist() == [0] * 4
    kept = [group for group in links if group.tier != place]
    for group, same in zip(kept, plain.loads(sent), strict=True):
        np.testing.assert_array_equal(group.bytes, same.bytes)
        np.testing.assert_array_equal(group.seconds, same.seconds)
    assert kept[0].seconds.tolist() == [30 + 1e-6] * 4
    assert network.time(0, 3, GB) == plain.time(0, 3, GB) == 1 + 1e-6
    assert network.time(2, 2, GB) == 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 10**30, 10**400, 1e308, 5e-324])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["float32", "ring", "5us", "1GB/s", "1e999GB/s", "flat", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@st.composite
def damaged(draw):
    """A network's JSON in which some values have gone, or have come to be others."""
    network = draw(st.sampled_from([*all_kinds().values(), two_tier(rate={"float32": 1e9})]))
    document = {"overhead": 1e-3, "overlap": 0.5, "rate": 1e9, **json.loads(network.to_json())}
    for _ in range(draw(st.integers(1, 3))):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = draw(st.sampled_from(keys))
            deeper = isinstance(place[key], dict | list) and place[key]
            if not deeper or draw(st.booleans()):
                break
            place = place[key]
        if draw(st.integers(0, 4)) == 0 and len(place) > 1:
            del place[key]
        else:
            place[key] = draw(JSON)
    return json.dumps(document)


@settings(max_examples=300)
@given(damaged())
def test_json_of_wrong_kinds_is_refused_in_words_or_is_a_network(text):
    try:
        network = Network.from_json(text)
    except ValueError:
        return
    assert Network.from_json(network.to_json()) == network
    assert repr(network)
    assert len(network.shape) >= 1


@given(JSON)
def test_any_json_is_no_network(value):
    with pytest.raises(ValueError, match="not a network"):
        Network.from_json(json.dumps(value))
    with pytest.raises(ValueError, match=r"kind=|missing|wanted|unexpected"):
        Network.from_json(
            json.dumps({"format": "dtoolkit network", "version": 1, "kind": value, "ranks": 4})
        )


def test_sparse_bytes_are_taken():
    sent = sparse.coo_array(([GB], ([0], [3])), shape=(4, 4))
    assert by_name(two_tier(), sent) == by_name(two_tier(), one(4, 0, 3, GB))


# ---------------------------------------------------------------------------------- properties


def matrices(ranks):
    return st.lists(st.integers(0, 2**40), min_size=ranks * ranks, max_size=ranks * ranks).map(
        lambda values: np.array(values, dtype=np.int64).reshape(ranks, ranks)
    )


@settings(max_examples=30)
@given(matrices(12))
def test_bytes_are_preserved_over_links(sent):
    off = sent - np.diag(np.diag(sent))
    for kind, network in all_kinds().items():
        out, into = (
            sum(int(g.bytes.sum()) for g in network.loads(sent) if (g.owner, g.direction) == way)
            for way in (("rank", "out"), ("rank", "in"))
        )
        assert out == into
        if kind != "dims":
            assert out == off.sum()
    network = all_kinds()["two-tier"]
    near = network.nodes[:, None] == network.nodes[None, :]
    groups = network.loads(sent)
    assert groups[0].bytes.sum() == off[near].sum()
    assert groups[4].bytes.sum() == groups[5].bytes.sum() == off[~near].sum()


@settings(max_examples=30)
@given(matrices(12))
def test_each_dimension_carries_every_hop_once(sent):
    network = all_kinds()["dims"]
    rank = np.arange(12)
    below = 1
    for tier, d in enumerate(network.dimensions):
        c = rank // below % d.ranks
        hops = d.hops(c[:, None], c[None, :])
        out, into = (g for g in network.loads(sent) if g.tier == tier)
        assert out.bytes.sum() == into.bytes.sum() == (hops * sent).sum()
        below *= d.ranks


def walked(network, sent):
    """Bytes at the ports out, by walking every message hop by hop."""
    shape = network.shape
    ports = np.zeros((len(shape), network.ranks), dtype=np.int64)
    weights = np.cumprod([1, *shape[:-1]])
    for s, t in itertools.permutations(range(network.ranks), 2):
        at = [s // w % n for w, n in zip(weights, shape, strict=True)]
        for k, d in enumerate(network.dimensions):
            goal = t // weights[k] % d.ranks
            up = (goal - at[k]) % d.ranks
            ways = [(1, up, sent[s, t])]
            if d.kind == "ring" and 2 * up > d.ranks:
                ways = [(-1, d.ranks - up, sent[s, t])]
            elif d.kind == "ring" and 2 * up == d.ranks:
                ways = [(1, up, sent[s, t] - sent[s, t] // 2), (-1, up, sent[s, t] // 2)]
            elif d.kind != "ring":
                ways = [(up, int(up > 0), sent[s, t])]
            for step, hops, nbytes in ways:
                here = list(at)
                for _ in range(hops):
                    ports[k, int(np.dot(here, weights))] += nbytes
                    here[k] = (here[k] + step) % d.ranks
            at[k] = goal
    return ports


@pytest.mark.parametrize(
    "shape",
    [
        [("ring", 4, 1e9)],
        [("ring", 5, 1e9), ("fc", 3, 1e9)],
        [("fc", 3, 1e9), ("ring", 6, 1e9)],
        [("switch", 2, 1e9), ("ring", 2, 1e9), ("ring", 3, 1e9)],
        [("ring", 1, 1e9), ("ring", 7, 1e9)],
    ],
)
def test_ports_are_those_of_a_walk_hop_by_hop(shape):
    network = Network.dims(shape)
    rng = np.random.default_rng(0)
    # even, so that what may go either way has no odd byte
    sent = (
        2 * rng.integers(0, 1000, (network.ranks,) * 2) * (rng.random((network.ranks,) * 2) < 0.5)
    )
    np.fill_diagonal(sent, 0)
    out = [g.bytes for g in network.loads(sent) if g.direction == "out"]
    np.testing.assert_array_equal(out, walked(network, sent))


@settings(max_examples=30)
@given(matrices(6), st.permutations(range(6)))
def test_permuting_the_ranks_of_a_flat_network_changes_nothing_else(sent, order):
    network = Network.flat(6, bandwidth=3e9, latency=1e-6)
    out, into = network.loads(sent)
    other_out, other_in = network.loads(sent[np.ix_(order, order)])
    np.testing.assert_array_equal(other_out.seconds, out.seconds[order])
    np.testing.assert_array_equal(other_in.seconds, into.seconds[order])


@settings(max_examples=30)
@given(matrices(6))
def test_one_switch_as_a_dimension_is_a_flat_network(sent):
    flat = Network.flat(6, bandwidth=3e9, latency=1e-6)
    grid = Network.dims([("switch", 6, 3e9, 1e-6)])
    for a, b in zip(flat.loads(sent), grid.loads(sent), strict=True):
        np.testing.assert_array_equal(a.bytes, b.bytes)
        np.testing.assert_array_equal(a.seconds, b.seconds)


def test_latency_of_a_link_is_that_of_the_slowest_message_on_it():
    network = Network.dims([("ring", 4, 1e9, 1e-3), ("sw", 2, 1e9, 1.0)])
    sent = one(8, 0, 1, 10) + one(8, 0, 6, 10)  # one hop; two hops and the switch
    ring_out, _, switch_out, _ = network.loads(sent)
    assert ring_out.latency[0] == pytest.approx(1.002)
    assert switch_out.latency[2] == pytest.approx(1.002)
    assert switch_out.latency[[0, 1, 3, 4]].tolist() == [0, 0, 0, 0]


# ------------------------------------------------------------------------------ rates and ranks


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
