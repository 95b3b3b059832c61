"""Cyclic: the layout itself, as a partitioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.partitioners.base import Partitioner

__all__ = ["Cyclic"]


@dataclass(frozen=True)
class Cyclic(Partitioner):
    """Row i on part ``i % parts``, and column j on part ``j % parts``."""

    name: ClassVar[str] = "cyclic"
    source: ClassVar[str] = "Dealt out in turn, as in ScaLAPACK with blocks of one row."

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        return Layout.cyclic(A.shape[0], parts).owner(np.arange(A.shape[0]))

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        return Layout.cyclic(A.shape[1], parts).owner(np.arange(A.shape[1]))
