"""A plan at a glance: what is drawn of large plans, and that it says so."""

from __future__ import annotations

import numpy as np
import pytest

import dtoolkit as dt
from dtoolkit.figures.overview import overview


@pytest.fixture(scope="module")
def matrix():
    return dt.data.power_law(2_000, 8, seed=1)


def caption(figure):
    return next(note.text for note in figure.layout.annotations if "Who sends" in note.text)


@pytest.mark.parametrize(
    ("parts", "side", "words"),
    [(128, 128, ""), (256, 128, " (2 × 2 ranks a cell)"), (1_000, 128, " (7.81 × 7.81 ranks")],
)
def test_cells_of_traffic_are_sums_where_ranks_are_many_and_say_so(matrix, parts, side, words):
    plan = dt.plan(matrix, parts=parts, strategy="joint")
    figure = overview(matrix, plan, k=8, dtype="float64")
    heat = figure.data[-1]
    assert np.shape(heat.z) == (side, side)
    assert int(np.sum(heat.z)) == plan.bytes(8, "float64")  # nothing is lost
    assert f"in bytes{words}" in caption(figure)
    assert (" a cell)" in caption(figure)) == (parts > 128)
    assert str(heat.y[-1]).endswith(str(parts - 1))


def test_the_same_traces_come_whatever_is_shown(matrix):
    kinds = [trace.type for trace in overview(None, None).data]
    for parts in (1, 4, 300):
        plan = dt.plan(matrix, parts=parts, strategy="column")
        assert [trace.type for trace in overview(matrix, plan).data] == kinds
