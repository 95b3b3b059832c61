"""Reductions: each rank reduces its rows, and the parts are combined in the order of ranks.

So a result repeats bit for bit on the same layout. Over columns (``axis=1``) nothing moves and the
result stays on the ranks; over rows or over everything it is small and comes to the caller.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from dtoolkit.arrays.array import ask
from dtoolkit.arrays.convert import to_host
from dtoolkit.arrays.lineage import computed
from dtoolkit.cluster import Context

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["answer", "axis_of", "combine", "deviation", "length", "reduction"]

_COMBINE = {"sum": "sum", "prod": "prod", "min": "min", "max": "max", "any": "sum", "all": "prod"}


def reduction(
    x: DistDense, name: str, axis: Any = None, *, keepdims: bool = False, torch_words: bool = False
) -> Any:
    """Reduce an array.

    Parameters
    ----------
    x : DistDense
    name : {"sum", "prod", "min", "max", "any", "all", "mean"}
    axis : int, tuple of int or None
        0: over the rows; 1: over the columns; None: over everything.
    keepdims : bool
        Keep the reduced axes, with length 1.
    torch_words : bool
        Answer with a tensor, not with NumPy's number or array.

    Returns
    -------
    number, array or tensor of shape (k,), or DistDense of shape (n,)
        Sums of booleans are int64, their means float64.
    """
    axis = axis_of(x, axis)
    _check(x, name, axis)
    if axis == 1:
        return _by_row(x, name, keepdims)
    if name == "mean":
        total = ask(x, _reduce, "sum", axis, _wide(x.dtype))[0]
        value = (total / (len(x) if axis == 0 else x.size)).to(_mean_dtype(x.dtype))
    else:
        value = ask(x, _reduce, name, axis)[0]
    return answer(value, x.ndim, axis, keepdims, torch_words)


def deviation(
    x: DistDense,
    axis: Any = None,
    *,
    correction: float = 0,
    root: bool,
    keepdims: bool = False,
    torch_words: bool = False,
) -> Any:
    """Variance (or with `root` its square root), in two passes: the mean, then the squares.

    Parameters
    ----------
    x, axis, keepdims, torch_words
        As for :func:`reduction`.
    correction : float
        Subtracted from the number of elements (NumPy's ``ddof``).
    root : bool
        The standard deviation.
    """
    axis = axis_of(x, axis)
    if axis == 1:
        remote = computed(x.cluster, _row_deviation, x, correction, root, keepdims)
        return x._like(
            remote, shape=(len(x), *((1,) if keepdims else ())), dtype=_real(_mean_dtype(x.dtype))
        )
    value = ask(x, _deviation, axis, len(x), correction, root)[0]
    return answer(value, x.ndim, axis, keepdims, torch_words)


def length(
    x: DistDense,
    order: Any = None,
    axis: Any = None,
    *,
    keepdims: bool = False,
    torch_words: bool = False,
) -> Any:
    """Norm: of all elements, or of each column or row as a vector.

    Parameters
    ----------
    order : float, "fro" or None
        None and "fro": the root of the sum of squares; a number: the p-norm of vectors. A matrix
        as a whole has "fro", 1 and inf (the largest sum over a column, over a row).
    x, axis, keepdims, torch_words
        As for :func:`reduction`.
    """
    whole = x.ndim == 2 and axis_of(x, axis) is None
    axis = axis_of(x, axis)
    if whole and order in (1, math.inf):
        sums = abs(x).sum(axis=0 if order == 1 else 1)
        return answer(torch.as_tensor(sums.max()), 2, None, keepdims, torch_words)
    if order in (None, "fro"):
        order = 2.0
    elif whole or not isinstance(order, int | float):
        raise ValueError(
            f"norm: order {order!r} is not known {'for matrices' if whole else ''}: wanted None, "
            "'fro', 1 or inf for a matrix, or any number for vectors (axis=0 or 1)"
        )
    if axis == 1:
        remote = computed(x.cluster, _row_norm, x, float(order), keepdims)
        return x._like(
            remote, shape=(len(x), *((1,) if keepdims else ())), dtype=_real(_mean_dtype(x.dtype))
        )
    value = ask(x, _norm, float(order), axis)[0]
    return answer(value, x.ndim, axis, keepdims, torch_words)


def combine(ctx: Context, shard: torch.Tensor, name: str, axis: int | None = None) -> torch.Tensor:
    """Reduce an array whose rows lie on the ranks; for functions that run on them.

    Parameters
    ----------
    ctx : Context
    shard : torch.Tensor, shape (rows here, ...)
        May have no rows.
    name : {"sum", "prod", "min", "max", "any", "all"}
    axis : {0, None}
        Over the rows, or over everything.

    Returns
    -------
    torch.Tensor
        On every rank the same bits: combined in the order of ranks.
    """
    flat = shard.reshape(-1) if axis is None else shard
    if name in ("any", "all"):
        flat = flat != 0
    if flat.shape[0] == 0 and name in ("min", "max"):
        part = flat.new_full(flat.shape[1:], _neutral(name, flat.dtype))
    elif name in ("min", "max"):
        part = (torch.amin if name == "min" else torch.amax)(flat, dim=0)
    else:
        part = getattr(torch, name)(flat, dim=0)
    with ctx.comm.phase("reduce"):
        return ctx.comm.all_reduce(part, op=_COMBINE[name])


def answer(value: torch.Tensor, ndim: int, axis: int | None, keepdims: bool, words: bool) -> Any:
    """Give a result in the caller's words: NumPy's or torch's."""
    if keepdims:
        value = value.reshape((1,) * ndim if axis is None else (1, *value.shape))
    return value if words else to_host(value)[()]


def axis_of(x: DistDense, axis: Any) -> int | None:
    """The axis as 0, 1 or None for all; of a vector the only axis is None.

    Raises
    ------
    ValueError
        The array has no such axis.
    """
    if axis is None:
        return None
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    for one in axes:
        if not isinstance(one, int) or not -x.ndim <= one < x.ndim:
            raise ValueError(f"axis={axis!r}: an array of shape {x.shape} has {x.ndim} axes")
    found = {one % x.ndim for one in axes}
    return None if len(found) == x.ndim else found.pop() if found else None


def _reduce(
    ctx: Context,
    shard: torch.Tensor,
    name: str,
    axis: int | None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    value = combine(ctx, shard if dtype is None else shard.to(dtype), name, axis)
    return value.cpu() if ctx.rank == 0 else None


def _deviation(
    ctx: Context, shard: torch.Tensor, axis: int | None, rows: int, correction: float, root: bool
) -> torch.Tensor | None:
    dtype = _mean_dtype(shard.dtype)
    flat = (shard.reshape(-1) if axis is None else shard).to(_wide(shard.dtype))
    count = rows * (math.prod(shard.shape[1:]) if axis is None else 1)
    centre = combine(ctx, flat, "sum", 0) / count
    squares = combine(ctx, (flat - centre).abs().square(), "sum", 0)
    value = squares / max(count - correction, 0)
    return (value.sqrt() if root else value).to(_real(dtype)).cpu() if ctx.rank == 0 else None


def _norm(ctx: Context, shard: torch.Tensor, order: float, axis: int | None) -> torch.Tensor | None:
    flat = (shard.reshape(-1) if axis is None else shard).to(_wide(shard.dtype))
    if flat.shape[0]:
        part = torch.linalg.vector_norm(flat, order, dim=0)
    else:
        dtype = _real(flat.dtype)
        part = torch.full(flat.shape[1:], _empty_norm(order), dtype=dtype, device=flat.device)
    with ctx.comm.phase("reduce"):
        parts = ctx.comm.all_gather(part)
    # A norm of norms: order 0 counts, and counts are summed.
    value = parts.sum(dim=0) if order == 0 else torch.linalg.vector_norm(parts, order, dim=0)
    return value.to(_real(_mean_dtype(shard.dtype))).cpu() if ctx.rank == 0 else None


def _row_reduce(ctx: Context, shard: torch.Tensor, name: str, keepdims: bool) -> torch.Tensor:
    if name in ("min", "max"):
        return (torch.amin if name == "min" else torch.amax)(shard, dim=1, keepdim=keepdims)
    if name == "mean":
        return shard.to(_mean_dtype(shard.dtype)).mean(dim=1, keepdim=keepdims)
    return getattr(torch, name)(shard, dim=1, keepdim=keepdims)


def _row_deviation(
    ctx: Context, shard: torch.Tensor, correction: float, root: bool, keepdims: bool
) -> torch.Tensor:
    flat = shard.to(_mean_dtype(shard.dtype))
    count = max(shard.shape[1] - correction, 0)
    squares = (flat - flat.mean(dim=1, keepdim=True)).abs().square()
    value = squares.sum(dim=1, keepdim=keepdims) / count
    return value.sqrt() if root else value


def _row_norm(ctx: Context, shard: torch.Tensor, order: float, keepdims: bool) -> torch.Tensor:
    flat = shard.to(_mean_dtype(shard.dtype))
    return torch.linalg.vector_norm(flat, order, dim=1, keepdim=keepdims)


def _by_row(x: DistDense, name: str, keepdims: bool) -> DistDense:
    dtype = x.dtype
    if name in ("any", "all"):
        dtype = torch.bool
    elif name in ("sum", "prod") and dtype == torch.bool:
        dtype = torch.int64
    elif name == "mean":
        dtype = _mean_dtype(dtype)
    remote = computed(x.cluster, _row_reduce, x, name, keepdims)
    return x._like(remote, shape=(len(x), *((1,) if keepdims else ())), dtype=dtype)


def _check(x: DistDense, name: str, axis: int | None) -> None:
    if name not in ("min", "max"):
        return
    if x.dtype.is_complex:
        raise TypeError(f"{name} is not defined for complex numbers")
    empty = x.size == 0 if axis is None else x.shape[axis] == 0
    if empty:
        raise ValueError(f"{name} of no elements: x has shape {x.shape}")


def _neutral(name: str, dtype: torch.dtype) -> Any:
    if dtype == torch.bool:
        return name == "min"
    if dtype.is_floating_point:
        return math.inf if name == "min" else -math.inf
    return torch.iinfo(dtype).max if name == "min" else torch.iinfo(dtype).min


def _empty_norm(order: float) -> float:
    return math.inf if order < 0 else 0.0


def _mean_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.float64


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What sums of means and squares are taken in."""
    return torch.float32 if dtype == torch.bfloat16 else _mean_dtype(dtype)


def _real(dtype: torch.dtype) -> torch.dtype:
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
