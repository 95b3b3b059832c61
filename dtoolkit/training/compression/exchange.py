"""Vectors that travel compressed: what a rank sends of one stream of them, and sums over ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.training.compression.base import Compressor
from dtoolkit.training.compression.feedback import ErrorFeedback
from dtoolkit.training.seeds import number

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = ["Stream"]


class Stream:
    """Vectors of one kind that a rank sends, one a step: gradients, or changes of a model.

    What a payload leaves out is a rank's own state (:meth:`own_state`) and goes with the next
    vector where the compressor has error feedback. Vectors should be what is summed: gradients of
    sums of losses, divided by the samples after the sum.

    Parameters
    ----------
    compressor : Compressor
    seed : int
        Of the run.
    name : str
        What is sent; another name draws other numbers.
    """

    def __init__(self, compressor: Compressor, *, seed: int, name: str = "gradient") -> None:
        self.compressor = compressor
        self.seed, self.name = seed, name
        self.feedback = ErrorFeedback(enabled=compressor.error_feedback)

    def sum(self, comm: Communicator, flat: torch.Tensor, *, step: int) -> torch.Tensor:
        """Sum of what all ranks send, in rank order; the same bits on all of them. Collective.

        With P ranks and payloads of b bytes (:meth:`Compressor.payload_bytes`), each rank sends
        (P-1) b; where payloads may be added 2 (P-1)/P b.

        Parameters
        ----------
        comm : Communicator
        flat : torch.Tensor
            Shape (n,), the same size and dtype on all ranks.
        step : int

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        n, coder = flat.numel(), self.compressor
        if coder.additive:
            key = self._key(step, 0)
            payload = self.feedback.compress(coder, flat, key=key)
            return coder.expand([comm.all_reduce(part) for part in payload], n, key=key)
        messages = comm.all_gather(self.encode(flat, step=step, item=comm.rank))
        total = torch.zeros_like(flat)
        for rank, message in enumerate(messages):
            total += self.decode(message, n, flat.dtype, step=step, item=rank)
        return total

    def encode(self, flat: torch.Tensor, *, step: int, item: int) -> torch.Tensor:
        """Compress a vector into one message for whoever calls :meth:`decode`.

        Parameters
        ----------
        flat : torch.Tensor
            Shape (n,).
        step : int
            Any number that both ends know and that grows.
        item : int
            Who sends.

        Returns
        -------
        uint8 tensor
            Of :meth:`Compressor.payload_bytes` bytes.
        """
        key = self._key(step, item)
        return self.compressor.pack(self.feedback.compress(self.compressor, flat, key=key))

    def decode(
        self, message: torch.Tensor, n: int, dtype: torch.dtype, *, step: int, item: int
    ) -> torch.Tensor:
        """Give the vector, shape (n,), that a rank's message stands for."""
        payload = self.compressor.unpack(message, n, dtype)
        return self.compressor.expand(payload, n, key=self._key(step, item))

    def own_state(self) -> dict[str, Any]:
        """What to keep for going on later."""
        return self.feedback.own_state()

    def restore(self, own: dict[str, Any], n: int, dtype: torch.dtype) -> None:
        """Go on from what :meth:`own_state` gave, with vectors of n elements of a dtype.

        Raises
        ------
        ValueError
            It belongs to vectors of another size or dtype.
        """
        self.feedback.restore(own, n, dtype)

    def _key(self, step: int, item: int) -> int:
        return number(self.seed, f"compression {self.name}", step, item)
