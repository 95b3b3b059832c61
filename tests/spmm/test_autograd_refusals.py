"""What the differentiable product refuses, and in which words."""

from __future__ import annotations

import pytest
import torch

from dtoolkit.errors import MessageMismatch
from dtoolkit.spmm import spmm
from tests.spmm.gradients import Whole, dense, example
from tests.spmm.thread_ranks import run


def test_second_derivatives_are_refused_in_words():
    A = example(20, 20)
    whole = Whole(A, 2)

    def of_b(ctx, rank, C, own, mine):
        (grad,) = torch.autograd.grad(C.square().sum(), own, create_graph=True)
        with pytest.raises(RuntimeError, match="second derivatives are not supported"):
            grad.sum().backward()
        return grad

    whole.each(of_b, dense((20, 2)).requires_grad_(), None)

    def mixed(ctx, rank, C, own, mine):
        # The gradient of a sum does not depend on C, but it does depend on the values.
        (grad,) = torch.autograd.grad(C.sum(), own, create_graph=True)
        with pytest.raises(RuntimeError, match="second derivatives are not supported"):
            torch.autograd.grad(grad.square().sum(), mine)

    whole.each(mixed, dense((20, 2)).requires_grad_(), torch.tensor(A.data).requires_grad_())


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_want_other_gradients_are_told_before_anything_hangs(size):
    A = example(20, 20)
    whole = Whole(A, size)

    def one(ctx, rank, fault):
        B = torch.ones(len(whole.source[rank]), 2, dtype=torch.float64)
        last = rank == size - 1
        values = whole.operands[rank].values
        if fault == "gradient of B":
            B.requires_grad_(not last)
        elif fault == "gradient of values":
            values.requires_grad_(not last)
        elif fault == "columns of B":
            B = B[:, :1] if last else B
        elif fault == "a vector":
            B = B[:, 0] if last else B
        elif fault == "a B of":
            B = B.float() if last else B
        elif fault == "values of":
            values = values.float() if last else values
        elif fault == "values= given":
            values = None if last else values
        with torch.set_grad_enabled(fault != "grad mode" or not last):
            if fault == "grad mode":
                B.requires_grad_()
            with pytest.raises(MessageMismatch, match=rf"rank {rank} has .*all ranks must") as e:
                spmm(ctx, whole.operands[rank], B, values)
        return str(e.value)

    faults = ("gradient of B", "gradient of values", "columns of B", "a B of", "values of")
    for fault in (*faults, "values= given", "a vector", "grad mode"):
        said = run(size, one, [(rank, fault) for rank in range(size)])
        if fault in faults:
            assert all(fault in text for text in said)


def test_what_is_wrong_on_one_rank_is_named():
    A = example(20, 20)
    (operand,) = Whole(A, 1).operands

    def one(ctx, rank):
        B = torch.ones(20, 2, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"shape \(3, 2\).*20 rows of B"):
            spmm(ctx, operand, B[:3])
        with pytest.raises(ValueError, match=r"values has shape \(4,\).*nonzeros"):
            spmm(ctx, operand, B, torch.ones(4))
        with pytest.raises(TypeError, match="B must be a dense torch tensor, not ndarray"):
            spmm(ctx, operand, B.numpy())
        with pytest.raises(TypeError, match=r"B must be a dense torch tensor, not torch\.sparse"):
            spmm(ctx, operand, B.to_sparse())

    run(1, one, [(0,)])
