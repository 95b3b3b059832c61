"""What SciPy says of a product, and how far rounding may lead away from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse


def assert_product(got: Any, A: sparse.sparray, B: Any) -> None:
    """Equal to ``A @ B`` within rounding, entry by entry; NaN and Inf where SciPy has them.

    The bound of an entry is that of any order of its additions: terms x eps x sum of |terms|.
    """
    A, B = sparse.csr_array(A), np.asarray(B)
    got = got if isinstance(got, np.ndarray) else got.to_numpy()
    with np.errstate(all="ignore"):
        wanted = A @ B
        scale = abs(A) @ abs(B)
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    for part in ("real", "imag") if wanted.dtype.kind == "c" else ("real",):
        mine, theirs = getattr(got, part), getattr(wanted, part)
        np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
        infinite = np.isinf(theirs)
        np.testing.assert_array_equal(mine[infinite], theirs[infinite])
        finite = np.isfinite(theirs)
        terms = np.diff(A.indptr).max(initial=0) + 4
        bound = terms * 4 * np.finfo(wanted.dtype).eps * scale
        assert (np.abs(mine[finite] - theirs[finite]) <= bound[finite]).all()


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bits, those of NaN and the signs of zeros included."""
    a, b = (np.ascontiguousarray(x.numpy() if isinstance(x, torch.Tensor) else x) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
