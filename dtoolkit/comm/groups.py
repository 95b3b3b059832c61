"""Communicators over some of the ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch

from dtoolkit.comm.exchange import Engine

__all__ = ["Groups"]

_NO_PART = -1


class Groups(Engine):
    """The part of a communicator that divides its ranks."""

    def split(self, color: int | None, key: int | None = None) -> Self | None:
        """Divide the group: ranks of one color form a new communicator.

        Parameters
        ----------
        color : int or None
            Which part this rank belongs to, 0 or more; None for no part.
        key : int, optional
            Order within the part; by default the order of the ranks here.

        Returns
        -------
        Communicator or None
        """
        if color is not None and color < 0:
            raise ValueError(f"split: color must be 0 or more, or None; got {color}")
        ask = torch.tensor(
            [_NO_PART if color is None else int(color), self.rank if key is None else int(key)]
        )
        said = self._exchange("split", [ask] * self.size, expected=[2] * self.size, wait=True)
        if color is None:
            return None
        mine = sorted((int(k), r) for r, (c, k) in enumerate(said) if int(c) == color)
        members = [r for _, r in mine]
        name = f"{self.name}/{self._sequence}.{color}".lstrip("/")
        # A name in the group's store is used once in its life, which may span many launches.
        transport = self._transport.subgroup(members, f"{self._recorder.launch}/{name}")
        return type(self)(
            transport,
            self._recorder,
            ranks=[self.ranks[r] for r in members],
            name=name,
            device=self.device,
            deadline=self._deadline,
            under_way=self._under_way,
        )

    def twin(self) -> Self:
        """Make the same group once more, for another thread of each rank; all ranks call.

        One thread at a time may use a communicator; a twin can be used by another meanwhile. Its
        phases are its own, and its operations that nobody has waited for are left when the
        function of a launch ends.

        Returns
        -------
        Communicator
        """
        twin = self.split(0)
        assert twin is not None
        twin._recorder = self._recorder.twin()
        twin._under_way = {}
        return twin

    def grid(self, shape: Sequence[int]) -> tuple[Self, ...]:
        """Arrange the ranks in a grid (last axis fastest): one communicator along each axis.

        Parameters
        ----------
        shape : sequence of int
            Its product is the size of the group.

        Returns
        -------
        tuple of Communicator
            Along axis ``d``: the ranks whose other coordinates equal this rank's.
        """
        shape = tuple(int(n) for n in shape)
        if math.prod(shape) != self.size or any(n < 1 for n in shape):
            raise ValueError(f"grid: shape {shape} does not hold {self.size} ranks")
        axes = []
        for axis in range(len(shape)):
            stride = math.prod(shape[axis + 1 :])
            place = self.rank // stride % shape[axis]
            part = self.split(self.rank - place * stride, place)
            assert part is not None  # every rank has a color
            axes.append(part)
        return tuple(axes)
