"""Many products with one plan: the same bits, nothing overwritten, nothing that grows."""

from __future__ import annotations

import gc

import numpy as np
import psutil
import pytest
import torch
from scipy import sparse

import dtoolkit as dt
from tests.spmm.reference import assert_product, same_bits
from tests.spmm.strategies import EVERY, options
from tests.spmm.test_product import dense, example

N = 300


@pytest.fixture(scope="module", params=EVERY)
def pair(request, cluster_of):
    A = dt.data.rmat(N, 7, seed=2, values="normal", dtype=np.float64)
    return A, dt.distribute(cluster_of(4), A, dt.plan(A, parts=4, **options(request.param, 4)))


def test_a_product_repeats_bit_for_bit(pair):
    A, dA = pair
    B = dense(N, 9)
    dB = dt.distribute(dA.cluster, B, dA.plan)
    first, turned = (dA @ dB).to_numpy(), (dA.T @ dB).to_numpy()
    assert_product(first, A, B)
    for _ in range(10):
        assert same_bits((dA @ dB).to_numpy(), first)
        assert same_bits((dA.T @ dB).to_numpy(), turned)
    again = dt.distribute(dA.cluster, A, dt.plan(A, parts=4, **options(dA.plan.strategy, 4)))
    assert same_bits((again @ dB).to_numpy(), first)


def test_another_group_gives_the_same_bits(pair):
    _, dA = pair
    dB = dt.distribute(dA.cluster, dense(N, 9), dA.plan)
    first = (dA @ dB).to_numpy()

    def broken(ctx, operand, shard):
        dt.spmm.product(ctx, operand, shard)
        raise ArithmeticError("on purpose")

    for _ in range(2):
        with pytest.raises(dt.errors.RankError, match="on purpose"):
            dA.cluster.run(broken, dA, dB)
        assert same_bits((dA @ dB).to_numpy(), first)


def test_results_are_not_overwritten_by_the_next_products(pair):
    A, dA = pair
    operands = [dense(N, k, seed=k) for k in (5, 1, 64, 5, 0, 130, 5)]
    laid = [dt.distribute(dA.cluster, B, dA.plan) for B in operands]
    straight = [dA @ dB for dB in laid]
    turned = [dA.T @ dB for dB in laid]
    for B, C, D in zip(operands, straight, turned, strict=True):
        assert_product(C, A, B)
        assert_product(D, A.T, B)


def test_two_matrices_take_turns(pair):
    A, dA = pair
    other = example(N, N, 0.02, seed=8)
    dO = dt.distribute(dA.cluster, other, dt.plan(other, parts=4, partition=dA.layout))
    x = dense(N, 3)
    dx = dt.distribute(dA.cluster, x, dA.plan)
    results = []
    for _ in range(3):
        results += [dA @ dx, dO @ dx, dO.T @ dx, dA.T @ dx]
    for place, C in enumerate(results):
        assert_product(C, (A, other, other.T, A.T)[place % 4], x)

    def both(ctx, first, second, shard):
        one = dt.spmm.product(ctx, first, shard)
        two = dt.spmm.product(ctx, second, shard)
        three = dt.spmm.product(ctx, first, two, transpose=True)
        return one, two, three

    for rank, (one, two, three) in enumerate(dA.cluster.run(both, dA, dO, dx)):
        mine = dA.layout.indices(rank)
        assert same_bits(one, results[0].to_numpy()[mine])
        assert same_bits(two, results[1].to_numpy()[mine])
        np.testing.assert_allclose(three, (A.T @ (other @ x))[mine], rtol=1e-10, atol=1e-10)


def test_fifty_steps_of_a_power_iteration_hold_no_more_than_one(cluster4):
    A = dt.data.rmat(N, 7, seed=2, values="normal", dtype=np.float64)
    dA = dt.distribute(cluster4, A)
    x = np.ones(N)
    dx = dt.distribute(cluster4, x, dA.plan)
    held = []
    gc.collect()  # what other tests left
    for _ in range(50):
        x = A.T @ (A @ x)
        x /= np.linalg.norm(x)
        dx = dA.T @ (dA @ dx)
        dx = dx / dx.norm()
        held.append(sum(cluster4.held))
    np.testing.assert_allclose(dx.to_numpy(), x, rtol=1e-9, atol=1e-12)
    # Of each step one vector stays; what was dropped may be told to the workers a launch later.
    assert max(held[25:]) <= max(held[:10]) + 4 * N * 8


def test_buffers_follow_the_last_product(cluster4):
    A = example(N, N, 0.1)
    dA = dt.distribute(cluster4, A, dt.plan(A, parts=4, strategy="column"))
    sizes = []
    for k in (4, 256, 4):
        dA @ dense(N, k)  # the result is dropped
        cluster4.run(lambda ctx: None)
        sizes.append(sum(cluster4.run(lambda ctx, operand: operand.nbytes, dA)))
    assert sizes[0] == sizes[2] < sizes[1]


@pytest.mark.slow
def test_a_message_of_more_than_two_gigabytes(cluster2):
    """More than 2^31 bytes, and more than 2^31 bytes in one buffer, from rank 0 to rank 1.

    Rank 0 has all rows of B, rank 1 all of A. Numbers are whole, so that sums are exact. Where
    memory is short the message is shorter, and is only cut into several slices.
    """
    room = psutil.virtual_memory().available > 16 * 2**30
    k = 1024
    n = 2**31 // (8 * k) + 1000 if room else 2**17
    rows = 7
    columns = np.arange(n)
    A = sparse.csr_array(((columns % 3 + 1.0), (columns % rows, columns)), shape=(rows, n))
    plan = dt.plan(
        A, parts=2, strategy="column", partition=np.ones(rows, int), columns=np.zeros(n, int)
    )
    assert plan.bytes(k, np.float64) > (2**31 if room else 2**30 - 1)
    dA = dt.distribute(cluster2, A, plan)
    number = dt.distribute(cluster2, columns.astype(np.float64), plan)
    B = number[:, None] + np.arange(float(k))
    cluster2.trace.clear()
    C = dA @ B
    np.testing.assert_array_equal(cluster2.trace.matrix(), plan.bytes_matrix(k, np.float64))
    wanted = (A @ columns.astype(np.float64))[:, None] + A.sum(axis=1)[:, None] * np.arange(k)
    np.testing.assert_array_equal(C.to_numpy(), wanted)
    assert C.dtype == torch.float64
