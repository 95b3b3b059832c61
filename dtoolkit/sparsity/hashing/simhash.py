"""SimHash: on which side of a random hyperplane a vector lies."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch

from dtoolkit.sparsity.hashing.family import HashFamily, random_words

__all__ = ["SimHash"]

_AT_ONCE = 1 << 13  # vectors whose projections are held at a time
_EXACT = 53  # bits of the whole numbers that float64 adds without rounding


class SimHash(HashFamily):
    """Signs of sparse projections: each adds and subtracts a third of the dimensions.

    A hash function picks ``max(1, d // 3)`` dimensions and a sign for each; its value is 1 where
    the signed sum is positive. Two vectors agree with probability about ``1 - angle / pi``.

    Sums that almost cancel have a sign that depends on the order of summation. So a vector is
    scaled by a power of two, and rounded to whole numbers of so many bits that float64 adds them
    without rounding (28 and more, of 24 that float32 has, for up to 100 million dimensions): the
    same sign in any order, on any device.

    Parameters
    ----------
    in_features : int
    tables, hashes : int
        L and K; at most 30 hash functions a table.
    seed : int
    """

    name: ClassVar[str] = "simhash"
    width: ClassVar[int] = 1
    citation = (
        "M. Charikar, Similarity estimation techniques from rounding algorithms, STOC 2002; sparse "
        "projections: P. Li, T. Hastie and K. Church, Very sparse random projections, KDD 2006; "
        "as used by B. Chen et al., SLIDE, MLSys 2020"
    )

    def __init__(self, in_features: int, *, tables: int, hashes: int, seed: int = 0) -> None:
        super().__init__(in_features, tables=tables, hashes=hashes, seed=seed)
        picked = max(1, in_features // 3)
        self.digits = _EXACT - 1 - math.ceil(math.log2(picked + 1))
        self.projections = torch.zeros(in_features, self.functions, dtype=torch.float64)
        height = max(1, (1 << 20) // in_features)
        for start in range(0, self.functions, height):
            some = range(start, min(start + height, self.functions))
            words = random_words(some, in_features, seed, "simhash")
            order = np.argsort(words >> 1, axis=1, kind="stable")[:, :picked]
            signs = 1.0 - 2.0 * (np.take_along_axis(words, order, 1) & 1)
            part = np.zeros((len(words), in_features))
            np.put_along_axis(part, order, signs, 1)
            self.projections[:, some.start : some.stop] = torch.from_numpy(part.T.copy())

    def _codes(self, rows: Any) -> torch.Tensor:
        device = rows.device if isinstance(rows, torch.Tensor) else torch.device("cpu")
        codes = torch.empty(self.tables, rows.shape[0], dtype=torch.int32, device=device)
        projections = self.projections.to(device)
        places = 2.0 ** torch.arange(self.hashes - 1, -1, -1, dtype=torch.float64, device=device)
        for start in range(0, rows.shape[0], _AT_ONCE):
            sums = self._sums(rows[start : start + _AT_ONCE], projections)
            signs = (sums > 0).double().view(len(sums), self.tables, self.hashes)
            codes[:, start : start + len(sums)] = (signs @ places).int().T
        return codes

    def _sums(self, rows: Any, projections: torch.Tensor) -> torch.Tensor:
        """Projections of whole numbers, exact."""
        if scipy.sparse.issparse(rows):
            whole = rows.astype(np.float64)
            largest = np.zeros(rows.shape[0])
            filled = np.diff(rows.indptr) > 0
            starts = rows.indptr[:-1][filled]
            if len(starts):
                largest[filled] = np.maximum.reduceat(np.abs(whole.data), starts)
            _, exponent = np.frexp(largest)
            shift = np.repeat(self.digits - exponent, np.diff(rows.indptr))
            whole.data = np.rint(np.ldexp(whole.data, shift))
            return torch.from_numpy(np.ascontiguousarray(whole @ projections.numpy()))
        wide = rows.double()
        _, power = torch.frexp(wide.abs().amax(1, keepdim=True))
        # The bits of a power of two: some functions that raise to powers round.
        scale = ((self.digits - power.long() + 1023) << 52).view(torch.float64)
        return torch.round(wide * scale) @ projections
