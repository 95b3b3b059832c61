"""What full-batch training refuses, and in which words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

import dtoolkit as dt
from dtoolkit.errors import LayoutError, RankError
from dtoolkit.graph import GCN, full_batch, train_full_batch
from tests.graph.graphs import labelled, losses


def test_what_does_not_fit_is_refused_before_it_is_sent(cluster2, monkeypatch):
    monkeypatch.setattr(full_batch, "_memory", lambda *_: [10**15, 0])
    seen = len(cluster2.trace)
    with pytest.raises(MemoryError, match="training on 'small'"):
        train_full_batch(cluster2, labelled(), epochs=1)
    assert len(cluster2.trace) == seen


PROTOCOL = r"wanted forward\(ctx, A, X\)"


class Silent(torch.nn.Module):
    """Has weights, and nothing that uses them."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"model": "gat"}, ValueError, "wanted 'gcn', 'sage', a module"),
        ({"model": 3}, TypeError, "wanted a name, a module or a function"),
        ({"model": lambda f, c: None}, TypeError, "model gave NoneType"),
        ({"model": lambda f, c: torch.nn.ReLU()}, ValueError, "no parameter to learn"),
        ({"epochs": -1}, ValueError, "epochs=-1"),
        ({"epochs": 1.5}, ValueError, r"epochs=1\.5"),
        ({"lr": 0}, ValueError, "lr=0"),
        ({"lr": float("nan")}, ValueError, "lr=nan"),
        ({"weight_decay": -1}, ValueError, "weight_decay=-1"),
        ({"dropout": 1.0}, ValueError, r"dropout=1\.0"),
        ({"hidden": 0}, ValueError, "hidden=0: wanted an integer of at least 1"),
        ({"hidden": 1.5}, ValueError, r"hidden=1\.5: wanted an integer"),
        ({"hidden": True}, ValueError, "hidden=True"),
        ({"layers": True}, ValueError, "layers=True"),
        ({"dropout": "half"}, ValueError, "dropout='half': wanted 0 <= dropout < 1"),
        ({"normalise": 3}, TypeError, "normalise=3: wanted 'symmetric'"),
        ({"parts": 2}, TypeError, r"parts=2: leave out parts=.*the cluster's 2 worker\(s\)"),
        ({"A": np.eye(3)}, TypeError, "leave out A="),
        ({"model": lambda f: None}, TypeError, r"model is <lambda>\(f\): wanted a function of"),
        ({"model": torch.nn.Linear(12, 3)}, TypeError, f"Linear has forward.*{PROTOCOL}"),
        ({"model": torch.nn.Linear}, TypeError, f"Linear has forward.*{PROTOCOL}"),
        ({"model": lambda f, c: Silent()}, TypeError, f"Silent has no forward: {PROTOCOL}"),
        ({"layers": 0}, ValueError, "layers=0"),
        ({"seed": "one"}, TypeError, "seed='one'"),
        ({"dtype": "float16"}, ValueError, "dtype='float16'"),
        ({"normalise": "max"}, ValueError, "normalise='max'"),
        ({"normalise": lambda A: A[:2]}, ValueError, "normalise gave"),
        ({"columns": "cyclic"}, LayoutError, "leave out columns="),
        ({"speed": 3}, TypeError, "speed= is known neither to train_full_batch nor to dt.plan"),
    ],
    ids=str,
)
def test_arguments_are_refused_in_words(cluster2, options, error, words):
    held = cluster2.held
    cluster2.trace.clear()
    with pytest.raises(error, match=words):
        train_full_batch(cluster2, labelled(), **{"epochs": 1, **options})
    assert cluster2.held == held
    assert len(cluster2.trace) == 0


def test_graphs_are_refused_in_words(cluster2):
    with pytest.raises(TypeError, match="wanted a dtoolkit"):
        train_full_batch(cluster2, np.eye(3))
    graph = labelled()
    fields = {name: getattr(graph, name) for name in ("matrix", "features", "labels")}
    about = {"name": "g", "description": "", "source": "", "licence": ""}
    with pytest.raises(ValueError, match="no training nodes"):
        train_full_batch(cluster2, dt.data.LabelledGraph(**about, **fields, train=[]))
    for nothing in (np.empty((graph.nodes, 0)), sparse.csr_array((graph.nodes, 0))):
        bare = dt.data.LabelledGraph(**about, **{**fields, "features": nothing}, train=[0])
        with pytest.raises(ValueError, match=r"graph 'g' has features of shape \(40, 0\)"):
            train_full_batch(cluster2, bare)
    fields["features"] = -graph.features
    negative = dt.data.LabelledGraph(**about, **fields, train=[0])
    with pytest.raises(ValueError, match="row_normalise=False"):
        train_full_batch(cluster2, negative, epochs=1)
    assert len(losses(train_full_batch(cluster2, negative, epochs=1, row_normalise=False))) == 1


class Wrong(GCN):
    """Gives what it should not."""

    def __init__(self, features, classes, fault):
        super().__init__(features, classes)
        self.fault = fault

    def forward(self, ctx, A, X):
        scores = super().forward(ctx, A, X)
        if self.fault == "shape":
            return scores[:, 0]
        if self.fault == "inf":
            return scores * torch.inf
        if self.fault == "rank" and self.training:
            return scores * (1 + ctx.rank)
        if self.fault == "weights" and ctx.rank:
            with torch.no_grad():
                self.layers[1].bias += 1e-3
        return scores


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("shape", r"the model gave \(20,\) on rank \d; wanted \(20, 3\)"),
        ("inf", "the training loss is nan at epoch 0: take a smaller lr"),
        ("weights", r"rank\(s\) \[1\] ended with other weights than rank 0"),
    ],
)
def test_models_that_go_wrong_on_the_workers(cluster2, fault, words):
    with pytest.raises(RankError, match=words):
        train_full_batch(cluster2, labelled(), lambda f, c: Wrong(f, c, fault), epochs=2)
