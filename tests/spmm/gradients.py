"""Operands that tests of gradients share."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

import dtoolkit as dt
from dtoolkit.spmm import spmm
from dtoolkit.spmm.building import build
from tests.spmm.thread_ranks import run


def example(m=23, n=17, density=0.2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    A = sparse.random_array((m, n), density=density, rng=rng, format="csr", dtype=dtype)
    A.data -= 0.5
    return dt.data.as_csr(A)


def dense(shape, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def places(plan, A):
    """Where each value of each operand stands in the canonical CSR of A."""
    numbered = sparse.csr_array((np.arange(A.nnz), A.indices, A.indptr), shape=A.shape)
    return [operand.values.long() for operand in build(plan, numbered)]


class Whole:
    """The distributed product and its gradients, as if it were a function in one process."""

    def __init__(self, A, size, *, transpose=False, dtype=None, **options):
        self.plan = dt.plan(A, parts=size, **options)
        self.size, self.transpose = size, transpose
        self.operands = build(self.plan, A)
        if dtype is not None:
            self.operands = [o.with_values(o.values.to(dtype)) for o in self.operands]
        self.places = places(self.plan, A)
        ends = (self.plan.columns, self.plan.rows)
        source, target = ends[::-1] if transpose else ends
        self.source = [torch.tensor(source.indices(rank)) for rank in range(size)]
        self.target = [torch.tensor(target.indices(rank)) for rank in range(size)]
        self.rows = target.n

    def __call__(self, B, values=None):
        return _Whole.apply(B, values, self)

    def each(self, function, B, values):
        """``function(ctx, rank, C, B, values)`` on every rank, from leaves of its own."""

        def one(ctx, rank):
            with torch.enable_grad():
                own = B.detach()[self.source[rank]].requires_grad_(B.requires_grad)
                mine = None
                if values is not None:
                    mine = values.detach()[self.places[rank]]
                    mine.requires_grad_(values.requires_grad)
                C = spmm(ctx, self.operands[rank], own, mine, transpose=self.transpose)
                return function(ctx, rank, C, own, mine)

        return run(self.size, one, [(rank,) for rank in range(self.size)])

    def together(self, shards, shape):
        whole = torch.zeros(shape, dtype=shards[0].dtype)
        for rows, shard in zip(self.target, shards, strict=True):
            whole[rows] = shard.detach()
        return whole


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(state, B, values, whole):
        state.save_for_backward(B, values)
        state.whole = whole
        return whole.together(
            whole.each(lambda ctx, rank, C, *_: C, B, values), (whole.rows, *B.shape[1:])
        )

    @staticmethod
    def backward(state, dC):
        B, values = state.saved_tensors
        whole = state.whole

        def back(ctx, rank, C, own, mine):
            C.backward(dC[whole.target[rank]])
            return own.grad, None if mine is None else mine.grad

        found = whole.each(back, B, values)
        dB = torch.zeros_like(B)
        for rows, (grad, _) in zip(whole.source, found, strict=True):
            dB[rows] = 0 if grad is None else grad
        if values is None:
            return dB, None, None
        dvalues = torch.zeros_like(values)
        for place, (_, grad) in zip(whole.places, found, strict=True):
            dvalues[place] = 0 if grad is None else grad
        return dB if B.requires_grad else None, dvalues if values.requires_grad else None, None
