"""A graph whose nodes have features and labels, some of them to learn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csr_array

from dtoolkit.data.convert import as_csr
from dtoolkit.data.dataset import Dataset

__all__ = ["SPLITS", "LabelledGraph"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelledGraph(Dataset):
    """A graph with features and labels of its nodes, and which of them are for what.

    Its matrix is the adjacency: row i has a nonzero in column j where node i hears node j. Anything
    that takes a matrix takes the graph too.

    Attributes
    ----------
    features : csr_array or float array of shape (nodes, features)
        Numbers that describe each node, finite; sparse ones stay sparse.
    labels : int64 array of shape (nodes,)
        Class of each node, from 0; -1 where it is not known.
    train, val, test : int64 array
        Nodes to learn from, to choose by and to test on, ascending; none is in two of them.
    citation : str
        What to cite.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, a number is not finite, a node is out of range or in two splits, or a
        node of a split has no label.
    """

    features: Any
    labels: NDArray[np.int64]
    train: NDArray[np.int64]
    val: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    test: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    citation: str = ""

    def __post_init__(self) -> None:
        matrix = as_csr(self.matrix)
        n = matrix.shape[0]
        if matrix.shape[1] != n:
            raise ValueError(
                f"matrix is {n} x {matrix.shape[1]}: the adjacency of a graph is square"
            )
        found = {"matrix": matrix, "features": _features(self.features, n)}
        found["labels"] = _labels(self.labels, n)
        for name in SPLITS:
            found[name] = _nodes(name, getattr(self, name), found["labels"])
        for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
            both = np.intersect1d(found[first], found[second])
            if len(both):
                raise ValueError(
                    f"{len(both)} node(s) are in {first} and in {second}, node {both[0]} first: "
                    "what is measured on nodes that were learned from says nothing about others"
                )
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def adjacency(self) -> csr_array:
        """The matrix, canonical CSR of shape (nodes, nodes)."""
        return self.matrix

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.matrix.shape[0])

    @property
    def classes(self) -> int:
        """Number of classes: one more than the largest label."""
        return int(self.labels.max(initial=-1)) + 1

    @property
    def train_mask(self) -> NDArray[np.bool_]:
        """Which nodes are in `train`: shape (nodes,)."""
        return self._mask(self.train)

    @property
    def val_mask(self) -> NDArray[np.bool_]:
        """Which nodes are in `val`: shape (nodes,)."""
        return self._mask(self.val)

    @property
    def test_mask(self) -> NDArray[np.bool_]:
        """Which nodes are in `test`: shape (nodes,)."""
        return self._mask(self.test)

    def cite(self) -> str:
        """What to cite, as text."""
        return self.citation or f"{self.name}: {self.source}"

    def _mask(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        mask = np.zeros(self.nodes, np.bool_)
        mask[nodes] = True
        return mask

    def _facts(self) -> list[tuple[str, str]]:
        size, *rest = super()._facts()
        splits = ", ".join(f"{len(getattr(self, name)):,} {name}" for name in SPLITS)
        return [
            size,
            ("nodes", f"{splits}; {self.classes} classes"),
            ("features", _describe(self.features)),
            *rest,
        ]


def _features(features: Any, n: int) -> Any:
    if sparse.issparse(features):
        kept = as_csr(features)
    else:
        kept = np.asarray(features)
        if kept.dtype.kind not in "biuf":
            raise TypeError(f"features are {kept.dtype}: wanted real numbers")
        if kept.dtype not in (np.float32, np.float64):
            kept = kept.astype(np.float32 if kept.dtype.itemsize <= 2 else np.float64)
    if kept.ndim != 2 or kept.shape[0] != n:
        raise ValueError(
            f"features have shape {kept.shape}: wanted one row for each of the {n} nodes"
        )
    numbers = kept.data if sparse.issparse(kept) else kept
    if numbers.dtype.kind == "c":
        raise TypeError(f"features are {numbers.dtype}: wanted real numbers")
    if not np.isfinite(numbers).all():
        raise ValueError("features hold NaN or Inf")
    return kept


def _labels(labels: Any, n: int) -> NDArray[np.int64]:
    found = np.asarray(labels)
    if found.shape != (n,):
        raise ValueError(f"labels have shape {found.shape}: wanted one for each of the {n} nodes")
    if found.dtype.kind not in "iu":
        raise TypeError(f"labels are {found.dtype}: wanted integers, a class for each node")
    if found.min(initial=0) < -1:
        raise ValueError(f"labels hold {found.min()}: wanted classes from 0, or -1 for none")
    return found.astype(np.int64)


def _nodes(name: str, nodes: Any, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    found, n = np.asarray(nodes), len(labels)
    if found.dtype == np.bool_:
        if found.shape != (n,):
            raise ValueError(f"{name} is a mask of shape {found.shape}: wanted ({n},)")
        found = np.flatnonzero(found)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise TypeError(f"{name} is {found.dtype} of shape {found.shape}: wanted node numbers")
    found = np.sort(found.astype(np.int64))
    if len(found) and not 0 <= found[0] <= found[-1] < n:
        raise ValueError(f"{name} has nodes {found[0]} to {found[-1]}: wanted 0 to {n - 1}")
    if (np.diff(found) == 0).any():
        raise ValueError(f"{name} names node {found[:-1][np.diff(found) == 0][0]} twice")
    if (labels[found] < 0).any():
        raise ValueError(f"{name} has node {found[labels[found] < 0][0]}, whose label is unknown")
    return found


def _describe(features: Any) -> str:
    if sparse.issparse(features):
        share = features.nnz / max(features.shape[0] * features.shape[1], 1)
        return f"{features.shape[1]:,}, sparse ({share:.2%} stored)"
    return f"{features.shape[1]:,}, dense"
