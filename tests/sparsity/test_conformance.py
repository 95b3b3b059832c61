from __future__ import annotations

import pytest
import torch

from tests.sparsity.conformance import METHODS, STRUCTURES, quarter, table

WRONG = ["off_count", "empty", "broken_units", "not_finite", "revived", "unclean"]


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("method", METHODS)
def test_invariants_hold_after_fifty_steps(method, structure):
    frame = table(r for r in quarter() if (r.method, r.structure) == (method, structure))
    assert len(frame) == 6
    assert frame["optimizer"].nunique() == 4
    bad = frame[frame[WRONG].sum(axis=1) > 0]
    assert bad.empty, f"\n{bad.to_string()}"
    if method in ("set", "rigl", "growth", "magnitude"):
        assert (frame["updates"] >= 1).all()
