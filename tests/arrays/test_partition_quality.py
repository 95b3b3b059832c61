"""Quality of partitions against worked numbers and plans; reordering and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dtoolkit as dt
from dtoolkit.arrays import (
    Layout,
    contiguous,
    inverse_permutation,
    partition_quality,
    reorder,
)
from dtoolkit.errors import LayoutError
from tests.figures.checks import check_card

# Parts {0, 1} and {2, 3}; column 0 is wanted by part 1, columns 2 and 3 by part 0.
A = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 0], [1, 0, 0, 0]])


def test_worked_numbers():
    quality = partition_quality(A, [0, 0, 1, 1])
    assert quality.rows.tolist() == quality.columns.tolist() == [2, 2]
    assert quality.nonzeros.tolist() == [6, 3]
    assert quality.received.tolist() == [2, 1]
    assert quality.sent.tolist() == [1, 2]
    assert quality.away == 5
    assert quality.cut == 4  # {0, 2} both ways, {1, 2}, {1, 3}, {0, 3}
    assert quality.column_volume == 3
    assert quality.row_volume == 4
    assert quality.row_imbalance == 1
    assert quality.nonzero_imbalance == pytest.approx(6 / 4.5)
    assert quality.received_imbalance == pytest.approx(2 / 1.5)
    assert quality.empty == 0
    assert quality.frame().loc[0].tolist() == [2, 2, 6, 2, 1]


def test_rectangular_and_empty():
    quality = partition_quality(A[:, :3], Layout.block(4, 2), [1, 1, 0])
    assert quality.received.tolist() == [2, 1]
    assert quality.cut == quality.away == 4
    assert quality.row_volume == 3
    assert quality.columns.tolist() == [1, 2]
    nothing = partition_quality(sparse.csr_array((0, 0)), Layout.block(0, 3))
    assert nothing.column_volume == nothing.cut == 0
    assert nothing.nonzero_imbalance == 1
    assert "0 x 0" in repr(nothing)
    check_card(nothing._repr_html_())


@given(data=st.data())
def test_volumes_are_those_of_plans(data):
    m, n = data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8))
    n = m if data.draw(st.booleans()) else n
    parts = data.draw(st.integers(1, 5))
    cells = data.draw(st.lists(st.booleans(), min_size=m * n, max_size=m * n))
    matrix = np.array(cells, dtype=float).reshape(m, n)
    owner = st.integers(0, parts - 1)
    rows = Layout.from_parts(data.draw(st.lists(owner, min_size=m, max_size=m)), parts)
    columns = Layout.from_parts(data.draw(st.lists(owner, min_size=n, max_size=n)), parts)
    quality = partition_quality(matrix, rows, columns)
    made = {
        name: dt.plan(matrix, parts=parts, partition=rows, columns=columns, strategy=name)
        for name in ("column", "row")
    }
    assert quality.column_volume == made["column"].volume
    assert quality.row_volume == made["row"].volume
    np.testing.assert_array_equal(quality.received, made["column"].traffic.sum(axis=0))
    np.testing.assert_array_equal(quality.sent, made["column"].traffic.sum(axis=1))
    np.testing.assert_array_equal(quality.nonzeros, made["column"].work)
    assert quality.away == int(
        (rows.owner(np.arange(m))[:, None] != columns.owner(np.arange(n)))[matrix != 0].sum()
    )


def test_it_shows_itself():
    quality = partition_quality(dt.data.digits_graph(), Layout.block(1797, 4))
    text = repr(quality)
    assert "column 3,516 rows" in text
    assert "449 to 450 a part" in text
    _, pictures = check_card(quality._repr_html_())
    assert len(pictures) == 2
    check_card(partition_quality(dt.data.digits_graph(), Layout.cyclic(1797, 1024))._repr_html_())
    lazy = partition_quality(A, Layout.from_parts([0, 0, 0, 2], 3))
    assert "1 parts have no rows" in repr(lazy)
    assert "parts without rows" in lazy._repr_html_()


def test_layouts_that_do_not_fit_are_refused():
    with pytest.raises(LayoutError, match="layout= lays out 3 rows; wanted 4"):
        partition_quality(A, [0, 1, 0])
    with pytest.raises(LayoutError, match="columns= lays out 3 rows; wanted 4"):
        partition_quality(A, [0, 1, 0, 1], [0, 1, 0])
    with pytest.raises(LayoutError, match="columns= has 3 parts; layout= has 2"):
        partition_quality(A, [0, 1, 0, 1], Layout.block(4, 3))


@given(data=st.data())
def test_reordering_and_back(data):
    n = data.draw(st.integers(0, 9))
    cells = data.draw(st.lists(st.integers(0, 3), min_size=n * n, max_size=n * n))
    matrix = np.array(cells, dtype=float).reshape(n, n)
    owners = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=int)
    reordered, order = reorder(matrix, Layout.from_parts(owners, 4))
    np.testing.assert_array_equal(reordered.toarray(), matrix[order][:, order])
    assert reordered.has_canonical_format
    assert (np.diff(owners[order]) >= 0).all()
    layout = contiguous(Layout.from_parts(owners, 4))
    assert layout.contiguous
    np.testing.assert_array_equal(layout.owner(np.arange(n)), owners[order])
    back = inverse_permutation(order)
    np.testing.assert_array_equal(order[back], np.arange(n))
    B = np.arange(n * 2.0).reshape(n, 2)
    np.testing.assert_array_equal((reordered @ B[order])[back], matrix @ B)


def test_reordering_keeps_every_number_of_a_plan():
    graph = dt.data.digits_graph()
    layout = Layout.from_parts(dt.arrays.partitioners.Metis()(graph, 4), 4)
    reordered, _ = reorder(graph, layout)
    for strategy in ("column", "row", "joint"):
        old = dt.plan(graph, parts=4, partition=layout, strategy=strategy)
        new = dt.plan(reordered, parts=4, partition=contiguous(layout), strategy=strategy)
        np.testing.assert_array_equal(old.traffic, new.traffic)


def test_the_matrix_that_came_is_left_alone():
    matrix = sparse.csr_array(A.astype(float))
    before = matrix.toarray()
    reorder(matrix, [1, 0, 1, 0])
    np.testing.assert_array_equal(matrix.toarray(), before)


def test_what_cannot_be_reordered_is_refused():
    with pytest.raises(LayoutError, match="4 x 3"):
        reorder(A[:, :3], [0, 0, 1, 1])
    with pytest.raises(LayoutError, match="layout= lays out 2 rows; wanted 4"):
        reorder(A, [0, 1])
    for wrong in ([0, 0], [1, 2], [0.0, 1.0], [[0, 1]], 3):
        with pytest.raises(LayoutError, match="no permutation"):
            inverse_permutation(wrong)
    assert inverse_permutation([]).shape == (0,)
