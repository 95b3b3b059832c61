"""What the tests of arrays share: layouts to try, comparison, examples for Hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dtoolkit.arrays import Layout

few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def layouts(n: int, parts: int) -> list[Layout]:
    """One of every kind; in the last one a rank has nothing."""
    owners = np.random.default_rng(n).integers(0, max(parts - 1, 1), n)
    return [
        Layout.block(n, parts),
        Layout.cyclic(n, parts),
        Layout.block_cyclic(n, parts, 3),
        Layout.from_parts(owners, parts),
    ]


@st.composite
def laid_out(draw: Any, parts: int, *, rows: int = 12) -> tuple[int, Layout]:
    """A number of rows, which may be 0 or fewer than ranks, and a layout of them."""
    n = draw(st.integers(0, rows))
    return n, layouts(n, parts)[draw(st.integers(0, 3))]


def here(x: Any) -> np.ndarray:
    """Values in NumPy, wherever they are."""
    if hasattr(x, "to_numpy"):
        return x.to_numpy()
    if hasattr(x, "toarray"):
        return x.toarray()
    return x.numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


def same(got: Any, want: Any, *, exact: bool = False, rtol: float = 1e-13) -> None:
    """Compare shapes and values, NaN with NaN."""
    got, want = here(got), np.asarray(want)
    assert got.shape == want.shape
    if exact:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def matrix(n: int, k: int, seed: int = 0) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal((n, k))
