"""The figure of losses and the card of a run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dtoolkit as dt
from dtoolkit import figures
from dtoolkit.graph import FullBatchResult
from tests.figures.checks import check_card, check_figure, words


def run(workers=1, epochs=5, scale=1.0, val=True):
    losses = scale * np.linspace(2, 1, epochs)
    history = pd.DataFrame(
        {
            "epoch": np.arange(epochs),
            "loss": losses,
            "val_loss": losses if val else np.full(epochs, np.nan),
            "train_accuracy": losses / 4,
            "val_accuracy": losses / 4,
        }
    )
    return FullBatchResult(
        model="GCN",
        graph="<b>small</b>",
        history=history,
        accuracy={"train": 1.0, "val": 0.5, "test": float("nan")},
        predictions=np.zeros(3, np.int64),
        state={},
        workers=workers,
        plan=dt.plan(np.eye(8), parts=workers),
        settings={"lr": 0.01},
        seconds=1.25,
    )


def test_runs_beside_each_other():
    figure = figures.losses([run(1), run(2, scale=1 + 1e-6), run(2)])
    check_figure(figure)
    assert [line.name for line in figure.data] == [
        "GCN, 1 worker",
        "GCN, 2 workers",
        "GCN, 2 workers (2)",
    ]
    np.testing.assert_array_equal(figure.data[0].y, run().history["loss"])
    assert len({(line.line.width, line.line.dash) for line in figure.data}) == 3
    assert "1.0e-06" in figure.layout.title.subtitle.text
    assert "measured" in figure.layout.title.text


def test_axis_is_the_range_of_the_losses_and_the_legend_beside_it():
    figure = figures.losses({"first": run(), "second": run()})
    assert figure.layout.yaxis.rangemode is None
    assert figure.layout.legend.x > 1
    assert figure.layout.legend.xanchor == "left"


def test_card_draws_losses_over_their_range():
    html = figures.full_batch_card(run(2))
    _, pictures = check_card(html)
    labels = [text.text for text in pictures[0].iter("text")]
    assert labels == ["2", "1"]
    lines = [line.get("points").split() for line in pictures[0].iter("polyline")]
    heights = [float(point.split(",")[1]) for points in lines for point in points]
    height = float(pictures[0].get("height"))
    assert 16 <= min(heights) < max(heights) <= height - 16


def test_one_run_and_named_runs():
    assert [line.name for line in figures.losses(run()).data] == ["GCN, 1 worker"]
    named = figures.losses({"first": run(), "second": run(epochs=3)})
    assert [line.name for line in named.data] == ["first", "second"]
    assert "difference" not in named.layout.title.subtitle.text
    check_figure(figures.losses(run(epochs=0)))
    for nothing in ([], {}):
        with pytest.raises(ValueError, match="nothing to draw"):
            figures.losses(nothing)


@pytest.mark.parametrize("options", [{}, {"epochs": 0}, {"epochs": 1}, {"val": False}])
def test_card(options):
    html = figures.full_batch_card(run(2, **options))
    root, pictures = check_card(html)
    text = words(root)
    for part in ("2 workers", "<b>small", "measured", "no nodes", "lr 0.01"):
        assert part in text
    assert len(pictures) == (options.get("epochs") != 0)
    assert "nan" not in text
