from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtoolkit as dt
from dtoolkit.comm import Event, Network, Phase, Prediction, Trace, Traffic, predict

GB = 10**9


def one(ranks, source, target, nbytes):
    sent = np.zeros((ranks, ranks), dtype=np.int64)
    sent[source, target] = nbytes
    return sent


def two_tier(**more):
    values = {"nodes": 2, "ranks_per_node": 2, "inter": "1GB/s", "intra": "10GB/s", **more}
    return Network.two_tier(**values)


def traffic(*sent, work=None, after=None, dtype=""):
    phases = [Phase(f"phase {i}", matrix, work, after) for i, matrix in enumerate(sent)]
    return Traffic(tuple(phases), "a test", dtype)


# ---------------------------------------------------------------------------- worked by hand


def test_a_phase_lasts_as_long_as_its_busiest_link():
    # rank 0 sends 3 GB to the other node, rank 1 one: 3 s at the rank's way, 4 GB at the node's
    sent = one(4, 0, 2, 3 * GB) + one(4, 1, 3, 1 * GB) + one(4, 2, 3, 20 * GB)
    alone = predict(traffic(sent), two_tier(inter_latency=0.5))
    assert alone.seconds == pytest.approx(3.5)
    assert alone.bottleneck == "rank 0's way out to other nodes: 3 GB at 1 GB/s and 500 ms latency"
    shared = predict(traffic(sent), two_tier(node="1GB/s"))
    assert shared.seconds == pytest.approx(4.0)
    assert shared.bottleneck == "node 0's way out: 4 GB at 1 GB/s"
    inside = predict(traffic(sent), two_tier(intra="1GB/s"))
    assert inside.seconds == pytest.approx(20.0)
    assert inside.bottleneck == "rank 2's way out inside its node: 20 GB at 1 GB/s"


def test_many_to_one_waits_for_the_way_in():
    sent = sum(one(4, s, 0, GB) for s in (1, 2, 3))
    made = predict(traffic(sent), Network.flat(4, bandwidth=GB))
    assert made.seconds == pytest.approx(3.0)
    assert made.bottleneck == "rank 0's way in: 3 GB at 1 GB/s"


def test_links_that_are_as_busy_are_counted():
    sent = np.full((4, 4), GB)
    made = predict(traffic(sent), Network.flat(4, bandwidth=GB))
    assert made.bottleneck == "rank 0's way out: 3 GB at 1 GB/s (as busy: 3 more ranks)"


def test_work_overlaps_and_what_comes_after_does_not():
    network = Network.flat(2, bandwidth=GB, rate=100.0)
    sent = one(2, 0, 1, 2 * GB)
    less = predict(traffic(sent, work=[100, 0], after=[0, 300]), network)
    assert less.phases.loc[0, ["exchange", "compute", "after", "seconds"]].tolist() == [2, 1, 3, 5]
    assert less.bottleneck == "computing: 3 s on the rank with most work"
    more = predict(traffic(sent, work=[100, 400]), network)
    assert more.seconds == pytest.approx(4.0)
    assert more.bottleneck == "computing: 4 s on the rank with most work"
    waits = predict(traffic(sent, work=[100, 100], after=[100, 0]), network)
    assert waits.seconds == pytest.approx(3.0)
    assert waits.bottleneck == "rank 0's way out: 2 GB at 1 GB/s"


def test_phases_follow_each_other():
    made = predict(traffic(one(4, 0, 2, GB), one(4, 0, 1, 50 * GB)), two_tier(inter_latency=0.5))
    assert made.phases["phase"].tolist() == ["phase 0", "phase 1"]
    assert made.phases["seconds"].tolist() == pytest.approx([1.5, 5.0])
    assert made.seconds == pytest.approx(6.5)
    assert made.bottleneck == ("rank 0's way out inside its node: 50 GB at 10 GB/s (in phase 1)")


def test_phases_of_one_name_are_summed():
    sent = one(2, 0, 1, GB)
    phases = tuple(Phase(name, (i + 1) * sent) for i, name in enumerate("aba"))
    made = predict(Traffic(phases), Network.flat(2, bandwidth=GB))
    table = made.by_phase()
    assert table.index.tolist() == ["a", "b"]
    assert table["seconds"].tolist() == pytest.approx([4.0, 2.0])
    assert table["bottleneck"]["a"] == "rank 0's way out: 3 GB at 1 GB/s"
    assert made.bottleneck.endswith("(in a)")


def test_links_are_listed_with_bytes_seconds_and_share():
    made = predict(traffic(one(3, 0, 1, GB) + one(3, 2, 1, GB)), Network.flat(3, bandwidth=GB))
    frame = made.links.set_index("link")
    assert list(made.links.columns) == ["link", "phase", "bytes", "seconds", "share"]
    assert len(frame) == 6
    assert frame.loc["rank 0's way out", ["bytes", "seconds", "share"]].tolist() == [GB, 1.0, 0.5]
    assert frame.loc["rank 1's way in", ["bytes", "seconds", "share"]].tolist() == [2 * GB, 2, 1]
    assert frame.loc["rank 1's way out", ["bytes", "seconds", "share"]].tolist() == [0, 0, 0]
    assert made.links["bytes"].dtype == np.int64


