"""A small citation graph, and files of it as others write them."""

from __future__ import annotations

import pickle
from collections import defaultdict

import numpy as np
from scipy import sparse


def hot(labels, classes=3):
    return np.eye(classes, dtype=np.int32)[labels]


def small():
    """A citation graph of ten nodes: six known, of which three to learn; node 8 has no row."""
    rng = np.random.default_rng(0)
    features = rng.integers(0, 2, (10, 5)).astype(np.float32)
    features[8] = 0
    labels = np.array([0, 1, 2, 0, 1, 2, 2, 1, -1, 0])
    order = np.array([9, 6, 7])  # as test.index has them: not sorted
    graph = defaultdict(list, {0: [1, 2, 2], 1: [0], 2: [0, 2], 3: [9], 9: [3, 6], 6: [9], 8: []})
    public = {
        "x": sparse.csr_matrix(features[:3]),
        "y": hot(labels[:3]),
        "tx": sparse.csr_matrix(features[order]),
        "ty": hot(labels[order]),
        "allx": sparse.csr_matrix(features[:6]),
        "ally": hot(labels[:6]),
        "graph": graph,
    }
    edges = [(0, 1), (0, 2), (3, 9), (6, 9)]
    return public, order, features, labels, edges


def write(folder, public, order, protocol=2, change=lambda data: data):
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in public.items():
        data = change(pickle.dumps(value, protocol=protocol))
        (folder / f"ind.cora.{part}").write_bytes(data)
    (folder / "ind.cora.test.index").write_text("".join(f"{i}\n" for i in order))
    return folder
