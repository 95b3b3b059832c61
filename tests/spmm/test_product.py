"""The distributed product against SciPy: shapes, widths, dtypes, values; bytes as planned."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
import torch
from scipy import sparse

import dtoolkit as dt
from tests.spmm.reference import assert_product, same_bits
from tests.spmm.strategies import EVERY, FLAT, options


@pytest.fixture(autouse=True)
def _nothing_is_redistributed_unasked():
    with warnings.catch_warnings():
        warnings.simplefilter("error", dt.spmm.RedistributionWarning)
        yield


def example(m, n, density=0.3, seed=0, dtype=np.float64):
    """Nonzeros of both signs, one stored zero."""
    rng = np.random.default_rng(seed)
    A = sparse.random_array((m, n), density=density, rng=rng, format="csr", dtype=dtype)
    A.data -= 0.5
    if A.nnz:
        A.data[A.nnz // 2] = 0
    return A


def dense(n, k=None, dtype=np.float64, seed=1):
    shape = (n,) if k is None else (n, k)
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def check(cluster, A, *, k=3, b_dtype=np.float64, strategy="joint", **others):
    """``A @ B`` and ``A.T @ B`` equal SciPy's, and what was traced was planned, by pair."""
    chosen = options(strategy, cluster.size)
    plan = dt.plan(A, parts=cluster.size, **chosen, **others)
    dA = dt.distribute(cluster, A, plan)
    width = 1 if k is None else k
    assert dA.shape == A.shape
    assert (dA.to_scipy() != sparse.csr_array(A)).nnz == 0
    for left, right, lists in ((dA, A, plan), (dA.T, A.T, plan.transposed())):
        B = dense(right.shape[1], k, b_dtype)
        dB = dt.distribute(cluster, B, left.columns)
        cluster.trace.clear()
        C = left @ dB
        moved = cluster.trace.matrix()
        assert C.layout == left.layout
        assert_product(C, right, B)
        np.testing.assert_array_equal(moved, lists.bytes_matrix(width, b_dtype, C.dtype))
        planned = lists.stage_bytes(width, b_dtype, C.dtype)
        for phase, (_, bytes_planned) in zip(lists.phases, planned, strict=True):
            traced = cluster.trace.matrix(phase=phase)
            np.testing.assert_array_equal(traced, bytes_planned)
    return dA


@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize(
    "shape", [(0, 0), (0, 5), (5, 0), (1, 1), (2, 3), (3, 2), (4, 90), (90, 4), (13, 13)], ids=str
)
def test_shapes_down_to_nothing(cluster4, shape, strategy):
    check(cluster4, example(*shape, density=0.6), strategy=strategy)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("strategy", EVERY)
def test_matrices_with_nothing_in_rows_columns_or_at_all(cluster_of, workers, strategy):
    cluster = cluster_of(workers)
    check(cluster, sparse.csr_array((9, 7)), strategy=strategy)
    A = example(20, 26).tolil()
    A[3:12], A[:, 9:20] = 0, 0
    check(cluster, A.tocsr(), strategy=strategy)
    check(cluster, example(20, 20), strategy=strategy, partition=np.zeros(20, int))
    one_asks = np.full(24, workers - 1)  # all rows of A on one rank, B on all
    check(cluster, example(24, 24), strategy=strategy, partition=one_asks, columns="cyclic")


def test_any_number_of_columns_gives_the_same_bits(cluster4):
    """0 to 130, and 1,024: a column does not depend on how many stand beside it."""
    A = example(60, 47)
    for strategy in EVERY:
        plan = dt.plan(A, parts=4, **options(strategy, 4), partition="cyclic")
        dA = dt.distribute(cluster4, A, plan)
        B = dense(47, 1024)
        dB = dt.distribute(cluster4, B, plan)
        whole = dA @ dB
        assert_product(whole, A, B)

        def each(ctx, operand, shard, wanted, exhaustive=strategy in FLAT):
            return [
                k
                for k in ((*range(131), 255, 1024) if exhaustive else (0, 1, 2, 7, 64, 130))
                if not torch.equal(dt.spmm.product(ctx, operand, shard[:, :k]), wanted[:, :k])
            ]

        assert cluster4.run(each, dA, dB, whole) == [[], [], [], []]


