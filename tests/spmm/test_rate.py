"""What is computed while a cluster is calibrated."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.spmm.rate import local_product, small_product


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_ranks_part_says_how_much_it_is(dtype: str) -> None:
    ctx = SimpleNamespace(rank=1, device=torch.device("cpu"), threads=1)
    amount, run = local_product(ctx, dtype, 0)
    assert amount == 40_000 * 16 * 64
    run()
    run()


def test_a_small_product_lets_every_rank_send_to_every_other(cluster3: dt.Cluster) -> None:
    run = small_product(cluster3)
    cluster3.trace.clear()
    result = run()
    sent = cluster3.trace.matrix()
    assert (sent[~np.eye(3, dtype=bool)] > 0).all()
    assert sent.sum() < 10_000
    assert cluster3.trace.frame()["launch"].nunique() == 1
    A = np.zeros((48, 48), np.float32)
    A[[0, 16, 32], :] = 1
    A[:, [1, 17, 33]] = 1
    assert np.array_equal(result.to_numpy()[:, 0], A.sum(axis=1))


def test_a_small_product_on_one_rank(cluster1: dt.Cluster) -> None:
    assert small_product(cluster1)().shape == (16, 1)
