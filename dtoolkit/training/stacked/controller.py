"""Who computes what after a loss: the controller of stacked parallelism.

A pure function of what every survivor knows: the stacks, who is alive, S and the order of today.
All survivors come to the same :class:`Assignment` without a message, on any machine.

Source: SPARe (arXiv 2603.00357): today's order if it still covers all types; else the least S for
which any order does; else, at that S, the order that moves the fewest types. Where no order does,
a type is gone with all its holders: :class:`WipeOut`, restart from the checkpoint.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.errors import PlanError
from dtoolkit.training.stacked.placement import Stacks
from dtoolkit.training.stacked.settling import cover, settle

__all__ = ["Assignment", "WipeOut", "assign"]


@dataclass(frozen=True)
class Assignment:
    """Who computes which types of shards, and who counts them.

    Attributes
    ----------
    stacks : Stacks
    alive : tuple of int
        Surviving groups, ascending.
    S : int
        Shards of its stack that each survivor computes in a step.
    order : tuple of tuples of int, one a group
        Types of each stack, the first ones first; also of groups that are gone.
    patch : tuple of tuples of int, one a group
        Types that each group must compute in this step beside what is held: those whose gradients
        were lost.
    now : tuple of int, one a type
        Group that counts each type in this step: the one of `supplier` if it holds or patches the
        type, else the lowest that holds it.
    moved : int
        Types that came into the first S slots of a stack.
    """

    stacks: Stacks
    alive: tuple[int, ...]
    S: int
    order: tuple[tuple[int, ...], ...]
    patch: tuple[tuple[int, ...], ...] = field(repr=False)
    now: tuple[int, ...] = field(repr=False)
    moved: int = 0

    @cached_property
    def computes(self) -> tuple[tuple[int, ...], ...]:
        """Types that each group computes in the steps to come: the first S; none if it is gone."""
        living = set(self.alive)
        return tuple(
            stack[: self.S] if group in living else () for group, stack in enumerate(self.order)
        )

    @cached_property
    def supplier(self) -> tuple[int, ...]:
        """Group that counts each type in the steps to come: earliest slot, then lowest group."""
        order = np.array(self.order, np.int32)
        return tuple(cover(order, _alive(self.alive, len(order)), self.S).tolist())

    def lose(
        self, lost: Iterable[int], *, held: Mapping[int, Iterable[int]] | None = None
    ) -> Assignment | WipeOut:
        """Who computes what once more groups are gone: :func:`assign` from here on.

        Parameters
        ----------
        lost : iterable of int
            Groups; those that were gone before are ignored.
        held
            As of :func:`assign`.

        Returns
        -------
        Assignment or WipeOut
        """
        gone = _groups("lost", lost, self.stacks.groups)
        alive = set(self.alive).difference(gone)
        return assign(self.stacks, alive, S=self.S, order=self.order, held=held)

    @cached_property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Types that each group counts in the steps to come, ascending."""
        return tuple(
            tuple(shard for shard, group in enumerate(self.supplier) if group == own)
            for own in range(self.stacks.groups)
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.recovery_cards import assignment_card

        return assignment_card(self)


@dataclass(frozen=True)
class WipeOut:
    """All holders of a type are gone: only a restart from the checkpoint helps.

    Attributes
    ----------
    missing : tuple of int
        Types that no survivor holds.
    alive : tuple of int
        Surviving groups.
    """

    missing: tuple[int, ...]
    alive: tuple[int, ...]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.missing[:8])) + ("..." if len(self.missing) > 8 else "")
        return (
            f"wipe-out: no survivor of {len(self.alive)} holds shard(s) {shown}; the run can only "
            "be started again from its checkpoint"
        )


def assign(
    stacks: Stacks,
    alive: Iterable[int],
    *,
    S: int = 1,
    order: Sequence[Sequence[int]] | None = None,
    held: Mapping[int, Iterable[int]] | None = None,
) -> Assignment | WipeOut:
    """Find who computes what, so that survivors compute every type and each is counted once.

    Parameters
    ----------
    stacks : Stacks
    alive : iterable of int
        Surviving groups.
    S : int
        Shards of its stack that each group computed until now. S does not fall below it: give 1
        when groups came back.
    order : sequence of sequences of int, one a group
        Order of the stacks until now; by default that of `stacks`.
    held : mapping of group to types, optional
        Whose gradients are there in this step already; by default those of the first S types of
        each survivor's order until now. Entries of groups that are gone are ignored.

    Returns
    -------
    Assignment or WipeOut

    Raises
    ------
    PlanError
        `alive` names no group, S is not from 1 to r, or an order or what is held is not of the
        stacks.

    Examples
    --------
    >>> from dtoolkit.training.stacked import placement
    >>> found = assign(placement(4, 2), [0, 1, 3])
    >>> found.S, found.computes, found.patch
    (2, ((0, 1), (1, 2), (), (3, 0)), ((), (2,), (), ()))
    """
    living = _groups("alive", alive, stacks.groups)
    if not 1 <= operator.index(S) <= stacks.redundancy:
        raise PlanError(f"S={S}: wanted from 1 to r={stacks.redundancy}")
    before = _order(stacks, order)
    settled = settle(before, _alive(living, stacks.groups), S)
    if settled is None:
        there = {shard for group in living for shard in stacks.order[group]}
        return WipeOut(tuple(sorted(set(range(stacks.groups)) - there)), living)
    after, depth, moved = settled
    supplier = cover(after, _alive(living, stacks.groups), depth).tolist()
    has = _held(stacks, living, before[:, :S], held)
    now: list[int] = list(supplier)
    patch: list[list[int]] = [[] for _ in range(stacks.groups)]
    for shard, group in enumerate(supplier):
        if group not in has[shard]:
            if has[shard]:
                now[shard] = min(has[shard])
            else:
                patch[group].append(shard)
    return Assignment(
        stacks,
        living,
        int(depth),
        tuple(map(tuple, after.tolist())),
        tuple(map(tuple, patch)),
        tuple(now),
        moved,
    )


def _groups(name: str, given: Iterable[int], groups: int) -> tuple[int, ...]:
    found = tuple(sorted({operator.index(group) for group in given}))
    if found and not (found[0] >= 0 and found[-1] < groups):
        raise PlanError(f"{name}={found}: wanted groups from 0 to {groups - 1}")
    return found


def _alive(living: Sequence[int], groups: int) -> NDArray[Any]:
    alive = np.zeros(groups, np.bool_)
    alive[list(living)] = True
    return alive


def _order(stacks: Stacks, order: Sequence[Sequence[int]] | None) -> NDArray[Any]:
    if order is None:
        return stacks.table
    own = [tuple(map(operator.index, stack)) for stack in order]
    if list(map(sorted, own)) != list(map(sorted, stacks.order)):
        raise PlanError(
            "order: wanted for each group the types of its stack, each once: those of stacks.order "
            "in any order"
        )
    return np.array(own, np.int32)


def _held(
    stacks: Stacks,
    living: Sequence[int],
    computed: NDArray[Any],
    held: Mapping[int, Iterable[int]] | None,
) -> list[set[int]]:
    """Survivors that hold each type's gradient in this step."""
    has: list[set[int]] = [set() for _ in range(stacks.groups)]
    for group in living:
        own = computed[group].tolist() if held is None else held.get(group, ())
        for shard in own:
            if not 0 <= operator.index(shard) < stacks.groups:
                raise PlanError(f"held: group {group} holds {shard}, wanted types of shards")
            has[shard].add(group)
    return has
