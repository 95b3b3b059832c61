from __future__ import annotations

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from dtoolkit.arrays.layout import Layout
from dtoolkit.errors import LayoutError, PlanError
from dtoolkit.figures import pattern
from dtoolkit.spmm.plan import plan
from tests.figures.checks import check_figure
from tests.figures.conftest import random_matrix


def cells(figure):
    """Sum the heatmaps: stored nonzeros a cell."""
    heatmaps = [np.nan_to_num(np.asarray(t.z)) for t in figure.data if t.type == "heatmap"]
    return np.sum(heatmaps, axis=0)


def test_each_nonzero_is_one_cell(matrix):
    figure = pattern(matrix)
    check_figure(figure)
    assert len(figure.data) == 1
    np.testing.assert_array_equal(cells(figure), (matrix.toarray() != 0))
    assert figure.layout.title.text == "Sparsity pattern, 60 × 60"
    assert f"{matrix.nnz} nonzeros" in figure.layout.title.subtitle.text
    assert figure.layout.xaxis.title.text == "column (index)"
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # rows go down


def test_explicit_zeros_and_nan_are_stored_and_drawn():
    A = sp.csr_array((np.array([0.0, np.nan]), (np.array([0, 2]), np.array([1, 0]))), shape=(3, 3))
    assert cells(pattern(A)).tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_large_matrices_are_binned_with_counts():
    A = random_matrix(1000, 700, degree=30)
    figure = pattern(A)
    check_figure(figure)
    counts = cells(figure)
    assert counts.shape == (256, 256)
    assert counts.sum() == A.nnz
    assert "a cell is 3.91 × 2.73" in figure.layout.title.subtitle.text
    assert figure.data[0].colorbar.title.text == "nonzeros a cell"
    coarse = cells(pattern(A, max_size=10))
    expected = A.toarray() != 0
    assert coarse[0, 0] == expected[:100, :70].sum()
    assert coarse[9, 9] == expected[900:, 630:].sum()


def test_cells_cover_the_axes():
    figure = pattern(random_matrix(1000, 1000), max_size=10)
    heat = figure.data[0]
    assert heat.x0 - heat.dx / 2 == pytest.approx(-0.5)
    assert heat.x0 + 9 * heat.dx + heat.dx / 2 == pytest.approx(999.5)


def test_block_layouts_keep_the_order(matrix):
    figure = pattern(matrix, Layout.block(60, 4))
    check_figure(figure)
    np.testing.assert_array_equal(cells(figure), matrix.toarray() != 0)
    lines = figure.data[1]
    assert {y for y in lines.y[:9] if y is not None} == {14.5, 29.5, 44.5}
    assert "4 parts, block layout" in figure.layout.title.subtitle.text
    assert "reordered" not in figure.layout.title.subtitle.text
    assert [a.text for a in figure.layout.annotations] == [f"rank {r}" for r in range(4)]


@pytest.mark.parametrize(
    "layout",
    [
        Layout.cyclic(60, 4),
        Layout.block_cyclic(60, 4, 7),
        Layout.from_parts(np.random.default_rng(0).integers(0, 4, 60)),
    ],
    ids=["cyclic", "block-cyclic", "parts"],
)
def test_other_layouts_are_reordered_and_say_so(matrix, layout):
    figure = pattern(matrix, layout)
    check_figure(figure)
    order = np.concatenate([layout.indices(part) for part in range(4)])
    drawn = matrix.toarray()[order][:, order] != 0
    np.testing.assert_array_equal(cells(figure), drawn)
    assert "rows and columns reordered" in figure.layout.title.subtitle.text
    assert figure.layout.xaxis.title.text == "column (position after reordering)"
    original = np.asarray(figure.data[0].customdata)
    i, j = np.nonzero(drawn)
    np.testing.assert_array_equal(original[i, j], np.stack([order[i], order[j]], axis=1))


