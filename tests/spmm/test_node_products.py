"""Products over nodes and grids on real workers: what was traced was planned, stage by stage."""

from __future__ import annotations

import numpy as np
import pytest

import dtoolkit as dt
from tests import sockets
from tests.spmm.reference import assert_product, same_bits
from tests.spmm.strategies import EVERY

K = 16


def laid(cluster, strategy, n=1024, ranks_per_node=None):
    A = dt.data.rmat(n, 8, seed=1, values="normal", dtype=np.float64)
    if strategy == "2d" and cluster.size == 8:
        strategy = "1.5d"
    half = cluster.size // 2 if ranks_per_node is None else ranks_per_node
    plan = dt.plan(A, parts=cluster.size, strategy=strategy, ranks_per_node=half)
    B = np.random.default_rng(0).standard_normal((n, K))
    return A, B, plan, dt.distribute(cluster, A, plan), dt.distribute(cluster, B, plan)


@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize("workers", [4, 8])
def test_traced_is_planned_by_pair_and_stage(cluster_of, strategy, workers):
    """8 workers as 2 nodes of 4, 4 workers as 2 nodes of 2."""
    cluster = cluster_of(workers)
    A, B, plan, dA, dB = laid(cluster, strategy)
    for left, right, lists in ((dA, A, plan), (dA.T, A.T, plan.transposed())):
        cluster.trace.clear()
        C = left @ dB
        trace = cluster.trace
        assert_product(C, right, B)
        np.testing.assert_array_equal(trace.matrix(), lists.bytes_matrix(K, "f8"))
        assert {event.phase for event in trace} == set(lists.phases)
        planned = lists.stage_bytes(K, "f8")
        for phase, (_, sent) in zip(lists.phases, planned, strict=True):
            np.testing.assert_array_equal(trace.matrix(phase=phase), sent)
        between = lists.bytes_between_nodes(K, "f8")
        assert trace.between(plan.nodes) == between
        assert trace.total - between == lists.volume_inside_nodes * K * 8
        assert same_bits((left @ dB).to_numpy(), C.to_numpy())


@pytest.mark.parametrize("strategy", ["hier-joint", "node-pair", "1.5d"])
@pytest.mark.parametrize("workers", [4, 8])
def test_the_kernel_counts_what_was_planned(cluster_of, strategy, workers):
    """Within 1% of the sockets' own counters, where over 1 MB moves."""
    cluster = cluster_of(workers)
    _, _, plan, dA, _ = laid(cluster, strategy, n=4096)
    k = 256 * workers
    dB = dt.arrays.ones(cluster, (4096, k), layout=dA.columns, dtype="float64")
    dA @ dB  # the group forms
    moved = sockets.counted(cluster, lambda: dA @ dB)
    planned = plan.bytes_matrix(k, np.float64)
    np.testing.assert_array_equal(cluster.trace.matrix(), planned)
    sockets.hold(moved, planned)


def test_nodes_that_differ_in_size_and_order(cluster4):
    A = dt.data.rmat(300, 6, seed=2, values="normal", dtype=np.float64)
    x = np.random.default_rng(1).standard_normal((300, 3))
    for strategy in ("hier-column", "hier-row", "hier-joint", "node-pair"):
        plan = dt.plan(A, parts=4, strategy=strategy, nodes=[2, 0, 2, 2], partition="cyclic")
        dA = dt.distribute(cluster4, A, plan)
        assert_product(dA @ x, A, x)
        assert_product(dA.T @ x, A.T, x)


@pytest.mark.parametrize("strategy", EVERY)
def test_values_are_scaled_moved_and_fetched(cluster4, strategy):
    A, B, plan, dA, dB = laid(cluster4, strategy, n=300)
    rows = np.array([5, 299, 0, 17])
    assert (dA[rows] != A[rows]).nnz == 0
    assert_product(dA.with_data(A.data * 2) @ dB, A * 2, B)
    factor = np.random.default_rng(3).standard_normal(300) + 2
    scaled = (dA * factor[:, None]).to_scipy().toarray()
    np.testing.assert_allclose(scaled, A.toarray() * factor[:, None])
    scaled = (dA * dt.distribute(cluster4, factor, dA.columns)).to_scipy().toarray()
    np.testing.assert_allclose(scaled, A.toarray() * factor)
    assert_product((dA * factor).T @ dB, (A * factor).T, B)
    other = dA.redistribute(dt.plan(A, parts=4, partition="cyclic"))
    assert (other.to_scipy() != A).nnz == 0
    back = other.redistribute(plan)
    assert same_bits((back @ dB).to_numpy(), (dA @ dB).to_numpy())
