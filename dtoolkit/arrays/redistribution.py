"""Moving rows between layouts, and between rows and columns: one exchange each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtoolkit.arrays.array import check_memory
from dtoolkit.arrays.convert import as_index
from dtoolkit.arrays.layout import Layout, as_layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.cluster import Context, Remote

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["move_rows", "moved_bytes", "redistribute", "transpose_shard", "transposing"]


def redistribute(x: DistDense, layout: Layout | str | Any) -> DistDense:
    """Lay an array out otherwise; see :meth:`dtoolkit.arrays.DistDense.redistribute`."""
    target = as_layout(layout, len(x), x.layout.parts)
    if target == x.layout:
        return x
    row = _row_bytes(x.shape, x.dtype)
    # The shard as it is, what is sent, what comes, and the new shard.
    check_memory(
        x.cluster, list(2 * row * (x.layout.sizes + target.sizes)), f"redistributing {x!r}"
    )
    return x._like(computed(x.cluster, move_rows, x, x.layout, target), layout=target)


def move_rows(ctx: Context, shard: torch.Tensor, source: Layout, target: Layout) -> torch.Tensor:
    """Give every rank its rows under another layout; for functions that run on the ranks.

    One ``all_to_all_v`` in phase "redistribute". What leaves a rank are the rows that change
    owner, each once; rows that stay are copied on the rank.

    Parameters
    ----------
    ctx : Context
    shard : torch.Tensor, shape (source.sizes[rank], ...)
    source, target : Layout

    Returns
    -------
    torch.Tensor, shape (target.sizes[rank], ...)
        Rows in ascending global order.
    """
    leaving = _by_peer(target.owner(source.indices(ctx.rank)), ctx)
    coming = _by_peer(source.owner(target.indices(ctx.rank)), ctx)
    result = shard.new_empty((int(target.sizes[ctx.rank]), *shard.shape[1:]))
    result[as_index(coming.stay, shard.device)] = shard[as_index(leaving.stay, shard.device)]
    with ctx.comm.phase("redistribute"):
        rows = ctx.comm.all_to_all_v(
            shard[as_index(leaving.order, shard.device)], leaving.counts, coming.counts
        )
    result[as_index(coming.order, shard.device)] = rows
    return result


def moved_bytes(x: DistDense, layout: Layout | str | Any) -> NDArray[np.int64]:
    """Bytes that ``x.redistribute(layout)`` sends (planned).

    Returns
    -------
    int64 array of shape (ranks, ranks)
        [source, target], zero on the diagonal.
    """
    target = as_layout(layout, len(x), x.layout.parts)
    parts, rows = target.parts, np.arange(len(x))
    pairs = x.layout.owner(rows).astype(np.int64) * parts + target.owner(rows)
    counts = np.bincount(pairs, minlength=parts * parts).reshape(parts, parts)
    np.fill_diagonal(counts, 0)
    return counts.astype(np.int64) * _row_bytes(x.shape, x.dtype)


def transposing(x: DistDense, target: Layout) -> Remote:
    """Start the exchange that makes the rows of ``x.T`` out of its columns."""
    return computed(x.cluster, transpose_shard, x, x.layout, target)


def transpose_shard(
    ctx: Context, shard: torch.Tensor, source: Layout, target: Layout
) -> torch.Tensor:
    """Give every rank its rows of the transpose; for functions that run on the ranks.

    One all-to-all in phase "transpose": each element that changes owner is sent once.

    Parameters
    ----------
    ctx : Context
    shard : torch.Tensor, shape (source.sizes[rank], k)
    source : Layout
        Of the n rows.
    target : Layout
        Of the k rows of the transpose.

    Returns
    -------
    torch.Tensor, shape (target.sizes[rank], n)
    """
    peers = range(ctx.size)
    pieces = [shard[:, as_index(target.indices(q), shard.device)].T.contiguous() for q in peers]
    own = pieces[ctx.rank]
    pieces[ctx.rank] = own[:0]
    k = int(target.sizes[ctx.rank])
    parts = [shard.new_empty((k, 0 if p == ctx.rank else int(source.sizes[p]))) for p in peers]
    with ctx.comm.phase("transpose"):
        ctx.comm.all_to_all(pieces, out=parts)
    parts[ctx.rank] = own
    result = shard.new_empty((k, source.n))
    for peer, part in enumerate(parts):
        result[:, as_index(source.indices(peer), shard.device)] = part
    return result


class _by_peer:  # noqa: N801 - a small record, made like a function call
    """Positions of the rows that go to (or come from) each peer, in the order of peers."""

    def __init__(self, peer: NDArray[np.int32], ctx: Context) -> None:
        away = peer != ctx.rank
        order = np.flatnonzero(away)
        self.order = order[np.argsort(peer[order], kind="stable")]
        self.stay = np.flatnonzero(~away)
        self.counts = np.bincount(peer[order], minlength=ctx.size).tolist()


def _row_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
