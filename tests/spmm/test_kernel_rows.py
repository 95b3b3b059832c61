"""Rows that are packed and partial sums that are added, against torch's own indexing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dtoolkit.spmm.kernels import add_rows, gather_rows

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [torch.int32, torch.int64])
def test_rows_are_gathered_and_added(dtype, width):
    random = np.random.default_rng(0)
    for k in (1, 3, 16, 50):
        B = torch.randn(30, k).to(dtype)
        index = torch.from_numpy(np.sort(random.choice(30, 11, replace=False))).to(width)
        rows = gather_rows(B, index)
        assert torch.equal(rows, B[index.long()])
        wide = torch.zeros(11, 2 * k, dtype=dtype)
        assert torch.equal(gather_rows(B, index, wide[:, ::2]), rows)
        for out in (B.clone(), B.repeat(1, 2)[:, :k], B.T.contiguous().T):
            wanted = out.clone()
            wanted[index.long()] += rows
            assert add_rows(out, index, rows) is out
            assert torch.equal(out, wanted)


def test_no_rows_are_gathered_and_added():
    none = torch.zeros(0, dtype=torch.int64)
    assert gather_rows(torch.ones(3, 2), none).shape == (0, 2)
    assert torch.equal(add_rows(torch.ones(3, 2), none, torch.ones(0, 2)), torch.ones(3, 2))
    assert gather_rows(torch.ones(3, 0), torch.tensor([1])).shape == (1, 0)


def test_rows_in_any_order_are_gathered_but_not_added():
    index = torch.tensor([2, 0, 2])
    B = torch.arange(6.0).view(3, 2)
    assert torch.equal(gather_rows(B, index), B[index])
    for wrong in (index, torch.tensor([0, 0, 1]), torch.tensor([-1, 0, 1])):
        with pytest.raises(ValueError, match="ascend"):
            add_rows(B, wrong, torch.ones(3, 2))
    for wrong in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="within 0"):
            gather_rows(B, torch.tensor(wrong))
    with pytest.raises(TypeError, match="int32 or int64"):
        gather_rows(B, torch.tensor([0.0]))
    with pytest.raises(ValueError, match="rows must have shape"):
        add_rows(B, torch.tensor([0]), torch.ones(2, 2))
    with pytest.raises(TypeError, match=r"rows must be torch\.float32"):
        add_rows(B, torch.tensor([0]), torch.ones(1, 2).double())
