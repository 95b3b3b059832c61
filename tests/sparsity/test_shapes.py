from __future__ import annotations

import pytest
import torch

from tests.sparsity.shapes import Case, table


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_erk_is_no_worse_than_uniform_at_high_sparsity():
    cases = [Case("digits", "static", name, 0.02, 128) for name in ("uniform", "erk")]
    uniform, erk = table(cases)["mean"]
    assert erk > uniform


def test_the_gap_to_dense_closes_as_width_grows():
    cases = [
        Case("digits", "static", "uniform", density, width)
        for width in (32, 256)
        for density in (0.1, 1.0)
    ]
    narrow, narrow_dense, wide, wide_dense = table(cases)["mean"]
    assert wide_dense - wide < narrow_dense - narrow
    assert wide_dense - wide < 0.05
