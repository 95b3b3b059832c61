"""How bytes load the links of a network: by hand, by a walk hop by hop, and what always holds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dtoolkit.comm import Network
from tests.comm.networks import GB, all_kinds, measured, one, two_tier


def by_name(network, sent):
    """Bytes and seconds of each link that has any, by name."""
    return {
        group.name(i): (int(group.bytes[i]), float(group.seconds[i]))
        for group in network.loads(sent)
        for i in np.flatnonzero(group.bytes)
    }


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


def test_sparse_bytes_are_taken():
    sent = sparse.coo_array(([GB], ([0], [3])), shape=(4, 4))
    assert by_name(two_tier(), sent) == by_name(two_tier(), one(4, 0, 3, GB))


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
