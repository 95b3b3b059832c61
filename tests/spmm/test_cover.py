"""Covers: as light as an integer program finds, and proven by their matching."""

from __future__ import annotations

from functools import partial
from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from dtoolkit.data import read_matrix
from dtoolkit.spmm import matching
from dtoolkit.spmm.cover import cite, minimum_cover
from dtoolkit.spmm.plan import plan

WEIGHTS = [(1, 1), (2, 2), (1, 2), (4, 8), (8, 4), (1, 4), (3, 2)]


def by_integer_program(column, row, columns, rows, weights):
    """Least weight of a cover, by brute force."""
    edges = np.arange(len(column))
    ends = np.concatenate([column, columns + row])
    meets = csr_array(
        (np.ones(2 * len(edges)), (np.tile(edges, 2), ends)), shape=(len(edges), columns + rows)
    )
    cost = np.repeat(weights, (columns, rows))
    constraint = LinearConstraint(meets, lb=1)
    solved = milp(cost, constraints=constraint, integrality=1, bounds=Bounds(0, 1))
    return round(solved.fun)


def verify(cover, column, row, columns, rows, weights):
    """Check cover and certificate by counting alone."""
    unit = gcd(*weights)
    assert (cover.columns[column] | cover.rows[row]).all()
    weighed = (cover.columns.sum() * weights[0] + cover.rows.sum() * weights[1]) // unit
    assert cover.weight == weighed == len(cover.matched)
    met = np.bincount(column[cover.matched], minlength=columns)
    assert (met <= weights[0] // unit).all()
    met = np.bincount(row[cover.matched], minlength=rows)
    assert (met <= weights[1] // unit).all()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_as_light_as_the_integer_program(weights):
    rng = np.random.default_rng(7)
    for _ in range(25):
        columns, rows = rng.integers(1, 8, 2)
        column, row = np.nonzero(rng.random((columns, rows)) < rng.random())
        cover = minimum_cover(column, row, columns=columns, rows=rows, weights=weights)
        verify(cover, column, row, columns, rows, weights)
        if len(column):
            least = by_integer_program(column, row, columns, rows, weights)
            assert cover.weight * gcd(*weights) == least


@given(st.data())
def test_the_order_of_edges_does_not_matter(data):
    columns, rows = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    cells = data.draw(st.lists(st.integers(0, columns * rows - 1), unique=True))
    weights = data.draw(st.sampled_from(WEIGHTS))
    column, row = np.divmod(np.array(cells, dtype=np.int64), rows)
    first = minimum_cover(column, row, columns=columns, rows=rows, weights=weights)
    verify(first, column, row, columns, rows, weights)
    order = np.argsort(cells)[::-1]
    second = minimum_cover(column[order], row[order], columns=columns, rows=rows, weights=weights)
    assert np.array_equal(first.columns, second.columns)
    assert np.array_equal(first.rows, second.rows)


@pytest.mark.parametrize(
    ("edges", "columns", "rows"),
    [
        ([], [], []),
        ([(0, 0)], [0], []),  # a tie goes to the column: a row of B
        ([(0, 0), (0, 1), (0, 2)], [0], []),  # one column serves three rows
        ([(0, 0), (1, 0), (2, 0)], [], [0]),  # one partial row serves three columns
        ([(0, 0), (0, 1), (1, 0), (2, 0)], [0], [0]),  # a cross needs both arms
        ([(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)], [0, 1, 2], []),  # a path
        ([(0, 0), (1, 0), (1, 1), (2, 1)], [], [0, 1]),  # a path with a column too many
    ],
)
def test_worked_covers(edges, columns, rows):
    column, row = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    cover = minimum_cover(column, row, columns=3, rows=3)
    assert np.flatnonzero(cover.columns).tolist() == columns
    assert np.flatnonzero(cover.rows).tolist() == rows


def test_weights_change_what_is_cheap():
    # Two columns against three rows: cheap by count, dear if a column weighs twice a row.
    column, row = np.repeat([0, 1], 3), np.tile([0, 1, 2], 2)
    assert minimum_cover(column, row, columns=2, rows=3).columns.all()
    heavy = minimum_cover(column, row, columns=2, rows=3, weights=(8, 4))
    assert heavy.rows.all()
    assert not heavy.columns.any()
    assert heavy.weight == 3


def test_a_long_path_takes_no_time_of_its_length_squared():
    n = 200_000
    column = np.concatenate([np.arange(n), np.arange(1, n + 1)])
    row = np.tile(np.arange(n), 2)
    cover = minimum_cover(column, row, columns=n + 1, rows=n)
    assert cover.weight == n
    assert cover.rows.all()


@pytest.mark.parametrize("degree", [0.5, 1.5, 3.0, 6.0])
def test_the_matching_is_as_large_as_scipys(degree):
    rng = np.random.default_rng(3)
    for _ in range(20):
        left, right = rng.integers(1, 60, 2)
        graph = csr_array(rng.random((left, right)) < degree / right)
        partner = matching.maximum_matching(graph)
        assert partner.dtype == np.int32
        matched = np.flatnonzero(partner >= 0)
        assert len(np.unique(partner[matched])) == len(matched)
        assert graph.toarray()[partner[matched], matched].all()
        assert len(matched) == np.count_nonzero(maximum_bipartite_matching(graph) >= 0)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("parts", [2, 4])
def test_regular_layers_are_matched_at_once(data_root, parts):
    """SciPy's matching kept a processor busy for minutes on half of such a layer."""
    W = read_matrix(data_root / "graphchallenge" / "n1024-l8.mtx.gz")
    made = plan(W.T, parts=parts)
    made.check(W.T)
    assert made.volume == {2: 1012, 4: 2913}[parts]


@pytest.mark.parametrize("weights", [(1, 1), (4, 8)])
def test_the_cover_does_not_depend_on_which_matching_was_found(monkeypatch, weights):
    rng = np.random.default_rng(5)
    column, row = np.nonzero(rng.random((80, 90)) < 0.03)
    first = minimum_cover(column, row, columns=80, rows=90, weights=weights)
    other = partial(maximum_bipartite_matching, perm_type="row")
    monkeypatch.setattr("dtoolkit.spmm.cover.maximum_matching", other)
    second = minimum_cover(column, row, columns=80, rows=90, weights=weights)
    assert np.array_equal(first.columns, second.columns)
    assert np.array_equal(first.rows, second.rows)


def test_errors_and_source():
    none = np.empty(0, dtype=np.int64)
    with pytest.raises(ValueError, match="weights"):
        minimum_cover(none, none, columns=0, rows=0, weights=(0, 1))
    assert "2512.20178" in cite()
