"""Ranks that have just met tell each other where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from dtoolkit.comm.communicator import Communicator

__all__ = ["Group", "Standing", "gathered"]


@dataclass(frozen=True)
class Standing:
    """Where one rank stands.

    Attributes
    ----------
    seat : int
        The place that it has in the run; -1 for a newcomer.
    step : int
        Steps that it holds the result of; -1 for a newcomer.
    met : int
        Steps that were done at the last meeting that it was through with.
    stopped : bool
        The ranks had agreed to stop.
    examples : int
        Digest of what it has loaded.
    groups : int
        Groups that have been formed, as far as it knows.
    held : frozenset of int
        Shards whose gradients it has in the step that follows.
    """

    seat: int
    step: int
    met: int
    stopped: bool
    examples: int
    groups: int
    held: frozenset[int]


@dataclass(frozen=True)
class Group:
    """Ranks of now.

    Attributes
    ----------
    standings : tuple of Standing
        By rank, with a seat for each.
    came : tuple of int
        Ranks that are new.
    """

    standings: tuple[Standing, ...]
    came: tuple[int, ...]

    @property
    def seats(self) -> tuple[int, ...]:
        """Seat of each rank."""
        return tuple(one.seat for one in self.standings)

    def lost_from(self, before: Group) -> list[int]:
        """Ranks of a group before whose workers are gone, whoever has their seats now."""
        there = {seat for rank, seat in enumerate(self.seats) if rank not in self.came}
        return [rank for rank, seat in enumerate(before.seats) if seat not in there]

    @property
    def number(self) -> int:
        """How many groups there have been, with this one."""
        return max(one.groups for one in self.standings) + 1

    @property
    def step(self) -> int:
        """Steps that are done: those of the rank that is furthest; -1 where all are new."""
        return max(one.step for one in self.standings)

    @property
    def ahead(self) -> list[int]:
        """Ranks that hold the result of all of them."""
        return [rank for rank, one in enumerate(self.standings) if one.step == self.step]

    @property
    def behind(self) -> list[int]:
        """Ranks that do not."""
        return [rank for rank, one in enumerate(self.standings) if one.step < self.step]

    @property
    def met(self) -> int:
        """Steps that were done at the last meeting that all were through with."""
        return min(self.standings[rank].met for rank in self.ahead)

    @property
    def spokesman(self) -> int:
        """The first rank that knows what has been."""
        return min(set(range(len(self.standings))) - set(self.came), default=0)

    @property
    def held(self) -> dict[int, frozenset[int]]:
        """Shards that each seat has of the step that follows."""
        return {self.standings[rank].seat: self.standings[rank].held for rank in self.ahead}

    def strangers(self) -> list[int]:
        """Ranks that have loaded other examples than the first that knows what has been."""
        known = self.standings[self.spokesman].examples
        return [rank for rank, one in enumerate(self.standings) if one.examples != known]


def gathered(comm: Communicator, mine: Standing, *, shards: int, seats: int) -> Group:
    """Hear where all ranks stand, and give newcomers the seats that are free; collective."""
    row = [mine.seat, mine.step, mine.met, mine.stopped, mine.examples, mine.groups]
    row += [shard in mine.held for shard in range(shards)]
    with comm.phase("agreement"):
        said = comm.all_gather(torch.tensor(row, dtype=torch.int64)).tolist()
    return _seated([_standing(one) for one in said], seats)


def _standing(row: Sequence[int]) -> Standing:
    seat, step, met, stopped, examples, groups, *flags = row
    held = frozenset(shard for shard, flag in enumerate(flags) if flag)
    return Standing(seat, step, met, bool(stopped), examples, groups, held)


def _seated(standings: Sequence[Standing], seats: int) -> Group:
    taken = {one.seat for one in standings}
    free = iter(sorted(set(range(seats)) - taken))
    came = tuple(rank for rank, one in enumerate(standings) if one.seat < 0)
    all_ = tuple(replace(one, seat=next(free)) if one.seat < 0 else one for one in standings)
    return Group(all_, came)
