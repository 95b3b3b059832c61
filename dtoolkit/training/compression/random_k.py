"""Random elements of a vector: both ends draw the same places, so that only values travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from dtoolkit.training.compression.base import Payload, check_vector
from dtoolkit.training.compression.some_elements import SomeElements

__all__ = ["RandomK"]


@dataclass(frozen=True)
class RandomK(SomeElements):
    """Send k random elements. Their places follow from the key and are not sent.

    All ranks of a sum draw the same places, so that an all-reduce of k values carries it, and the
    result does not depend on how the samples lie on the ranks. With error feedback the values
    travel as they are (a contraction: together with what is kept they are the vector, bit for
    bit); without it they are multiplied by n / k, which makes the mean over keys the vector itself
    (unbiased, of n / k times the variance).

    Parameters
    ----------
    share, k, error_feedback
        As of :class:`~dtoolkit.training.compression.some_elements.SomeElements`: 1% by default.
    """

    name: ClassVar[str] = "random-k"
    additive: ClassVar[bool] = True

    def layout(self, n: int, dtype: torch.dtype) -> list[tuple[torch.dtype, int]]:
        """Values alone; see :meth:`Compressor.layout`."""
        return [(dtype, self.count(n))]

    def compress(self, flat: torch.Tensor, *, key: int = 0) -> Payload:
        """Give the values at the places of the key; see :meth:`Compressor.compress`."""
        check_vector(flat)
        n = flat.numel()
        values = flat[self.places(n, key).to(flat.device)]
        if not self.error_feedback and n:
            values = values * (n / values.numel())
        return (values,)

    def expand(self, payload: Sequence[torch.Tensor], n: int, *, key: int = 0) -> torch.Tensor:
        """See :meth:`Compressor.expand`."""
        (values,) = payload
        return values.new_zeros(n).index_copy_(0, self.places(n, key).to(values.device), values)

    def places(self, n: int, key: int) -> torch.Tensor:
        """Places that a key stands for: int64, ascending, each at most once."""
        k = self.count(n)
        if k == n:
            return torch.arange(n)
        drawn = np.random.Generator(np.random.PCG64(key)).choice(n, k, replace=False, shuffle=False)
        return torch.from_numpy(np.sort(drawn))

    def pace(self, n: int) -> float:
        """The share that is sent; see :meth:`Compressor.pace`."""
        return self.count(n) / max(n, 1)

    def cite(self) -> str:
        """See :meth:`Compressor.cite`."""
        return (
            "S. U. Stich, J.-B. Cordonnier and M. Jaggi, Sparsified SGD with memory, NeurIPS 2018; "
            "J. Wangni, J. Wang, J. Liu and T. Zhang, Gradient sparsification for "
            "communication-efficient distributed optimization, NeurIPS 2018"
        )
