"""What the basic operations do to channels: element by element, contracted, reshaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dtoolkit.sparsity.channels.labels import Axis, Channels, Ids, Label

__all__ = ["contract", "pointwise", "reshape"]

Shape = tuple[int, ...]
_FIXED = "meets values of fixed width (the model's input, or a constant)"


def pointwise(channels: Channels, labels: Sequence[Label], shape: Shape) -> Label:
    """Element by element, operands broadcast: channels at the same place are joined."""
    spread = [_broadcast(channels, label, shape) for label in labels]
    inners = dict.fromkeys(axis.inner for label in spread for axis in label.axes)
    made = []
    for dim in inners:
        axes = []
        for label in spread:
            here = label.at(dim)
            if not here and label.shape[dim] > 1:
                channels.keep_axes((a for other in spread for a in other.at(dim)), _FIXED)
            axes += here
        made.append(_joined(channels, axes))
    return Label(shape, tuple(made))


def contract(
    channels: Channels, one: Label, dim: int, other: Label, other_dim: int
) -> tuple[Label, Label]:
    """Sum of products along a dimension of each: its channels are joined, and gone."""
    dims = dim % len(one.shape), other_dim % len(other.shape)
    sides = [label.at(d) for label, d in zip((one, other), dims, strict=True)]
    for mine, theirs in (sides, sides[::-1]):
        if mine and not theirs:
            channels.keep_axes(mine, _FIXED)
    if all(sides):
        _joined(channels, [*sides[0], *sides[1]])
    left, right = (
        label.without(label.touching([d])) for label, d in zip((one, other), dims, strict=True)
    )
    return left, right


def reshape(channels: Channels, label: Label, shape: Shape, open_dim: int | None = None) -> Label:
    """Dimensions split and merged.

    Parameters
    ----------
    channels : Channels
    label : Label
    shape : tuple of int
    open_dim : int, optional
        The dimension whose size the code has left open (-1).
    """
    if 0 in shape:
        channels.keep_axes(label.axes, "an empty tensor")
        return Label(shape)
    wide, new = ([dim for dim, size in enumerate(s) if size > 1] for s in (label.shape, shape))
    if [label.shape[dim] for dim in wide] == [shape[dim] for dim in new]:  # ones alone have moved
        return label.moved(dict(zip(wide, new, strict=True)), shape)
    groups = _groups(label.shape, shape)
    axes = [_reshaped(channels, axis, label.shape, shape, groups, open_dim) for axis in label.axes]
    return Label(shape, tuple(axis for axis in axes if axis is not None))


def _broadcast(channels: Channels, label: Label, shape: Shape) -> Label:
    """An operand as it stands in the result; sizes stay those of the operand."""
    lead = len(shape) - len(label.shape)
    places = {dim: dim + lead for dim in range(len(label.shape))}
    moved = label.moved(places, (1,) * lead + label.shape)
    single = [axis for axis in moved.axes if moved.shape[axis.inner] == 1 != shape[axis.inner]]
    channels.keep_axes(single, "a single value is spread over a width")
    return moved.without(single)


def _joined(channels: Channels, axes: Sequence[Axis]) -> Axis:
    """One axis of several that shrink along the same dimension; the most detailed."""
    best = max(axes, key=lambda axis: axis.ids.ndim)
    for axis in axes:
        if axis is best:
            continue
        if len(axis.dims) == 1 or (
            axis.dims[:-1] == best.dims[:-1] and axis.ids.shape == best.ids.shape
        ):
            channels.join(axis.ids, best.ids)
            continue
        size = best.ids.shape[-1]
        for rows in (axis.ids.reshape(-1, size), best.ids.reshape(-1, size)):
            channels.join(rows, rows[0])
        channels.join(axis.ids.reshape(-1, size)[0], best.ids.reshape(-1, size)[0])
    return replace(best, origin=None) if len(axes) > 1 else best


Group = tuple[list[int], list[int]]


def _groups(before: Shape, after: Shape) -> list[Group]:
    """Smallest runs of dimensions before and after that hold the same elements."""
    groups: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        inside, outside = [], []
        held, holds = 1, 1
        if i < len(before):
            inside, held, i = [i], before[i], i + 1
        if j < len(after):
            outside, holds, j = [j], after[j], j + 1
        while held != holds:
            if (held < holds and i < len(before)) or j >= len(after):
                inside.append(i)
                held, i = held * before[i], i + 1
            else:
                outside.append(j)
                holds, j = holds * after[j], j + 1
        groups.append((inside, outside))
    return groups


def _reshaped(
    channels: Channels,
    axis: Axis,
    before: Shape,
    after: Shape,
    groups: list[Group],
    open_dim: int | None,
) -> Axis | None:
    touched = [group for group in groups if set(group[0]) & set(axis.dims)]
    if all(len(inside) == len(outside) == 1 for inside, outside in touched):
        places = {inside[0]: outside[0] for inside, outside in touched}
        return replace(axis, dims=tuple(places[dim] for dim in axis.dims))
    if list(axis.dims) != sorted(axis.dims):  # rows would be merged in another order than split
        rows = axis.ids.reshape(-1, axis.ids.shape[-1])
        channels.join(rows, rows[0])
    inside = [dim for group in touched for dim in group[0]]
    outside = [dim for group in touched for dim in group[1]]
    spread = _spread(axis, inside, before).reshape([after[dim] for dim in outside])
    varying = [p for p in range(spread.ndim) if (spread != spread.take([0], axis=p)).any()]
    if not varying:
        channels.keep(axis.ids, "a single channel")
        return None
    still = tuple(slice(None) if p in varying else 0 for p in range(spread.ndim))
    ids, dims = spread[still], tuple(outside[p] for p in varying)
    if len(dims) == 1:
        return Axis(dims, ids)
    made = channels.split(dims, ids)
    if open_dim in dims[:-1]:
        return channels.settle(made, dims[dims.index(open_dim)])
    return made


def _spread(axis: Axis, dims: Iterable[int], shape: Shape) -> Ids:
    """Numbers at all positions of some dimensions, in their order."""
    dims = list(dims)
    order = np.argsort(axis.dims)
    ids = axis.ids.transpose(order)
    sizes = [shape[dim] if dim in axis.dims else 1 for dim in dims]
    return np.ascontiguousarray(np.broadcast_to(ids.reshape(sizes), [shape[dim] for dim in dims]))
