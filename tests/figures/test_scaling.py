from __future__ import annotations

import pandas as pd
import pytest

from dtoolkit.figures import scaling
from tests.figures.checks import check_figure


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "parts": [64, 4, 64, 4],
            "strategy": ["joint", "joint", "column", "column"],
            "volume": [900, 100, 2000, 0],
            "between_nodes": [500, 0, 800, 0],
            "seconds": [1e-3, 5e-3, 4e-3, 6e-3],
        }
    )


def test_a_panel_a_quantity_and_a_line_a_strategy(table):
    figure = scaling(table)
    document = check_figure(figure)
    assert [line["name"] for line in document["data"]] == ["joint", "column"] * 2
    joint = document["data"][0]
    assert (joint["x"], joint["y"]) == ([4, 64], [100, 900])
    assert document["data"][1]["y"] == [2000]  # nothing moves at 4: no place on this axis
    assert document["data"][2]["xaxis"] == "x2"
    assert document["data"][3]["y"] == [6e-3, 4e-3]
    assert figure.layout.xaxis.type == figure.layout.yaxis2.type == "log"
    assert figure.layout.yaxis.title.text == "rows sent in all"
    assert figure.layout.yaxis2.title.text == "modelled time (s)"
    assert figure.layout.xaxis.ticktext == ("4", "64")
    assert figure.layout.title.text == "Planned volume and modelled time from 4 to 64 ranks"
    assert figure.layout.title.subtitle.text == "least at 64 ranks: joint, 1 ms"
    shown = [line["showlegend"] for line in document["data"]]
    assert shown == [True, True, False, False]


def test_strategies_differ_by_more_than_colour(table):
    lines = scaling(table).data[:2]
    assert lines[0].line.dash != lines[1].line.dash
    assert lines[0].marker.symbol != lines[1].marker.symbol


def test_a_strategy_looks_the_same_beside_others(table):
    both = {line.name: line.marker.symbol for line in scaling(table).data}
    one = scaling(table[table["strategy"] == "column"]).data[0]
    assert one.marker.symbol == both["column"]


def test_only_what_is_known_is_drawn(table):
    document = check_figure(scaling(table.drop(columns="seconds")))
    assert len(document["data"]) == 2
    assert document["layout"]["title"]["text"] == "Planned volume from 4 to 64 ranks"
    figure = scaling(table, quantities=("between_nodes", "seconds"))
    assert figure.layout.yaxis.title.text == "rows between nodes"


def test_tables_that_are_none_are_refused(table):
    with pytest.raises(ValueError, match="lacks strategy"):
        scaling(table.drop(columns="strategy"))
    with pytest.raises(ValueError, match="the table lacks seconds"):
        scaling(table.drop(columns="seconds"), quantities=("seconds",))
    with pytest.raises(ValueError, match="quantities="):
        scaling(table, quantities=("price",))
    with pytest.raises(ValueError, match="quantities="):
        scaling(table, quantities=())
    with pytest.raises(ValueError, match="empty"):
        scaling(table.iloc[:0])
    with pytest.raises(ValueError, match="mode"):
        scaling(table, mode="sepia")
