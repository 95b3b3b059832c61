"""Products of dense operands where a matrix has nonzeros, against the whole dense product."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import MessageMismatch
from dtoolkit.spmm.building import build
from dtoolkit.spmm.sampled import sampled
from tests.spmm.reference import same_bits
from tests.spmm.strategies import EVERY, options
from tests.spmm.test_operand import example
from tests.spmm.thread_ranks import run


def found(plan, A, C, B, transpose=False):
    """By nonzero of A in canonical order, and the bytes that moved, [source, target]."""
    A = dt.data.as_csr(A)
    positions = A.copy()
    positions.data = np.arange(A.nnz, dtype=np.int64)
    made, places = build(plan, A), build(plan, positions)
    shards = [
        (
            torch.from_numpy(C[plan.rows.indices(rank)]),
            torch.from_numpy(B[plan.columns.indices(rank)]),
        )
        for rank in range(plan.parts)
    ]

    def one(ctx, operand, c, b):
        side = operand.transposed if transpose else operand
        values = sampled(ctx, side, b, c) if transpose else sampled(ctx, side, c, b)
        return values, [event.sent for event in ctx.recorder.events]

    results = run(plan.parts, one, [(o, *s) for o, s in zip(made, shards, strict=True)])
    out = np.zeros(A.nnz, dtype=np.result_type(C, B))
    moved = np.zeros((plan.parts, plan.parts), np.int64)
    for rank, (values, sent) in enumerate(results):
        side = places[rank].transposed if transpose else places[rank]
        out[side.values.numpy()] = values.numpy()
        moved[rank] = np.sum(np.array(sent).reshape(-1, plan.parts), axis=0)
    return out, moved


@pytest.mark.parametrize("parts", [1, 2, 4, 9])
@pytest.mark.parametrize("strategy", EVERY)
def test_against_the_dense_product(strategy, parts):
    A, rng = example(), np.random.default_rng(0)
    plan = dt.plan(A, parts=parts, **options(strategy, parts), partition="cyclic")
    C, B = rng.standard_normal((23, 5)), rng.standard_normal((17, 5))
    wanted = (C @ B.T)[A.nonzero()]
    for transpose in (False, True):
        values, moved = found(plan, A, C, B, transpose)
        np.testing.assert_allclose(values, wanted, rtol=1e-12, atol=1e-12)
        # Rows of B go forwards and rows of C backwards, whichever of the two is sent first.
        none = np.zeros((parts, parts), np.int64)
        b = sum((stage.b.counts for stage in plan.stages), start=none)
        c = sum((stage.c.counts for stage in plan.stages), start=none)
        np.testing.assert_array_equal(moved, 5 * 8 * (b + c.T))


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f4", "f8"), ("c8", "f4"), ("c16", "c8")])
@pytest.mark.parametrize("strategy", ["joint", "node-pair", "1.5d"])
def test_dtypes(strategy, dtypes):
    A, rng = example(), np.random.default_rng(0)
    plan = dt.plan(A, parts=4, **options(strategy, 4))
    C, B = (rng.standard_normal((n, 3)).astype(d) for n, d in zip((23, 17), dtypes, strict=True))
    if C.dtype.kind == "c":
        C *= 1 + 2j
    values, _ = found(plan, A, C, B)
    assert values.dtype == np.result_type(C, B)
    np.testing.assert_allclose(values, (C @ B.T)[A.nonzero()], rtol=1e-5, atol=1e-5)
    assert same_bits(values, found(plan, A, C, B)[0])


def test_half_precision_is_summed_in_single():
    A = example()
    plan = dt.plan(A, parts=3)
    rng = np.random.default_rng(0)
    C, B = (torch.from_numpy(rng.standard_normal((n, 40))).bfloat16() for n in (23, 17))

    def one(ctx, operand):
        mine = (C[plan.rows.indices(ctx.rank)], B[plan.columns.indices(ctx.rank)])
        return sampled(ctx, operand, *mine)

    made = build(plan, A)
    got = run(3, one, [(operand,) for operand in made])
    positions = A.copy()
    positions.data = np.arange(A.nnz, dtype=np.int64)
    wanted = (C.double() @ B.double().T).numpy()[A.nonzero()]
    for values, place in zip(got, build(plan, positions), strict=True):
        assert values.dtype == torch.bfloat16
        mine = wanted[place.values.numpy()]
        assert (np.abs(values.double().numpy() - mine) <= 2.0**-7 * np.abs(mine) + 1e-4).all()


def test_nothing_to_sum_and_nothing_to_sample():
    A = example()
    plan = dt.plan(A, parts=4)
    values, _ = found(plan, A, np.ones((23, 0)), np.ones((17, 0)))
    assert not values.any()
    empty = dt.data.as_csr(np.zeros((6, 5)))
    values, _ = found(dt.plan(empty, parts=4), empty, np.ones((6, 2)), np.ones((5, 2)))
    assert values.shape == (0,)


def test_operands_of_another_shape_are_refused():
    A = example()
    made = build(dt.plan(A, parts=2), A)

    def one(ctx, operand):
        m, n = operand.own.shape
        with pytest.raises(ValueError, match=f"C has shape .* wanted .{m}, k"):
            sampled(ctx, operand, torch.ones(m + 1, 2), torch.ones(n, 2))
        with pytest.raises(ValueError, match="C has 2 columns and B has 3"):
            sampled(ctx, operand, torch.ones(m, 2), torch.ones(n, 3))
        k = 2 + ctx.rank
        with pytest.raises(MessageMismatch):
            sampled(ctx, operand, torch.ones(m, k), torch.ones(n, k))

    run(2, one, [(operand,) for operand in made])
