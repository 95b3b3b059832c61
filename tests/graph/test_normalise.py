"""Normalisations, against the textbook's formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dtoolkit.graph import mean, row_normalised, symmetric, with_self_loops
from tests.graph.graphs import normalised

PATH = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], np.float64)


def test_worked_numbers():
    r = 1 / np.sqrt(6)
    np.testing.assert_allclose(
        symmetric(PATH).toarray(), [[1 / 2, r, 0], [r, 1 / 3, r], [0, r, 1 / 2]]
    )
    np.testing.assert_allclose(mean(PATH).toarray(), [[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]])


@pytest.mark.parametrize("directed", [False, True])
def test_against_the_formulas(directed):
    rng = np.random.default_rng(0)
    A = rng.random((20, 20)) * (rng.random((20, 20)) < 0.2)
    if not directed:
        A = A + A.T
    A[3] = A[:, 3] = 0  # isolated
    A[5, 5] = 0.7  # a loop that is there
    np.testing.assert_allclose(symmetric(A).toarray(), normalised(A, "gcn"))
    np.testing.assert_allclose(mean(A).toarray(), normalised(A, "sage"))
    assert symmetric(A).toarray()[3, 3] == 1
    assert not mean(A).toarray()[3].any()
    if not directed:
        assert abs(symmetric(A) - symmetric(A).T).max() < 1e-15
        assert np.abs(np.linalg.eigvalsh(symmetric(A).toarray())).max() <= 1 + 1e-12


def test_loops_are_put_where_none_is_stored():
    A = sparse.csr_array(([2.0, 0.0, 1.0], ([0, 1, 1], [0, 1, 2])), shape=(3, 3))
    looped = with_self_loops(A)
    np.testing.assert_array_equal(looped.toarray(), [[2, 0, 0], [0, 0, 1], [0, 0, 1]])
    assert looped.nnz == 4  # the explicit zero stays
    assert with_self_loops(looped).nnz == 4
    assert symmetric(A, self_loops=False).toarray()[2].tolist() == [0, 0, 0]
    assert A.nnz == 3


def test_dtypes_and_arguments_are_kept():
    A = PATH.astype(np.float32)
    before = A.copy()
    for change in (symmetric, mean, row_normalised):
        assert change(A).dtype == np.float32
        np.testing.assert_array_equal(A, before)
    for empty in (np.zeros((0, 0)), np.zeros((4, 4))):
        assert symmetric(empty).shape == mean(empty).shape == empty.shape


def test_features():
    X = np.array([[1.0, 3.0], [0.0, 0.0]])
    expected = [[0.25, 0.75], [0, 0]]
    np.testing.assert_array_equal(row_normalised(X), expected)
    np.testing.assert_array_equal(row_normalised(sparse.csr_array(X)).toarray(), expected)
    with pytest.raises(ValueError, match="row_normalise=False"):
        row_normalised(-X)


@pytest.mark.parametrize("change", [symmetric, mean])
def test_what_makes_no_sense_is_refused(change):
    with pytest.raises(ValueError, match="3 x 2: the adjacency of a graph is square"):
        change(np.ones((3, 2)))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="weights"):
            change(np.array([[0, bad], [1, 0]]))
    with pytest.raises(ValueError, match="complex"):
        change(np.array([[0, 1j], [1, 0]]))
