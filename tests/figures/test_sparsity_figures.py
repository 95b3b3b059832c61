from __future__ import annotations

import pandas as pd
import pytest
import torch
from torch import nn

from dtoolkit.figures import layer_channels, layer_densities, mask_patterns, mean_curves
from dtoolkit.sparsity import Sparsifier, reconfigure
from tests.figures.checks import check_figure


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def sparsifier(**how):
    model = network()
    return Sparsifier(model, torch.optim.SGD(model.parameters(), lr=0.1), **how)


def test_densities_are_those_of_the_masks():
    both = {"a < b": sparsifier(density=0.25), "own": sparsifier(distribution={"0": 0.5, "2": 0})}
    document = check_figure(layer_densities(both))
    first, second = document["data"]
    assert first["name"] == "a &lt; b: 25.00% in all"
    assert (first["x"], first["y"]) == (["0.weight", "2.weight"], [0.25, 0.25])
    assert second["y"] == [0.5, None]  # an empty layer has no place on this axis
    assert first["customdata"] == ["32 of 128 weights", "16 of 64 weights"]
    assert first["marker"]["pattern"] != second["marker"]["pattern"]
    assert document["layout"]["yaxis"]["type"] == "log"
    with pytest.raises(ValueError, match="sparsifiers is empty"):
        layer_densities({})


def test_channels_before_the_first_cut_and_after_the_last():
    model, x = network(), torch.randn(2, 8)
    reports = [reconfigure(model, None, x, keep=share) for share in (0.75, 0.5)]
    before, after = check_figure(layer_channels(reports))["data"]
    assert (before["y"], after["y"]) == ([16, 4], [6, 4])
    assert before["name"] == "before: 192 weights"
    assert after["customdata"][1] == "6 → 4, 24 weights"
    assert layer_channels(reports).layout.title.subtitle.text.startswith("2 cuts")
    assert list(layer_channels(reports[0]).data[1].y) == [12, 4]
    with pytest.raises(ValueError, match="reports is empty"):
        layer_channels([])
    other = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="other layers"):
        layer_channels([reports[0], reconfigure(other, None, x, keep=0.5)])


def test_a_line_a_group_and_a_band_where_there_are_repetitions():
    table = pd.DataFrame(
        {
            "step": [1, 2, 1, 2, 1, 2],
            "accuracy": [0.2, 0.4, 0.4, 0.8, 0.1, 0.3],
            "method": ["b", "b", "b", "b", "a", "a"],
        }
    )
    figure = mean_curves(table, x="step", y="accuracy")
    check_figure(figure)
    band, first, second = figure.data
    assert (first.name, second.name) == ("b", "a")
    assert list(first.y) == pytest.approx([0.3, 0.6])
    assert list(band.x) == [1, 2, 2, 1]
    assert list(band.y) == [0.4, 0.8, 0.4, 0.2]
    figure = mean_curves(table.tail(2), x="step", y="accuracy", log_y=True)
    assert len(figure.data) == 1
    assert figure.layout.yaxis.type == "log"
    assert not figure.layout.title.subtitle.text
    for wrong, match in ((table.drop(columns="step"), "lacks step"), (table.iloc[:0], "is empty")):
        with pytest.raises(ValueError, match=match):
            mean_curves(wrong, x="step", y="accuracy")


def test_masks_side_by_side():
    masks = {"one": torch.eye(4, dtype=torch.bool), "<all>": torch.ones(3, 5, dtype=torch.bool)}
    document = check_figure(mask_patterns(masks))
    assert [picture["xaxis"] for picture in document["data"]] == ["x", "x2"]
    assert document["data"][0]["z"][1] == [0, 1, 0, 0]
    above = [words["text"] for words in document["layout"]["annotations"]]
    assert above == ["one: 25.0%", "&lt;all&gt;: 100.0%"]
    first, second = document["layout"]["xaxis"]["domain"], document["layout"]["xaxis2"]["domain"]
    assert first[1] < second[0] < second[1] <= 1 + 1e-9
    with pytest.raises(ValueError, match="masks is empty"):
        mask_patterns({})
    for shape in ((4,), (2, 300)):
        with pytest.raises(ValueError, match="wanted a matrix"):
            mask_patterns({"wrong": torch.ones(shape, dtype=torch.bool)})
