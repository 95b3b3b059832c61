"""Vectors that travel compressed: what a rank sends of one stream of them, and sums over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.training.compression.base import Compressor
from dtoolkit.training.compression.feedback import ErrorFeedback
from dtoolkit.training.seeds import number

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = ["Stream", "elements"]


def elements(
    parameters: Sequence[tuple[str, torch.Tensor]], used: torch.Tensor
) -> torch.Tensor | None:
    """Elements of a flat gradient that take part, by the parameters that were used.

    Parameters
    ----------
    parameters : sequence of (str, Parameter)
        As of a replica.
    used : bool tensor, shape (parameters,)

    Returns
    -------
    bool tensor, shape (n,), or None
        None where all take part.
    """
    if bool(used.all()):
        return None
    sizes = torch.tensor([value.numel() for _, value in parameters], device=used.device)
    return torch.repeat_interleave(used, sizes)


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

    def sum(
        self,
        comm: Communicator,
        flat: torch.Tensor,
        *,
        step: int,
        where: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Sum of what all ranks send, in rank order; the same bits on all of them. Collective.

        With P ranks and payloads of b bytes (:meth:`Compressor.payload_bytes`), each rank sends
        (P-1) b; where payloads may be added 2 (P-1)/P b.

        Parameters
        ----------
        comm : Communicator
        flat : torch.Tensor
            Shape (n,), the same size and dtype on all ranks.
        step : int
        where : bool tensor, shape (n,), optional
            The elements that take part, the same on all ranks (:func:`elements`); the sum of the
            others is 0, and what is owed of them stays owed. All by default.

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        coder = self.compressor
        if coder.additive:
            key = self._key(step, 0)
            payload = self.feedback.compress(coder, flat, key=key, where=where)
            return self._expand([comm.all_reduce(part) for part in payload], flat, key, where)
        messages = comm.all_gather(self.encode(flat, step=step, item=comm.rank, where=where))
        total = torch.zeros_like(flat)
        for rank, message in enumerate(messages):
            total += self.decode(message, flat, step=step, item=rank, where=where)
        return total

    def encode(
        self, flat: torch.Tensor, *, step: int, item: int, where: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Compress a vector into one message for whoever calls :meth:`decode`.

        Parameters
        ----------
        flat : torch.Tensor
            Shape (n,).
        step : int
            Any number that both ends know and that grows.
        item : int
            Who sends.
        where : bool tensor, shape (n,), optional
            The elements that take part.

        Returns
        -------
        uint8 tensor
            Of :meth:`Compressor.payload_bytes` bytes.
        """
        key = self._key(step, item)
        payload = self.feedback.compress(self.compressor, flat, key=key, where=where)
        return self.compressor.pack(payload)

    def decode(
        self,
        message: torch.Tensor,
        like: torch.Tensor,
        *,
        step: int,
        item: int,
        where: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Give the vector that a rank's message stands for.

        Parameters
        ----------
        message : uint8 tensor
        like : torch.Tensor
            Any vector of the size, dtype and device of the one that was encoded.
        step, item, where
            As they were then.
        """
        n = like.numel() if where is None else int(where.sum())
        payload = self.compressor.unpack(message.to(like.device), n, like.dtype)
        return self._expand(payload, like, self._key(step, item), where)

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

    def _expand(
        self,
        payload: Sequence[torch.Tensor],
        like: torch.Tensor,
        key: int,
        where: torch.Tensor | None,
    ) -> torch.Tensor:
        if where is None:
            return self.compressor.expand(payload, like.numel(), key=key)
        whole = torch.zeros_like(like)
        whole[where] = self.compressor.expand(payload, int(where.sum()), key=key)
        return whole

    def _key(self, step: int, item: int) -> int:
        return number(self.seed, f"compression {self.name}", step, item)
