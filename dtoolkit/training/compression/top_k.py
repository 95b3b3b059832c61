"""The largest elements of a vector, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from dtoolkit.training.compression.base import Payload, check_vector, index_dtype
from dtoolkit.training.compression.some_elements import SomeElements

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(SomeElements):
    """Send the k elements of largest magnitude with their places.

    Exactly k, also where magnitudes tie: of equal ones those that come first. The values travel as
    they are, so that what is sent and what is kept add up to the vector bit for bit. Biased: small
    elements are never sent unless error feedback saves them up.

    Parameters
    ----------
    share, k, error_feedback
        As of :class:`~dtoolkit.training.compression.some_elements.SomeElements`: 1% by default.
    """

    name: ClassVar[str] = "top-k"

    def layout(self, n: int, dtype: torch.dtype) -> list[tuple[torch.dtype, int]]:
        """Values and places; see :meth:`Compressor.layout`."""
        k = self.count(n)
        return [(dtype, k), (index_dtype(n), k)]

    def compress(self, flat: torch.Tensor, *, key: int = 0) -> Payload:
        """Give values and places, by place; see :meth:`Compressor.compress`."""
        check_vector(flat)
        places = _largest(flat.abs(), self.count(flat.numel()))
        return flat[places], places.to(index_dtype(flat.numel()))

    def expand(self, payload: Sequence[torch.Tensor], n: int, *, key: int = 0) -> torch.Tensor:
        """See :meth:`Compressor.expand`."""
        values, places = payload
        return values.new_zeros(n).index_copy_(0, places.long(), values)

    def pace(self, n: int) -> float:
        """Root of the share that is sent; see :meth:`Compressor.pace`."""
        return (self.count(n) / max(n, 1)) ** 0.5

    def cite(self) -> str:
        """See :meth:`Compressor.cite`."""
        return (
            "A. F. Aji and K. Heafield, Sparse communication for distributed gradient descent, "
            "EMNLP 2017; S. U. Stich, J.-B. Cordonnier and M. Jaggi, Sparsified SGD with memory, "
            "NeurIPS 2018"
        )


def _largest(size: torch.Tensor, k: int) -> torch.Tensor:
    """Places of the k largest, ascending; of equal ones the first."""
    n = size.numel()
    if k >= n:
        return torch.arange(n, device=size.device)
    least = torch.topk(size, k, sorted=False).values.min()
    above = (size > least).nonzero().flatten()
    equal = (size == least).nonzero().flatten()[: k - above.numel()]
    return torch.cat([above, equal]).sort().values
