"""Which group holds which shards: N types of shards on N groups, r in each group's stack.

Source: SPARe, "stacked parallelism with adaptive reordering" (arXiv 2603.00357).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dtoolkit.errors import PlanError
from dtoolkit.training.stacked.rulers import is_ruler, ruler
from dtoolkit.training.steptimes import check_count

__all__ = ["CITATION", "Stacks", "placement"]

CITATION = "SPARe: stacked parallelism with adaptive reordering. ICML 2026 (arXiv 2603.00357)"


@dataclass(frozen=True)
class Stacks:
    """The stack of each group. Make one by :func:`placement`.

    Attributes
    ----------
    groups : int
        N: groups, and types of shards.
    offsets : tuple of int
        Group g holds types ``(g + offset) mod N``, in this order to begin with; the first is 0.
    """

    groups: int
    offsets: tuple[int, ...]

    @property
    def redundancy(self) -> int:
        """r: shards of a stack, and groups that hold a type."""
        return len(self.offsets)

    @property
    def ruled(self) -> bool:
        """Whether any two types share at most one group."""
        return is_ruler(self.offsets, self.groups)

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """Types of each group's stack, in the order to begin with."""
        return tuple(map(tuple, self.table.tolist()))

    @cached_property
    def table(self) -> NDArray[np.int32]:
        """:attr:`order` as an int32 array of shape (groups, redundancy), read-only."""
        rows = np.arange(self.groups)[:, None] + np.array(self.offsets)
        table = (rows % self.groups).astype(np.int32)
        table.flags.writeable = False
        return table

    def cite(self) -> str:
        """What to cite."""
        return CITATION

    def holders(self, shard: int) -> tuple[int, ...]:
        """Groups whose stack has a type, in the order of the slot in which it begins."""
        return tuple((shard - offset) % self.groups for offset in self.offsets)


def placement(n: int, r: int, *, offsets: Sequence[int] | None = None) -> Stacks:
    """Lay N types of shards over N groups, r a group, by a modular Golomb ruler.

    Parameters
    ----------
    n : int
        N: groups, and types of shards.
    r : int
        Shards of a stack; 1 is no redundancy.
    offsets : sequence of int, optional
        Own ones, distinct modulo n, the first 0, whatever their differences; by default those of
        :func:`~dtoolkit.training.stacked.ruler`.

    Returns
    -------
    Stacks

    Raises
    ------
    PlanError
        There is no ruler for these numbers, or the offsets are not distinct, not as many as r, or
        do not begin with 0.

    Examples
    --------
    >>> placement(4, 2).order
    ((0, 1), (1, 2), (2, 3), (3, 0))
    """
    n, r = check_count("n", n), check_count("r", r)
    if offsets is None:
        return Stacks(n, ruler(n, r))
    own = tuple(operator.index(offset) for offset in offsets)
    if len(own) != r or own[0] != 0 or len({offset % n for offset in own}) != r:
        raise PlanError(
            f"offsets={own}: wanted r={r} of them, distinct modulo n={n}, the first one 0"
        )
    return Stacks(n, own)