@pytest.mark.parametrize("strategy", EVERY)
def test_columns_from_the_client(cluster4, strategy):
    A = example(30, 22)
    for k in (None, 0, 1, 2, 65, 1024):
        check(cluster4, A, k=k, strategy=strategy)


@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize("a_dtype", ["f4", "f8", "c8", "c16"])
def test_dtypes_mix_as_in_scipy(cluster3, a_dtype, strategy):
    A = example(31, 24, dtype=a_dtype)
    if np.dtype(a_dtype).kind == "c":
        A.data = (A.data * (1 - 2j)).astype(a_dtype)
    for b_dtype in ("f4", "f8", "c8", "c16"):
        check(cluster3, A, strategy=strategy, partition="cyclic", b_dtype=b_dtype)
        check(cluster3, A, k=2, strategy=strategy, b_dtype=b_dtype, columns=np.arange(24) % 2)


@pytest.mark.parametrize("strategy", EVERY)
def test_bfloat16_is_summed_in_single_precision(cluster3, strategy):
    A = example(31, 24, dtype=np.float32)
    B = torch.from_numpy(dense(24, 5)).bfloat16()
    plan = dt.plan(A, parts=3, **options(strategy, 3))
    dA, dB = dt.distribute(cluster3, A, plan), dt.distribute(cluster3, B, plan)
    assert dB.dtype == torch.bfloat16
    cluster3.trace.clear()
    C = dA @ dB
    assert C.dtype == torch.float32
    np.testing.assert_array_equal(
        cluster3.trace.matrix(), plan.bytes_matrix(5, torch.bfloat16, torch.float32)
    )
    assert_product(C, A, B.float().numpy())
    half = dA.astype("bfloat16")
    D = half @ dB
    assert D.dtype == torch.bfloat16
    exact = half.to_scipy().astype(np.float64) @ B.double().numpy()
    scale = abs(half.to_scipy()).astype(np.float64) @ abs(B.double().numpy())
    # Rounded to 8 bits once by each rank that adds a partial sum, and once at the end.
    assert (np.abs(D.to_numpy() - exact) <= 4 * 2.0**-8 * scale).all()


@pytest.mark.parametrize("strategy", EVERY)
def test_masks_and_positions_as_operands(cluster3, strategy):
    A = example(31, 24)
    plan = dt.plan(A, parts=3, **options(strategy, 3), partition="cyclic")
    dA, B = dt.distribute(cluster3, A, plan), dense(24, 5)
    dB = dt.distribute(cluster3, B, plan)
    mask = dB > 0
    cluster3.trace.clear()
    C = dA @ mask
    np.testing.assert_array_equal(
        cluster3.trace.matrix(), plan.bytes_matrix(5, np.bool_, np.float64)
    )
    assert_product(C, A, B > 0)
    whole = (dB * 10).astype("int64")
    assert_product(dA @ whole, A, (B * 10).astype(np.int64))


