"""Rules of the operations with weights: convolutions, linear layers, products, norms, attention."""

from __future__ import annotations

from typing import Any

from dtoolkit.sparsity.channels.joining import contract, pointwise
from dtoolkit.sparsity.channels.labels import Axis, Ids, Label
from dtoolkit.sparsity.channels.steps import Rule, Step

__all__ = ["LAYER_RULES"]


def _convolution(step: Step) -> Any:
    x, label, groups = step.args["input"], step.args["weight"], step.args["groups"]
    transposed = "transpose" in step.name
    weight = step.weight(label, 2)
    if weight is None:
        return step.refuse("the weight of a convolution is computed, not a parameter")
    dim = len(x.shape) - len(label.shape) + 1
    others = [axis for axis in x.axes if axis.inner not in (0, dim) and dim not in axis.dims]
    step.channels.keep_axes(others, "a convolution runs over it")
    inputs = step.channels.at(x, dim)
    first, second = weight[0].ids, weight[1].ids
    makes, reads = (second, first) if transposed else (first, second)
    assert weight[0].origin is not None
    name = weight[0].origin[0]
    step.roles.weights.add(name)
    if groups > 1:
        made = _grouped(step, name, inputs, weight, groups, transposed)
        if made is None:
            return step.refuse("a grouped transposed convolution is not followed")
        makes = made
    else:
        step.roles.plain.add(name)
        step.roles.columns.append(reads)
        _meet(step, inputs, reads)
    step.roles.rows.append(makes)
    step.roles.makers.add((name, 1 if transposed and groups == 1 else 0))
    _vector(step, step.args.get("bias"), makes)
    kept = [axis for axis in x.axes if axis.inner == 0 and dim]
    return Label(step.shape, (*kept, Axis((dim,), makes)))


def _grouped(
    step: Step, name: str, inputs: Ids | None, weight: list[Axis], groups: int, transposed: bool
) -> Ids | None:
    """Channels that a convolution with several groups makes."""
    first, second = weight[0].ids, weight[1].ids
    roles, channels = step.roles, step.channels
    if transposed:
        if len(second) > 1 or len(first) != groups:
            return None
        _meet(step, inputs, first)
        roles.depthwise.add(name)
        roles.columns.append(first)
        return first
    makes = first.reshape(groups, -1)
    if len(second) == 1:
        channels.join(makes, makes[:, :1])
        _meet(step, inputs, makes[:, 0])
        roles.depthwise.add(name)
        roles.columns.append(first)
        return first
    if inputs is None:
        channels.keep(first, "a grouped convolution reads the model's input")
        return first
    rows = inputs.reshape(groups, -1)
    channels.balance(rows)
    channels.balance(makes)
    roles.columns.append(rows)
    if name in roles.grouped:
        channels.join(rows, roles.grouped[name])
    roles.grouped.setdefault(name, rows)
    return first


def _linear(step: Step) -> Any:
    x, label = step.args["input"], step.args["weight"]
    weight = step.weight(label, len(label.shape))
    if weight is None or len(weight) != 2:
        return step.refuse("the weight of a linear layer is computed, not a parameter")
    left, _ = contract(step.channels, x, -1, label, 1)
    _weigh(step, weight, 1)
    _vector(step, step.args.get("bias"), weight[0].ids)
    return Label(step.shape, (*left.axes, Axis((len(step.shape) - 1,), weight[0].ids)))


def _product(step: Step) -> Any:
    names = ("batch1", "batch2") if step.name == "baddbmm" else ("mat1", "mat2")
    added = None
    if step.name in ("addmm", "baddbmm"):
        one, other = (step.args[name] for name in names)
        added = step.args["self"]
    else:
        one, other = list(step.args.values())[:2]
    if len(one.shape) < 2 or len(other.shape) < 2:
        return step.refuse()
    weights = [step.weight(label, len(label.shape)) for label in (one, other)]
    for weight, dim in zip(weights, (len(one.shape) - 1, len(other.shape) - 2), strict=True):
        if weight is not None:
            _weigh(step, weight, dim)
    if weights == [None, None]:
        step.roles.products += [axis.ids for axis in (*one.at(-1), *other.at(-2))]
    left, right = contract(step.channels, one, -1, other, -2)
    sides = [Label((*one.shape[:-1], 1), left.axes)]
    sides.append(Label((*other.shape[:-2], 1, other.shape[-1]), right.axes))
    if added is not None:
        sides.append(added)
    return pointwise(step.channels, sides, step.shape)


