"""Dense arrays laid over the ranks by rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.array import DistArray
from dtoolkit.arrays.layout import Layout
from dtoolkit.cluster import Cluster

__all__ = ["DistDense", "distribute_dense", "to_tensor"]


class DistDense(DistArray):
    """A dense array of 1 or 2 dimensions whose rows lie on the ranks, as torch tensors.

    Made by :func:`dtoolkit.distribute` and by operations on distributed arrays.
    """

    def to_numpy(self) -> NDArray[Any]:
        """Bring the whole array here (bfloat16 as float32)."""
        out: NDArray[Any] | None = None
        for rank in range(self.layout.parts):
            shard = self.cluster.fetch(self.remote, rank)
            values = (shard.float() if shard.dtype == torch.bfloat16 else shard).cpu().numpy()
            if out is None:
                out = np.empty(self.shape, values.dtype)
            out[self.layout.indices(rank)] = values
        assert out is not None
        return out

    def __repr__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"<DistDense {self.shape} {name}, {self.layout!r}>"


def distribute_dense(cluster: Cluster, x: Any, layout: Layout) -> DistDense:
    """Lay a dense array over the ranks.

    Parameters
    ----------
    cluster : Cluster
    x : array or tensor of 1 or 2 dimensions
        Copied, so that lost shards can be made again.
    layout : Layout

    Returns
    -------
    DistDense
    """
    whole = to_tensor(x)
    shards = [whole[torch.from_numpy(layout.indices(p))] for p in range(layout.parts)]
    remote = cluster.keep(_place, per_rank=[(shard,) for shard in shards])
    array = DistDense(cluster, layout, whole.shape, whole.dtype, remote)
    remote.restore = lambda ranks: cluster.keep(
        _place, per_rank=[(shard,) for shard in shards], into=remote
    )
    return array


def to_tensor(x: Any) -> torch.Tensor:
    """Take what a person passes for a dense array."""
    return torch.as_tensor(np.asarray(x)) if not isinstance(x, torch.Tensor) else x.detach().cpu()


def _place(ctx: Any, shard: torch.Tensor) -> torch.Tensor:
    return shard.to(ctx.device)
