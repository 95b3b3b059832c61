"""Columns of rectangular matrices go to parts that need them, and to none too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dtoolkit as dt
from dtoolkit.arrays import Layout, partition_quality
from dtoolkit.arrays.partitioners import Hypergraph, Metis, columns
from dtoolkit.arrays.partitioners.columns import wanted_columns
from dtoolkit.data import as_csr


def test_each_column_goes_where_most_of_its_nonzeros_are():
    A = as_csr([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    owners = np.array([0, 0, 1, 1, 1], dtype=np.int32)
    found = wanted_columns(A, owners, 2, 0.0)
    assert found[0] == 0
    assert found[2] == 1
    assert sorted(found) == [0, 0, 1, 1]


def test_those_with_nowhere_else_to_go_come_first():
    # Both want part 0 most; column 0 also serves part 1, column 1 nobody else.
    A = as_csr([[1, 1], [1, 0], [1, 0]])
    owners = np.array([0, 0, 1], dtype=np.int32)
    assert wanted_columns(A, owners, 2, 0.0).tolist() == [1, 0]


@given(data=st.data())
def test_no_part_has_too_many(data):
    m, n = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 15))
    parts = data.draw(st.integers(1, 5))
    cells = data.draw(st.lists(st.booleans(), min_size=m * n, max_size=m * n))
    A = as_csr(np.array(cells, dtype=float).reshape(m, n))
    owners = np.array(data.draw(st.lists(st.integers(0, parts - 1), min_size=m, max_size=m)))
    imbalance = data.draw(st.sampled_from([0.0, 0.2, 10.0]))
    found = wanted_columns(A, owners.astype(np.int32), parts, imbalance)
    assert found.shape == (n,)
    room = max(-(-n // parts), int(n / parts * (1 + imbalance)))
    assert np.bincount(found, minlength=parts).max(initial=0) <= room
    if room < n:
        return
    for column in range(n):  # where there is room for all, none is with a part that needs it not
        needing = owners[A.toarray()[:, column] != 0]
        assert not len(needing) or found[column] in needing


def test_those_refused_too_often_take_any_place(monkeypatch):
    monkeypatch.setattr(columns, "ROUNDS", 1)
    A = as_csr(np.ones((4, 12)))
    A.data[:12] = 5
    found = wanted_columns(A, np.array([0, 0, 0, 1], dtype=np.int32), 2, 0.0)
    assert np.bincount(found).tolist() == [6, 6]


@pytest.mark.parametrize("kind", [Metis, Hypergraph])
def test_plans_of_rectangular_matrices(kind):
    A = sparse.random_array((60, 25), density=0.1, rng=np.random.default_rng(0), format="csr")
    made = dt.plan(A, parts=4, partition=kind(seed=1), strategy="column")
    made.check(A)
    rows = kind(seed=1)(A, 4)
    assert made.rows == Layout.from_parts(rows, 4)
    assert made.columns == Layout.from_parts(kind(seed=1).columns(A, rows), 4)
    assert made.volume == partition_quality(A, made.rows, made.columns).column_volume
    blocks = dt.plan(A, parts=4, partition=rows, strategy="column")
    assert blocks.columns.kind == "block"  # a plain vector says nothing of columns
    assert made.volume < blocks.volume


def test_columns_may_be_partitioned_by_themselves():
    A = sparse.random_array((30, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    made = dt.plan(A, parts=4, columns="balanced")
    counts = np.bincount(A.tocoo().col, minlength=50)
    held = np.bincount(made.columns.owner(np.arange(50)), weights=counts)
    assert held.max() <= counts.sum() / 4 + counts.max()
    made.check(A)
    with pytest.raises(dt.errors.LayoutError, match="columns='best' is not known"):
        dt.plan(A, parts=4, columns="best")


def test_an_own_partitioner_may_lay_out_columns_too():
    class Mine:
        def __call__(self, A, parts):
            return np.arange(A.shape[0]) % parts

        def columns(self, A, rows):
            assert isinstance(rows, Layout)
            return np.full(A.shape[1], rows.parts - 1)

    A = np.ones((6, 3))
    assert dt.plan(A, parts=2, partition=Mine()).columns.owner([0, 1, 2]).tolist() == [1, 1, 1]
    assert dt.plan(np.ones((6, 6)), parts=2, partition=Mine()).columns == Layout.cyclic(6, 2)
