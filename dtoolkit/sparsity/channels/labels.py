"""Which channel is where: numbers of channels along the dimensions of tensors, and what joins them.

Every position along a dimension of a parameter gets a number. While the model's operations are
walked through, tensors carry these numbers along, and operations that need two channels to go or to
stay together join their numbers. What is joined in the end is one channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

__all__ = ["Axis", "Channels", "Ids", "Label"]

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Axis:
    """Numbers of channels along one dimension of a tensor, or over several that were one.

    Attributes
    ----------
    dims : tuple of int
        More than one after a view has split a dimension, outermost first: only the last can shrink
        then, by as many in every row.
    ids : int64 array
        Sizes of the dims.
    origin : (str, int) or None
        Name and dimension of the parameter that this is, untouched but for its place.
    block : int or None
        Number of the split in :attr:`Channels.blocks`.
    """

    dims: tuple[int, ...]
    ids: Ids
    origin: tuple[str, int] | None = None
    block: int | None = None

    @property
    def inner(self) -> int:
        """The dimension that can shrink."""
        return self.dims[-1]


@dataclass(frozen=True, eq=False)
class Label:
    """Shape of a tensor, and channels along its dimensions; none along those that cannot shrink.

    Attributes
    ----------
    shape : tuple of int
    axes : tuple of Axis
    fragile : bool
        Sizes that the model's code has written down may have made it.
    """

    shape: tuple[int, ...]
    axes: tuple[Axis, ...] = ()

    def at(self, dim: int) -> list[Axis]:
        """Axes that can shrink along a dimension."""
        return [axis for axis in self.axes if axis.inner == dim % len(self.shape)]

    def touching(self, dims: Iterable[int]) -> list[Axis]:
        """Axes that lie along any of the dimensions."""
        wanted = {dim % max(len(self.shape), 1) for dim in dims}
        return [axis for axis in self.axes if wanted & set(axis.dims)]

    def without(self, axes: Iterable[Axis]) -> Label:
        """The same with some axes forgotten."""
        gone = {id(axis) for axis in axes}
        return replace(self, axes=tuple(axis for axis in self.axes if id(axis) not in gone))

    def moved(self, places: dict[int, int], shape: tuple[int, ...]) -> Label:
        """The same dimensions at other places; what has no place is gone."""
        axes = [
            replace(axis, dims=tuple(places[dim] for dim in axis.dims))
            for axis in self.axes
            if all(dim in places for dim in axis.dims)
        ]
        return Label(shape, tuple(axes))


class Channels:
    """All numbers, what is joined, what has to stay and why, what must have equal counts."""

    def __init__(self) -> None:
        self.count = 0
        self.blocks: list[tuple[Ids, int | None]] = []
        self.kept: list[tuple[Ids, str]] = []
        self._rows: list[Ids] = []
        self._pairs: list[tuple[Ids, Ids]] = []

    def fresh(self, shape: int | tuple[int, ...]) -> Ids:
        """New numbers."""
        size = int(np.prod(shape))
        self.count += size
        return np.arange(self.count - size, self.count, dtype=np.int64).reshape(shape)

    def join(self, one: Ids, other: Ids) -> None:
        """Channels of one and of the other (broadcast) go or stay together."""
        one, other = np.broadcast_arrays(one, other)
        self._pairs.append((one.ravel(), other.ravel()))

    def keep(self, ids: Ids, reason: str) -> None:
        """These channels stay."""
        self.kept.append((ids.ravel(), reason))

    def keep_axes(self, axes: Iterable[Axis], reason: str) -> None:
        """All along these axes stays."""
        for axis in axes:
            self.keep(axis.ids, reason)

    def balance(self, rows: Ids) -> None:
        """As many stay in each row as in the others.

        Parameters
        ----------
        rows : int64 array (..., channels)
        """
        self._rows.append(rows.reshape(-1, rows.shape[-1]))

    def balanced(self) -> list[Ids]:
        """Rows, (rows, channels) each, of which equal counts have to stay."""
        split = [
            ids.reshape(-1, ids.shape[-1] if inner is None else ids.shape[inner])
            for ids, inner in self.blocks
            if inner is None or inner == ids.ndim - 1
        ]
        return [rows for rows in (*self._rows, *split) if len(rows) > 1]

    def split(self, dims: tuple[int, ...], ids: Ids) -> Axis:
        """A dimension becomes several; which of them can shrink is settled by what comes after."""
        self.blocks.append((ids, None))
        return Axis(dims, ids, block=len(self.blocks) - 1)

    def settle(self, axis: Axis, dim: int) -> Axis:
        """Say which dimension of several can shrink; what is within it goes or stays as one."""
        place = axis.dims.index(dim)
        if axis.block is not None:
            ids, before = self.blocks[axis.block]
            if before not in (None, place):
                self.keep(ids, "views split its width in two ways")
            self.blocks[axis.block] = (ids, place)
        within = axis.ids.reshape(*axis.ids.shape[: place + 1], -1)
        self.join(within, within[..., :1])
        outer = within[..., 0]
        self.balance(outer)
        return Axis(axis.dims[: place + 1], outer)

    def at(self, label: Label, dim: int) -> Ids | None:
        """One number for each position of a dimension, or None where it cannot shrink."""
        dim %= len(label.shape)
        found: Ids | None = None
        for axis in label.touching([dim]):
            if axis.inner != dim:
                axis = self.settle(axis, dim)
            rows = axis.ids.reshape(-1, label.shape[dim])
            self.join(rows, rows[0])
            if found is not None:
                self.join(rows[0], found)
            found = rows[0]
        return found

    def components(self) -> Ids:
        """Number of the joined set, from 0, for every number of a channel."""
        pairs = self._pairs or [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        rows, columns = (np.concatenate(side) for side in zip(*pairs, strict=True))
        links = coo_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(self.count,) * 2)
        return connected_components(links, directed=False)[1].astype(np.int64)
