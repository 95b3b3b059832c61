"""Samples with sparse features and several labels each, some of them to learn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dtoolkit.data.convert import as_csr
from dtoolkit.data.dataset import Dataset

__all__ = ["LabelledSamples"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelledSamples(Dataset):
    """Samples of a multi-label task with many classes: extreme classification.

    Its matrix has the features: one row a sample. Anything that takes a matrix takes the set too.

    Attributes
    ----------
    labels : csr_array of shape (samples, classes)
        A 1 where the sample has the label; rows may be empty.
    train, test : int64 array
        Samples to learn from and to test on, ascending; none is in both.
    citation : str
        What to cite.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, a feature is not finite, or a sample is out of range or in both parts.
    """

    labels: csr_array
    train: NDArray[np.int64]
    test: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    citation: str = ""

    def __post_init__(self) -> None:
        matrix, labels = as_csr(self.matrix), as_csr(self.labels)
        if matrix.shape[0] != labels.shape[0]:
            raise ValueError(
                f"labels has {labels.shape[0]} rows and matrix {matrix.shape[0]}: wanted one of "
                "each a sample"
            )
        if not np.isfinite(matrix.data).all():
            raise ValueError("matrix has features that are not finite")
        if len(labels.data) and not (labels.data == 1).all():
            raise ValueError("labels has values other than 1: a sample has a label or has it not")
        found = {"matrix": matrix, "labels": labels}
        found |= {name: _samples(name, getattr(self, name), matrix) for name in ("train", "test")}
        both = np.intersect1d(found["train"], found["test"])
        if len(both):
            raise ValueError(
                f"{len(both)} sample(s) are in train and in test, sample {both[0]} first: what is "
                "measured on samples that were learned from says nothing about others"
            )
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def samples(self) -> int:
        """Number of samples, of both parts."""
        return len(self)

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self.matrix.shape[1])

    @property
    def classes(self) -> int:
        """Number of classes: labels that there are."""
        return int(self.labels.shape[1])

    def cite(self) -> str:
        """What to cite, as text."""
        return self.citation or f"{self.name}: {self.source}"

    def _facts(self) -> list[tuple[str, str]]:
        each = self.labels.nnz / max(1, len(self))
        facts = super()._facts()
        facts.insert(1, ("labels", f"{self.classes:,} classes, {each:.2f} labels a sample"))
        facts.insert(2, ("parts", f"{len(self.train):,} to learn from, {len(self.test):,} to test"))
        return facts


def _samples(name: str, value: Any, matrix: csr_array) -> NDArray[np.int64]:
    """Numbers of samples, ascending, each once."""
    given = np.asarray(value)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"{name} is of dtype {given.dtype}: wanted numbers of samples")
    chosen = np.unique(given.astype(np.int64))
    if len(chosen) != given.size or given.ndim != 1:
        raise ValueError(f"{name} has shape {given.shape}: wanted one dimension, each sample once")
    if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < matrix.shape[0]:
        wrong = chosen[0] if chosen[0] < 0 else chosen[-1]
        raise ValueError(f"{name} has sample {wrong}: wanted 0 to {matrix.shape[0] - 1}")
    return chosen
