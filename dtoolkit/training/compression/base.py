"""What a compressor is: a vector becomes a few small tensors, and these a vector again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch

__all__ = ["Compressor", "Payload", "check_vector", "index_dtype"]

Payload = tuple[torch.Tensor, ...]


class Compressor(ABC):
    """Makes vectors small for the wire. Settings only: what a rank still owes is kept elsewhere.

    One's own compressor is a subclass with :meth:`layout`, :meth:`compress` and :meth:`expand`.

    Attributes
    ----------
    name : str
    additive : bool
        Payloads of vectors that were compressed under one key may be added instead of the vectors:
        then all-reduce carries them, and what travels does not grow with the number of ranks.
    error_feedback : bool
        What is not sent is added to the next vector
        (:class:`~dtoolkit.training.compression.feedback.ErrorFeedback`).
    """

    name: ClassVar[str]
    additive: ClassVar[bool] = False
    error_feedback: bool

    @abstractmethod
    def layout(self, n: int, dtype: torch.dtype) -> list[tuple[torch.dtype, int]]:
        """What a payload consists of: the dtype and the elements of each tensor.

        Parameters
        ----------
        n : int
            Elements of the vector.
        dtype : torch.dtype
            Of the vector.
        """

    @abstractmethod
    def compress(self, flat: torch.Tensor, *, key: int = 0) -> Payload:
        """Compress a vector.

        Parameters
        ----------
        flat : torch.Tensor
            Shape (n,), real floating point, finite; left unchanged.
        key : int
            64 random bits that both ends know.

        Raises
        ------
        ValueError
            Not a vector of real floating-point numbers.
        FloatingPointError
            NaN or infinity in it.
        """

    @abstractmethod
    def expand(self, payload: Sequence[torch.Tensor], n: int, *, key: int = 0) -> torch.Tensor:
        """Give the vector that a payload stands for, shape (n,)."""

    @abstractmethod
    def cite(self) -> str:
        """The method's source."""

    def payload_bytes(self, n: int, dtype: torch.dtype) -> int:
        """Bytes of one payload on the wire."""
        return sum(count * kind.itemsize for kind, count in self.layout(n, dtype))

    def pace(self, n: int) -> float:
        """How far gossip goes in a step towards public copies that lag behind; 1 is all the way.

        By trial (4 ranks, 1000 elements); models run apart where it is too large.
        """
        return 0.1

    def pack(self, payload: Sequence[torch.Tensor]) -> torch.Tensor:
        """Give a payload as one message, uint8."""
        return torch.cat([part.contiguous().view(torch.uint8) for part in payload])

    def unpack(self, message: torch.Tensor, n: int, dtype: torch.dtype) -> Payload:
        """Read a message; the inverse of :meth:`pack`.

        Raises
        ------
        ValueError
            It has another size than a payload of such a vector.
        """
        want = self.payload_bytes(n, dtype)
        if message.dtype != torch.uint8 or message.numel() != want:
            raise ValueError(
                f"message: {message.numel()} elements of {message.dtype}, wanted {want} bytes as "
                f"uint8: {self.name} of {n} elements of {dtype}"
            )
        sizes = [count * kind.itemsize for kind, count in self.layout(n, dtype)]
        kinds = [kind for kind, _ in self.layout(n, dtype)]
        parts = torch.split(message, sizes)
        # A copy: a view of wider elements must begin where such elements may begin.
        return tuple(part.clone().view(kind) for part, kind in zip(parts, kinds, strict=True))


def check_vector(flat: torch.Tensor) -> None:
    """Refuse what no compressor takes.

    Raises
    ------
    ValueError
        Not one-dimensional, or not of a real floating-point dtype.
    FloatingPointError
        Elements that are not finite.
    """
    if flat.dim() != 1 or not flat.is_floating_point():
        raise ValueError(
            f"flat: shape {tuple(flat.shape)} and {flat.dtype}; wanted one dimension of a real "
            "floating-point dtype"
        )
    # A sum is finite only if all of it is, and is had sooner than a look at each element.
    if not bool(torch.isfinite(flat.sum())):
        finite = torch.isfinite(flat)
        if bool(finite.all()):
            return
        first = int((~finite).nonzero()[0])
        raise FloatingPointError(
            f"flat: {int((~finite).sum())} of {flat.numel()} elements are not finite, the first "
            f"at {first} ({flat[first].item()}): they would be sent, or stay in what is owed"
        )


def index_dtype(n: int) -> torch.dtype:
    """The dtype of places in a vector of n elements: int32 where it reaches."""
    return torch.int32 if n <= 2**31 else torch.int64
