"""Labelled graphs of one's own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dtoolkit.data import LabelledGraph


def own(**changes):
    given = {
        "name": "own",
        "description": "three nodes",
        "matrix": np.eye(3),
        "source": "nowhere",
        "licence": "",
        "features": np.ones((3, 2)),
        "labels": [0, 1, 1],
        "train": [0],
    }
    return LabelledGraph(**{**given, **changes})


def test_a_graph_of_ones_own():
    graph = own(val=np.array([False, True, False]), features=np.ones((3, 2), np.int8))
    assert graph.val.tolist() == [1]
    assert graph.test.tolist() == []
    assert graph.features.dtype == np.float32
    assert own().features.dtype == np.float64
    assert graph.cite() == "own: nowhere"
    assert "dense" in repr(graph)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"matrix": np.ones((3, 2))}, ValueError, "square"),
        ({"features": np.ones((2, 2))}, ValueError, "one row for each of the 3 nodes"),
        ({"features": np.ones(3)}, ValueError, "one row for each"),
        ({"features": np.full((3, 2), np.nan)}, ValueError, "NaN"),
        ({"features": np.ones((3, 2)) * 1j}, TypeError, "real"),
        ({"features": sparse.csr_array(np.ones((3, 2)) * 1j)}, TypeError, "real"),
        ({"labels": [0.0, 1.0, 1.0]}, TypeError, "integers"),
        ({"labels": [0, 1]}, ValueError, "one for each of the 3"),
        ({"labels": [0, 1, -2]}, ValueError, "-2"),
        ({"train": [0.5]}, TypeError, "node numbers"),
        ({"train": np.array([True])}, ValueError, "mask of shape"),
        ({"train": [-1]}, ValueError, "0 to 2"),
        ({"train": [0], "test": [0]}, ValueError, "in train and in test"),
    ],
)
def test_a_graph_that_does_not_fit(changes, error, words):
    with pytest.raises(error, match=words):
        own(**changes)
