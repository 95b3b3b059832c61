"""One operation of a model, as rules see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtoolkit.sparsity.channels.labels import Axis, Channels, Ids, Label

__all__ = ["Roles", "Rule", "Step"]


@dataclass
class Roles:
    """What channels are to the weights that make and read them.

    Attributes
    ----------
    rows : list of int64 array
        Channels that a weight makes.
    columns : list of int64 array
        Channels that a weight reads: where it is 0 they have no effect.
    products : list of int64 array
        Channels that are multiplied with each other, and read by no weight.
    weights : set of str
        Weights of layers, whose norms count.
    grouped : dict of str to int64 array (groups, channels of a group)
        Channels along dimension 1 of the weights of grouped convolutions.
    depthwise : set of str
        Weights of convolutions with as many groups as channels.
    plain : set of str
        Weights used otherwise than in a grouped convolution.
    makers : set of (str, int)
        Weights, and the dimension along which they make channels.
    """

    rows: list[Ids] = field(default_factory=list)
    columns: list[Ids] = field(default_factory=list)
    products: list[Ids] = field(default_factory=list)
    weights: set[str] = field(default_factory=set)
    grouped: dict[str, Ids] = field(default_factory=dict)
    depthwise: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    makers: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True)
class Step:
    """An operation with what goes in.

    Attributes
    ----------
    name : str
        Of the operation, without the underscore of those in place.
    args : dict
        By name; tensors are labels.
    shape : tuple
        Of what comes out; a tuple of shapes where that is several tensors.
    channels : Channels
    roles : Roles
    """

    name: str
    args: dict[str, Any]
    shape: tuple[Any, ...]
    channels: Channels
    roles: Roles

    @property
    def labels(self) -> list[Label]:
        """All tensors that go in."""
        found: list[Label] = []
        for value in self.args.values():
            many = value if isinstance(value, list | tuple) else [value]
            found += [one for one in many if isinstance(one, Label)]
        return found

    @property
    def several(self) -> bool:
        """Whether several tensors come out."""
        return bool(self.shape) and not isinstance(self.shape[0], int)

    def nothing(self) -> Label | list[Label]:
        """What comes out, without channels."""
        if self.several:
            return [Label(shape) for shape in self.shape]
        return Label(self.shape)

    def refuse(self, reason: str = "") -> Label | list[Label]:
        """Keep all channels that go in whole."""
        for label in self.labels:
            self.channels.keep_axes(label.axes, reason or f"torch's {self.name} is not followed")
        return self.nothing()

    def weight(self, label: Any, dims: int) -> list[Axis] | None:
        """Axes of a parameter itself, one a dimension; None if it is something computed."""
        if not isinstance(label, Label) or len(label.shape) < dims:
            return None
        axes = [
            next((axis for axis in label.axes if axis.dims == (dim,) and axis.origin), None)
            for dim in range(len(label.shape))
        ]
        return None if None in axes[:dims] else axes  # type: ignore[return-value]


Rule = Callable[[Step], Any]
