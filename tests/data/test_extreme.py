"""Planted extreme classification: reproducible, long-tailed, learnable; and its container."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import dtoolkit.data as data


def test_the_same_seed_is_the_same_set() -> None:
    np.random.seed(0)
    first = data.extreme(300, 200, 500, seed=3)
    np.random.seed(1)
    np.random.rand(10)
    again = data.extreme(300, 200, 500, seed=3)
    assert first.content_hash == again.content_hash
    assert data.dataset.content_hash(first.labels) == data.dataset.content_hash(again.labels)
    assert first.content_hash != data.extreme(300, 200, 500, seed=4).content_hash
    # On every machine, in every version of NumPy.
    assert first.content_hash == "06ca1e92771c93a6ef70528216c94ff7"
    longer = data.extreme(300, 200, 40_000, seed=3)  # of more than one chunk
    assert (longer.matrix[:500] != first.matrix).nnz == 0
    assert (longer.labels[:500] != first.labels).nnz == 0


def test_what_is_drawn() -> None:
    found = data.extreme(2000, 300, 5000, seed=1, labels=3, active=20, test=0.1)
    assert found.matrix.shape == (5000, 300)
    assert found.matrix.dtype == np.float32
    assert found.labels.shape == (5000, 2000)
    assert (len(found), found.samples, found.features, found.classes) == (5000, 5000, 300, 2000)
    assert np.array_equal(found.train, np.arange(4500))
    assert np.array_equal(found.test, np.arange(4500, 5000))
    lengths = np.sqrt(
        np.add.reduceat(found.matrix.data.astype(float) ** 2, found.matrix.indptr[:-1])
    )
    assert np.allclose(lengths, 1, atol=1e-6)
    each = np.diff(found.labels.indptr)
    assert set(each.tolist()) == {1, 2, 3}
    assert np.diff(found.matrix.indptr).max() <= 20
    # Long-tailed: a few classes have many samples, most have few or none.
    counts = np.sort(np.bincount(found.labels.indices, minlength=2000))[::-1]
    assert counts[:20].sum() > 0.3 * counts.sum()
    assert np.median(counts) <= 2
    even = data.extreme(50, 300, 5000, seed=1, exponent=0)
    assert np.bincount(even.labels.indices, minlength=50).min() > 50


def test_there_is_a_rule_to_find() -> None:
    """The mean of what a class has seen tells it in new samples, far better than the commonest."""
    found = data.extreme(100, 2000, 3000, seed=2)
    X, Y = found.matrix, found.labels
    centres = (Y[found.train].T @ X[found.train]).toarray()
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-9)
    guess = np.argmax(X[found.test] @ centres.T, axis=1)
    truth = Y[found.test].tocsr().indices
    assert (guess == truth).mean() > 0.85
    common = np.bincount(Y[found.train].indices).argmax()
    assert (truth == common).mean() < 0.3
    nothing = data.extreme(100, 2000, 3000, seed=2, noise=1.0)
    scores = nothing.matrix[nothing.test] @ centres.T
    assert (np.argmax(scores, axis=1) == nothing.labels[nothing.test].indices).mean() < 0.1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": 1}, "classes=1: want at least 2"),
        ({"features": 2.5}, "features=2.5: want a whole number"),
        ({"samples": 0}, "samples=0: want at least 2"),
        ({"seed": "a"}, "seed='a': want a whole number"),
        ({"labels": 0}, "labels=0: want at least 1"),
        ({"active": 0}, "active=0"),
        ({"noise": 2}, "noise=2: want a number from 0 to 1"),
        ({"test": -0.1}, "test=-0.1"),
        ({"exponent": -1}, "exponent=-1: want a number of at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict, words: str) -> None:
    asked = {"classes": 10, "features": 20, "samples": 30, **changes}
    with pytest.raises((TypeError, ValueError), match=words):
        data.extreme(**asked)


def test_what_names_a_function_calls() -> None:
    found, calls = data.called_names(), data.stdlib_calls()
    assert found.row_labels == calls.row_labels
    assert np.array_equal(found.labels.indptr, calls.matrix.indptr)
    assert np.array_equal(found.labels.indices, calls.matrix.indices)
    assert data.called_names() is found
    files = np.array([label.split(":")[0] for label in found.row_labels])
    assert not set(files[found.train]) & set(files[found.test])
    assert len(found.train) + len(found.test) == len(found)
    assert 0.1 < len(found.test) / len(found) < 0.4
    names = [name.lower() for name in calls.column_labels]
    words = found.column_labels
    for row in range(0, len(found), 97):
        own = {names[c] for c in found.labels[[row]].indices}
        assert not own & {words[c] for c in found.matrix[[row]].indices}
    loads = found.matrix[[found.row_labels.index("json/__init__.py:loads")]]
    said = {words[c] for c in loads.indices}
    assert {"loads", "deserialize", "hook", "infinity"} <= said  # name, docstring, argument


def _set(**changes: object) -> data.LabelledSamples:
    given = {
        "name": "a",
        "description": "b",
        "matrix": csr_array(np.eye(3, dtype=np.float32)),
        "source": "c",
        "licence": "d",
        "labels": csr_array(np.ones((3, 2), np.float32)),
        "train": [2, 0],
        "test": [1],
    }
    return data.LabelledSamples(**(given | changes))  # type: ignore[arg-type]


def test_a_set_says_what_it_is() -> None:
    assert _set().train.tolist() == [0, 2]
    for fact in ("2 classes, 2.00 labels a sample", "2 to learn from, 1 to test"):
        assert fact in repr(_set())
        assert fact in _set()._repr_html_()
    assert _set(citation="Me").cite() == "Me"
    for changes, words in (
        ({"labels": csr_array(np.ones((2, 2)))}, "labels has 2 rows and matrix 3"),
        ({"labels": csr_array(2 * np.ones((3, 2)))}, "values other than 1"),
        ({"matrix": csr_array(np.full((3, 1), np.nan))}, "not finite"),
        ({"train": [0, 1]}, "in train and in test, sample 1 first"),
        ({"train": [0, 3]}, "train has sample 3: wanted 0 to 2"),
        ({"train": [0, 0]}, "each sample once"),
        ({"test": [0.5]}, "numbers of samples"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            _set(**changes)
