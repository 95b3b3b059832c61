"""What was not sent is not lost: it is added to what is sent next."""

from __future__ import annotations

from typing import Any

import torch

from dtoolkit.training.compression.base import Compressor, Payload

__all__ = ["ErrorFeedback"]


class ErrorFeedback:
    """The part of all vectors so far that a rank has not sent: a rank's own state.

    Nothing is lost: sent + residual = vector + residual before, exactly (the sum of the right side
    rounded once) where the compressor passes values on (top-k, random-k), and to one more rounding
    for signs, whose difference to the vector need not be a number of the dtype.

    Parameters
    ----------
    enabled : bool
        False: nothing is kept, and what is not sent is lost.

    Attributes
    ----------
    residual : torch.Tensor or None
        None before the first vector.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.residual: torch.Tensor | None = None

    def compress(
        self,
        compressor: Compressor,
        flat: torch.Tensor,
        *,
        key: int = 0,
        where: torch.Tensor | None = None,
    ) -> Payload:
        """Compress a vector and what is owed; keep what the payload does not say.

        Parameters
        ----------
        compressor : Compressor
        flat : torch.Tensor
            Shape (n,), as the compressor takes it; left unchanged.
        key : int
        where : bool tensor, shape (n,), optional
            The elements that take part; the others are not sent, and what is owed of them stays.

        Raises
        ------
        ValueError
            The vector has another size or dtype than what is owed.
        FloatingPointError
            By the compressor; what is owed is then as it was.
        """
        part = flat if where is None else flat[where]
        if not self.enabled:
            return compressor.compress(part, key=key)
        if self.residual is not None:
            _check(self.residual, flat)
            part = part + (self.residual if where is None else self.residual[where])
        payload = compressor.compress(part, key=key)
        rest = part - compressor.expand(payload, part.numel(), key=key)
        if where is not None:
            whole = torch.zeros_like(flat) if self.residual is None else self.residual.clone()
            whole[where] = rest
            rest = whole
        self.residual = rest
        return payload

    def own_state(self) -> dict[str, Any]:
        """What to keep for going on later: empty, or the residual."""
        return {} if self.residual is None else {"residual": self.residual.clone()}

    def restore(self, own: dict[str, Any], n: int, dtype: torch.dtype) -> None:
        """Go on from what :meth:`own_state` gave.

        Parameters
        ----------
        own : dict
        n : int
            Elements of the vectors to come.
        dtype : torch.dtype
            Theirs.

        Raises
        ------
        ValueError
            The residual is no vector of that size and dtype.
        """
        residual = own.get("residual")
        if residual is not None:
            if residual.dim() != 1:
                raise ValueError(f"residual: shape {tuple(residual.shape)}, wanted ({n},)")
            _check(residual, torch.empty(n, dtype=dtype, device="meta"))
            residual = residual.clone()
        self.residual = residual


def _check(residual: torch.Tensor, flat: torch.Tensor) -> None:
    if residual.shape != flat.shape or residual.dtype != flat.dtype:
        raise ValueError(
            f"residual: {residual.numel()} elements of {residual.dtype} are owed from before, and "
            f"the vector has {flat.numel()} of {flat.dtype}: they belong to another model"
        )
