"""Whose turn it is, where several clusters of ours stand on one Dask cluster.

The scheduler is the one place that all of them reach, and it knows which clients are still there.
Launches take their turn in the order in which they asked; a client that goes away gives up its
place, and what it left on the workers is named to whoever comes next.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "Turns", "addresses_of", "give_up_turn", "leave", "take_turn"]

_SILENT = 10.0  # seconds after which a place in the queue is lost that nobody asks about


@dataclass(frozen=True, slots=True)
class Answer:
    """What a launch is told when it asks for its turn.

    Attributes
    ----------
    granted : bool
    behind : str
        What it waits for, in words; empty if granted.
    orphans : tuple of str
        Owners whose clients are gone: their data and groups may be forgotten by the workers.
    """

    granted: bool
    behind: str
    orphans: tuple[str, ...]


@dataclass(slots=True)
class _Place:
    owner: str
    number: int
    label: str
    seen: float


@dataclass(slots=True)
class Turns:
    """The queue of launches, and which client each owner belongs to."""

    queue: list[_Place] = field(default_factory=list)
    clients: dict[str, str] = field(default_factory=dict)

    def take(
        self,
        owner: str,
        number: int,
        label: str,
        *,
        client: str,
        alive: Collection[str],
        now: float,
    ) -> Answer:
        """Ask for the turn, again and again until it is granted.

        Parameters
        ----------
        owner, number : str, int
            Who asks, and for which launch. An owner has one launch at a time: its next one takes a
            place at the end, and gives up the one before.
        label : str
            What is to run, in words.
        client : str
            The Dask client that the owner belongs to.
        alive : collection of str
            Clients that are connected.
        now : float
            Seconds on any clock that only grows.
        """
        self.clients[owner] = client
        orphans = tuple(o for o, c in self.clients.items() if c not in alive)
        for orphan in orphans:
            del self.clients[orphan]
        self.queue = [
            place
            for rank, place in enumerate(self.queue)
            if place.owner in self.clients
            and (place.owner != owner or place.number == number)
            and (rank == 0 or now - place.seen < _SILENT)
        ]
        mine = next((place for place in self.queue if place.owner == owner), None)
        if mine is None:
            mine = _Place(owner, number, label, now)
            self.queue.append(mine)
        mine.seen = now
        first = self.queue[0]
        ahead = self.queue.index(mine)
        behind = f"{ahead} of another Cluster object: {first.label} first" if ahead else ""
        return Answer(ahead == 0, behind, orphans)

    def give_up(self, owner: str, number: int) -> None:
        """Leave the queue, from whatever place."""
        self.queue = [p for p in self.queue if (p.owner, p.number) != (owner, number)]

    def leave(self, owner: str) -> None:
        """Forget an owner that closes."""
        self.queue = [place for place in self.queue if place.owner != owner]
        self.clients.pop(owner, None)


def addresses_of(dask_scheduler: Any) -> list[str]:
    """Workers that can run a launch, in the order in which they came."""
    return [
        address
        for address, worker in dask_scheduler.workers.items()
        if worker.status.name in ("running", "paused")  # paused: takes no tasks; it does answer
    ]


def take_turn(
    owner: str, number: int, label: str, client: str, dask_scheduler: Any = None
) -> Answer:
    """Run :meth:`Turns.take` on the scheduler."""
    alive, now = set(dask_scheduler.clients), time.monotonic()
    return _turns(dask_scheduler).take(owner, number, label, client=client, alive=alive, now=now)


def give_up_turn(owner: str, number: int, dask_scheduler: Any = None) -> None:
    """Run :meth:`Turns.give_up` on the scheduler."""
    _turns(dask_scheduler).give_up(owner, number)


def leave(owner: str, dask_scheduler: Any = None) -> None:
    """Run :meth:`Turns.leave` on the scheduler."""
    _turns(dask_scheduler).leave(owner)


def _turns(dask_scheduler: Any) -> Turns:
    turns: Turns = dask_scheduler.extensions.setdefault("dtoolkit-turns", Turns())
    return turns
