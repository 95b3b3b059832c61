"""Shards on their way between the client and the workers."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from dtoolkit.arrays.array import DistArray, ask
from dtoolkit.arrays.convert import as_index
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import Recipe, remember
from dtoolkit.arrays.memory import aligned
from dtoolkit.cluster import Cluster, Context, Remote

__all__ = ["bring", "place"]


def place(
    cluster: Cluster, whole: torch.Tensor, layout: Layout, *, operand: bool = False
) -> Remote:
    """Send every rank its rows of a tensor; a copy is kept here, to make lost shards again.

    The copy is held by the handle, and as an `operand` by whatever is computed from it too.
    """
    per_rank = [
        (_packed(whole[as_index(layout.indices(rank))].clone()), whole.dtype)
        for rank in range(layout.parts)
    ]
    recipe = Recipe(_place, (), per_rank, {})
    remote = cluster.keep(_place, per_rank=per_rank)
    again = lambda into, _: recipe.make(cluster, into)  # noqa: E731
    return remember(remote, again, recipe if operand else None)


def bring(array: DistArray) -> torch.Tensor:
    """Bring all rows of a dense array here, in their order."""
    whole = torch.empty(array.shape, dtype=array.dtype)
    for rank, shard in enumerate(ask(array, _send)):
        whole[as_index(array.layout.indices(rank))] = _unpacked(shard, array.dtype)
    return whole


def _packed(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor as NumPy pickles it, much faster than torch; bfloat16, which it lacks, by bits."""
    tensor = tensor.cpu().contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _unpacked(shard: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.from_numpy(shard if shard.flags.writeable else shard.copy())
    return tensor.view(dtype) if dtype == torch.bfloat16 else tensor


def _place(ctx: Context, shard: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    return aligned(_unpacked(shard, dtype).to(ctx.device))


def _send(ctx: Context, shard: torch.Tensor) -> NDArray[Any]:
    return _packed(shard)
