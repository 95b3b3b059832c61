"""What distributed arrays have in common: a cluster, a layout, shards on the workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.cluster import Cluster, Remote
from dtoolkit.errors import ShardLost

__all__ = ["DistArray", "RedistributionWarning", "ask", "check_memory", "have_made"]


class RedistributionWarning(UserWarning):
    """An operand lay otherwise than the operation needs, and was moved first."""


class DistArray:
    """Base of the distributed arrays.

    Parameters
    ----------
    cluster : Cluster
    layout : Layout
    shape : sequence of int
    dtype : torch.dtype
    remote : Remote or callable
        Handle to the shards; or what makes it when it is first needed.

    Attributes
    ----------
    cluster : Cluster
    layout : Layout
        Which rank has which rows.
    shape : tuple of int
    dtype : torch.dtype
    version : int
        Counts changes in place: what was computed from an earlier version cannot be made again.
    kind : str
        What its card calls it.
    is_sparse : bool
        Only the nonzeros are stored.
    """

    kind = "Array"
    is_sparse = False

    def __init__(
        self,
        cluster: Cluster,
        layout: Layout,
        shape: Sequence[int],
        dtype: torch.dtype,
        remote: Remote | Callable[[], Remote],
    ) -> None:
        self.cluster = cluster
        self.layout = layout
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.version = 0
        self._remote = remote

    @staticmethod
    def __dtoolkit_remote__(array: DistArray) -> Remote:
        """What stands for an array in the arguments of a launch: each rank gets its own shard."""
        return array.remote

    @property
    def remote(self) -> Remote:
        """Handle to the shards."""
        if not isinstance(self._remote, Remote):
            self._remote = self._remote()
        return self._remote

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, those that a sparse matrix does not store included."""
        return math.prod(self.shape)

    @property
    def nbytes_by_rank(self) -> NDArray[np.int64]:
        """Bytes that each rank holds: int64 array of shape (ranks,)."""
        return np.asarray(self.remote.nbytes, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self.nbytes_by_rank.sum())

    def changed(self) -> None:
        """Note a change of the shards in place: lost ones can no longer be made again.

        Arrays call it for their own operations; call it after a function of yours that wrote into
        the shards that it was given.
        """
        self.version += 1
        self.remote.restore = _no_way_back(repr(self))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError(
            f"{self!r} lies on the workers and is not brought here unasked: call to_numpy()"
        )

    def __iter__(self) -> Any:
        raise TypeError(
            f"{self!r} lies on the workers: a loop over its rows would fetch them one by one. Use "
            "operations on the whole array, x[i] for one row, or to_numpy()"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures import array_card

        return array_card(self)


def _no_way_back(name: str) -> Callable[[list[int]], None]:
    """A way to make shards again that there is not; another one each time, to tell versions."""

    def restore(ranks: list[int]) -> None:
        raise ShardLost(
            f"rank(s) {ranks} of {name} were on workers that are gone; it was changed in place, so "
            "that it cannot be made again from its source"
        )

    return restore


def ask(array: DistArray, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run a function on an array's shards, and return what each rank answers."""
    have_made(array, *args)
    return array.cluster.run(function, array, *args)


def have_made(*args: Any) -> None:
    """Have shards made that are only asked for yet, so that what fails there is raised as it is."""
    for array in args:
        if isinstance(array, DistArray):
            array.remote  # noqa: B018 - made by being looked at


def check_memory(cluster: Cluster, needed: Sequence[int], what: str) -> None:
    """Refuse what does not fit the workers, before anything is sent.

    Raises
    ------
    MemoryError
        Naming the rank, what it would need and its limit.
    """
    for member, need in zip(cluster.workers, needed, strict=True):
        if member.memory is not None and need > member.memory:
            raise MemoryError(
                f"{what} needs {need / 2**20:,.0f} MiB on rank {member.rank}, whose limit is "
                f"{member.memory / 2**20:,.0f} MiB: use more workers, or raise memory_limit="
            )
