"""Signs of a vector's elements, eight to a byte, and one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from dtoolkit.training.compression.base import Compressor, Payload, check_vector

__all__ = ["Sign"]


@dataclass(frozen=True)
class Sign(Compressor):
    """Send the sign of each element (0 counts as positive) and the mean of the magnitudes.

    Biased: the vector that comes out has the right mean magnitude, not the right mean. Error
    feedback mends that; without it expect to do worse. A vector of zeros comes out as zeros.

    Parameters
    ----------
    error_feedback : bool
        Add what was not sent to the next vector.
    """

    name: ClassVar[str] = "sign"

    error_feedback: bool = True

    def layout(self, n: int, dtype: torch.dtype) -> list[tuple[torch.dtype, int]]:
        """Scale and signs; see :meth:`Compressor.layout`."""
        return [(dtype, 1), (torch.uint8, -(-n // 8))]

    def compress(self, flat: torch.Tensor, *, key: int = 0) -> Payload:
        """Give scale and signs; see :meth:`Compressor.compress`."""
        check_vector(flat)
        if flat.numel() == 0:
            return flat.new_zeros(1), flat.new_zeros(0, dtype=torch.uint8)
        # In float64, and the mean before any sum: neither float16 nor float32 can overflow.
        scale = flat.abs().double().mean().to(flat.dtype).reshape(1)
        return scale, _pack(flat >= 0)

    def expand(self, payload: Sequence[torch.Tensor], n: int, *, key: int = 0) -> torch.Tensor:
        """See :meth:`Compressor.expand`."""
        scale, signs = payload
        return torch.where(_unpack(signs, n), scale, -scale)

    def pace(self, n: int) -> float:
        """Half the way; see :meth:`Compressor.pace`."""
        return 0.5

    def cite(self) -> str:
        """See :meth:`Compressor.cite`."""
        return (
            "F. Seide, H. Fu, J. Droppo, G. Li and D. Yu, 1-bit stochastic gradient descent, "
            "Interspeech 2014; S. P. Karimireddy, Q. Rebjock, S. U. Stich and M. Jaggi, Error "
            "feedback fixes SignSGD and other gradient compression schemes, ICML 2019"
        )


def _pack(bits: torch.Tensor) -> torch.Tensor:
    """Eight booleans a byte, the first in the highest bit; what is missing at the end is 0."""
    whole = bits.new_zeros(-(-bits.numel() // 8) * 8, dtype=torch.uint8)
    whole[: bits.numel()] = bits
    return (whole.view(-1, 8) << _shifts(bits.device)).sum(1, dtype=torch.uint8)


def _unpack(packed: torch.Tensor, n: int) -> torch.Tensor:
    return ((packed[:, None] >> _shifts(packed.device)) & 1).bool().flatten()[:n]


def _shifts(device: torch.device) -> torch.Tensor:
    return torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