def test_a_transpose_is_no_conjugate(cluster3):
    A = example(12, 12, dtype=np.complex128)
    A.data = A.data * 1j
    dA, x = dt.distribute(cluster3, A), dense(12, 2, np.complex128)
    dx = dt.distribute(cluster3, x, dA.columns)
    assert_product(dA.T @ dx, A.T, x)
    assert_product(dA.conj().T @ dx, A.conj().T, x)
    assert_product(dA.T.T @ dx, A, x)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_nan_and_infinity_reach_what_they_reach_in_scipy(cluster_of, workers, strategy, dtype):
    """A stored zero times infinity is NaN; where nothing is stored nothing happens."""
    cluster, rng = cluster_of(workers), np.random.default_rng(0)
    A = example(40, 33, 0.12, dtype=dtype)
    A.data[:: max(A.nnz // 9, 1)] = 0
    A.data[5], A.data[17], A.data[29] = np.nan, np.inf, -np.inf
    plan = dt.plan(A, parts=workers, **options(strategy, workers), partition="cyclic")
    dA = dt.distribute(cluster, A, plan)
    for left, right in ((dA, A), (dA.T, A.T)):
        B = dense(right.shape[1], 6, dtype)
        B[rng.integers(len(B), size=5), rng.integers(6, size=5)] = [
            np.inf, -np.inf, np.nan, np.inf, 0
        ]  # fmt: skip
        B[:, 4] = np.inf
        got = (left @ dt.distribute(cluster, B, left.columns)).to_numpy()
        with np.errstate(all="ignore"):
            wanted = right @ B
        assert np.isnan(wanted).any()
        if dtype == np.float32:
            assert np.isfinite(wanted).any()
            assert_product(got, right, B)
        else:  # which part of a complex product becomes NaN is the compiler's choice
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))


@pytest.mark.parametrize("kernel", ["numba", "torch", "scipy"])
def test_any_local_kernel(cluster3, kernel):
    for dtype in (np.float32, np.float64):
        A = example(50, 41, dtype=dtype)
        plan = dt.plan(A, parts=3)
        dA, B = dt.distribute(cluster3, A, plan), dense(41, 7, dtype)
        dB = dt.distribute(cluster3, B, plan)
        assert_product(dt.spmm.multiply(dA, dB, kernel=kernel), A, B)
        D = dense(50, None, dtype)
        assert_product(dt.spmm.multiply(dA.T, D, kernel=kernel), A.T, D)


def _forms_of(A):
    """The same matrix, as libraries and accidents present it."""
    coo = A.tocoo()
    order = np.random.default_rng(3).permutation(A.nnz)
    i, j, v = coo.row[order], coo.col[order], coo.data[order]
    yield "shuffled", sparse.coo_array((v, (i, j)), shape=A.shape)
    twice = sparse.coo_array(
        (np.concatenate([v / 2, v / 2]), (np.tile(i, 2), np.tile(j, 2))), shape=A.shape
    )
    yield "duplicates", twice
    unsorted = A.copy()
    for row in range(A.shape[0]):
        at = slice(A.indptr[row], A.indptr[row + 1])
        unsorted.indices[at], unsorted.data[at] = A.indices[at][::-1], A.data[at][::-1]
    unsorted.has_sorted_indices = True  # a lie
    yield "unsorted", unsorted
    index = torch.from_numpy(np.stack([np.tile(i, 2), np.tile(j, 2)]))
    values = torch.from_numpy(np.tile(v / 2, 2))
    yield "torch coo", torch.sparse_coo_tensor(index, values, A.shape, check_invariants=True)
    flipped = torch.sparse_coo_tensor(index.flip(0), values, A.shape[::-1], check_invariants=True)
    turned = flipped.coalesce().t()
    yield "transposed coo that claims to be sorted", turned
    yield "csc", A.tocsc()
    yield "bsr", A.tobsr((1, 1))
    yield "matrix", sparse.csr_matrix(A)


def test_forms_of_a_matrix(cluster3):
    A = example(21, 18)
    B = dense(18, 4)
    for name, form in _forms_of(A):
        dA = dt.distribute(cluster3, form)
        assert dA.nnz == A.nnz, name
        got = (dA @ B).to_numpy()
        assert_product(got, A, B)
        assert same_bits(got, (dt.distribute(cluster3, A) @ B).to_numpy()), name


def test_dask_arrays_with_sparse_chunks(cluster3):
    A = example(21, 18)
    chunks = da.from_array(A.toarray(), chunks=(8, 7)).map_blocks(sparse.csr_array)
    B = dense(18, 4)
    dA = dt.distribute(cluster3, chunks)
    assert_product(dA @ B, sparse.csr_array(A.toarray()), B)
