from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm import Network, Phase, Trace, Traffic, predict
from tests.figures.checks import check_card, words
from tests.figures.networks import networks, prediction_of, traffic_of, wide

KINDS = list(networks())


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_shows_itself(kind):
    here = networks()[kind]
    root, pictures = check_card(here._repr_html_())
    text = words(root)
    assert "modelled" in text
    assert f"{here.ranks}" in text
    assert pictures
    if kind == "measured":
        assert "Networkmeasured" in text.replace(" ", "")
        assert "times made from itmodelled" in text.replace("  ", " ")
        assert "10%" in text
    if kind == "flat":
        assert "1 G nonzeros × columns a second in float32" in text
        assert "105 µs" in text  # 1 MB at 10 GB/s, and 5 µs


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_shows_itself(kind):
    made = prediction_of(networks()[kind], "spmm/between nodes", "spmm/inside")
    root, pictures = check_card(made._repr_html_())
    text = words(root)
    assert "modelled" in text
    assert made.bottleneck in text
    assert networks()[kind].name in text
    assert "between nod" in "".join(pictures[0].itertext())
    assert ("error of the network" in text) == (kind == "measured")
    assert ("the network has no rate" in text) == (kind != "flat")


@pytest.mark.parametrize("kind", list(wide()))
def test_cards_of_1024_ranks_are_small(kind):
    here = wide()[kind]
    check_card(here._repr_html_())
    check_card(prediction_of(here)._repr_html_())
    check_card(traffic_of(here)._repr_html_())


def test_many_phases_are_cut_and_counted():
    names = [f"phase {i}" for i in range(40)]
    root, _ = check_card(prediction_of(networks()["flat"], *names)._repr_html_())
    assert "28 more" in words(root)
    root, _ = check_card(traffic_of(networks()["flat"], *names)._repr_html_())
    assert "28 more" in words(root)


def test_a_traffic_shows_itself():
    root, pictures = check_card(traffic_of(networks()["flat"])._repr_html_())
    assert "spread" in words(root)
    assert len(pictures) == 1


def test_what_a_calibration_found_is_told():
    here = Network.measured(
        latency=np.zeros((2, 2)), bandwidth=np.full((2, 2), 1e9), host_capacity=1e9, overlap=0.25,
        overhead="3ms", message="20us",
    )  # fmt: skip
    text = words(check_card(here._repr_html_())[0])
    assert "3 ms" in text
    assert "25% of the shorter" in text
    assert "20 µs" in text
    assert "1 GB/s" in text


def test_cards_of_nothing():
    for here in (Network.flat(1, bandwidth=1), Network.dims([("ring", 1, 1)])):
        check_card(here._repr_html_())
        still = Traffic((Phase("a", np.zeros((1, 1), int)),))
        check_card(still._repr_html_())
        check_card(predict(still, here)._repr_html_())
    check_card(Trace().traffic()._repr_html_())
    one = Network.measured(latency=[[0]], bandwidth=[[0]], host_capacity=1e9)
    check_card(one._repr_html_())


def test_names_are_text_and_no_markup():
    made = prediction_of(networks()["flat"], "<script>", label="<b>&")
    root, _ = check_card(made._repr_html_())
    assert "<script>" in words(root)
    assert "<b>&" in words(root)
