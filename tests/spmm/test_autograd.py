"""Gradients of the product, against dense torch in one process, over ranks that are threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

import dtoolkit as dt
from dtoolkit.spmm import spmm
from dtoolkit.spmm.building import build
from tests.spmm.gradients import Whole, dense, example, places
from tests.spmm.thread_ranks import run

FLAT = ("oblivious", "column", "row", "joint")


MORE = {
    **{name: {"ranks_per_node": 2} for name in ("hier-joint", "hier-row", "node-pair")},
    "1.5d": {"replication": 2},
    "2d": {},
}


CASES = [(1, "joint"), (2, "joint"), *((4, strategy) for strategy in (*FLAT, *MORE))]


@pytest.mark.parametrize(("size", "strategy"), CASES)
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_of_the_dense_operand_hold_against_differences(size, strategy, transpose):
    A = example(11, 7)
    more = MORE.get(strategy, {})
    whole = Whole(A, size, strategy=strategy, partition="cyclic", transpose=transpose, **more)
    B = dense((11 if transpose else 7, 3)).requires_grad_()
    assert torch.autograd.gradcheck(whole, (B,), fast_mode=size > 2)


@pytest.mark.parametrize(("size", "strategy"), CASES)
@pytest.mark.parametrize("transpose", [False, True])
def test_gradients_of_values_hold_against_differences(size, strategy, transpose):
    A = example(9, 7)
    more = MORE.get(strategy, {})
    whole = Whole(A, size, strategy=strategy, transpose=transpose, **more)
    B = dense((9 if transpose else 7, 2)).requires_grad_()
    values = torch.tensor(A.data).requires_grad_()
    assert torch.autograd.gradcheck(whole, (B, values), fast_mode=size > 2)
    assert torch.autograd.gradcheck(whole, (B.detach(), values), fast_mode=size > 2)


@pytest.mark.parametrize(
    ("size", "partition"),
    [
        (1, "block"),
        (2, "block"),
        (2, np.arange(23) % 3 // 2),
        (4, "cyclic"),
        (4, np.arange(23) % 3),
    ],
)
def test_equal_to_dense_torch_in_a_function_with_two_products(size, partition):
    """C = A tanh(A^T B), through values and both products."""
    A = example()
    plan = dt.plan(A, parts=size, partition=partition)
    operands, where = build(plan, A), places(plan, A)
    B, values = dense((23, 3)), torch.tensor(A.data) * 0.5
    weight = dense((23, 3), seed=5)

    def one(ctx, rank):
        rows = torch.tensor(plan.rows.indices(rank))
        b = B[rows].requires_grad_()
        v = values[where[rank]].requires_grad_()
        inner = spmm(ctx, operands[rank], b, v, transpose=True).tanh()
        C = spmm(ctx, operands[rank], inner, v)
        (C * weight[rows]).sum().backward()
        return rows, C.detach(), b.grad, v.grad

    found = run(size, one, [(rank,) for rank in range(size)])
    b, v = B.clone().requires_grad_(), values.clone().requires_grad_()
    row = torch.tensor(np.repeat(np.arange(23), np.diff(A.indptr)))
    D = torch.zeros(23, 17, dtype=torch.float64).index_put((row, torch.tensor(A.indices)), v)
    C = D @ (D.T @ b).tanh()
    (C * weight).sum().backward()
    for rank, (rows, C_here, db, dv) in enumerate(found):
        torch.testing.assert_close(C_here, C.detach()[rows])
        torch.testing.assert_close(db, b.grad[rows])
        torch.testing.assert_close(dv, v.grad[where[rank]])


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("with_values", [False, True])
def test_vectors(transpose, with_values):
    A = example(11, 7)
    whole = Whole(A, 3, transpose=transpose)
    B = dense((11 if transpose else 7,)).requires_grad_()
    values = torch.tensor(A.data).requires_grad_() if with_values else None
    assert whole(B, values).shape == (7 if transpose else 11,)
    assert torch.autograd.gradcheck(whole, (B, values) if with_values else (B,))


@pytest.mark.parametrize("complex_part", ["A", "B", "both"])
def test_complex_numbers(complex_part):
    A = example(8, 6, 0.4)
    if complex_part != "B":
        A = dt.data.as_csr(A * (1 + 2j))
    B = dense((6, 2)).to(torch.float64 if complex_part == "A" else torch.complex128)
    if complex_part != "A":
        B = B * (0.5 - 1j)
    whole = Whole(A, 2)
    assert torch.autograd.gradcheck(whole, (B.requires_grad_(),))
    values = torch.tensor(A.data).requires_grad_()
    assert torch.autograd.gradcheck(whole, (B, values))


@pytest.mark.parametrize(
    ("a_dtype", "b_dtype"),
    [
        (torch.float32, torch.float32),
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.bfloat16),
        (torch.float16, torch.float32),
    ],
)
def test_gradients_have_the_dtype_of_what_they_belong_to(a_dtype, b_dtype):
    A = example(11, 7)
    whole = Whole(A, 2, dtype=a_dtype)
    B = dense((7, 3)).to(b_dtype).requires_grad_()
    values = torch.tensor(A.data).to(a_dtype).requires_grad_()

    def back(ctx, rank, C, own, mine):
        assert C.dtype == torch.promote_types(a_dtype, b_dtype)
        C.sum().backward()
        return own.grad, mine.grad

    found = whole.each(back, B, values)
    b, v = B.detach().double().requires_grad_(), values.detach().double().requires_grad_()
    row = torch.tensor(np.repeat(np.arange(11), np.diff(A.indptr)))
    D = torch.zeros(11, 7, dtype=torch.float64).index_put((row, torch.tensor(A.indices)), v)
    (D @ b).sum().backward()
    half = {torch.bfloat16, torch.float16} & {a_dtype, b_dtype}
    close = {"rtol": 0.02, "atol": 0.02} if half else {"rtol": 1e-5, "atol": 1e-5}
    for rank, (db, dv) in enumerate(found):
        assert (db.dtype, dv.dtype) == (b_dtype, a_dtype)
        torch.testing.assert_close(db.double(), b.grad[whole.source[rank]], **close)
        torch.testing.assert_close(dv.double(), v.grad[whole.places[rank]], **close)


def spmm_bytes(ctx):
    return [event.operation for event in ctx.recorder.events if event.phase.startswith("spmm")]


def test_nothing_is_sent_for_a_gradient_that_nobody_needs():
    A = example(20, 20)
    whole = Whole(A, 4)
    B, values = dense((20, 3)), torch.tensor(A.data)
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)

    def back(ctx, rank, C, own, mine):
        assert not C.requires_grad
        before = len(ctx.recorder.events)
        (C * weight).sum().backward()
        return len(ctx.recorder.events) - before

    assert whole.each(back, B, values) == [0] * 4
    assert whole.each(back, B, None) == [0] * 4


def test_what_moves_backward_is_what_moved_forward_the_other_way():
    A = example(40, 40, 0.1)
    whole = Whole(A, 4, partition="cyclic")

    def back(ctx, rank, C, own, mine):
        C.sum().backward()
        return [event.sent for event in ctx.recorder.events if event.phase.startswith("spmm")]

    sent = np.array(whole.each(back, dense((40, 3)).requires_grad_(), None))
    planned = whole.plan.bytes_matrix(3, np.float64)
    np.testing.assert_array_equal(sent[:, 0], planned)
    np.testing.assert_array_equal(sent[:, 1], planned.T)


def test_no_grad_records_nothing():
    A = example(20, 20)
    whole = Whole(A, 2)

    def one(ctx, rank):
        B = dense((10, 2)).requires_grad_()
        with torch.no_grad():
            return spmm(ctx, whole.operands[rank], B).requires_grad

    assert run(2, one, [(0,), (1,)]) == [False, False]


def test_twice_backward_of_one_graph_and_twice_the_product():
    A = example(20, 20)
    whole = Whole(A, 2)

    def back(ctx, rank, C, own, mine):
        C.sum().backward(retain_graph=True)
        first = own.grad.clone()
        C.sum().backward()
        assert torch.equal(own.grad, 2 * first)
        own.grad = None
        again = spmm(ctx, whole.operands[rank], own, mine)
        (again + spmm(ctx, whole.operands[rank], own, mine)).sum().backward()
        assert torch.equal(again, C)
        return torch.equal(own.grad, 2 * first)

    B = dense((20, 2)).requires_grad_()
    assert whole.each(back, B, None) == [True, True]
    assert whole.each(back, B, torch.tensor(A.data)) == [True, True]


def test_a_transposed_operand_is_an_operand():
    A = example()
    whole = Whole(A, 3)
    B = dense((23, 2))

    def one(ctx, rank):
        own = B[torch.tensor(whole.plan.rows.indices(rank))].requires_grad_()
        C = spmm(ctx, whole.operands[rank].transposed, own)
        C.square().sum().backward()
        return C.detach(), own.grad

    found = run(3, one, [(rank,) for rank in range(3)])
    D = torch.tensor(A.toarray())
    for rank, (C, grad) in enumerate(found):
        rows, columns = whole.target[rank], whole.source[rank]
        torch.testing.assert_close(C, (D.T @ B)[columns])
        torch.testing.assert_close(grad, (2 * D @ (D.T @ B))[rows])


@pytest.mark.parametrize("size", [1, 5])
def test_empty_matrices_parts_and_operands(size):
    empty = dt.data.as_csr(sparse.csr_array((3, 3), dtype=np.float64))
    whole = Whole(empty, size)
    B = dense((3, 2)).requires_grad_()
    whole(B).sum().backward()
    assert torch.equal(B.grad, torch.zeros(3, 2, dtype=torch.float64))
    few = example(3, 3, 0.9)
    whole = Whole(few, size)
    values = torch.tensor(few.data).requires_grad_()
    assert torch.autograd.gradcheck(whole, (dense((3, 2)).requires_grad_(), values))
    no_columns = torch.ones(3, 0, dtype=torch.float64, requires_grad=True)
    whole(no_columns).sum().backward()
    assert no_columns.grad.shape == (3, 0)


def on_workers(ctx, A, B, values):
    B = B.detach().requires_grad_()
    C = spmm(ctx, A, B, A.values.requires_grad_() if values else None)
    C.square().sum().backward()
    return B.grad


def test_on_workers(cluster4):
    A = example(50, 50)
    plan = dt.plan(A, parts=4, partition="cyclic")
    B = dense((50, 3))
    dA, dB = dt.distribute(cluster4, A, plan), dt.distribute(cluster4, B, plan)
    D = torch.tensor(A.toarray())
    expected = 2 * D.T @ (D @ B)
    for values in (False, True):
        for rank, grad in enumerate(cluster4.run(on_workers, dA, dB, values)):
            torch.testing.assert_close(grad, expected[torch.tensor(plan.columns.indices(rank))])
