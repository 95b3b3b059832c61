"""What distributed arrays have in common: a cluster, a layout, shards on the workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.cluster import Cluster, Remote
from dtoolkit.errors import ShardLost

__all__ = ["DistArray", "check_memory"]


class DistArray:
    """Base of the distributed arrays.

    Attributes
    ----------
    cluster : Cluster
    layout : Layout
        Which rank has which rows.
    shape : tuple of int
    dtype : torch.dtype
    remote : Remote
        Handle to the shards.
    version : int
        Counts changes in place: what was computed from an earlier version cannot be made again.
    """

    def __init__(
        self,
        cluster: Cluster,
        layout: Layout,
        shape: Sequence[int],
        dtype: torch.dtype,
        remote: Remote,
    ) -> None:
        self.cluster = cluster
        self.layout = layout
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.remote = remote
        self.version = 0

    @staticmethod
    def __dtoolkit_remote__(array: DistArray) -> Remote:
        """What stands for an array in the arguments of a launch: each rank gets its own shard."""
        return array.remote

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes_by_rank(self) -> NDArray[np.int64]:
        """Bytes that each rank holds."""
        return np.asarray(self.remote.nbytes, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self.nbytes_by_rank.sum())

    def _repr_html_(self) -> str:
        from dtoolkit.figures import array_card

        return array_card(self)

    def changed(self) -> None:
        """Note a change in place: lost shards can no longer be made again."""
        self.version += 1
        self.remote.restore = None


def computed(
    cluster: Cluster,
    function: Callable[..., Any],
    *args: Any,
    inputs: Sequence[DistArray],
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
        As for ``cluster.keep``; the distributed arrays among them must be listed in `inputs`.
    inputs : sequence of DistArray

    Returns
    -------
    Remote
    """
    remote = cluster.keep(function, *args, **kwargs)
    watched = [(weakref.ref(array), array.version) for array in inputs]
    places = {id(array): number for number, array in enumerate(inputs)}
    arguments = [places.get(id(a)) for a in args]
    plain = [None if place is not None else a for a, place in zip(args, arguments, strict=True)]

    def restore(ranks: list[int]) -> None:
        arrays = [ref() for ref, _ in watched]
        for array, (_, version) in zip(arrays, watched, strict=True):
            if array is None or array.version != version:
                raise ShardLost(
                    f"rank(s) {ranks} of {remote!r} were on workers that are gone; what it was "
                    "computed from was freed or changed since, so that it cannot be made again"
                )
        again = [
            value if place is None else arrays[place]
            for value, place in zip(plain, arguments, strict=True)
        ]
        cluster.keep(function, *again, into=remote, **kwargs)

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