def _einsum(step: Step) -> Any:
    """Two operands, whose letters are summed over where both have them and the result has not."""
    equation, tensors = step.args["equation"].replace(" ", ""), step.args["tensors"]
    inputs, _, result = equation.partition("->")
    terms = inputs.split(",")
    summed = set(inputs) - set(result) - {","}
    once = all(len(set(term)) == len(term) for term in terms)
    if (
        "." in equation
        or len(terms) != 2
        or not once
        or not summed <= set(terms[0]) & set(terms[1])
    ):
        return step.refuse()
    sides = list(tensors)
    for place, term in enumerate(terms):
        weight = step.weight(sides[place], len(term))
        for letter, axis in zip(term, weight or (), strict=False):
            _weigh(step, [axis], 0 if letter in summed else 1)
    if all(step.weight(side, len(term)) is None for side, term in zip(sides, terms, strict=True)):
        step.roles.products += [
            axis.ids
            for side, term in zip(sides, terms, strict=True)
            for axis in side.touching(term.index(letter) for letter in summed)
        ]
    for letter in sorted(summed):
        sides = list(
            contract(
                step.channels, sides[0], terms[0].index(letter), sides[1], terms[1].index(letter)
            )
        )
    placed = []
    for side, term in zip(sides, terms, strict=True):
        shape = tuple(side.shape[term.index(x)] if x in term else 1 for x in result)
        places = {term.index(x): result.index(x) for x in term if x in result}
        placed.append(side.moved(places, shape))
    return pointwise(step.channels, placed, step.shape)


def _attention(step: Step) -> Any:
    query, key, value = (step.args[name] for name in ("query", "key", "value"))
    if step.args.get("enable_gqa") or step.args.get("scale") is None:
        reason = "the kernel of attention scales by it"
        step.channels.keep_axes((*query.at(-1), *key.at(-1)), reason)
        if step.args.get("enable_gqa"):
            step.channels.keep_axes(value.axes, "queries share it")
    step.roles.products += [axis.ids for axis in (*query.at(-1), *key.at(-1))]
    contract(step.channels, query, -1, key, -1)
    return Label(step.shape, tuple(value.at(-1)))


def _embedding(step: Step) -> Any:
    weight = step.weight(step.args["weight"], 2)
    if weight is None:
        return step.refuse("the weight of an embedding is computed, not a parameter")
    step.channels.keep(weight[0].ids, "rows are chosen by index")
    _weigh(step, weight, 0, reads=False)
    return Label(step.shape, (Axis((len(step.shape) - 1,), weight[1].ids),))


def _norm_by_channel(step: Step) -> Any:
    """Batch and instance norm, PReLU: something for every channel alone."""
    x: Label = step.args["self" if step.name == "prelu" else "input"]
    if len(x.shape) < 2:
        return step.refuse()
    others = [axis for axis in x.axes if axis.inner > 1 and 1 not in axis.dims]
    step.channels.keep_axes(others, f"torch's {step.name} runs over it")
    ids = step.channels.at(x, 1)
    for name in ("weight", "bias", "running_mean", "running_var"):
        vector = step.args.get(name)
        if isinstance(vector, Label) and vector.shape == (x.shape[1],):
            if ids is not None:
                _vector(step, vector, ids)
            else:
                step.channels.keep_axes(vector.axes, f"torch's {step.name} of fixed width")
    kept = [axis for axis in x.axes if axis.inner == 0]
    made = Label(x.shape, (*kept, *([] if ids is None else [Axis((1,), ids)])))
    return [made, *(Label(s) for s in step.shape[1:])] if step.several else made


def _norm_over(step: Step) -> Any:
    """Layer and group norm: what they average over stays whole."""
    x = step.args["input"]
    if "group" in step.name:
        dims, what = [1], "a group norm"
    else:
        dims = list(range(-len(step.args["normalized_shape"]), 0))
        what = "an RMS norm" if "rms" in step.name else "a layer norm"
    gone = x.touching(dims)
    step.channels.keep_axes(gone, f"feeds {what}, whose statistics would change")
    for name in ("weight", "bias"):
        vector = step.args.get(name)
        if isinstance(vector, Label):
            step.channels.keep_axes(vector.axes, f"belongs to {what}")
    return [x, *(Label(s) for s in step.shape[1:])] if step.several else x


def _meet(step: Step, inputs: Ids | None, reads: Ids) -> None:
    if inputs is None:
        step.channels.keep(reads, "reads the model's input, or values of fixed width")
    else:
        step.channels.join(inputs, reads)


def _weigh(step: Step, weight: list[Axis], read: int, *, reads: bool = True) -> None:
    """Note which dimension of a weight reads channels, and that the others make them."""
    for dim, axis in enumerate(weight):
        assert axis.origin is not None
        step.roles.weights.add(axis.origin[0])
        step.roles.plain.add(axis.origin[0])
        if dim != read:
            step.roles.rows.append(axis.ids)
            step.roles.makers.add(axis.origin)
        elif reads:
            step.roles.columns.append(axis.ids)


def _vector(step: Step, vector: Any, ids: Ids) -> None:
    """Join a bias or the like, one value a channel."""
    if isinstance(vector, Label):
        axes = vector.at(0)
        if not axes:
            step.channels.keep(ids, "meets values of fixed width")
        for axis in axes:
            step.channels.join(axis.ids, ids)


LAYER_RULES: dict[str, Rule] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution),
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm", "addmm", "baddbmm"), _product),
    "einsum": _einsum,
    "scaled_dot_product_attention": _attention,
    "embedding": _embedding,
    **dict.fromkeys(("batch_norm", "instance_norm", "prelu"), _norm_by_channel),
    **dict.fromkeys(("layer_norm", "group_norm", "rms_norm"), _norm_over),
}
