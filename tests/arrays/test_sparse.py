"""Sparse matrices on the ranks: values, sums, rows, other plans."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

import dtoolkit as dt
from dtoolkit.arrays import Layout, RedistributionWarning
from tests.arrays.helpers import matrix, same

STRATEGIES = ["oblivious", "column", "row", "joint"]


def example(m: int = 31, n: int = 23) -> sparse.csr_array:
    """Nonzeros of both signs, and one stored zero."""
    S = sparse.random_array((m, n), density=0.2, rng=np.random.default_rng(1), format="csr")
    S.data -= 0.5
    S.data[3] = 0
    return S


@pytest.fixture(params=STRATEGIES)
def pairs(request, cluster3):
    """A distributed matrix and its transpose, each beside the dense one."""
    S = example()
    plan = dt.plan(S, parts=3, strategy=request.param, partition="cyclic")
    A = dt.distribute(cluster3, S, plan)
    return [(A, S.toarray()), (A.T, S.T.toarray())]


def test_arithmetic_changes_values_and_keeps_the_pattern(pairs):
    for A, D in pairs:
        for got, want in [
            (A * 2, D * 2),
            (np.float64(0.5) * A, D * 0.5),
            (A / 3, D / 3),
            (-A, -D),
            (abs(A), abs(D)),
            (A**2, D**2),
            (A.copy(), D),
            (A.multiply(0), D * 0),
            (A.map(lambda values: values.clamp(min=0)), D.clip(0)),
            (A.astype("float32"), D.astype(np.float32)),
            ((A * 1j).conj(), D * -1j),
        ]:
            same(got, want)
            assert got.nnz == A.nnz
        assert (A * 2).to_scipy().nnz == A.nnz


def test_rows_and_columns_are_scaled(pairs, cluster3):
    for A, D in pairs:
        rows, columns = matrix(D.shape[0], 1).ravel(), matrix(D.shape[1], 1).ravel()
        d, e = dt.distribute(cluster3, rows, A.layout), dt.distribute(cluster3, columns, A.columns)
        for got, want in [
            (A * columns, D * columns),
            (A * columns[None, :], D * columns),
            (A * rows[:, None], D * rows[:, None]),
            (A / rows[:, None], D / rows[:, None]),
            (A * e, D * columns),
            (A * d[:, None], D * rows[:, None]),
            (torch.from_numpy(columns) * A, D * columns),
        ]:
            same(got, want)
        elsewhere = e.redistribute(Layout.block_cyclic(len(columns), 3, 2))
        with pytest.warns(RedistributionWarning):
            scaled = A * elsewhere
        same(scaled, D * columns)


def test_sums(pairs):
    for A, D in pairs:
        same(A.sum(), D.sum())
        for axis in (0, 1, -1):
            made = A.sum(axis=axis)
            assert made.layout == (A.columns if axis == 0 else A.layout)
            same(made, D.sum(axis=axis))
            same(A.mean(axis=axis), D.mean(axis=axis))
        same(
            [A.mean(), A.max(), A.min(), A.norm()], [D.mean(), D.max(), D.min(), np.linalg.norm(D)]
        )
        assert A.nnz_by_rank.sum() == A.nnz


def test_rows_come_here_as_scipy(pairs):
    for A, D in pairs:
        mask = D[:, 0] > -0.1
        for key in (3, -1, slice(2, 9, 2), slice(None, None, -1), [5, 1, 1], mask, slice(0, 0)):
            got = A[key]
            assert isinstance(got, sparse.csr_array)
            np.testing.assert_array_equal(got.toarray(), np.atleast_2d(D[key]))
        np.testing.assert_array_equal(A[mask, 3:7].toarray(), D[mask, 3:7])
        np.testing.assert_array_equal(A[2, [1, 0]].toarray(), D[2:3, [1, 0]])
        with pytest.raises(IndexError, match="out of range"):
            A[99]


def test_products_from_the_left(pairs, cluster3):
    for A, D in pairs:
        L, v = matrix(4, D.shape[0]), matrix(D.shape[0], 1).ravel()
        same(L @ A, L @ D)
        same(v @ A, v @ D)
        same(torch.from_numpy(L) @ A, L @ D)
        same(dt.distribute(cluster3, L) @ A, L @ D)
        same(dt.distribute(cluster3, v, A.layout) @ A, v @ D)
        same(A.dot(2), D * 2)
        with pytest.raises(ValueError, match="do not go together"):
            np.ones((2, 5)) @ A


def test_other_values_in_the_same_pattern(pairs):
    for A, D in pairs:
        pattern = A.to_scipy()
        values = matrix(A.nnz, 1).ravel()
        want = sparse.csr_array((values, pattern.indices, pattern.indptr), shape=D.shape)
        made = A.with_data(values)
        same(made, want.toarray(), exact=True)
        same(made @ np.ones(D.shape[1]), want @ np.ones(D.shape[1]))
        with pytest.raises(ValueError, match="nonzeros"):
            A.with_data(values[:-1])


def test_values_move_from_worker_to_worker_to_another_plan(pairs, cluster3):
    A, D = pairs[0]
    v = matrix(23, 1).ravel()
    for target in ("block", np.arange(31) % 2, dt.plan(example(), parts=3, strategy="row")):
        cluster3.trace.clear()
        made = (A * 2).redistribute(target)
        moved = cluster3.trace.matrix(phase="redistribute")
        assert moved.sum() == cluster3.trace.total <= A.nnz * 8
        same(made, 2 * D, exact=True)
        same(made @ v, 2 * D @ v)
    assert A.redistribute(A.plan) is A
    with pytest.raises(dt.errors.PlanError):
        A.redistribute(dt.plan(example(30, 23), parts=3))
    with pytest.raises(dt.errors.PlanError, match="transposed view"):
        A.T.redistribute("block")


def test_bfloat16_and_edges(cluster3):
    S = example()
    half = dt.distribute(cluster3, S).astype("bfloat16")
    assert half.dtype == torch.bfloat16
    same(half, torch.from_numpy(S.toarray()).bfloat16().float().numpy(), exact=True)
    for shape in [(0, 4), (4, 0), (2, 2), (1, 5)]:
        A = dt.distribute(cluster3, sparse.csr_array(shape))
        same(A * 2, np.zeros(shape))
        same(A.sum(axis=1), np.zeros(shape[0]))
        same(A.sum(), 0.0)


def test_what_would_fill_the_zeros_is_refused(cluster3):
    A = dt.distribute(cluster3, example())
    for wrong in (
        lambda: A + 1,
        lambda: 1 - A,
        lambda: A + A,
        lambda: A**0,
        lambda: A * np.ones((31, 23)),
        lambda: A * A,
        lambda: np.exp(A),
        lambda: np.asarray(A),
        lambda: A.astype("int64"),
        lambda: A.map(lambda values: values.sum()),
        lambda: list(A),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="axes 0 and 1"):
        A.sum(axis=2)
    assert "Sparse matrix" in A._repr_html_()
    assert "joint" in repr(A)
