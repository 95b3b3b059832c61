"""Products of dense arrays: by a small matrix, and over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.arrays.array import DistArray, ask, check_memory
from dtoolkit.arrays.convert import as_index, is_scalar, to_host, to_tensor
from dtoolkit.arrays.elementwise import align
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.cluster import Context
from dtoolkit.errors import LayoutError

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["gather_rows", "inner", "left_product", "product"]


def product(x: DistDense, other: Any) -> Any:
    """``x @ other``; see :meth:`dtoolkit.arrays.DistDense.__matmul__`."""
    if is_scalar(other):
        raise ValueError("matmul: an operand is a number; use * for that")
    rows = x._source()
    if x.ndim == 1 or rows is not None:
        return _over_rows(x if rows is None else rows, other, x.shape)
    if isinstance(other, DistArray):
        found = _whole(x, other)  # type: ignore[arg-type]
        # A transpose gives the caller an array, whether or not its source changed meanwhile.
        return found if x._transpose_of is None else found.to_numpy()
    W = to_tensor(other, name="matmul: the right operand").contiguous().clone()
    shape = _shape(x.shape, tuple(W.shape))
    dtype = torch.promote_types(x.dtype, W.dtype)
    return x._like(computed(x.cluster, _times, x, W), shape=shape, dtype=dtype)


def left_product(other: Any, x: DistDense) -> Any:
    """``other @ x`` for an array or tensor with as many columns as x has rows."""
    if is_scalar(other):
        raise ValueError("matmul: an operand is a number; use * for that")
    rows = x._source()
    if rows is not None:  # (other @ x) with x = rows.T, so that nothing needs to be transposed
        W = to_tensor(other, name="matmul: the left operand")
        _shape(tuple(W.shape), x.shape)
        found = product(rows, W.t())
        return found if W.dim() == 1 else found.T
    left = to_tensor(other, name="matmul: the left operand")
    _shape(tuple(left.shape), x.shape)
    return to_host(_sum_of_rows(x._lay_out(left.t()), x))[()]


def inner(ctx: Context, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a.T @ b`` of arrays whose rows lie on the ranks; for functions that run on them.

    Each rank multiplies its rows; the parts are summed by one all-reduce in the order of ranks
    (phase "inner").

    Parameters
    ----------
    ctx : Context
    a : torch.Tensor, shape (rows here, k) or (rows here,)
    b : torch.Tensor, shape (rows here, m) or (rows here,)

    Returns
    -------
    torch.Tensor, shape (k, m), (k,), (m,) or ()
        On every rank the same bits.
    """
    dtype = torch.promote_types(a.dtype, b.dtype)
    part = a.t().to(dtype) @ b.to(dtype)
    with ctx.comm.phase("inner"):
        return ctx.comm.all_reduce(part.contiguous())


def gather_rows(ctx: Context, shard: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Give every rank all rows of an array (phase "gather"); for functions that run on the ranks.

    Returns
    -------
    torch.Tensor, shape (layout.n, ...)
    """
    with ctx.comm.phase("gather"):
        parts = ctx.comm.all_gather_v(shard)
    whole = shard.new_empty((layout.n, *shard.shape[1:]))
    for peer, part in enumerate(parts):
        whole[as_index(layout.indices(peer), shard.device)] = part
    return whole


def _over_rows(x: DistDense, other: Any, shape: tuple[int, ...]) -> Any:
    """``x.T @ other``, where the rows of both are laid out: a k x m result for the caller."""
    if isinstance(other, DistArray):
        _shape(shape, other.shape)
        y: DistDense = align(x, other, x.layout, "matmul")  # type: ignore[arg-type]
    else:
        right = to_tensor(other, name="matmul: the right operand")
        _shape(shape, tuple(right.shape))
        y = x._lay_out(right)
    return to_host(_sum_of_rows(x, y))[()]


def _sum_of_rows(x: DistDense, y: DistDense) -> torch.Tensor:
    return ask(x, _inner, y)[0]


def _whole(x: DistDense, y: DistDense) -> DistDense:
    """``x @ y`` where every rank needs all rows of y."""
    if y.cluster is not x.cluster:
        raise LayoutError("matmul: the operands are on different clusters: distribute both on one")
    shape = _shape(x.shape, y.shape)
    dtype = torch.promote_types(x.dtype, y.dtype)
    ranks = range(x.layout.parts)
    needed = [2 * y.size * y.dtype.itemsize + int(x.nbytes_by_rank[rank]) for rank in ranks]
    check_memory(x.cluster, needed, f"multiplying by all of {y!r}")
    remote = computed(x.cluster, _times_all, x, y, y.layout)
    return x._like(remote, shape=shape, dtype=dtype)


def _times(ctx: Context, shard: torch.Tensor, W: torch.Tensor) -> torch.Tensor:
    dtype = torch.promote_types(shard.dtype, W.dtype)
    return shard.to(dtype) @ W.to(shard.device, dtype)


def _times_all(
    ctx: Context, shard: torch.Tensor, other: torch.Tensor, layout: Layout
) -> torch.Tensor:
    return _times(ctx, shard, gather_rows(ctx, other, layout))


def _inner(ctx: Context, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    result = inner(ctx, a, b)
    return result.cpu() if ctx.rank == 0 else None


def _shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    if not 1 <= len(left) <= 2 or not 1 <= len(right) <= 2 or left[-1] != right[0]:
        raise ValueError(
            f"matmul: shapes {left} and {right} do not go together: the columns of the left must "
            "be as many as the rows of the right"
        )
    return (*left[:-1], *right[1:])
