"""Which channels of a model go or stay together, found by walking through its operations."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from dtoolkit.sparsity.channels.graph import Graph, trace
from dtoolkit.sparsity.channels.joining import pointwise
from dtoolkit.sparsity.channels.labels import Axis, Channels, Ids, Label
from dtoolkit.sparsity.channels.layers import LAYER_RULES
from dtoolkit.sparsity.channels.moves import MOVE_RULES
from dtoolkit.sparsity.channels.steps import Roles, Rule, Step
from dtoolkit.sparsity.masks import find_mask

__all__ = ["OUTPUT", "Dependencies", "find_dependencies"]

OUTPUT = "is the model's output"
_RULES = {**MOVE_RULES, **LAYER_RULES}
_HELD = "torch's {kind} holds its widths (and heads) fixed"


@dataclass(eq=False)
class Dependencies:
    """Channels of a model, and what joins them.

    Attributes
    ----------
    dims : dict of str to list of int64 array
        By name of a parameter or buffer (tied ones once): the set of joined channels at each
        position of each dimension; two-dimensional, (groups, channels), for dimension 1 of grouped
        convolutions.
    sets : int
        Number of sets.
    reasons : dict of int to str
        Sets that stay, and why.
    rows, columns, products : bool array (sets,)
        Whether a weight makes, a weight reads, or a product uses them.
    weights : tuple of str
        Weights whose norms count, in the order of the model.
    depthwise : frozenset of str
    makers : frozenset of (str, int)
        Weights, and the dimension along which they make channels.
    balanced : list of int64 array (rows, channels)
        Sets, of which equal counts stay in each row.
    untraced : tuple of str
        Parameters that no operation has used.
    failure : str
        Why nothing could be traced; empty if it could.
    """

    dims: dict[str, list[Ids]]
    sets: int = 0
    reasons: dict[int, str] = field(default_factory=dict)
    rows: Any = None
    columns: Any = None
    products: Any = None
    weights: tuple[str, ...] = ()
    depthwise: frozenset[str] = frozenset()
    makers: frozenset[tuple[str, int]] = frozenset()
    balanced: list[Ids] = field(default_factory=list)
    untraced: tuple[str, ...] = ()
    failure: str = ""

    @property
    def useful(self) -> Any:
        """Sets that weights make, and that weights or products use: bool array (sets,)."""
        return self.rows & (self.columns | self.products)

    @property
    def cuttable(self) -> Any:
        """Those of them that need not stay: bool array (sets,)."""
        may = self.useful.copy()
        may[list(self.reasons)] = False
        return may


def find_dependencies(model: nn.Module, example_inputs: Any) -> Dependencies:
    """Walk through what the model does with an example.

    Parameters
    ----------
    model : torch.nn.Module
    example_inputs : tensor, tuple of arguments, or dict of keyword arguments

    Returns
    -------
    Dependencies
        Of no channel at all, with the failure in words, where torch.export cannot follow.
    """
    try:
        graphs = trace(model, example_inputs)
    except Exception as error:  # torch.export raises all kinds, and models of others run in it
        first = str(error).strip().split("\n")[0][:200]
        names = tuple(name for name, _ in model.named_parameters())
        failure = f"torch.export cannot follow the model ({type(error).__name__}: {first})"
        return Dependencies({}, untraced=names, failure=failure)
    walk = _Walk(model)
    for graph in graphs:
        walk.through(graph)
    return walk.result()


class _Walk:
    """Labels of all values while graphs are walked through; parameters have the same in all."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.channels, self.roles = model, Channels(), Roles()
        self.first: dict[str, str] = {}  # the first of a tensor's names, by any of them
        self.params: dict[str, Label] = {}
        self.used: set[str] = set()
        seen: dict[int, str] = {}
        tensors = [
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        ]
        for name, tensor in tensors:
            self.first[name] = seen.setdefault(id(tensor), name)
            if self.first[name] == name:
                axes = tuple(
                    Axis((dim,), self.channels.fresh(size), (name, dim))
                    for dim, size in enumerate(tensor.shape)
                )
                self.params[name] = Label(tuple(tensor.shape), axes)
        self._hold()

    def through(self, graph: Graph) -> None:
        """Label every value, and note what has to stay."""
        values: dict[str, Any] = {}
        for node in graph.nodes:
            if node.op == "output":
                for label in _labels(torch.fx.map_arg(node.args, lambda n: values.get(n.name))):
                    self.channels.keep_axes(label.axes, OUTPUT)
            elif node.op == "placeholder" and node.name in graph.names:
                name = self.first[graph.names[node.name]]
                if node.users:
                    self.used.add(name)
                values[node.name] = self.params[name]
            elif node.op == "call_function":
                values[node.name] = self.call(node, values)
            else:
                values[node.name] = _plain(_shape(node.meta.get("val")))

    def call(self, node: torch.fx.Node, values: dict[str, Any]) -> Any:
        """What comes out of one operation."""
        args: Any = torch.fx.map_arg(node.args, lambda n: values.get(n.name))
        named: Any = torch.fx.map_arg(node.kwargs, lambda n: values.get(n.name))
        target: Any = node.target
        shape = _shape(node.meta.get("val"))
        if target is operator.getitem:
            return args[0][args[1]] if isinstance(args[0], list) else _plain(shape)
        name, bound = str(target), {str(place): arg for place, arg in enumerate(args)} | named
        known = isinstance(target, torch._ops.OpOverload)
        if known:
            name = target._schema.name.split("::")[-1].removesuffix("_")
            bound = {
                argument.name: named.get(
                    argument.name,
                    args[place] if place < len(args) else argument.default_value,
                )
                for place, argument in enumerate(target._schema.arguments)
            }
        if shape is None:
            return None
        step = Step(name, bound, shape, self.channels, self.roles)
        if not any(label.axes for label in step.labels):
            return step.nothing()
        if known and name in _RULES:
            return self.checked(_RULES[name], step)
        if known and torch.Tag.pointwise in target.tags and not step.several:
            return pointwise(self.channels, step.labels, shape)
        return step.refuse()

    def checked(self, rule: Rule, step: Step) -> Any:
        """What a rule gives; where an operation is used in a way it does not know, all is kept."""
        try:
            made = rule(step)
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError):
            return step.refuse(f"torch's {step.name} is not followed in this use")
        shapes = tuple(label.shape for label in made) if isinstance(made, list) else made.shape
        return made if shapes == step.shape else step.refuse()

    def result(self) -> Dependencies:
        """Put together what was found."""
        self._join_masks()
        ids = {name: [axis.ids for axis in label.axes] for name, label in self.params.items()}
        for name, rows in self.roles.grouped.items():
            if name in self.roles.plain:
                self.channels.keep(rows, "its weight is used in two ways")
                self.channels.keep(ids[name][0], "its weight is used in two ways")
            ids[name][1] = rows
        sets = self.channels.components()
        why: dict[int, dict[str, None]] = {}
        for kept, reason in self.channels.kept:
            for one in np.unique(sets[kept]):
                why.setdefault(int(one), {})[reason] = None
        order = list(self.params)
        return Dependencies(
            {name: [sets[one] for one in many] for name, many in ids.items()},
            sets=int(sets.max(initial=-1)) + 1,
            reasons={one: "; ".join([*many][:3]) for one, many in why.items()},
            rows=_marked(self.roles.rows, sets),
            columns=_marked(self.roles.columns, sets),
            products=_marked(self.roles.products, sets),
            weights=tuple(sorted(self.roles.weights, key=order.index)),
            depthwise=frozenset(self.roles.depthwise),
            makers=frozenset(self.roles.makers),
            balanced=[sets[rows] for rows in self.channels.balanced()],
            untraced=tuple(
                name
                for name, _ in self.model.named_parameters()
                if self.first[name] not in self.used
            ),
        )

    def _hold(self) -> None:
        """Some modules cannot have other widths."""
        for prefix, module in self.model.named_modules():
            if isinstance(module, nn.MultiheadAttention | nn.RNNBase | nn.Bilinear):
                for attribute in module._parameters:
                    name = f"{prefix}.{attribute}" if prefix else attribute
                    if name in self.first:
                        reason = _HELD.format(kind=type(module).__name__)
                        self.channels.keep_axes(self.params[self.first[name]].axes, reason)

    def _join_masks(self) -> None:
        """Masks go with their weights."""
        for prefix, module in self.model.named_modules():
            for attribute in module._parameters:
                if find_mask(module, attribute) is None:
                    continue
                name = self.first[f"{prefix}.{attribute}" if prefix else attribute]
                mask = f"{prefix}.{attribute}_mask" if prefix else f"{attribute}_mask"
                pairs = zip(self.params[name].axes, self.params[mask].axes, strict=True)
                for one, other in pairs:
                    self.channels.join(one.ids, other.ids)
                if name in self.roles.grouped:
                    self.roles.grouped[mask] = self.roles.grouped[name]


def _marked(groups: list[Ids], sets: Ids) -> Any:
    found = np.zeros(int(sets.max(initial=-1)) + 1, dtype=bool)
    for ids in groups:
        found[sets[ids]] = True
    return found


def _labels(value: Any) -> list[Label]:
    if isinstance(value, Label):
        return [value]
    if isinstance(value, list | tuple):
        return [label for one in value for label in _labels(one)]
    return []


def _shape(value: Any) -> Any:
    """Shape of a value, shapes of several, None if it is no tensor."""
    if isinstance(value, torch.Tensor):
        return tuple(int(size) for size in value.shape)
    if isinstance(value, list | tuple):
        return tuple(_shape(one) or () for one in value)
    return None


def _plain(shape: Any) -> Any:
    """Labels without channels."""
    if shape is None:
        return None
    if shape and not isinstance(shape[0], int):
        return [Label(one) for one in shape]
    return Label(shape)
