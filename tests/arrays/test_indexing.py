"""Choosing and writing rows and columns against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dtoolkit as dt
from tests.arrays.helpers import few, laid_out, layouts, matrix, same


@st.composite
def row_keys(draw, n):
    """A key for n rows, as NumPy takes it."""
    kind = draw(st.sampled_from(["slice", "numbers", "mask"]))
    if kind == "slice":
        return draw(st.slices(n))
    if kind == "mask":
        return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    numbers = st.integers(-n, max(n - 1, 0))
    return np.array(draw(st.lists(numbers, max_size=6 if n else 0)), np.int64)


@few
@given(data=st.data())
def test_rows_are_chosen_as_in_numpy_and_stay_where_they_are(cluster_of, data):
    n, layout = data.draw(laid_out(3))
    X, cluster = matrix(n, 3), cluster_of(3)
    x = dt.distribute(cluster, X, layout)
    key = data.draw(row_keys(n))
    cluster.trace.clear()
    chosen = x[key]
    assert cluster.trace.total == 0
    same(chosen, X[key], exact=True)
    columns = data.draw(st.sampled_from([slice(None), slice(0, 2), slice(None, None, -1), 1, -1]))
    if not (isinstance(key, np.ndarray) and columns == slice(None, None, -1)):
        same(x[key, columns], X[key, columns], exact=True)
    if n:
        row = data.draw(st.integers(-n, n - 1))
        same(x[row], X[row], exact=True)
        same(x[row, 1:], X[row, 1:], exact=True)
        same(x[row, -1], X[row, -1], exact=True)


@few
@given(data=st.data())
def test_rows_are_written_as_in_numpy(cluster_of, data):
    n, layout = data.draw(laid_out(3))
    cluster, key = cluster_of(3), data.draw(row_keys(n))
    X, Y = matrix(n, 3), matrix(max(n, 6), 3, 1)
    x = dt.distribute(cluster, X, layout)
    count = len(X[key])
    columns = data.draw(st.sampled_from([slice(None), slice(1, 3), 0]))
    width = X[:, columns].shape[1:]
    values = {
        "number": 7,
        "row": Y[0, columns],
        "rows": Y[:count, columns],
        "tensor": torch.from_numpy(Y[:count, columns].copy()),
        "distributed": dt.distribute(cluster, Y[:count, columns].reshape(count, *width)),
    }
    name = data.draw(st.sampled_from(sorted(values)))
    if name == "row" and columns == 0:
        name = "number"
    x[key, columns] = values[name]
    X[key, columns] = Y[:count, columns] if name in ("tensor", "distributed") else values[name]
    same(x, X, exact=True)


def test_distributed_masks(cluster3):
    X = matrix(11, 3)
    for layout in layouts(11, 3):
        x = dt.distribute(cluster3, X, layout)
        v = dt.distribute(cluster3, X[:, 0], "cyclic")
        same(x[x[:, 0] > 0], X[X[:, 0] > 0], exact=True)
        same(x[v > 0], X[X[:, 0] > 0], exact=True)
        same(v[v > 0], X[:, 0][X[:, 0] > 0], exact=True)
        want = X.copy()
        x[x > 1], want[want > 1] = 1, 1
        x[x[:, 1] < 0], want[want[:, 1] < 0] = 0, 0
        x[want[:, 2] < 0, 2], want[want[:, 2] < 0, 2] = 5, 5
        x[x[:, 0] > 0] = np.arange(3.0)
        want[want[:, 0] > 0] = np.arange(3.0)
        same(x, want, exact=True)


def test_columns_and_new_axes(cluster3):
    X = matrix(7, 5)
    x = dt.distribute(cluster3, X, "cyclic")
    same(x[:, [4, 0, 0]], X[:, [4, 0, 0]], exact=True)
    same(x[:, np.arange(5) > 2], X[:, np.arange(5) > 2], exact=True)
    same(x[2:6, [1, 3]], X[2:6, [1, 3]], exact=True)
    same(x[..., 1], X[..., 1], exact=True)
    same(x[3, ...], X[3, ...], exact=True)
    same(x[...], X, exact=True)
    same(x[:, 1][:, None], X[:, 1][:, None], exact=True)
    same(x[:, 1][2:5, None], X[:, 1][2:5, None], exact=True)
    same(x[:, 1].reshape(-1, 1), X[:, 1:2], exact=True)
    same(x[:, 1:2].reshape(7), X[:, 1], exact=True)
    same(x[:, 0:0], X[:, 0:0], exact=True)
    x[:, [0, 2]] = [[1, 2]]
    X[:, [0, 2]] = [[1, 2]]
    x[1:3, ::2] = 9
    X[1:3, ::2] = 9
    same(x, X, exact=True)


def test_one_element_comes_as_a_number(cluster2):
    x = dt.distribute(cluster2, [[1.0, 2.0], [3.0, 4.0]])
    assert isinstance(x[1, 0], np.float64)
    assert x[1, 0] == 3
    assert x[0:1, 0:1].item() == 1.0
    assert float(x[1:, 1]) == 4.0
    assert bool(x[0:1, 0:1] == 1)
    with pytest.raises(ValueError, match="any\\(\\) or all\\(\\)"):
        bool(x)


def test_rows_that_are_chosen_twice_keep_the_last_value(cluster2):
    x = dt.distribute(cluster2, np.zeros((4, 2)))
    x[[1, 3, 1]] = [[1, 1], [2, 2], [3, 3]]
    same(x, [[0, 0], [3, 3], [0, 0], [2, 2]], exact=True)


def test_what_numpy_would_read_otherwise_is_refused(cluster2):
    x = dt.distribute(cluster2, np.ones((4, 3)))
    v = dt.distribute(cluster2, np.ones(4))
    with pytest.raises(IndexError, match=r"x\[rows\]\[:, columns\]"):
        x[[0, 1], [1, 2]]
    with pytest.raises(IndexError, match="where"):
        x[x > 0]
    with pytest.raises(IndexError, match="chooses no rows"):
        x[v]
    for wrong, match in [
        (4, "index 4 is out of range: there are 4 rows"),
        ([0, -5], "index -5 is out of range"),
        ((0, 3), "there are 3 columns"),
        (np.ones(3, bool), "mask of 3"),
        (0.5, "dimensions"),
        ([0.5], "float64"),
        ((0, 0, 0), "3 indices"),
        (None, "shape"),
    ]:
        with pytest.raises(IndexError, match=match):
            x[wrong]
    with pytest.raises(TypeError, match="one by one"):
        list(x)
    with pytest.raises(ValueError, match="does not fill"):
        x[0:2] = np.ones((3, 3))
    with pytest.raises(TypeError, match="cannot hold"):
        x[0] = 1j
    with pytest.raises(ValueError, match="between rows"):
        x.reshape(3, 4)
    assert len(x) == 4
