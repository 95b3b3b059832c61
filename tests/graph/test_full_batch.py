"""Full-batch training, against the same training in plain dense torch in one process."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy import sparse

import dtoolkit as dt
from dtoolkit import figures
from dtoolkit.graph import GCN, GCNLayer, NodeDropout, train_full_batch
from tests.graph.graphs import labelled, losses, reference

TIGHT = {"rtol": 1e-10, "atol": 0}


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_same_losses_as_one_process(cluster_of, model, workers):
    graph = labelled()
    curve, val, classes = reference(graph, model)
    run = train_full_batch(cluster_of(workers), graph, model, epochs=10, dtype="float64")
    np.testing.assert_allclose(losses(run), curve, **TIGHT)
    np.testing.assert_allclose(run.history["val_loss"], val, **TIGHT)
    np.testing.assert_array_equal(run.predictions, classes)
    for split, share in run.accuracy.items():
        nodes = getattr(graph, split)
        assert share == (classes[nodes] == graph.labels[nodes]).mean()
    assert run.workers == workers


@pytest.mark.parametrize("workers", [2, 4])
def test_float32_to_rounding(cluster_of, workers):
    graph = labelled()
    alone = train_full_batch(cluster_of(1), graph, epochs=40)
    run = train_full_batch(cluster_of(workers), graph, epochs=40)
    np.testing.assert_allclose(losses(run), losses(alone), rtol=2e-5)
    assert losses(run)[-1] < losses(run)[0]
    assert {value.dtype for value in run.state.values()} == {torch.float32}


def isolate(A):
    A[[3, 7]] = A[:, [3, 7]] = 0


def loops(A):
    A[[2, 5, 6], [2, 5, 6]] = [1, 0.5, 2]


CHANGES = {
    "isolated nodes": {"change": isolate},
    "self loops": {"change": loops},
    "directed": {"directed": True},
    "no edges": {"change": lambda A: A.fill(0)},
    "dense features": {"features": lambda X: X},
    "a node without features": {
        "features": lambda X: sparse.csr_array(X * (np.arange(len(X)) > 3)[:, None])
    },
}


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("kind", CHANGES)
def test_unusual_graphs(cluster2, model, kind):
    graph = labelled(**CHANGES[kind])
    curve, _, classes = reference(graph, model, epochs=4)
    run = train_full_batch(cluster2, graph, model, epochs=4, dtype="float64")
    np.testing.assert_allclose(losses(run), curve, **TIGHT)
    np.testing.assert_array_equal(run.predictions, classes)


PLANS = [
    {"strategy": "oblivious"},
    {"strategy": "column"},
    {"strategy": "row", "partition": "cyclic"},
    {"strategy": "auto"},
    {"partition": np.arange(40) % 3},
    {"partition": np.full(40, 2)},
    {"partition": "metis"},
    {"partition": "random"},
    {"strategy": "hier-joint", "ranks_per_node": 2},
    {"strategy": "hier-column", "ranks_per_node": 2},
    {"strategy": "hier-row", "ranks_per_node": 2},
    {"strategy": "node-pair", "ranks_per_node": 2},
    {"strategy": "1.5d", "replication": 2},
    {"strategy": "2d"},
]


@pytest.mark.parametrize("options", PLANS, ids=str)
def test_any_plan_gives_the_same_losses(cluster4, options):
    graph = labelled(directed=True)
    curve, _, classes = reference(graph, epochs=4)
    run = train_full_batch(cluster4, graph, epochs=4, dtype="float64", **options)
    np.testing.assert_allclose(losses(run), curve, **TIGHT)
    np.testing.assert_array_equal(run.predictions, classes)


def test_more_workers_than_nodes(cluster4):
    graph = labelled(3, classes=2)
    curve, _, classes = reference(graph, epochs=5)
    run = train_full_batch(cluster4, graph, epochs=5, dtype="float64")
    np.testing.assert_allclose(losses(run), curve, **TIGHT)
    np.testing.assert_array_equal(run.predictions, classes)
    assert 0 in run.plan.rows.sizes


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 1},
        {"layers": 3, "hidden": 5, "seed": 4},
        {"dropout": 0.0},
        {"dropout": 0.9, "seed": -3},
        {"hidden": 30},  # wider than the features
        {"lr": 0.1, "weight_decay": 0.0},
        {"epochs": 0},
    ],
    ids=str,
)
def test_options(cluster2, options):
    graph = labelled()
    options = {"epochs": 5, **options}
    known = {"decay" if k == "weight_decay" else k: v for k, v in options.items()}
    curve, _, classes = reference(graph, **known)
    run = train_full_batch(cluster2, graph, dtype="float64", **options)
    np.testing.assert_allclose(losses(run), curve, **TIGHT)
    np.testing.assert_array_equal(run.predictions, classes)
    assert len(run.history) == options["epochs"]


def test_nothing_stays_on_the_workers(cluster2):
    graph = labelled()
    before = cluster2.held
    run = train_full_batch(cluster2, graph, epochs=1)
    assert len(losses(run)) == 1
    cluster2.run(lambda ctx: None)  # tells the workers what to forget
    assert cluster2.held == before


def test_seeds_differ_and_repeat(cluster2):
    graph = labelled()
    first, again, other = (
        train_full_batch(cluster2, graph, epochs=3, seed=seed) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(losses(first), losses(again))
    assert not np.allclose(losses(first), losses(other), rtol=1e-4)
    for name, value in first.state.items():
        assert torch.equal(value, again.state[name])


def test_what_moves_is_what_the_plan_says(cluster4):
    """A step of GCN: two products forward, two backward, two to see what the step was worth."""
    graph = labelled()
    cluster4.trace.clear()
    run = train_full_batch(cluster4, graph, epochs=3, hidden=8)
    moved = cluster4.trace.filter(phase="spmm").matrix()
    planned = sum(run.plan.bytes_matrix(k, "float32") for k in (8, graph.classes))
    expected = 3 * (2 * planned + planned.T) + planned  # and one look at the end
    np.testing.assert_array_equal(moved, expected)


class Own(torch.nn.Module):
    """A model of one's own: torch's layers around one of ours; `normalise` is asked for."""

    normalise = "mean"

    def __init__(self, features, classes):
        super().__init__()
        self.first = torch.nn.Linear(features, 6)
        self.drop = NodeDropout(0.3)
        self.second = GCNLayer(6, classes)

    def forward(self, ctx, A, X):
        return self.second(ctx, A, self.drop(torch.tanh(self.first(X))))


@pytest.mark.parametrize("workers", [2, 4])
def test_a_model_of_ones_own(cluster_of, workers):
    graph = labelled()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    alone, run = (
        train_full_batch(cluster_of(n), graph, Own, epochs=5, dtype="float64") for n in (1, workers)
    )
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_allclose(losses(run), losses(alone), **TIGHT)
    assert run.model == "Own"
    assert set(run.state) == {"first.weight", "first.bias", "second.weight", "second.bias"}


def test_a_module_is_trained_on_from_its_weights(cluster2):
    graph = labelled()
    ten = train_full_batch(cluster2, graph, epochs=4, dropout=0.0)
    module = GCN(graph.features.shape[1], graph.classes, dropout=0.0)
    module.load_state_dict(ten.state)
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    run = train_full_batch(cluster2, graph, module, epochs=1)
    assert losses(run)[0] < losses(ten)[-1]
    for name, value in module.state_dict().items():
        assert torch.equal(value, kept[name])
    assert not torch.equal(run.state["layers.0.weight"], kept["layers.0.weight"])


def test_frozen_and_unused_parameters(cluster2):
    def make(features, classes):
        model = GCN(features, classes)
        model.layers[0].weight.requires_grad_(False)
        model.spare = torch.nn.Parameter(torch.ones(3))
        return model

    graph = labelled()
    run = train_full_batch(cluster2, graph, make, epochs=3)
    first = train_full_batch(cluster2, graph, make, epochs=0)
    assert torch.equal(run.state["layers.0.weight"], first.state["layers.0.weight"])
    assert torch.equal(run.state["spare"], torch.ones(3))
    assert not torch.equal(run.state["layers.1.weight"], first.state["layers.1.weight"])


def test_the_result_shows_itself(cluster2):
    graph = labelled()
    run = train_full_batch(cluster2, graph, epochs=3)
    text, html = repr(run), run._repr_html_()
    assert "GCN on small" in text
    assert "test accuracy" in text
    assert "(measured)" in text
    assert "2 workers" in html
    assert "<polyline" in html
    assert "Kipf" in run.cite()
    assert "SHIRO" in run.cite()
    assert list(run.history["epoch"]) == [0, 1, 2]
    again = pickle.loads(pickle.dumps(run))
    assert again.accuracy == run.accuracy
    assert "not trained" in repr(train_full_batch(cluster2, graph, epochs=0))


def test_progress_is_told_while_it_runs(cluster2):
    seen = []
    launch = cluster2.submit
    cluster2.submit = lambda *args, **kwargs: seen.append(launch(*args, **kwargs)) or seen[-1]
    try:
        run = train_full_batch(cluster2, labelled(), epochs=3)
    finally:
        del cluster2.submit
    told = [e["loss"] for e in seen[-1].events if "loss" in e]
    assert told == losses(run).tolist()


def test_graphs_without_validation_and_test_nodes(cluster2):
    graph = labelled(10)
    only = dt.data.LabelledGraph(
        name="only",
        description="",
        matrix=graph.matrix,
        source="",
        licence="",
        features=graph.features,
        labels=graph.labels,
        train=np.arange(10),
    )
    run = train_full_batch(cluster2, only, epochs=2)
    assert np.isnan(run.accuracy["test"])
    assert run.history["val_loss"].isna().all()
    assert "no nodes" in repr(run)
    assert "<polyline" in run._repr_html_()


def test_cora_learns_what_was_published(cluster1, data_root):
    """81.5% is the mean over 100 runs; three seeds tell more than a point of error."""
    cora = dt.data.planetoid("cora", root=data_root)
    found = [train_full_batch(cluster1, cora, seed=seed).accuracy["test"] for seed in range(3)]
    assert abs(np.mean(found) - 0.815) < 0.01


def test_cora_has_one_curve(cluster_of, data_root):
    cora = dt.data.planetoid("cora", root=data_root)
    runs = [train_full_batch(cluster_of(n), cora, epochs=30) for n in (1, 2, 4)]
    for run in runs[1:]:
        np.testing.assert_allclose(losses(run), losses(runs[0]), rtol=1e-5)
    figure = figures.losses(runs)
    assert len(figure.data) == 3
