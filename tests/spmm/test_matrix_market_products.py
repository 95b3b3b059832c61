"""Every well-formed file of the test data, every strategy, 1 to 4 workers: product and bytes."""

from __future__ import annotations

import numpy as np
import pytest

import dtoolkit as dt
from tests import sockets
from tests.spmm.reference import assert_product

FILES = (
    "LFAT5_hypersparse.mtx",
    "bcsstk13.mtx.gz",
    "comments_west0067.mtx",
    "complex.mtx",
    "empty.mtx",
    "full.mtx",
    "full_symmetric.mtx",
    "jagmesh7.mtx",
    "karate.mtx",
    "lp_afiro.mtx",
    "matrix_bool.mtx",
    "matrix_fp32.mtx",
    "matrix_int8.mtx",
    "matrix_uint64.mtx",
    "olm1000.mtx",
    "skew_fp64.mtx",
    "west0067.mtx",
    "west0067_jumbled.mtx",
)
K = 1024  # dense columns where the kernel counts

STRATEGIES = ("oblivious", "column", "row", "joint")


def test_no_file_is_forgotten(data_root):
    there = {p.name for p in (data_root / "mtx").iterdir() if not p.name.startswith("mangled")}
    assert there == set(FILES)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("name", FILES)
def test_products_and_bytes(data_root, cluster_of, name, workers):
    # What a file says is held to SciPy, or to a table of entries, in tests/data.
    A = dt.read_matrix(data_root / "mtx" / name)
    cluster = cluster_of(workers)
    rng = np.random.default_rng(workers)
    B, D = rng.standard_normal((A.shape[1], 5)), rng.standard_normal((A.shape[0], 5))
    for strategy in STRATEGIES:
        plan = dt.plan(A, parts=workers, strategy=strategy)
        plan.check(A)
        dA = dt.distribute(cluster, A, plan)
        dB, dD = dt.distribute(cluster, B, plan), dt.distribute(cluster, D, plan.rows)
        cluster.trace.clear()
        C = dA @ dB
        planned = plan.bytes_matrix(5, B.dtype, C.dtype)
        np.testing.assert_array_equal(cluster.trace.matrix(), planned)
        assert planned.sum() == plan.bytes(5, B.dtype, C.dtype)
        assert_product(C, A, B)
        cluster.trace.clear()
        E = dA.T @ dD
        np.testing.assert_array_equal(
            cluster.trace.matrix(), plan.transposed().bytes_matrix(5, D.dtype, E.dtype)
        )
        assert_product(E, A.T, D)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("workers", [2, 4])
def test_the_kernel_counts_what_was_planned(cluster_of, strategy, workers):
    """Within 1% of the sockets' own counters, for each pair that moves over 1 MB in all."""
    A = dt.data.rmat(4096, 8, seed=1, dtype=np.float64)
    cluster = cluster_of(workers)
    plan = dt.plan(A, parts=workers, strategy=strategy)
    dA = dt.distribute(cluster, A, plan)
    dB = dt.distribute(cluster, np.ones((4096, K)), plan)
    for left, lists in ((dA, plan), (dA.T, plan.transposed())):
        left @ dB  # the group forms
        moved = sockets.counted(cluster, lambda left=left: left @ dB)
        planned = lists.bytes_matrix(K, np.float64)
        np.testing.assert_array_equal(cluster.trace.matrix(), planned)
        assert (planned > sockets.LARGE).any(axis=1).all()
        sockets.hold(moved, planned)