def test_nothing_takes_no_time_whatever_the_latency():
    made = predict(traffic(np.zeros((4, 4), int)), two_tier(inter_latency=1, intra_latency=1))
    assert made.seconds == 0.0
    assert made.bottleneck == "nothing: no bytes move"
    assert made.links["share"].tolist() == [0.0] * len(made.links)


@pytest.mark.parametrize("latency", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["ring", "fc", "switch"])
def test_a_dimension_of_one_rank_takes_no_time(kind, latency):
    network = Network.dims([(kind, 1, GB, latency), ("switch", 4, GB, 0.25)])
    moved = traffic(one(4, 0, 2, 2 * GB))
    assert predict(moved, network).seconds == pytest.approx(2.25)
    assert predict(moved, network).bottleneck.startswith("rank 0's way out in dimension 1")
    alone = Network.dims([(kind, 1, GB, latency)])
    assert predict(traffic(np.array([[5]])), alone).seconds == 0


def test_only_a_share_hides_where_the_network_says_so():
    network = Network.measured(
        latency=np.zeros((2, 2)), bandwidth=np.full((2, 2), GB), host_capacity=GB, rate=100.0,
        overlap=0.25, overhead="0.5s",
    )  # fmt: skip
    made = predict(traffic(one(2, 0, 1, 2 * GB), work=[100, 0], after=[0, 300]), network)
    assert made.seconds == pytest.approx(2 + 0.75 * 1 + 3)
    launched = Traffic((Phase("a", one(2, 0, 1, 2 * GB)),), launches=2)
    assert predict(launched, network).seconds == pytest.approx(2 * 0.5 + 2)
    assert predict(launched, network).bottleneck.endswith("at 1 GB/s (in a)")


# ----------------------------------------------------------------------------- what is taken


class Planned:
    """What a plan shows of itself."""

    def demand(self, k=64, dtype="float32", c_dtype=None):
        self.asked = (k, dtype, c_dtype)
        return traffic(one(4, 0, 2, k * GB), work=np.full(4, 1e9), dtype=dtype)


def test_a_plan_is_asked_for_its_traffic():
    plan = Planned()
    assert predict(plan, two_tier()).seconds == pytest.approx(64.0)
    assert plan.asked == (64, "float32", None)
    predict(plan, two_tier(rate=1e9), k=2, dtype=np.float64, c_dtype="float32")
    assert plan.asked == (2, np.float64, "float32")


def test_a_trace_is_predicted_by_what_was_measured():
    trace = Trace([Event(0, 0, "send", "halo", 0.0, 0.1, (0, 0, 2 * GB, 0), 0)], ranks=4)
    made = predict(trace, two_tier())
    assert made.seconds == pytest.approx(2.0)
    assert made.phases["phase"].tolist() == ["halo"]
    assert not made.exchange_only


def test_rates_are_chosen_by_dtype():
    network = two_tier(rate={"float32": 2e9, "float64": 1e9})
    asked = traffic(np.zeros((4, 4), int), after=np.full(4, 4e9), dtype="float64")
    assert predict(asked, network).seconds == pytest.approx(4.0)
    assert predict(asked, network, dtype="float32").seconds == pytest.approx(2.0)
    silent = traffic(np.zeros((4, 4), int), after=np.full(4, 4e9))
    assert predict(silent, network, dtype=np.float32).seconds == pytest.approx(2.0)
    with pytest.raises(ValueError, match="say which dtype"):
        predict(silent, network)
    no_work = traffic(one(4, 0, 2, GB))
    assert predict(no_work, network).seconds == pytest.approx(1.0)  # nobody needs a rate


def test_without_a_rate_computing_is_left_out_and_that_is_said():
    made = predict(traffic(one(4, 0, 2, GB), work=np.full(4, 1e30)), two_tier())
    assert made.seconds == pytest.approx(1.0)
    assert made.exchange_only
    assert "time to compute is left out" in repr(made)
    assert not predict(traffic(one(4, 0, 2, GB)), two_tier()).exchange_only


def test_wrong_arguments_are_refused_by_name():
    moved = traffic(one(4, 0, 2, GB))
    with pytest.raises(ValueError, match=r"traffic is of 4 ranks and the network \(flat, 8 ranks"):
        predict(moved, Network.flat(8, bandwidth=1))
    with pytest.raises(ValueError, match="network is a NoneType"):
        predict(moved, None)
    with pytest.raises(ValueError, match="this is not a plan"):
        predict(moved, two_tier(), k=4)
    with pytest.raises(ValueError, match="this is not a plan"):
        predict(moved, two_tier(), c_dtype="float32")
    with pytest.raises(ValueError, match="NoneType has no traffic"):
        predict(None, two_tier())
    with pytest.raises(ValueError, match="ndarray has no traffic"):
        predict(np.zeros((4, 4), int), two_tier())


