"""What ranks hold of a planned matrix, and the product over ranks that are threads."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dtoolkit as dt
from dtoolkit.spmm.building import build
from tests.spmm.reference import assert_product, same_bits
from tests.spmm.strategies import EVERY, options
from tests.spmm.thread_ranks import multiplied, run


def example(m=23, n=17, density=0.2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    A = sparse.random_array((m, n), density=density, rng=rng, format="csr", dtype=dtype)
    A.data -= 0.5
    return dt.data.as_csr(A)


def operands(A, parts=4, strategy="joint", *, nodes=None, **others):
    plan = dt.plan(A, parts=parts, **options(strategy, parts, nodes), **others)
    return plan, build(plan, dt.data.as_csr(A))


@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize("partition", ["block", "cyclic", np.arange(23) % 3])
def test_every_nonzero_is_on_the_rank_that_the_plan_says(strategy, partition):
    A = example()
    plan, made = operands(A, strategy=strategy, partition=partition)
    assert [operand.nnz for operand in made] == plan.work.tolist()
    assert sum(operand.nnz for operand in made) == A.nnz
    values = np.concatenate([operand.values.numpy() for operand in made])
    np.testing.assert_array_equal(np.sort(values), np.sort(A.data))
    for q, operand in enumerate(made):
        assert operand.rank == q
        assert operand.own.shape == (plan.rows.sizes[q], plan.columns.sizes[q])
        for k, hop in enumerate(operand.hops):
            for p, other in enumerate(made):
                back = other.hops[k]
                assert hop.b_out[p] == back.b_in[q] == len(plan.b_rows(q, p, k))
                assert hop.c_out[p] == back.c_in[q] == len(plan.c_rows(q, p, k))
            for index in (*hop.gather, *hop.scatter):
                assert (index.diff() > 0).all()


@pytest.mark.parametrize("strategy", EVERY)
def test_a_transposed_operand_swaps_what_it_sends_and_receives(strategy):
    A = example()
    plan, made = operands(A, strategy=strategy, partition="cyclic")
    for operand in made:
        turned = operand.transposed
        assert turned is operand.transposed
        for hop, was in zip(turned.hops, reversed(operand.hops), strict=True):
            assert (hop.b_out, hop.b_in) == (was.c_in, was.c_out)
            assert (hop.c_out, hop.c_in) == (was.b_in, was.b_out)
            assert hop.phase == was.phase
        assert turned.nnz == operand.nnz
        back = turned.transposed
        assert back.own.shape == operand.own.shape
        np.testing.assert_array_equal(
            back.own.to_scipy().todense(), operand.own.to_scipy().todense()
        )
    back = [operand.transposed.transposed for operand in made]
    B = torch.from_numpy(np.random.default_rng(1).standard_normal((17, 3)))
    C, moved = multiplied(plan, back, B)
    assert_product(C.numpy(), A, B)
    np.testing.assert_array_equal(moved, plan.bytes_matrix(3, np.float64))


def test_only_the_ranks_asked_for_are_built():
    A = example()
    plan, made = operands(A)
    (second, last) = build(plan, A, ranks=[1, 3])
    assert (second.rank, last.rank) == (1, 3)
    assert same_bits(second.values, made[1].values)
    assert same_bits(last.values, made[3].values)


def test_what_is_made_on_demand_neither_travels_nor_is_forgotten_in_the_count():
    A = example()
    plan, made = operands(A)
    before = made[0].nbytes
    sent = len(pickle.dumps(made[0]))
    B = torch.ones((17, 50), dtype=torch.float64)
    multiplied(plan, made, B)
    assert made[0].nbytes > before  # the buffers
    between = made[0].nbytes
    multiplied(plan, made, torch.ones((23, 50), dtype=torch.float64), transpose=True)
    assert made[0].nbytes > between + before // 2  # the transpose and its buffers
    assert len(pickle.dumps(made[0])) == sent
    again = pickle.loads(pickle.dumps(made[0]))
    assert again.nbytes == before
    assert copy.copy(made[0]).nbytes == before


def test_buffers_are_used_again_and_never_grow():
    A = example(200, 200)
    plan, made = operands(A)
    sizes = []
    for k in (1, 64, 64, 3, 64):
        multiplied(plan, made, torch.ones((200, k), dtype=torch.float64))
        sizes.append(made[1].nbytes)
    assert sizes[1] == sizes[2] == sizes[4]
    assert sizes[0] < sizes[3] < sizes[1]


def test_a_product_that_was_stopped_keeps_its_buffers_from_the_next():
    """A thread that is left behind may still write: the next product must not use the same."""
    A = example(60, 60)
    plan, made = operands(A)
    multiplied(plan, made, torch.ones((60, 2), dtype=torch.float64))
    assert set(made[0].workspace) == {0}

    class Cut(Exception):
        pass

    class Stopped:
        def __getattr__(self, name):
            return getattr(self.comm, name)

        def all_to_all_v(self, *_, **__):
            raise Cut

    def one(ctx, operand, shard):
        stopped = Stopped()
        stopped.comm, ctx.comm = ctx.comm, stopped
        with pytest.raises(Cut):
            dt.spmm.product(ctx, operand, shard)

    run(4, one, [(operand, torch.ones((15, 2), dtype=torch.float64)) for operand in made])
    assert made[0].workspace == {}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("shape", [(4, 2), (6, 2), (5, 2, 1), ()])
def test_a_shard_of_another_size_is_refused_before_anything_is_sent(shape, transpose):
    A = example(20, 20)
    _, made = operands(A)

    def one(ctx, operand):
        shard = torch.ones(shape, dtype=torch.float64)
        with pytest.raises(ValueError, match=f"on rank {ctx.rank}; the plan has 5 rows of B"):
            dt.spmm.product(ctx, operand, shard, transpose=transpose)
        return ctx.recorder.events

    assert run(4, one, [(operand,) for operand in made]) == [[], [], [], []]


def test_the_result_goes_where_it_is_asked_to():
    A = example(20, 20)
    plan, made = operands(A)
    B = torch.from_numpy(np.random.default_rng(0).standard_normal((20, 4)))
    wanted, _ = multiplied(plan, made, B)

    def one(ctx, operand, shard):
        out = torch.full((5, 4), float("nan"), dtype=torch.float64)
        assert dt.spmm.product(ctx, operand, shard, out=out) is out
        vector = torch.full((5,), float("nan"), dtype=torch.float64)
        found = dt.spmm.product(ctx, operand, shard[:, 1], out=vector)
        assert found.data_ptr() == vector.data_ptr()
        return out, vector

    found = run(4, one, list(zip(made, torch.split(B, 5), strict=True)))
    assert same_bits(torch.cat([out for out, _ in found]), wanted)
    assert same_bits(torch.cat([vector for _, vector in found]), wanted[:, 1])


FLOATS = (torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bfloat16)


@settings(max_examples=120)
@given(data=st.data())
def test_any_matrix_over_any_ranks(data):
    """Shapes down to nothing, more ranks than rows, any layouts, strategies and dtypes."""
    m, n = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    parts, k = data.draw(st.integers(1, 7)), data.draw(st.integers(0, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "c8", "c16"])))
    A = sparse.random_array((m, n), density=rng.random(), rng=rng, format="csr", dtype=dtype)
    if A.nnz:
        A.data[rng.integers(A.nnz)] = 0
    owners = [rng.integers(0, parts, size) for size in (m, n)]
    layouts = [
        data.draw(st.sampled_from(["block", "cyclic", part, np.full_like(part, parts - 1)]))
        for part in owners
    ]
    strategy = data.draw(st.sampled_from(EVERY))
    nodes = rng.integers(0, data.draw(st.integers(1, parts)), parts)
    plan, made = operands(A, parts, strategy, nodes=nodes, partition=layouts[0], columns=layouts[1])
    plan.check(A)
    b_dtype = data.draw(st.sampled_from(FLOATS))
    for transpose, S in ((False, A), (True, A.T)):
        B = torch.from_numpy(rng.standard_normal((S.shape[1], k))).to(b_dtype)
        C, moved = multiplied(plan, made, B, transpose=transpose)
        assert C.dtype == torch.promote_types(torch.from_numpy(A.data[:0]).dtype, b_dtype)
        wide = B.float().numpy() if b_dtype == torch.bfloat16 else B.numpy()
        assert_product(C.numpy(), S, wide)
        lists = plan.transposed() if transpose else plan
        np.testing.assert_array_equal(moved, lists.bytes_matrix(k, b_dtype, C.dtype))


@pytest.mark.parametrize("strategy", EVERY)
@pytest.mark.parametrize("parts", [16, 33])
def test_more_ranks_than_a_machine_has(strategy, parts):
    A = dt.data.rmat(256, 6, seed=3, dtype=np.float64)
    plan, made = operands(A, parts, strategy=strategy, partition="cyclic")
    B = torch.from_numpy(np.random.default_rng(2).standard_normal((256, 6)))
    for transpose, S in ((False, A), (True, A.T)):
        C, moved = multiplied(plan, made, B, transpose=transpose)
        assert_product(C.numpy(), S, B)
        lists = plan.transposed() if transpose else plan
        np.testing.assert_array_equal(moved, lists.bytes_matrix(6, np.float64))
        assert same_bits(C, multiplied(plan, made, B, transpose=transpose)[0])


@pytest.mark.parametrize("strategy", EVERY)
def test_plan_of_the_transpose_executes(strategy):
    """Partial rows of whole shards, for the transposed all-gather."""
    A = example(30, 21)
    plan = dt.plan(A, parts=4, **options(strategy, 4), partition="cyclic").transposed()
    turned = dt.data.as_csr(A.T)
    made = build(plan, turned)
    B = torch.from_numpy(np.random.default_rng(3).standard_normal((30, 4)))
    C, moved = multiplied(plan, made, B)
    assert_product(C.numpy(), turned, B)
    np.testing.assert_array_equal(moved, plan.bytes_matrix(4, np.float64))
