"""Memory of dense operands: where it begins, and what is moved for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.arrays.memory import aligned, allocate


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (5, 2, 3), (70_000, 64)])
def test_memory_begins_a_cache_line(shape, dtype):
    for _ in range(3):
        made = allocate(shape, dtype=dtype)
        assert (tuple(made.shape), made.dtype, made.is_contiguous()) == (shape, dtype, True)
        assert made.data_ptr() % 64 == 0
        made.fill_(1)
        assert bool((made == 1).all())


@pytest.mark.parametrize("rows", [3, 40_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_begins_within_a_line_is_copied_and_nothing_else(rows, dtype):
    whole = allocate((rows * 64 + 8,), dtype=dtype)
    whole.copy_(torch.arange(len(whole)) % 100)
    within, first = whole[8:].view(rows, 64), whole[:-8].view(rows, 64)
    moved = aligned(within)
    assert moved.data_ptr() % 64 == 0
    assert torch.equal(moved, within)
    assert moved.data_ptr() != within.data_ptr()
    assert aligned(first) is first


def test_shards_begin_a_cache_line(cluster2):
    B = np.arange(4_000 * 16, dtype=np.float32).reshape(4_000, 16)
    placed = [dt.distribute(cluster2, B) for _ in range(3)]
    for there in placed:
        assert cluster2.run(lambda ctx, shard: shard.data_ptr() % 64, there) == [0, 0]
        np.testing.assert_array_equal(there.to_numpy(), B)
