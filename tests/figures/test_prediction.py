from __future__ import annotations

import numpy as np
import pytest

from dtoolkit.comm import Network
from dtoolkit.figures import prediction
from dtoolkit.figures.theme import CATEGORIES
from tests.figures.checks import check_figure
from tests.figures.networks import networks, prediction_of

FLAT = networks()["flat"]


def bars(figure):
    return [trace for trace in figure.data if trace.type == "bar"]


def test_phases_are_stacked_by_strategy():
    made = [
        prediction_of(FLAT, "spmm", label="joint"),
        prediction_of(FLAT, "pack", "spmm", label="row"),
    ]
    figure = prediction(made)
    check_figure(figure)
    assert [bar.name for bar in bars(figure)] == ["spmm", "pack"]
    assert figure.layout.barmode == "stack"
    assert all(list(bar.x) == ["joint", "row"] for bar in bars(figure))
    heights = np.sum([bar.y for bar in bars(figure)], axis=0)
    assert heights == pytest.approx([p.seconds * 1e3 for p in made])
    assert figure.layout.yaxis.title.text == "time (ms)"
    assert figure.layout.title.text == "Modelled time by strategy"
    assert figure.layout.title.subtitle.text.startswith("fastest: joint, ")
    assert FLAT.name in figure.layout.title.subtitle.text
    assert "waits for" in bars(figure)[0].customdata[0]
    assert "exchange" in bars(figure)[0].customdata[0]


def test_one_prediction_and_a_mapping():
    made = prediction_of(FLAT)
    assert list(bars(prediction(made))[0].x) == ["joint"]
    assert list(bars(prediction({"mine": made, "yours": made}))[0].x) == ["mine", "yours"]
    assert list(bars(prediction([made, made]))[0].x) == ["joint", "joint (2)"]
    nameless = prediction_of(FLAT, label="")
    assert list(bars(prediction([nameless, nameless]))[0].x) == ["prediction 1", "prediction 2"]


@pytest.mark.parametrize(
    ("bandwidth", "unit"), [(1e6, "s"), (1e10, "ms"), (1e13, "µs"), (1e16, "ns")]
)
def test_the_axis_has_the_unit_that_suits(bandwidth, unit):
    made = prediction_of(Network.flat(8, bandwidth=bandwidth))
    figure = prediction(made)
    assert figure.layout.yaxis.title.text == f"time ({unit})"
    assert 1 <= sum(bar.y[0] for bar in bars(figure)) < 1000


def test_many_phases_become_seven_pieces():
    names = [f"phase {i}" for i in range(20)]
    made = prediction_of(FLAT, *names)
    figure = prediction(made)
    check_figure(figure)
    assert len(bars(figure)) == len(CATEGORIES)
    assert bars(figure)[-1].name == "other phases"
    assert sum(bar.y[0] for bar in bars(figure)) == pytest.approx(made.seconds * 1e3)
    assert "waits for several" in bars(figure)[-1].customdata[0]


def test_the_fastest_32_are_drawn():
    made = {
        f"s{i}": prediction_of(Network.flat(4, bandwidth=1e9 / (1 + i)), seed=1) for i in range(40)
    }
    figure = prediction(made)
    check_figure(figure)
    assert list(bars(figure)[0].x) == [f"s{i}" for i in range(32)]
    assert "the fastest 32 of 40" in figure.layout.title.subtitle.text
    assert "on 40 networks" in figure.layout.title.subtitle.text


def test_what_is_left_out_is_said():
    figure = prediction(prediction_of(networks()["two-tier"]))
    assert "without time to compute" in figure.layout.title.subtitle.text
    assert "without" not in prediction(prediction_of(FLAT)).layout.title.subtitle.text


def test_names_are_text_and_no_markup():
    figure = prediction(prediction_of(FLAT, "<i>phase", label="<b>bold</b>%{x}"))
    check_figure(figure)
    assert bars(figure)[0].name == "&lt;i&gt;phase"
    assert bars(figure)[0].x[0] == "&lt;b&gt;bold&lt;/b&gt;%&#123;x}"


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="predictions is empty"):
        prediction([])
    with pytest.raises(ValueError, match="mode"):
        prediction(prediction_of(FLAT), mode="pink")
