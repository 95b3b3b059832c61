"""Rules of the operations that move, join, divide and sum up values, and leave them as they are."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from dtoolkit.sparsity.channels.joining import pointwise, reshape
from dtoolkit.sparsity.channels.labels import Axis, Ids, Label
from dtoolkit.sparsity.channels.steps import Rule, Step

__all__ = ["MOVE_RULES"]


def _first(step: Step) -> Label:
    return step.labels[0]


def _same(step: Step) -> Label:
    """Values of another precision, dropped or copied: the same channels."""
    return _first(step)


def _view(step: Step) -> Label:
    asked = step.args.get("size", step.args.get("shape", step.args.get("sizes")))
    open_dim = None
    if isinstance(asked, list | tuple) and -1 in asked:
        dim = step.args.get("dim", 0) % len(_first(step).shape) if "sizes" in step.args else 0
        open_dim = dim + list(asked).index(-1)
    return reshape(step.channels, _first(step), step.shape, open_dim)


def _permute(step: Step) -> Label:
    x = _first(step)
    rank = len(x.shape)
    order = list(range(rank))
    if step.name == "permute":
        order = [dim % rank for dim in step.args["dims"]]
    elif rank > 1:
        one, other = step.args.get("dim0", 0) % rank, step.args.get("dim1", 1) % rank
        order[one], order[other] = other, one
    return x.moved({dim: place for place, dim in enumerate(order)}, step.shape)


def _elementwise(step: Step) -> Label:
    return pointwise(step.channels, step.labels, step.shape)


def _concatenate(step: Step) -> Label:
    dim = step.args.get("dim", 0) % len(step.shape)
    parts = [label for label in step.labels if label.shape != (0,)]
    bare = [label.without(label.touching([dim])) for label in parts]
    thin = [Label((*b.shape[:dim], 1, *b.shape[dim + 1 :]), b.axes) for b in bare]
    others = pointwise(step.channels, thin, (*step.shape[:dim], 1, *step.shape[dim + 1 :]))
    if not any(label.touching([dim]) for label in parts):
        return Label(step.shape, others.axes)
    pieces = []
    for label in parts:
        ids = step.channels.at(label, dim)
        if ids is None:
            ids = step.channels.fresh(label.shape[dim])
            step.channels.keep(ids, "put beside others with a fixed width")
        pieces.append(ids)
    return Label(step.shape, (*others.axes, Axis((dim,), np.concatenate(pieces))))


def _stack(step: Step) -> Label:
    dim = step.args.get("dim", 0) % len(step.shape)
    joined = pointwise(step.channels, step.labels, step.labels[0].shape)
    places = {d: d + (d >= dim) for d in range(len(joined.shape))}
    return joined.moved(places, step.shape)


def _divide(step: Step) -> Any:
    """Equal parts of a dimension, as many channels in each."""
    x, dim = _first(step), step.args.get("dim", 0) % len(_first(step).shape)
    if not x.touching([dim]):
        return [replace(x, shape=shape) for shape in step.shape]
    sizes = [shape[dim] for shape in step.shape]
    if len(set(sizes)) > 1:
        return step.refuse("divided into parts of unequal width")
    ids = step.channels.at(x, dim)
    assert ids is not None
    rows = ids.reshape(len(sizes), -1)
    step.channels.balance(rows)
    left = x.without(x.touching([dim]))
    return [
        Label(shape, (*left.axes, Axis((dim,), row)))
        for shape, row in zip(step.shape, rows, strict=True)
    ]


def _cut_out(step: Step) -> Any:
    """A slice, or one position, of a dimension."""
    x, dim = _first(step), step.args.get("dim", 0) % len(_first(step).shape)
    gone = x.touching([dim])
    if step.name in ("slice", "narrow") and step.shape == x.shape:
        return x
    step.channels.keep_axes(gone, "a part of it is taken out by position")
    left = x.without(gone)
    if step.name in ("slice", "narrow"):
        return replace(left, shape=step.shape)
    places = {d: d - (d > dim) for d in range(len(x.shape)) if d != dim}
    if step.several:  # unbind
        return [left.moved(places, shape) for shape in step.shape]
    return left.moved(places, step.shape)


def _reduce(step: Step) -> Any:
    x, dims = _first(step), step.args.get("dim")
    rank = len(x.shape)
    if dims is None or dims == []:
        dims = list(range(rank))
    gone = {dim % rank for dim in ([dims] if isinstance(dims, int) else dims)} if rank else set()
    touched = x.touching(gone) if gone else []
    step.channels.keep_axes(touched, f"torch's {step.name} runs over it")
    left = x.without(touched)
    places = {d: d for d in range(rank)}
    if not step.args.get("keepdim"):
        stay = [d for d in range(rank) if d not in gone]
        places = {d: place for place, d in enumerate(stay)}
    if step.several:
        return [left.moved(places, shape) for shape in step.shape]
    return left.moved(places, step.shape)


def _along(step: Step) -> Any:
    """Values change along a dimension, which keeps its size: softmax, cumsum, flip."""
    x = _first(step)
    dims = step.args.get("dims", step.args.get("dim"))
    if dims is None or dims == []:
        return step.refuse()
    touched = x.touching([dims] if isinstance(dims, int) else dims)
    step.channels.keep_axes(touched, f"torch's {step.name} runs over it")
    return x.without(touched)


def _spatial(step: Step) -> Any:
    """Pooling, resizing, padding by reflection: channels beside the last dimensions."""
    x = _first(step)
    found = re.search(r"(\d)d", step.name)
    if found is None or any(label.axes for label in step.labels[1:]):
        return step.refuse()
    touched = x.touching(range(-int(found[1]), 0))
    step.channels.keep_axes(touched, f"torch's {step.name} runs over it")
    left = x.without(touched)
    if step.several:
        return [replace(left, shape=shape) for shape in step.shape]
    return replace(left, shape=step.shape)


def _pad(step: Step) -> Any:
    x, pad = _first(step), step.args["pad"]
    axes = []
    for axis in x.axes:
        behind = 2 * (len(x.shape) - 1 - axis.inner)
        before, after = pad[behind : behind + 2] if behind < len(pad) else (0, 0)
        if before or after:
            if len(axis.dims) > 1 or min(before, after) < 0 or step.args.get("value"):
                return step.refuse("padded")
            ends = [step.channels.fresh(size) for size in (before, after)]
            for end in ends:
                step.channels.keep(end, "meets channels that padding has added")
            axis = Axis(axis.dims, np.concatenate([ends[0], axis.ids, ends[1]]))
        axes.append(axis)
    if step.args.get("mode", "constant") != "constant" and axes != list(x.axes):
        return step.refuse("padded")
    return Label(step.shape, tuple(axes))


def _gate(step: Step) -> Any:
    x, dim = _first(step), step.args.get("dim", -1) % len(_first(step).shape)
    ids = step.channels.at(x, dim) if x.touching([dim]) else None
    left = replace(x.without(x.touching([dim])), shape=step.shape)
    if ids is None:
        return left
    rows = ids.reshape(2, -1)
    step.channels.join(rows[0], rows[1])
    return Label(step.shape, (*left.axes, Axis((dim,), rows[0])))


def _shuffle(step: Step) -> Any:
    """Channels that become pixels: those of a pixel go together."""
    x, named = _first(step), step.args
    factor: int = named["upscale_factor" if step.name == "pixel_shuffle" else "downscale_factor"]
    dim, cells = len(x.shape) - 3, factor**2
    ids = step.channels.at(x, dim) if x.touching([dim]) else None
    step.channels.keep_axes(x.touching([-1, -2]), f"torch's {step.name} runs over it")
    if ids is None:
        return Label(step.shape)
    made: Ids = np.repeat(ids, cells)
    if step.name == "pixel_shuffle":
        rows = ids.reshape(-1, cells)
        step.channels.join(rows, rows[:, :1])
        made = rows[:, 0]
    return Label(step.shape, (Axis((dim,), made),))


def _rules(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


_POOLS = (
    "max_pool avg_pool adaptive_avg_pool adaptive_max_pool lp_pool upsample_nearest "
    "_upsample_nearest_exact upsample_bilinear upsample_linear upsample_trilinear upsample_bicubic "
    "_upsample_bilinear _upsample_bicubic reflection_pad replication_pad"
)

MOVE_RULES: dict[str, Rule] = {
    **_rules(
        _same,
        "dropout alpha_dropout feature_dropout feature_alpha_dropout clone contiguous detach to "
        "_to_copy alias lift_fresh_copy type_as zeros_like ones_like full_like rand_like "
        "randn_like empty_like",
    ),
    **_rules(
        _view,
        "view reshape _unsafe_view flatten unflatten view_as reshape_as squeeze unsqueeze",
    ),
    **_rules(_permute, "permute transpose t numpy_T swapaxes"),
    **_rules(_elementwise, "expand broadcast_to"),
    **_rules(  # torch has no tag on these that says so
        _elementwise,
        "hardswish hardsigmoid mish softplus logsigmoid log_sigmoid selu celu elu rrelu threshold "
        "softshrink hardshrink tanhshrink relu6 clip",
    ),
    **_rules(_concatenate, "cat concat concatenate"),
    **_rules(_stack, "stack"),
    **_rules(_divide, "chunk split split_with_sizes tensor_split"),
    **_rules(_cut_out, "slice narrow select unbind"),
    **_rules(
        _reduce,
        "mean sum amax amin max min var std prod any all argmax argmin logsumexp norm median "
        "linalg_vector_norm nansum nanmean",
    ),
    **_rules(_along, "softmax log_softmax _softmax _log_softmax cumsum cumprod flip roll"),
    **{
        f"{kind}{rank}d{ending}": _spatial
        for kind in _POOLS.split()
        for rank in (1, 2, 3)
        for ending in ("", "_with_indices", "_aa")
    },
    **_rules(_pad, "constant_pad_nd pad"),
    **_rules(_gate, "glu"),
    **_rules(_shuffle, "pixel_shuffle pixel_unshuffle"),
}
