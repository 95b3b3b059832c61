"""Which channels go, as data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dtoolkit.sparsity.channels.labels import Ids

__all__ = ["ChannelGroup", "CutPlan", "Kept", "WholeWidth"]

Kept = tuple[Ids | None, ...]
"""Positions that stay along each dimension of a tensor; None where all do. Two-dimensional,
(groups, channels of a group), along dimension 1 of the weight of a grouped convolution."""


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that the same layers make and read, so that they are cut together.

    Attributes
    ----------
    made_by, read_by : tuple of str
        Names of weights.
    width : int
        Channels before.
    cut : tuple of int
        Which go, counted from 0.
    """

    made_by: tuple[str, ...]
    read_by: tuple[str, ...]
    width: int
    cut: tuple[int, ...]


@dataclass(frozen=True)
class WholeWidth:
    """A width that stays as it is.

    Attributes
    ----------
    layers : tuple of str
        Names of weights that make or read it.
    width : int
    reason : str
    """

    layers: tuple[str, ...]
    width: int
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.layers[:4]) + (" ..." if len(self.layers) > 4 else "")
        return f"{names} ({self.width:,}): {self.reason}"


@dataclass(frozen=True, eq=False)
class CutPlan:
    """Channels to be cut from a model: what :func:`plan_cuts` gives and :func:`apply_cuts` takes.

    Two plans are equal if they keep the same of the same tensors.

    Attributes
    ----------
    groups : tuple of ChannelGroup
        All that can be cut, whether something goes or not.
    whole : tuple of WholeWidth
        What stays whole, and why.
    notes : tuple of str
        Channels that were to go and stay for a reason.
    untraced : tuple of str
        Parameters that the model has not used on the example; they stay as they are.
    failure : str
        Why the model could not be traced, so that nothing goes; empty if it could.
    kept : dict of str to Kept
        By name of a parameter or buffer that becomes smaller.
    shapes : dict of str to tuple of int
        Of these tensors, before.
    depthwise : tuple of str
        Weights of convolutions with as many groups as channels.
    """

    groups: tuple[ChannelGroup, ...]
    whole: tuple[WholeWidth, ...]
    notes: tuple[str, ...] = ()
    untraced: tuple[str, ...] = ()
    failure: str = ""
    kept: dict[str, Kept] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    depthwise: tuple[str, ...] = ()

    @property
    def cut(self) -> int:
        """Channels that go."""
        return sum(len(group.cut) for group in self.groups)

    @property
    def width(self) -> int:
        """Channels that could."""
        return sum(group.width for group in self.groups)

    @property
    def digest(self) -> str:
        """Hash of what is kept: equal on workers that cut alike."""
        found = hashlib.blake2b(digest_size=16)
        for name in sorted(self.kept):
            found.update(f"{name} {self.shapes[name]}".encode())
            for positions in self.kept[name]:
                if positions is None:
                    found.update(b"all")
                else:
                    found.update(f"{positions.shape}".encode())
                    found.update(np.ascontiguousarray(positions, dtype="<i8").tobytes())
        return found.hexdigest()

    def table(self) -> pd.DataFrame:
        """One row a group: ``made_by``, ``read_by``, ``channels``, ``after``, ``cut``."""
        rows = [
            {
                "made_by": ", ".join(group.made_by),
                "read_by": ", ".join(group.read_by),
                "channels": group.width,
                "after": group.width - len(group.cut),
                "cut": len(group.cut),
            }
            for group in self.groups
        ]
        return pd.DataFrame(rows, columns=["made_by", "read_by", "channels", "after", "cut"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CutPlan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        if self.failure:
            return f"CutPlan(nothing goes: {self.failure})"
        return (
            f"CutPlan({self.cut:,} of {self.width:,} channels go, in {len(self.groups)} groups; "
            f"{len(self.whole)} widths stay whole)"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.sparsity.channels.cards import plan_card

        return plan_card(self)