@pytest.mark.parametrize("parts", [1, 2])
def test_a_dtype_that_is_none_is_named_as_the_argument_is(parts):
    plan = dt.plan(np.eye(4), parts=parts)
    network = Network.flat(parts, bandwidth=1e9)
    for refused in (
        lambda: predict(plan, network, dtype="foo"),
        lambda: plan.predict(network, dtype="foo"),
        lambda: plan.demand(8, "foo"),
        lambda: plan.demand(8, "foo", "float32"),
        lambda: predict(plan.demand(8), network, dtype="foo"),
    ):
        with pytest.raises(ValueError, match=r"^dtype='foo' is (not a|no) dtype"):
            refused()
    with pytest.raises(ValueError, match=r"^c_dtype='foo' is not a dtype"):
        predict(plan, network, c_dtype="foo")


def test_a_prediction_says_in_text_that_it_is_modelled():
    made = predict(traffic(one(4, 0, 2, GB), one(4, 0, 1, GB)), two_tier())
    assert isinstance(made, Prediction)
    text = repr(made)
    assert text.startswith("<Prediction of a test on two-tier, 2 nodes × 2 ranks")
    assert "(modelled): 1.1 s" in text
    assert "bottleneck: rank 0's way out to other nodes: 1 GB at 1 GB/s (in phase 0)" in text
    assert "phase 1: 100 ms" in text


def test_the_error_of_a_measured_network_is_there():
    network = Network.measured(
        latency=np.zeros((2, 2)), bandwidth=np.ones((2, 2)), host_capacity=1, error=0.2
    )
    assert predict(traffic(one(2, 0, 1, 1)), network).error == 0.2
    assert predict(traffic(one(4, 0, 1, 1)), two_tier()).error is None


# ---------------------------------------------------------------------------------- properties


sizes = st.lists(st.integers(0, 2**40), min_size=64, max_size=64).map(
    lambda values: np.array(values, dtype=np.int64).reshape(8, 8)
)
tiny = st.lists(st.integers(0, 1), min_size=64, max_size=64).map(
    lambda values: np.array(values, dtype=np.int64).reshape(8, 8)
)
speeds = st.floats(1e6, 1e12)
KINDS = ["flat", "two-tier", "dims", "measured"]


def network_of(kind, speed):
    """Networks of 8 ranks whose every bandwidth grows with ``speed`` alone."""
    return {
        "flat": lambda: Network.flat(8, bandwidth=speed, latency=1e-6),
        "two-tier": lambda: two_tier(ranks_per_node=4, inter=speed, intra=3 * speed),
        "dims": lambda: Network.dims([("ring", 4, speed, 1e-6), ("sw", 2, speed / 2, 1e-6)]),
        "measured": lambda: Network.measured(
            latency=np.full((8, 8), 1e-6),
            bandwidth=speed * (1 + np.arange(64).reshape(8, 8) % 5),
            host_capacity=speed,
            nodes=np.arange(8) // 3,
        ),
    }[kind]()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(sizes, speeds, st.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(kind, sent, speed, more):
    slow, fast = (
        predict(traffic(sent), network_of(kind, v)).seconds for v in (speed, speed * more)
    )
    assert fast <= slow * (1 + 1e-12)


@pytest.mark.parametrize("field", ["inter", "intra", "node"])
@settings(max_examples=25)
@given(sizes, speeds, st.floats(1.0, 100.0))
def test_more_bandwidth_in_one_place_is_never_slower(field, sent, speed, more):
    slow, fast = (
        predict(traffic(sent), two_tier(ranks_per_node=4, **{field: v})).seconds
        for v in (speed, speed * more)
    )
    assert fast <= slow * (1 + 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(sizes | tiny, st.integers(0, 63), st.integers(1, 2**40) | st.just(1))
def test_more_bytes_are_never_faster(kind, sent, where, more):
    network = network_of(kind, 1e9)
    larger = sent.copy()
    larger.flat[where] += more
    less = predict(traffic(sent), network).seconds
    assert predict(traffic(larger), network).seconds >= less * (1 - 1e-12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(sizes | tiny)
def test_no_message_ends_before_it_could_alone(kind, sent):
    network = network_of(kind, 1e9)
    ranks = np.arange(8)
    alone = network.time(ranks[:, None], ranks[None, :], sent)
    assert predict(traffic(sent), network).seconds >= alone[sent > 0].max(initial=0) * (1 - 1e-12)


@settings(max_examples=25)
@given(sizes, st.permutations(range(8)))
def test_permuting_the_ranks_of_a_flat_network_changes_nothing(sent, order):
    network = Network.flat(8, bandwidth=3e9, latency=1e-6)
    moved = predict(traffic(sent[np.ix_(order, order)]), network)
    assert moved.seconds == predict(traffic(sent), network).seconds


@settings(max_examples=25)
@given(sizes)
def test_the_bottleneck_is_a_link_with_the_largest_share(sent):
    made = predict(traffic(sent), two_tier(ranks_per_node=4, node=3e9))
    longest = made.links.loc[made.links["share"].idxmax()]
    assert longest["seconds"] == made.phases["exchange"][0]
    if sent[~np.eye(8, dtype=bool)].any():
        named = made.bottleneck.split(":")[0]
        assert made.links.set_index("link")["share"][named] == pytest.approx(1.0)