def test_a_layout_of_a_rectangular_matrix_moves_rows_alone():
    A = random_matrix(30, 50)
    layout = Layout.cyclic(30, 3)
    order = np.concatenate([layout.indices(part) for part in range(3)])
    figure = pattern(A, layout)
    np.testing.assert_array_equal(cells(figure), A.toarray()[order] != 0)
    assert "; rows reordered" in figure.layout.title.subtitle.text


@pytest.mark.parametrize("partition", ["block", "cyclic"])
@pytest.mark.parametrize("max_size", [256, 12])
def test_a_plan_colours_nonzeros_by_their_fate(matrix, partition, max_size):
    made = plan(matrix, parts=4, partition=partition)
    figure = pattern(matrix, made, max_size=max_size)
    check_figure(figure)
    A = matrix.tocsr(copy=True)
    A.sum_duplicates()
    i, j = np.repeat(np.arange(60), np.diff(A.indptr)), A.indices
    away = made.rows.owner(i) != made.columns.owner(j)
    expected = [(~away).sum(), (away & ~made.by_row).sum(), (away & made.by_row).sum()]
    names = [trace.name for trace in figure.data[:3]]
    assert names == [
        f"{word} ({count})"
        for word, count in zip(("local", "by column", "by row"), expected, strict=True)
    ]
    assert figure.layout.title.text.startswith("Planned fate of ")
    if max_size == 256:
        shown = [int(np.nansum(trace.z)) for trace in figure.data[:3]]
        assert shown == expected
        assert cells(figure).max() == 1


def test_binned_fates_show_the_most_frequent_one(matrix):
    made = plan(matrix, parts=4)
    traces = pattern(matrix, made, max_size=6).data[:3]
    owners = np.sum([~np.isnan(np.asarray(trace.z)) for trace in traces], axis=0)
    assert owners.max() == 1  # a cell has one colour
    together = np.asarray(traces[0].customdata)
    assert together.sum() == matrix.nnz
    for trace in traces:
        z = np.asarray(trace.z)
        drawn = ~np.isnan(z)
        assert np.all(z[drawn] <= together[drawn])


def test_many_parts_have_no_boundaries(matrix):
    figure = pattern(random_matrix(2000, 2000), Layout.block(2000, 200))
    check_figure(figure)
    assert len(figure.data) == 1
    assert "boundaries too dense to draw" in figure.layout.title.subtitle.text


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1)])
def test_empty_matrices(shape):
    check_figure(pattern(sp.csr_array(shape)))
    check_figure(pattern(sp.csr_array(shape), Layout.block(shape[0], 3)))
    check_figure(pattern(sp.csr_array(shape), plan(sp.csr_array(shape), parts=3)))


def test_largest_figures_stay_small():
    dense = np.ones((256, 256))
    check_figure(pattern(dense, plan(dense, parts=4, partition="cyclic")), size=3_000_000)
    A = random_matrix(3000, 3000, degree=40)
    check_figure(pattern(A, plan(A, parts=4)), size=3_000_000)


def test_real_matrix(data_root):
    A = scipy.io.mmread(data_root / "mtx" / "west0067.mtx")
    figure = pattern(A, plan(A, parts=4))
    check_figure(figure)
    assert cells(figure).sum() == 294


def test_what_does_not_fit_is_refused(matrix, joint):
    with pytest.raises(LayoutError, match="lays out 50 rows; A has 60"):
        pattern(matrix, Layout.block(50, 4))
    with pytest.raises(PlanError):
        pattern(random_matrix(60, 60, seed=9), joint)
    with pytest.raises(TypeError, match="A is of type str"):
        pattern("not a matrix")
    with pytest.raises(ValueError, match="max_size must be 1 or more, got 0"):
        pattern(matrix, max_size=0)


def test_same_input_same_figure(matrix, joint):
    assert pattern(matrix, joint).to_json() == pattern(matrix, joint).to_json()
