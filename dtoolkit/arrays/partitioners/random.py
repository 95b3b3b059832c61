"""Random: what a partitioner has to beat, and a cure for hubs that stand side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.partitioners.base import Partitioner, check_seed, shuffled

__all__ = ["Random"]


@dataclass(frozen=True)
class Random(Partitioner):
    """Equally many rows on each part, drawn at random; columns likewise.

    Parameters
    ----------
    seed : int
        Same seed, same parts, on every machine.
    """

    seed: int = 0

    name: ClassVar[str] = "random"
    source: ClassVar[str] = "A random permutation dealt out in turn: no source needed."

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))

    def _rows(self, A: sparse.csr_array, parts: int) -> NDArray[np.int32]:
        return (shuffled(A.shape[0], self.seed) % parts).astype(np.int32)

    def _columns(
        self, A: sparse.csr_array, owners: NDArray[np.int32], parts: int
    ) -> NDArray[np.int32]:
        return (shuffled(A.shape[1], self.seed) % parts).astype(np.int32)
