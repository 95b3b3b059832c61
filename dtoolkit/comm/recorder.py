"""What one rank writes down of its operations in one launch."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Protocol

from dtoolkit.comm.event import Event

__all__ = ["Recorder", "Watch"]


class Watch(Protocol):
    """Who is told of a rank's operations as they happen."""

    def begins(self, operation: str, phase: str) -> None:
        """An operation is about to begin; called in its thread, before anything is sent."""
        ...

    def ended(self) -> None:
        """An operation has ended; called on any thread."""
        ...


class Recorder:
    """The events of one rank in one launch.

    Parameters
    ----------
    launch, rank, ranks : int
        Number of the launch, this rank, ranks of the cluster.
    enabled : bool
        False: nothing is recorded.
    offset : float
        Seconds from this process's ``time.perf_counter`` to the clock of the trace.

    Attributes
    ----------
    phase : tuple of str
        Name, logical source and target that the next operations get.
    events : list of Event
    watch : Watch or None
        Who is told of operations; shared with the recorders of other threads.
    """

    def __init__(
        self,
        launch: int = 0,
        rank: int = 0,
        ranks: int = 1,
        *,
        enabled: bool = True,
        offset: float = 0.0,
    ) -> None:
        self.launch, self.rank, self.ranks = launch, rank, ranks
        self.enabled = enabled
        self.offset = offset
        self.phase: tuple[str, str, str] = ("", "", "")
        self.events: list[Event] = []
        self.watch: Watch | None = None
        self._sent = [0]  # shared with the recorders of other threads, as the events are
        self._guard = threading.Lock()  # operations end on several threads

    @property
    def sent(self) -> int:
        """Bytes sent to other ranks so far, recorded or not, by all threads."""
        return self._sent[0]

    def twin(self) -> Recorder:
        """A recorder for another thread: its phase is its own, its events come to the same list."""
        other = copy(self)
        other.phase = ("", "", "")
        return other

    def record(
        self,
        operation: str,
        phase: tuple[str, str, str],
        *,
        start: float,
        end: float,
        sent: Mapping[int, int],
        received: int,
        ranks: Sequence[int],
        group: str,
    ) -> None:
        """Write down one operation.

        Parameters
        ----------
        operation : str
        phase : tuple of str
            As :attr:`phase` was when the call began.
        start, end : float
            On this process's ``time.perf_counter``.
        sent : mapping
            Bytes by rank of the group.
        received : int
        ranks : sequence of int
            Rank in the cluster of each rank of the group.
        group : str
        """
        with self._guard:
            self._sent[0] += sum(sent.values())
        if self.watch is not None:
            self.watch.ended()
        if not self.enabled:
            return
        to = [0] * self.ranks
        for peer, count in sent.items():
            to[ranks[peer]] = count
        name, source, target = phase
        self.events.append(
            Event(
                launch=self.launch,
                rank=self.rank,
                operation=operation,
                phase=name,
                start=start + self.offset,
                end=end + self.offset,
                sent=tuple(to),
                received=received,
                group=group,
                source=source,
                target=target,
            )
        )
