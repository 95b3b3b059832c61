"""Small labelled graphs, and the same training in plain dense torch in one process."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from scipy import sparse

import dtoolkit as dt
from dtoolkit.graph.seeded import dropped, glorot, key_of


def labelled(n=40, *, seed=0, classes=3, width=12, directed=False, change=None, features=None):
    """Classes that mostly hear themselves, and sparse features that hint at the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    alike = labels[:, None] == labels[None, :]
    A = (rng.random((n, n)) < np.where(alike, 0.25, 0.03)).astype(np.float32)
    np.fill_diagonal(A, 0)
    if not directed:
        A = np.triu(A)
        A = A + A.T
    if change is not None:
        change(A)
    X = (rng.random((n, width)) < 0.2).astype(np.float32)
    X[np.arange(n), labels] += 1
    order = rng.permutation(n)
    return dt.data.LabelledGraph(
        name="small",
        description=f"{n} nodes",
        matrix=A,
        source="a random number generator",
        licence="",
        features=sparse.csr_array(X) if features is None else features(X),
        labels=labels,
        train=order[: n // 3],
        val=order[n // 3 : n // 2],
        test=order[n // 2 :],
    )


def normalised(A, model):
    """The textbook's formulas, dense."""
    if model == "sage":
        return A / np.maximum(A.sum(1, keepdims=True), 1e-300)
    A = A + np.diag(np.where(A.diagonal() > 0, 0, 1))
    with np.errstate(divide="ignore"):
        rows, columns = A.sum(1) ** -0.5, A.sum(0) ** -0.5
    return rows[:, None] * A * columns[None, :]


def reference(
    graph,
    model="gcn",
    *,
    epochs=10,
    lr=0.01,
    decay=5e-4,
    dropout=0.5,
    hidden=16,
    layers=2,
    seed=0,
    dtype=torch.float64,
):
    """Losses by epoch, training and validation, and the classes found."""
    A = torch.tensor(normalised(graph.adjacency.toarray().astype(np.float64), model), dtype=dtype)
    X = graph.features.toarray() if sparse.issparse(graph.features) else graph.features
    X = X.astype(np.float64)
    X = torch.tensor(X / np.maximum(X.sum(1, keepdims=True), 1e-300), dtype=dtype)
    labels = torch.tensor(graph.labels)
    widths = [X.shape[1], *[hidden] * (layers - 1), graph.classes]
    names = ["weight"] if model == "gcn" else ["own", "heard"]
    weights, biases = [], []
    for i, (a, b) in enumerate(pairwise(widths)):
        drawn = [glorot((a, b), seed, f"layers.{i}.{name}").to(dtype) for name in names]
        weights.append([w.requires_grad_() for w in drawn])
        biases.append(torch.zeros(b, dtype=dtype, requires_grad=True))
    first = [*weights[0], biases[0]]
    rest = [w for some in weights[1:] for w in some] + biases[1:]
    groups = [{"params": first, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]], lr=lr)

    def scores(step):
        H = X
        for i in range(layers):
            if i:
                H = torch.relu(H)
            if step is not None and dropout:
                nodes = torch.arange(len(H))[:, None]
                key = key_of(seed, f"dropout dropouts.{i}")
                drop = dropped(nodes, torch.arange(H.shape[1]), dropout, key=key, step=step)
                H = torch.where(drop, 0.0, H / (1 - dropout))
            heard = A @ (H @ weights[i][-1])
            H = heard + biases[i] + (H @ weights[i][0] if model == "sage" else 0)
        return H

    def loss(H, nodes):
        return torch.nn.functional.cross_entropy(H[nodes], labels[nodes])

    curve, val = [], []
    for step in range(epochs):
        optimizer.zero_grad()
        value = loss(scores(step), graph.train)
        value.backward()
        optimizer.step()
        curve.append(float(value.detach()))
        val.append(float(loss(scores(None), graph.val).detach()))
    return np.array(curve), np.array(val), scores(None).argmax(1).numpy()


def losses(run):
    """Loss by epoch."""
    return run.history["loss"].to_numpy()
