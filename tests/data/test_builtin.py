"""Built-in sets: what they hold, what they state, how they show themselves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dtoolkit.data import Dataset, as_csr, datasets, digits_graph, stdlib_calls
from dtoolkit.data.stdlib_source import LEFT_OUT


def test_digits_graph():
    A = digits_graph().matrix
    assert A.shape == (1797, 1797)
    assert (np.diff(A.indptr) == 10).all()
    assert not A.diagonal().any()
    pixels = load_digits().data
    for i in (0, 500, 1796):
        distances = ((pixels - pixels[i]) ** 2).sum(axis=1)
        distances[i] = np.inf
        chosen = distances[A.indices[A.indptr[i] : A.indptr[i + 1]]]
        assert chosen.max() <= np.sort(distances)[9]
    assert digits_graph(3).nnz == 3 * 1797
    assert digits_graph().content_hash == "afb1c25df61b4f7a61dabaa76777fe85"
    with pytest.raises(ValueError, match="neighbours=0"):
        digits_graph(0)
    with pytest.raises(ValueError, match="at most 1796"):
        digits_graph(1797)


def test_stdlib_calls():
    data = stdlib_calls()
    A = data.matrix
    assert A.shape == (len(data.row_labels), len(data.column_labels))
    assert 8_000 < A.shape[0] < 16_000
    assert 1_500 < A.shape[1] < 3_500
    callers = np.diff(A.tocsc().indptr)
    assert callers.min() == 3
    assert (np.diff(A.indptr) > 0).all()
    assert list(data.column_labels) == sorted(data.column_labels)
    files = [label.split(":")[0] for label in data.row_labels]
    assert files == sorted(files)
    assert not any(LEFT_OUT & set(file.split("/")) for file in files)
    # A power law: few names are called by very many, most by very few.
    assert np.sort(callers)[-20:].sum() > 0.15 * A.nnz
    assert np.median(callers) < 8
    row = data.row_labels.index("json/__init__.py:loads")
    column = data.column_labels.index("isinstance")
    assert A[row, column] == 2
    assert stdlib_calls(50).shape[1] < A.shape[1]


def test_what_a_set_states():
    data = digits_graph()
    text = repr(data)
    card = data._repr_html_()
    for fact in (data.name, data.source, data.licence, data.content_hash, "1,797 × 1,797"):
        assert fact in text
        assert fact.replace("'", "&#x27;") in card
    assert "<svg" in card
    assert "<script" not in card
    assert "http" not in card
    assert len(card) < 20_000
    table = datasets()
    assert len(table) == 2
    assert table.loc["digits_graph(10)", "hash"] == data.content_hash


def test_content_hash_is_of_the_content():
    A = as_csr(np.eye(3))
    one = Dataset("a", "b", A, "c", "d").content_hash
    assert Dataset("x", "y", A.copy(), "z", "w").content_hash == one
    assert Dataset("a", "b", A * 2, "c", "d").content_hash != one
    assert Dataset("a", "b", as_csr(A, dtype=np.float32), "c", "d").content_hash != one
    empty = Dataset("none", "<b>", as_csr(np.zeros((0, 4))), "c", "d")
    assert "&lt;b&gt;" in empty._repr_html_()
