from __future__ import annotations

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit.figures import schedule
from dtoolkit.figures.schedule_cards import iteration_card, schedule_card, simulation_card
from tests.figures.checks import check_card, check_figure, words


@pytest.fixture(scope="module")
def simulation():
    network = dt.comm.topology("3D-hetero", latency="0.3us")
    return dt.comm.simulate(network, "100MB", "themis", "scf")


def test_one_line_an_operation_with_gaps(simulation):
    figure = schedule(simulation)
    check_figure(figure)
    assert [line.name for line in figure.data] == ["reduce-scatter", "all-gather"]
    for line in figure.data:
        bars = simulation.bars[simulation.bars["operation"] == line.name.replace("-", "_")]
        x = np.asarray(line.x).reshape(-1, 3)
        np.testing.assert_allclose(x[:, 0], bars["start"] * 1e6)
        np.testing.assert_allclose(x[:, 1], bars["end"] * 1e6)
        assert np.isnan(x[:, 2]).all()
        y = np.asarray(line.y).reshape(-1, 3)
        np.testing.assert_array_equal(y, np.repeat(bars[["dimension"]].to_numpy(), 3, axis=1))
        numbers = np.asarray(line.customdata).reshape(-1, 3, 3)
        np.testing.assert_array_equal(numbers[:, 0, 0], bars["chunk"])
        np.testing.assert_allclose(numbers[:, 0, 1], bars["bytes"], rtol=1e-6)
    assert len({line.line.color for line in figure.data}) == 2


def test_words_and_units(simulation):
    layout = schedule(simulation).layout
    assert layout.title.text == "Modelled schedule: 721 µs, 79% of the bandwidth used"
    assert layout.title.subtitle.text.startswith("all-reduce of 100 MB on 16 x 8 x 8 ranks, themis")
    assert layout.xaxis.title.text == "time (µs)"
    assert layout.yaxis.ticktext[0] == "0: switch of 16<br>200 GB/s, 79% used"
    assert list(layout.yaxis.range) == [2.5, -0.5]
    network = dt.comm.topology("3D-hetero", latency="0.3us")
    bare = schedule(dt.comm.simulate(network, "1GB", latency=False)).layout
    assert "latency not counted" in bare.title.subtitle.text
    assert bare.xaxis.title.text == "time (ms)"


def test_20000_stages_are_lines_and_below_the_size():
    made = dt.comm.simulate(dt.comm.topology("4D-Ring_SW_SW_SW"), "1GB", "themis", chunks=2500)
    assert len(made.bars) == 20_000
    figure = schedule(made)
    check_figure(figure, size=5_500_000)
    assert all(line.type == "scatter" and line.mode == "lines" for line in figure.data)


def test_ideal_and_nothing(simulation):
    ideal = schedule(dt.comm.simulate(dt.comm.topology("3D-hetero"), "1GB", "ideal"))
    check_figure(ideal)
    assert "all chunks" in ideal.data[0].hovertemplate
    nothing = schedule(dt.comm.simulate(dt.comm.Network.flat(1, bandwidth=1e9), "1GB"))
    check_figure(nothing)
    assert nothing.layout.annotations[0].text == "nothing moves"


def test_a_training_step():
    step = dt.comm.iteration("DLRM", dt.comm.topology("3D-hetero"), "themis", "scf")
    figure = schedule(step)
    check_figure(figure, size=2_000_000)
    assert {line.name for line in figure.data} == {"reduce-scatter", "all-gather", "all-to-all"}
    assert "DLRM" in figure.layout.title.subtitle.text
    root, pictures = check_card(iteration_card(step))
    assert len(pictures) == 1
    assert "modelled, reconstructed" in words(root)
    assert "of it for gradients" in words(root)
    ideal = dt.comm.iteration("DLRM", dt.comm.topology("3D-hetero"), "ideal")
    check_card(ideal._repr_html_())
    check_figure(schedule(ideal))


def test_cards(simulation):
    root, pictures = check_card(simulation_card(simulation))
    assert len(pictures) == 1
    text = words(root)
    assert "721 µs (modelled)" in text
    assert "smallest chunk first" in text
    assert "79.2%" in text
    root, _ = check_card(schedule_card(simulation.schedule))
    assert "64 in 6 orders" in words(root)
    assert "0 → 1 → 224" in words(root)
    many = dt.comm.simulate(dt.comm.topology("4D-Ring_SW_SW_SW"), "1GB", "themis", chunks=4000)
    check_card(simulation_card(many))
    assert "the first 12 of" in words(check_card(schedule_card(many.schedule))[0])


def test_same_input_same_figure(simulation):
    assert schedule(simulation).to_json() == schedule(simulation).to_json()
    dark = schedule(simulation, mode="dark")
    assert dark.layout.font.color != schedule(simulation, mode="light").layout.font.color
