"""Who computes which shards of a batch, and who counts them, when workers come and go: pure.

A batch is cut into the same shards however many workers are left, so that sums of gradients, taken
in the order of the shards, stay the same. A worker is known by its seat: its rank when the run
began, which a newcomer takes over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtoolkit.arrays.layout import Layout
from dtoolkit.training.stacked import Assignment, WipeOut, assign, placement

if TYPE_CHECKING:
    from dtoolkit.training.strategy import Strategy

__all__ = ["ByStacks", "Deal", "Dealer", "Lost", "Spread", "shards_of"]

Shares = Mapping[int, tuple[int, ...]]


def shards_of(strategy: Strategy, workers: int) -> int:
    """Shards that a batch is cut into: the strategy's own, or one for each worker."""
    return strategy.shards or workers


class Lost(Exception):
    """No survivor can compute some shard; the text says which."""


@dataclass(frozen=True)
class Deal:
    """Who computes and counts what in one step.

    Attributes
    ----------
    computes : mapping of seat to shards
        Whose gradients the seat must have made, ascending.
    counts : tuple of int, one a shard
        Seat whose gradient is the one that is summed.
    """

    computes: Shares
    counts: tuple[int, ...]

    def counted_by(self, seat: int) -> tuple[int, ...]:
        """Shards that a seat counts, ascending."""
        return tuple(shard for shard, own in enumerate(self.counts) if own == seat)


class Dealer(ABC):
    """Deals shards to seats; all survivors come to the same without a message.

    Parameters
    ----------
    shards : int
    seats : int
        Workers that the run began with.
    """

    def __init__(self, shards: int, seats: int) -> None:
        self.shards, self.seats = shards, seats
        layout = Layout.block(shards, seats)
        self.home = [tuple(int(one) for one in layout.indices(seat)) for seat in range(seats)]

    def summary(self) -> dict[str, Any]:
        """Plain values for the run's card."""
        return {}

    @abstractmethod
    def deal(self, alive: Sequence[int], held: Mapping[int, frozenset[int]]) -> tuple[Deal, Deal]:
        """Deal anew.

        Parameters
        ----------
        alive : sequence of int
            Seats, ascending.
        held : mapping of seat to shards
            Whose gradients are there already in the step that was interrupted.

        Returns
        -------
        now, later : Deal
            For that step, and for those that follow.

        Raises
        ------
        Lost
            Some shard cannot be computed any more.
        """


class Spread(Dealer):
    """Shards of seats that are gone go to those that have fewest."""

    def deal(self, alive: Sequence[int], held: Mapping[int, frozenset[int]]) -> tuple[Deal, Deal]:
        """See :meth:`Dealer.deal`."""
        shares = {seat: list(self.home[seat]) for seat in alive}
        for seat in range(self.seats):
            if seat not in shares:
                for shard in self.home[seat]:
                    least = min(alive, key=lambda one: (len(shares[one]), one))
                    shares[least].append(shard)
        computes = {seat: tuple(sorted(own)) for seat, own in shares.items()}
        counts = _owners(computes, self.shards)
        has = {shard: seat for seat in sorted(alive, reverse=True) for shard in held.get(seat, ())}
        now = tuple(has.get(shard, own) for shard, own in enumerate(counts))
        counted = {seat: tuple(s for s, own in enumerate(now) if own == seat) for seat in alive}
        return Deal(counted, now), Deal(computes, counts)


class ByStacks(Dealer):
    """Every seat can compute the shards of several, placed by a ruler (SPARe).

    Parameters
    ----------
    shards, seats : int
    redundancy : int
        Types of shards in each seat's stack; a type is the shards of one seat at the beginning.
    """

    def __init__(self, shards: int, seats: int, *, redundancy: int) -> None:
        super().__init__(shards, seats)
        self._stacks = placement(seats, redundancy)
        begin = assign(self._stacks, range(seats))
        assert isinstance(begin, Assignment)
        self._last: Assignment = begin

    def summary(self) -> dict[str, Any]:
        """See :meth:`Dealer.summary`; ``computed`` is S, the types that each computes in a step."""
        return {"redundancy": self._stacks.redundancy, "computed": self._last.S}

    def deal(self, alive: Sequence[int], held: Mapping[int, frozenset[int]]) -> tuple[Deal, Deal]:
        """See :meth:`Dealer.deal`."""
        gone = [seat for seat in range(self.seats) if seat not in alive]
        types = {
            seat: [t for t, own in enumerate(self.home) if own and set(own) <= held.get(seat, _NO)]
            for seat in alive
        }
        found = self._last.lose(gone, held=types)
        if isinstance(found, WipeOut):
            raise Lost(str(found))
        self._last = found
        later = {seat: self._of(found.computes[seat]) for seat in alive}
        now = {seat: self._of((*types[seat], *found.patch[seat])) for seat in alive}
        return Deal(now, self._counts(found.now)), Deal(later, self._counts(found.supplier))

    def _of(self, types: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({shard for one in types for shard in self.home[one]}))

    def _counts(self, seats: Sequence[int]) -> tuple[int, ...]:
        counts = [0] * self.shards
        for own, seat in zip(self.home, seats, strict=True):
            for shard in own:
                counts[shard] = seat
        return tuple(counts)


_NO: frozenset[int] = frozenset()


def _owners(computes: Shares, shards: int) -> tuple[int, ...]:
    owners = [0] * shards
    for seat, own in computes.items():
        for shard in own:
            owners[shard] = seat
    return tuple(owners)
