"""How lost shards are made again: a recipe for each array.

What a person distributes has a source: its copy in the client, a Dask array, a seed. What is
computed has a recipe: the function, its arguments, and for each distributed input the input itself,
remembered weakly, with the recipe of that input. So a lost shard is made again while the sources of
its chain are there and unchanged, whatever became of the links between; and nothing that is freed
stays on the workers for its sake.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dtoolkit.arrays.array import DistArray, have_made
from dtoolkit.cluster import Cluster, Remote
from dtoolkit.errors import ShardLost

__all__ = ["Recipe", "computed", "remember"]

_DEPTH = 24  # links of a chain that are remembered when they are freed: loops must not grow


@dataclass(frozen=True)
class Recipe:
    """What makes the shards of an array.

    Attributes
    ----------
    function : callable
        What runs on the ranks.
    args : tuple
        Its arguments; inputs that are distributed stand as what remembers them.
    per_rank : sequence of tuple or None
        Further arguments of each rank.
    kwargs : dict
    depth : int
        Links down to the sources that the recipe holds.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    per_rank: Sequence[tuple[Any, ...]] | None
    kwargs: dict[str, Any]
    depth: int = 1

    def make(self, cluster: Cluster, into: Remote | None = None) -> Remote:
        """Run it.

        Raises
        ------
        ShardLost
            A source is gone.
        """
        args = [a.find(cluster) if isinstance(a, _Input) else a for a in self.args]
        return cluster.keep(self.function, *args, into=into, per_rank=self.per_rank, **self.kwargs)


def computed(
    cluster: Cluster,
    function: Callable[..., Any],
    *args: Any,
    per_rank: Sequence[tuple[Any, ...]] | None = None,
    **kwargs: Any,
) -> Remote:
    """Run a function whose result stays on the workers, and remember how to make it again.

    Parameters
    ----------
    cluster : Cluster
    function : callable
        Gives the same result for the same arguments.
    *args, **kwargs
        As for ``cluster.keep``; distributed arrays stand among `args` only.
    per_rank : sequence of tuple, optional
        Further arguments of each rank.

    Returns
    -------
    Remote
    """
    have_made(*args)
    inputs = tuple(_Input.of(a) if isinstance(a, DistArray) else a for a in args)
    depths = [a.recipe.depth for a in inputs if isinstance(a, _Input) and a.recipe is not None]
    recipe = Recipe(function, inputs, per_rank, kwargs, 1 + max(depths, default=0))
    remote = cluster.keep(function, *args, per_rank=per_rank, **kwargs)
    return remember(remote, lambda into, _: recipe.make(cluster, into), recipe)


def remember(
    remote: Remote, again: Callable[[Remote, list[int]], Any], recipe: Recipe | None = None
) -> Remote:
    """Note how the shards of a handle are made again; returns the handle.

    Parameters
    ----------
    remote : Remote
    again : callable
        ``again(remote, ranks)`` makes the shards of these ranks; it must not hold the handle
        itself, which would then be freed late (a cycle), and with it the memory on the workers.
    recipe : Recipe, optional
        What results hold to make this array again when it was freed before them. None for a source
        that a person holds.
    """
    remote.restore = _Restore(weakref.ref(remote), again, recipe)
    return remote


@dataclass(frozen=True)
class _Restore:
    handle: weakref.ref[Remote]
    again: Callable[[Remote, list[int]], Any]
    recipe: Recipe | None

    def __call__(self, ranks: list[int]) -> None:
        remote = self.handle()
        if remote is None:
            return
        try:
            self.again(remote, ranks)
        except ShardLost as error:
            raise ShardLost(
                f"rank(s) {ranks} of {remote!r} cannot be made again: {error}"
            ) from None


@dataclass(frozen=True)
class _Input:
    """The shards of a distributed input, as they were when the recipe was followed."""

    remote: weakref.ref[Remote]
    restore: Any  # another one after each change in place
    recipe: Recipe | None
    name: str

    @classmethod
    def of(cls, array: DistArray) -> _Input:
        restore = array.remote.restore
        recipe = getattr(restore, "recipe", None)
        if recipe is not None and recipe.depth >= _DEPTH:
            recipe = None
        return cls(weakref.ref(array.remote), restore, recipe, repr(array))

    def find(self, cluster: Cluster) -> Remote:
        """The shards where they are held and unchanged, else made again for the moment."""
        remote = self.remote()
        if remote is not None and remote.restore is self.restore:
            return remote
        if self.recipe is None:
            raise ShardLost(
                f"its worker is gone, and {self.name}, which it was computed from, was freed or "
                "changed since"
            )
        return self.recipe.make(cluster)
