"""From Dask arrays and back; elements stay on the workers.

Dask's tasks and launches run in the same processes and hand each other chunks in memory. Chunks
that belong on another worker are moved by Dask, from worker to worker. Only what a Dask array
holds in its graph (``dask.array.from_array`` of an array in the client) comes from the client.
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.array import ask, check_memory
from dtoolkit.arrays.convert import to_host, to_tensor
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import remember
from dtoolkit.arrays.redistribution import move_rows
from dtoolkit.cluster import Cluster, Context, Remote
from dtoolkit.data import working_dtype

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["from_dask", "is_dask", "known_shape", "to_dask"]

# What tasks and launches of one worker process hand each other, by token and rank.
_COUNTER: dict[tuple[str, int], NDArray[Any]] = {}


def is_dask(x: Any) -> bool:
    """Whether this is a Dask array; does not import Dask's arrays for it."""
    loaded = sys.modules.get("dask.array")
    return loaded is not None and isinstance(x, loaded.Array)


def known_shape(x: Any) -> tuple[int, ...]:
    """Shape of a Dask array.

    Raises
    ------
    ValueError
        It has other than 1 or 2 dimensions, or does not know its sizes.
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"x has {x.ndim} dimensions; wanted a vector or a matrix")
    if any(np.isnan(n) for n in x.shape):
        raise ValueError("the sizes of x's chunks are not known: call x.compute_chunk_sizes()")
    return tuple(int(n) for n in x.shape)


def from_dask(cluster: Cluster, x: Any, layout: Layout) -> DistDense:
    """Lay a Dask array with dense chunks over the ranks.

    It is rechunked to the ranks' pieces where the layout is contiguous, else to blocks that are
    redistributed on the ranks. Lost shards are made again from the Dask array.

    Parameters
    ----------
    cluster : Cluster
    x : dask.array.Array of 1 or 2 dimensions
        Computed on the cluster's workers.
    layout : Layout

    Returns
    -------
    DistDense
    """
    from dtoolkit.arrays.dense import DistDense

    dtype = torch.from_numpy(np.empty(0, working_dtype(x.dtype))).dtype
    row = int(np.prod(x.shape[1:], dtype=np.int64)) * dtype.itemsize
    check_memory(cluster, list(2 * row * layout.sizes), f"an array of shape {x.shape}")
    between = layout if layout.contiguous else Layout.block(layout.n, layout.parts)
    remote = _fill(cluster, x, dtype, between, layout)

    def again(into: Remote, ranks: list[int]) -> None:
        _fill(cluster, x, dtype, between, layout, into)

    return DistDense(cluster, layout, x.shape, dtype, remember(remote, again))


def to_dask(x: DistDense) -> Any:
    """Make a Dask array of copies of the shards, each on its worker.

    Returns
    -------
    dask.array.Array
        One chunk a rank. A chunk whose worker is lost is not made again. Where no Dask client is
        the default yet, the cluster's becomes it, so that ``compute()`` runs where the chunks are.
    """
    import dask.array as da
    from distributed import client as clients

    if clients._get_global_client() is None:
        clients._set_global_client(x.cluster.client)

    if not x.layout.contiguous:
        x = x.redistribute("block")
    token = uuid.uuid4().hex
    ask(x, _offer, token)
    dtype = to_host(torch.empty(0, dtype=x.dtype)).dtype
    chunks = []
    for member, size in zip(x.cluster.workers, x.layout.sizes, strict=True):
        future = x.cluster.client.submit(
            _collect,
            token,
            member.rank,
            workers=[member.address],
            allow_other_workers=True,  # a task that only a lost worker may run would never end
            key=f"shard-{token}-{member.rank}",
        )
        chunks.append(da.from_delayed(future, (int(size), *x.shape[1:]), dtype=dtype))
    return da.concatenate(chunks)


def _fill(
    cluster: Cluster,
    x: Any,
    dtype: torch.dtype,
    between: Layout,
    layout: Layout,
    into: Remote | None = None,
) -> Remote:
    """Let Dask bring each rank its chunk, then take it there."""
    token = uuid.uuid4().hex
    if x.shape[0]:
        _deliver(cluster, x, between, token)
    shape = tuple(int(n) for n in x.shape[1:])
    return cluster.keep(_arrive, token, shape, dtype, between, layout, into=into)


def _deliver(cluster: Cluster, x: Any, layout: Layout, token: str) -> None:
    from distributed import wait

    members = [m for m in cluster.workers if layout.sizes[m.rank]]
    sizes = tuple(int(layout.sizes[m.rank]) for m in members)
    client = cluster.client
    pieces = client.persist(x.rechunk((sizes, *x.shape[1:])))
    chunks = client.compute(list(pieces.to_delayed().ravel()))
    tasks = [
        client.submit(
            _bring,
            token,
            member.rank,
            chunk,
            workers=[member.address],
            allow_other_workers=True,
            pure=False,
        )
        for member, chunk in zip(members, chunks, strict=True)
    ]
    with client.as_current():
        wait(tasks, timeout=cluster.timeout)
    client.gather(tasks)


def _offer(ctx: Context, shard: torch.Tensor, token: str) -> None:
    _COUNTER[token, ctx.rank] = to_host(shard).copy()


def _collect(token: str, rank: int) -> NDArray[Any]:
    try:
        return _COUNTER.pop((token, rank))
    except KeyError:
        raise RuntimeError(
            f"the chunk of rank {rank} was on a worker that is gone: call to_dask() again"
        ) from None


def _bring(token: str, rank: int, chunk: Any) -> None:
    _COUNTER[token, rank] = np.array(chunk)


def _arrive(
    ctx: Context,
    token: str,
    width: tuple[int, ...],
    dtype: torch.dtype,
    between: Layout,
    layout: Layout,
) -> torch.Tensor:
    rows = int(between.sizes[ctx.rank])
    chunk = _COUNTER.pop((token, ctx.rank), None)
    if chunk is None and rows:
        raise RuntimeError("a worker left while Dask moved its chunk here: distribute again")
    if chunk is None:
        shard = torch.empty((0, *width), dtype=dtype, device=ctx.device)
    else:
        shard = to_tensor(chunk).to(ctx.device, dtype)
    return shard if between is layout else move_rows(ctx, shard, between, layout)
