"""Where the largest and smallest elements stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dtoolkit.arrays.array import ask
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed
from dtoolkit.arrays.reductions import answer, axis_of
from dtoolkit.cluster import Context

if TYPE_CHECKING:
    from dtoolkit.arrays.dense import DistDense

__all__ = ["Extremes", "extreme_position", "extremes"]


class Extremes(NamedTuple):
    """Values and their positions along an axis, as torch's ``max(dim=)`` gives them."""

    values: Any
    indices: Any


def extreme_position(
    x: DistDense, name: str, axis: Any = None, *, keepdims: bool = False, torch_words: bool = False
) -> Any:
    """First position of the largest or smallest element; NaN counts as both.

    Parameters
    ----------
    x : DistDense
    name : {"argmax", "argmin"}
    axis : int or None
        None: position in the flattened array.
    keepdims, torch_words : bool
        As for :func:`dtoolkit.arrays.reductions.reduction`.

    Returns
    -------
    int, int64 array of shape (k,), or for axis 1 DistDense of shape (n,)
    """
    axis = axis_of(x, axis)
    if x.dtype.is_complex:
        raise TypeError(f"{name} is not defined for complex numbers")
    if (x.size if axis is None else x.shape[axis]) == 0:
        raise ValueError(f"{name} of no elements: x has shape {x.shape}")
    if axis == 1:
        remote = computed(x.cluster, _in_rows, x, name, keepdims)
        return x._like(remote, shape=(len(x), *((1,) if keepdims else ())), dtype=torch.int64)
    _, place = ask(x, _over_rows, x.layout, name, axis)[0]
    return answer(place, x.ndim, axis, keepdims, torch_words)


def extremes(x: DistDense, name: str, axis: int, *, keepdims: bool = False) -> Extremes:
    """Values and first positions along one axis: torch's ``x.max(dim=)`` and ``x.min(dim=)``."""
    found = axis_of(x, axis)
    if found == 1:
        positions = extreme_position(x, f"arg{name}", 1, keepdims=keepdims)
        return Extremes(getattr(x, name)(axis=1, keepdims=keepdims), positions)
    if x.dtype.is_complex or len(x) == 0:
        raise ValueError(f"{name}: no largest element of {x!r} along axis {axis}")
    value, place = ask(x, _over_rows, x.layout, f"arg{name}", found)[0]
    parts = (answer(part, x.ndim, found, keepdims, True) for part in (value, place))
    return Extremes(*parts)


def _in_rows(ctx: Context, shard: torch.Tensor, name: str, keepdims: bool) -> torch.Tensor:
    return getattr(torch, name)(_orderable(shard), dim=1, keepdim=keepdims)


def _over_rows(
    ctx: Context, shard: torch.Tensor, layout: Layout, name: str, axis: int | None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Each rank's first best, and of those the best; among equals the smallest position."""
    width = shard.shape[1] if shard.dim() == 2 and axis is None else 1
    flat = shard.reshape(-1) if axis is None else shard
    rows = torch.from_numpy(layout.indices(ctx.rank).copy()).to(shard.device)
    if flat.shape[0]:
        best = getattr(torch, name)(_orderable(flat), dim=0)
        value = flat.gather(0, best[None])[0]
        place = rows[best // width] * width + best % width
    else:
        value = flat.new_zeros(flat.shape[1:])
        place = torch.full(flat.shape[1:], -1, device=flat.device)
    with ctx.comm.phase("reduce"):
        values, places = ctx.comm.all_gather(value), ctx.comm.all_gather(place)
    if ctx.rank:
        return None
    value, place = values[0], places[0]
    for other, where in zip(values[1:], places[1:], strict=True):
        better = other > value if name == "argmax" else other < value
        nan, held = other.isnan(), value.isnan()
        better = (
            (nan & ~held) | (better & ~held) | (((other == value) | (nan & held)) & (where < place))
        )
        better = (where >= 0) & ((place < 0) | better)
        value, place = torch.where(better, other, value), torch.where(better, where, place)
    return value.cpu(), place.cpu()


def _orderable(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.uint8) if values.dtype == torch.bool else values
