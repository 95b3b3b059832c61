from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm import Network, Phase, Traffic
from dtoolkit.figures import network
from dtoolkit.figures.theme import seconds_text
from tests.figures.checks import check_figure
from tests.figures.networks import networks, prediction_of, traffic_of, wide

KINDS = list(networks())


def marks(figure):
    """Marks of the links: the trace that carries their words."""
    (found,) = [trace for trace in figure.data if trace.customdata is not None]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_with_the_load_of_its_links(kind):
    here = networks()[kind]
    made = prediction_of(here)
    figure = network(here, made)
    check_figure(figure)
    assert figure.layout.title.text == (
        f"Modelled load by link of joint: {seconds_text(made.seconds)}"
    )
    assert here.name in figure.layout.title.subtitle.text
    assert made.bottleneck in figure.layout.title.subtitle.text
    assert figure.layout.xaxis.title.text == "rank (number)"
    assert figure.layout.yaxis.title.text == "tier of the network"
    drawn = marks(figure)
    busy = made.links.groupby("link")["seconds"].sum()
    assert np.max(drawn.marker.color) == pytest.approx(busy.max())
    assert drawn.marker.cmax == pytest.approx(busy.max())
    assert "(s)" in drawn.marker.colorbar.title.text
    tiers = {"flat": 1, "two-tier": 2, "dims": 3, "measured": 2}[kind]
    assert len(figure.layout.yaxis.ticktext) == tiers + 1
    lines = {"flat": 8, "two-tier": 16 + 4, "dims": 24 + 6 + 3, "measured": 6 + 2}[kind]
    assert len(drawn.x) == lines


def test_a_link_says_its_bytes_and_its_time():
    here = Network.two_tier(nodes=2, ranks_per_node=2, inter="1GB/s", intra="10GB/s")
    sent = np.zeros((4, 4), dtype=np.int64)
    sent[1, 2] = 3 * 10**9
    words = marks(network(here, Traffic((Phase("a", sent), Phase("b", sent))))).customdata
    node = next(text for text in words if text.startswith("node 0"))
    assert "node's way out: 6 GB, busy 3 s" in node
    assert "rank's way out to other nodes: 6 GB, busy 6 s" in node
    rank = next(text for text in words if text.startswith("rank 1<"))
    assert "rank's way out inside its node: 0 B, busy 0 s" in rank


@pytest.mark.parametrize("kind", KINDS)
def test_without_traffic_the_network_is_drawn_alone(kind):
    here = networks()[kind]
    figure = network(here)
    check_figure(figure)
    word = "Measured" if kind == "measured" else "Modelled"
    assert figure.layout.title.text == f"{word} network of {here.ranks} ranks"
    assert marks(figure).marker.colorbar.title.text is None


@pytest.mark.parametrize("kind", list(wide()))
def test_above_256_lines_neighbours_are_drawn_as_one(kind):
    here = wide()[kind]
    made = prediction_of(here)
    figure = network(here, made)
    check_figure(figure)
    drawn = marks(figure)
    assert len(drawn.x) <= 256
    busy = made.links.groupby("link")["seconds"].sum()
    assert np.max(drawn.marker.color) == pytest.approx(busy.max())  # the busiest is not lost
    assert "lines stand for" in figure.layout.xaxis.title.text
    assert np.isfinite(np.concatenate([drawn.x, drawn.y])).all()


def test_bytes_are_kept_when_lines_are_merged():
    here = wide()["flat"]
    sent = np.zeros((1024, 1024), dtype=np.int64)
    sent[:8, 1023] = 1000
    words = marks(network(here, Traffic((Phase("a", sent),)))).customdata
    assert (
        words[0]
        == "ranks 0 to 3<br>rank's way out: 4 kB, busy 1 µs<br>rank's way in: 0 B, busy 0 s"
    )
    assert "rank's way in: 8 kB, busy 8 µs" in words[-1]


def test_ranks_of_a_host_stand_together():
    figure = network(networks()["measured"])
    assert list(figure.layout.xaxis.ticktext) == [0, 2, 4, 5, 1, 3]


def test_a_line_leads_from_a_rank_to_its_node():
    figure = network(networks()["two-tier"], traffic_of(networks()["two-tier"]))
    heads = {}
    for trace in figure.data:
        if trace.mode == "lines":
            x, y = np.asarray(trace.x).reshape(-1, 3), np.asarray(trace.y).reshape(-1, 3)
            heads |= {
                foot: head
                for (foot, head, _), (low, _, _) in zip(x.tolist(), y.tolist(), strict=True)
                if low < 1
            }
    assert heads == {float(rank): rank // 4 * 4 + 1.5 for rank in range(16)}


def test_small_and_idle_networks():
    for here in (
        Network.flat(1, bandwidth=1),
        Network.dims([("ring", 1, 1), ("sw", 1, 1)]),
        Network.two_tier(nodes=1, ranks_per_node=1, inter=1, intra=1),
    ):
        check_figure(network(here))
        check_figure(network(here, Traffic((Phase("a", np.zeros((1, 1), int)),))))


def test_names_are_text_and_no_markup():
    here = networks()["flat"]
    figure = network(here, traffic_of(here, label="<b>bold</b>%{x}"))
    assert "&lt;b&gt;bold" in figure.layout.title.text
    check_figure(figure)


def test_wrong_arguments_are_refused():
    here = networks()["flat"]
    with pytest.raises(ValueError, match="predict again"):
        network(here, prediction_of(networks()["two-tier"]))
    with pytest.raises(ValueError, match="traffic is of 16 ranks"):
        network(here, traffic_of(networks()["two-tier"]))
    with pytest.raises(ValueError, match="has no traffic"):
        network(here, 3)
    with pytest.raises(ValueError, match="mode"):
        network(here, mode="pink")


def test_same_input_same_figure():
    a, b = (network(networks()["dims"], prediction_of(networks()["dims"])) for _ in range(2))
    assert a.to_json() == b.to_json()
