"""Models that neighbours keep of each other, so that only compressed differences travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from dtoolkit.training.compression import Compressor
from dtoolkit.training.seeds import number

__all__ = ["PublicCopies"]


class PublicCopies:
    """The public copies of a rank's links: for each neighbour, its own and the neighbour's.

    Both ends of a link keep both copies, bit for bit the same. A rank sends the compressed
    difference of its model to its copy, and both ends add it (Koloskova, Stich and Jaggi 2019,
    CHOCO-SGD, here with copies by link, so that neighbours may change). What a message leaves out
    stays in the next difference: error feedback without a residual.

    Parameters
    ----------
    compressor : Compressor
    origin : torch.Tensor
        Shape (n,): the model that all copies begin with, known to all ranks.
    seed : int
        Of the run.
    rank : int
        This rank.
    """

    def __init__(
        self, compressor: Compressor, origin: torch.Tensor, *, seed: int, rank: int
    ) -> None:
        self.compressor = compressor
        self.seed, self.rank = seed, rank
        self.origin = origin.clone()
        self.mine: dict[int, torch.Tensor] = {}
        self.theirs: dict[int, torch.Tensor] = {}

    def say(self, peer: int, flat: torch.Tensor, *, step: int) -> torch.Tensor:
        """The message to a neighbour that brings its copy of this rank nearer to a model.

        Raises
        ------
        FloatingPointError
            The model is not finite.
        """
        key = self._key(step, self.rank)
        copy = self.mine.get(peer, self.origin)
        payload = self.compressor.compress(flat - copy, key=key)
        self.mine[peer] = copy + self.compressor.expand(payload, flat.numel(), key=key)
        return self.compressor.pack(payload)

    def hear(self, peer: int, message: torch.Tensor, *, step: int) -> None:
        """Bring the copy of a neighbour to where the neighbour has brought it."""
        copy = self.theirs.get(peer, self.origin)
        n, key = copy.numel(), self._key(step, peer)
        payload = self.compressor.unpack(message.to(copy.device), n, copy.dtype)
        self.theirs[peer] = copy + self.compressor.expand(payload, n, key=key)

    def mixed(self, flat: torch.Tensor, row: ArrayLike, consensus: float) -> torch.Tensor:
        """A model moved towards its neighbours by what the copies differ.

        Both ends of a link move by the same difference, so that the mean of all models by mass
        stays where it is.

        Parameters
        ----------
        flat : torch.Tensor
        row : array_like of float
            This rank's row of the mixing matrix.
        consensus : float
            Part of the way to go: 1 is a whole step of mixing.
        """
        weights = np.asarray(row, dtype=np.float64)
        total = flat.clone()
        for peer in np.flatnonzero(weights).tolist():
            if peer != self.rank:
                apart = self.theirs[peer] - self.mine[peer]
                total += consensus * float(weights[peer]) * apart
        return total

    def own_state(self) -> dict[str, Any]:
        """What to keep for going on later."""
        return {
            "origin": self.origin,
            "mine": {str(peer): copy for peer, copy in self.mine.items()},
            "theirs": {str(peer): copy for peer, copy in self.theirs.items()},
        }

    def restore(self, own: dict[str, Any]) -> None:
        """Go on from what :meth:`own_state` gave.

        Raises
        ------
        ValueError
            It belongs to models of another size or dtype.
        """
        there = [own["origin"], *own["mine"].values(), *own["theirs"].values()]
        for copy in there:
            if copy.shape != self.origin.shape or copy.dtype != self.origin.dtype:
                raise ValueError(
                    f"public copies: {tuple(copy.shape)} of {copy.dtype} were saved, and the "
                    f"model has {tuple(self.origin.shape)} of {self.origin.dtype}"
                )
        device = self.origin.device
        self.origin = own["origin"].to(device, copy=True)
        self.mine = {int(peer): one.to(device, copy=True) for peer, one in own["mine"].items()}
        self.theirs = {int(peer): one.to(device, copy=True) for peer, one in own["theirs"].items()}

    def _key(self, step: int, sender: int) -> int:
        return number(self.seed, "compression of links", step, sender)
