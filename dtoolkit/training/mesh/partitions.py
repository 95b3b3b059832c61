"""Which elements are averaged in which step: a permutation of each tensor, cut into parts.

From AsyncMesh (arXiv 2601.22442) and SPARTA: the elements of a tensor are drawn in a random order
that is cut into K = ceil(1 / share) parts; step t averages part t mod K. A new order is drawn for
each round through the parts, or one is kept for the whole run. Orders come from the seed, the
tensor's name and the round, so that all replicas have the same without a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dtoolkit.training.seeds import number

__all__ = ["Parts", "part", "parts_of"]


def parts_of(share: float) -> int:
    """Parts that a tensor is cut into: K = ceil(1 / share).

    Parameters
    ----------
    share : float
        Part of the elements that a step averages, more than 0 and at most 1.

    Raises
    ------
    ValueError, TypeError
    """
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise TypeError(f"share={share!r}: wanted a number")
    if not 0 < share <= 1:
        raise ValueError(f"share={share!r}: wanted more than 0 and at most 1")
    return math.ceil(1 / share - 1e-9)  # 1 / (1/49) is a little more than 49


def part(
    size: int, parts: int, step: int, *, seed: int, name: str, fixed: bool = False
) -> torch.Tensor:
    """Elements of one tensor that a step averages.

    Parameters
    ----------
    size : int
        Elements of the tensor.
    parts : int
        K of :func:`parts_of`.
    step : int
    seed : int
    name : str
        The tensor's, so that an order belongs to it however a model is cut into stages.
    fixed : bool
        Keep the first order for the whole run.

    Returns
    -------
    int64 tensor
        Positions in the flat tensor; in `parts` steps from a multiple of `parts` on, each once.
    """
    return _orders(size, parts, 0 if fixed else step // parts, seed, name)[step % parts]


class Parts:
    """The parts of several tensors that lie end to end.

    Parameters
    ----------
    tensors : sequence of (str, int)
        Name and elements of each, in the order in which they lie.
    parts : int
    seed : int
    fixed : bool
        As of :func:`part`.
    """

    def __init__(
        self, tensors: Sequence[tuple[str, int]], parts: int, *, seed: int, fixed: bool
    ) -> None:
        self._tensors, self._parts, self._seed, self._fixed = list(tensors), parts, seed, fixed
        self._drawn: tuple[int, list[torch.Tensor]] = (-1, [])  # round, and its parts

    def at(self, step: int) -> torch.Tensor:
        """Positions that a step averages, in the joint flat tensor; int64."""
        turn = 0 if self._fixed else step // self._parts
        if self._drawn[0] != turn:
            self._drawn = turn, self._draw(turn)
        return self._drawn[1][step % self._parts]

    def _draw(self, turn: int) -> list[torch.Tensor]:
        pieces: list[list[torch.Tensor]] = [[] for _ in range(self._parts)]
        start = 0
        for name, size in self._tensors:
            for place, one in enumerate(_orders(size, self._parts, turn, self._seed, name)):
                pieces[place].append(one + start)
            start += size
        empty = torch.empty(0, dtype=torch.int64)
        return [torch.cat([empty, *one]) for one in pieces]


def _orders(size: int, parts: int, turn: int, seed: int, name: str) -> Sequence[torch.Tensor]:
    generator = torch.Generator().manual_seed(number(seed, f"mesh part of {name}", turn))
    return torch.tensor_split(torch.randperm(size, generator=generator), parts)
