"""What a loss does to a run, by policy: nothing, a patch, or the end until it is restarted."""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np

from dtoolkit.training.stacked.endurance import endurable, endurable_replaced
from dtoolkit.training.stacked.placement import Stacks
from dtoolkit.training.stacked.settling import settle

__all__ = ["Effect", "Losing", "Masked", "Rejoining", "Replicated", "Shrinking"]

Effect = Literal["masked", "patched", "fatal"]


class Losing:
    """Groups that are lost one by one, until a type has no holder any more: a fatal loss.

    Parameters
    ----------
    types : list of lists of int
        Types that each group holds, numbered from 0.
    redundancy : int
        r: groups that hold a type.
    endurable : float
        Expected losses to the wipe-out, by formula.

    Attributes
    ----------
    S : int
        Shards that each survivor computes in a step.
    """

    S: int

    def __init__(self, types: list[list[int]], redundancy: int, endurable: float) -> None:
        self.redundancy, self.endurable = redundancy, endurable
        self._types = types
        self._holders = np.bincount(np.concatenate(types)).tolist()
        self.reset()

    def reset(self) -> None:
        """All groups are there again."""
        self._alive, self._left = list(range(len(self._types))), list(self._holders)

    def begin(self, now: float) -> bool:
        """Whether groups join as a step begins."""
        return False

    def lose(self, u: float, now: float) -> Effect:
        """Lose a survivor, drawn by a number from 0 to 1."""
        group = self._alive.pop(int(u * len(self._alive)))
        for shard in self._types[group]:
            self._left[shard] -= 1
        if all(self._left[shard] for shard in self._types[group]):
            return self._go_on_without(group)
        return "fatal"

    def _go_on_without(self, group: int) -> Effect:
        return "masked"


class Replicated(Losing):
    """Each type on r groups, which all compute it in every step; r = 1 is no redundancy.

    Parameters
    ----------
    n, r : int
    sets : bool
        Groups share all their types in sets of r, some of r + 1 where r does not divide n; else any
        r groups in a row share a type.
    """

    def __init__(self, n: int, r: int, *, sets: bool = False) -> None:
        losses = endurable(n, r)
        if sets:
            members = np.array_split(np.arange(n), max(1, n // r))
            types = [[number] for number, own in enumerate(members) for _ in own]
            losses *= r ** (1 / r)  # a type in r is fatal by itself
        else:
            types = ((np.arange(n)[:, None] + np.arange(r)) % n).tolist()
        self.S = r
        super().__init__(types, r, losses)


class Masked(Losing):
    """Stacks, of which survivors compute as few shards as cover all types.

    Parameters
    ----------
    stacks : Stacks
    """

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        n, r = stacks.groups, stacks.redundancy
        super().__init__(stacks.table.tolist(), r, endurable(n, r))

    def reset(self) -> None:
        """All groups are there again, with S = 1 and the order of the beginning."""
        super().reset()
        self.S, self._order = 1, self._stacks.table
        self._there = np.ones(self._stacks.groups, np.bool_)

    def _go_on_without(self, group: int) -> Effect:
        self._there[group] = False
        settled = settle(self._order, self._there, self.S)
        if settled is None:
            return "fatal"
        kept = settled[0] is self._order and settled[1] == self.S
        self._order, self.S, _ = settled
        return "masked" if kept else "patched"


class Shrinking(Losing):
    """All groups hold everything, and survivors share the shards of those that are gone.

    Parameters
    ----------
    n : int
    """

    def __init__(self, n: int) -> None:
        super().__init__([[0]] * n, n, max(1.0, n - 1.0))

    def reset(self) -> None:
        """All groups are there again."""
        super().reset()
        self.S = 1

    def _go_on_without(self, group: int) -> Effect:
        self._share()
        return "patched"

    def _share(self) -> None:
        self.S = -(-len(self._types) // len(self._alive))


class Rejoining(Shrinking):
    """As :class:`Shrinking`, and for each loss a newcomer joins some time later.

    Parameters
    ----------
    n : int
    replace : float
        Seconds from a loss until the newcomer is there.
    mtbf : float
        Mean seconds between losses.
    """

    def __init__(self, n: int, *, replace: float, mtbf: float) -> None:
        self._replace = replace
        super().__init__(n)
        self.endurable = endurable_replaced(n, replace=replace, mtbf=mtbf)

    def reset(self) -> None:
        """All groups are there again."""
        super().reset()
        self._coming: deque[tuple[float, int]] = deque()

    def begin(self, now: float) -> bool:
        """Whether newcomers join as a step begins."""
        joined = False
        while self._coming and self._coming[0][0] <= now:
            self._alive.append(self._coming.popleft()[1])
            self._left[0] += 1
            joined = True
        self._share()
        return joined

    def lose(self, u: float, now: float) -> Effect:
        """Lose a survivor, drawn by a number from 0 to 1."""
        self._now = now
        return super().lose(u, now)

    def _go_on_without(self, group: int) -> Effect:
        self._coming.append((self._now + self._replace, group))
        return super()._go_on_without(group)
