"""Seconds and bytes to a loss, on histories made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dtoolkit import figures
from dtoolkit.comm.trace import Trace
from tests.figures.checks import check_figure


def run(seconds, byte, losses, *, emulated=""):
    """A run of eight steps, scored after every second one."""
    scored = np.full(8, np.nan)
    scored[1::2] = losses
    history = pd.DataFrame(
        {"step": np.arange(8), "seconds": seconds, "bytes": byte, "test_loss": scored}
    )
    settings = {"strategy": "asyncmesh", "workers": 4, "compression": ""}
    return SimpleNamespace(
        history=history, settings=settings, trace=Trace(ranks=4, emulated=emulated)
    )


SLOW = run(2.0, 1_000_000, [4.0, 3.0, 2.5, 2.2], emulated="slow net")
FAST = run(0.5, 250_000, [4.0, 3.5, 3.2, 2.9])


def test_costs_are_summed_up_to_each_evaluation():
    table = figures.loss_costs(SLOW)
    assert table["step"].tolist() == [2, 4, 6, 8]
    assert table["seconds"].tolist() == [4, 8, 12, 16]
    assert table["bytes"].tolist() == [2e6, 4e6, 6e6, 8e6]
    assert table["test_loss"].tolist() == [4.0, 3.0, 2.5, 2.2]


def test_both_panels_and_what_was_spent():
    figure = figures.time_to_loss({"waits": SLOW, "waits for nobody": FAST}, 3.0)
    check_figure(figure)
    assert figure.data[0].x.tolist() == [4, 8, 12, 16]
    assert figure.data[2].x.tolist() == [2, 4, 6, 8]  # megabytes
    assert [line.showlegend for line in figure.data] == [True, True, False, False]
    assert figure.data[0].name == "waits: 8 s, 4 MB"
    assert figure.data[1].name == "waits for nobody: 4 s, 2 MB"
    assert [shape.y0 for shape in figure.layout.shapes] == [3.0, 3.0]
    assert "slow net" in figure.layout.title.subtitle.text
    assert "measured" in figure.layout.title.text
    assert figure.layout.yaxis2.matches == "y"


def test_a_loss_that_was_not_reached_is_said():
    assert figures.time_to_loss(FAST, 1.0).data[0].name.endswith("not reached")


def test_what_cannot_be_drawn_is_told():
    with pytest.raises(ValueError, match="y='accuracy': wanted a column"):
        figures.time_to_loss(SLOW, 3.0, y="accuracy")
    with pytest.raises(ValueError, match="target=nan"):
        figures.time_to_loss(SLOW, float("nan"))
    with pytest.raises(ValueError, match="runs is empty"):
        figures.time_to_loss([], 3.0)
