"""SchedulePanel without a browser: the paper's networks, own networks, code, refusals."""

from __future__ import annotations

import pytest

import dtoolkit as dt
from dtoolkit.widgets import SchedulePanel, grids
from dtoolkit.widgets.schedule_controls import PRESETS, REFERENCES


@pytest.fixture(scope="module")
def panel():
    made = SchedulePanel()
    yield made
    made.close()


@pytest.mark.parametrize(("network", "gain"), REFERENCES.items())
def test_the_gain_is_the_reference_of_the_queue_model(panel, network, gain):
    panel.reset()
    panel.set(network=network)
    table = panel.table().set_index("policy")
    assert table["gain"]["Themis, SCF"] == pytest.approx(gain, rel=1e-3)
    assert f"the reference for this network is {gain:.3f}" in panel.state["status"]
    sent = table.filter(like="bytes_dimension").drop("bound")
    assert sent.sum(axis=1).nunique() == 1 or sent.sum(axis=1).std() < 1


@pytest.mark.parametrize("name", PRESETS)
def test_the_code_shown_makes_the_same_simulations(panel, name):
    panel._preset.set(name)
    assert panel.state["error"] == ""
    space = {}
    exec(panel.code(), space)
    for policy, one in panel.simulations.items():
        assert space["simulations"][policy].time == one.time


def test_slow_hops_and_few_chunks_make_themis_lose(panel):
    for name in ("Slow hops: Themis loses", "Four chunks are too few"):
        panel._preset.set(name)
        times = {policy: one.time for policy, one in panel.simulations.items()}
        assert times["Themis, SCF"] > times["baseline, FIFO"] > times["bound"]


def test_both_schedules_are_drawn_with_what_each_dimension_uses(panel):
    panel.reset()
    figure = panel.figure()
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == 2
    used = panel.simulations["Themis, SCF"].by_dimension["utilisation"]
    assert list(bars[1].x) == pytest.approx(list(100 * used))
    assert "modelled" in figure.layout.title.text
    assert figure.layout.xaxis.title.text.startswith("time (")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("switch many x 5GB/s", "'switch many x 5GB/s'"),
        ("cube 4 x 5GB/s", "wanted 'ring', 'fc' or 'switch'"),
        ("switch 4 x 5 apples", "apples"),
    ],
)
def test_a_network_that_does_not_parse_is_told_and_nothing_changes(panel, text, words):
    before = panel.settings
    with pytest.raises(ValueError, match=words):
        panel.set(network=grids.OWN, dimensions=text)
    assert panel.settings == before


def test_a_network_that_was_given_comes_first():
    network = dt.comm.Network.two_tier(nodes=4, ranks_per_node=8, inter="50GB/s", intra="450GB/s")
    panel = SchedulePanel(network)
    assert panel.settings["network"] == grids.OWN
    direct = dt.comm.simulate(network, "1GB", policy="themis", order="scf")
    assert panel.simulations["Themis, SCF"].time == pytest.approx(direct.time, rel=1e-9)
    panel.close()
