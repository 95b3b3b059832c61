"""What distributed arrays have in common: a cluster, a layout, shards on the workers."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.cluster import Cluster, Remote
from dtoolkit.errors import ShardLost

__all__ = ["DistArray", "RedistributionWarning", "check_memory", "computed", "remember"]


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
    """

    kind = "Array"

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
        self.remote.restore = None

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


def computed(
    cluster: Cluster,
    function: Callable[..., Any],
    *args: Any,
    inputs: Sequence[DistArray] | None = None,
    per_rank: Sequence[tuple[Any, ...]] | None = None,
    **kwargs: Any,
) -> Remote:
    """Run a function whose result stays on the workers, and remember how to make it again.

    Inputs are remembered weakly, so that a chain of results does not keep all its links alive: a
    lost shard is computed again while its inputs are there, unchanged.

    Parameters
    ----------
    cluster : Cluster
    function : callable
    *args, **kwargs
        As for ``cluster.keep``; distributed arrays stand among `args` only.
    inputs : sequence of DistArray, optional
        What the result depends on; by default the distributed arrays among `args`.
    per_rank : sequence of tuple, optional
        Further arguments of each rank.

    Returns
    -------
    Remote
    """
    remote = cluster.keep(function, *args, per_rank=per_rank, **kwargs)
    if inputs is None:
        inputs = [a for a in args if isinstance(a, DistArray)]
    watched = [(weakref.ref(array), array.version) for array in inputs]
    places = {id(array): number for number, array in enumerate(inputs)}
    arguments = [places.get(id(a)) for a in args]
    plain = [None if place is not None else a for a, place in zip(args, arguments, strict=True)]

    def again(into: Remote, ranks: list[int]) -> None:
        arrays = [ref() for ref, _ in watched]
        for array, (_, version) in zip(arrays, watched, strict=True):
            if array is None or array.version != version:
                raise ShardLost(
                    f"rank(s) {ranks} of {into!r} were on workers that are gone; what it was "
                    "computed from was freed or changed since, so that it cannot be made again"
                )
        values = [
            value if place is None else arrays[place]
            for value, place in zip(plain, arguments, strict=True)
        ]
        cluster.keep(function, *values, into=into, per_rank=per_rank, **kwargs)

    return remember(remote, again)


def remember(remote: Remote, again: Callable[[Remote, list[int]], None]) -> Remote:
    """Note how the shards of a handle are made again; returns the handle.

    Parameters
    ----------
    remote : Remote
    again : callable
        ``again(remote, ranks)`` makes the shards of these ranks; it must not hold the handle
        itself, which would then be freed late (a cycle), and with it the memory on the workers.
    """
    handle = weakref.ref(remote)

    def restore(ranks: list[int]) -> None:
        into = handle()
        if into is not None:
            again(into, ranks)

    remote.restore = restore
    return remote


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
