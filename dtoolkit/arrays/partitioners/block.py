"""Blocks: the layout itself, as a partitioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.partitioners.base import Partitioner

__all__ = ["Block"]


@dataclass(frozen=True)
class Block(Partitioner):
    """Runs of rows of equal length, whatever is in them; columns likewise."""

    name: ClassVar[str] = "block"
    source: ClassVar[str] = "Contiguous blocks, as numpy.array_split cuts them: no source needed."

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        return Layout.block(A.shape[0], parts).owner(np.arange(A.shape[0]))

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        return Layout.block(A.shape[1], parts).owner(np.arange(A.shape[1]))
