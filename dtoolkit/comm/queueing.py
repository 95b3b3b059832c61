"""The queue of each dimension, as an event simulation in whole numbers.

Every dimension serves one stage at a time, for all its ranks alike; a chunk's stage joins the queue
of its dimension when the stage before has ended. First come, first served, or the stage that moves
fewest bytes first. Equals go in order of arrival, and those that came at the same moment in order
of their numbers. Times are whole numbers of any unit (see :mod:`dtoolkit.comm.exact`), so that "at
the same moment" means what it says.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Queues", "Served", "Work"]


class Work(NamedTuple):
    """One stage of a job: in which queue, for how long, and how much it moves."""

    queue: int
    duration: int
    moved: int


class Served(NamedTuple):
    """A stage that has begun: which, and when."""

    job: int
    stage: int
    start: int
    end: int


class Queues:
    """Queues with one server each, and jobs that go from one to the next.

    Parameters
    ----------
    queues : int
    order : {"fifo", "scf"}
        First in, first out, or the smallest amount moved first.

    Attributes
    ----------
    served : list of Served
        Every stage that has begun, by time of its beginning.
    ended : dict of int to int
        When each job that is done was done.
    """

    def __init__(self, queues: int, order: str = "fifo") -> None:
        self._smallest_first = order == "scf"
        self._waiting: list[list[tuple[int, int, int, int]]] = [[] for _ in range(queues)]
        self._busy = [False] * queues
        self._events: list[tuple[int, int, int]] = []  # time, job, stage that is over (-1: none)
        self._jobs: list[Sequence[Work]] = []
        self.served: list[Served] = []
        self.ended: dict[int, int] = {}

    def submit(self, job: Sequence[Work], time: int = 0) -> int:
        """Let a job arrive at a time that has not passed yet; returns its number."""
        number = len(self._jobs)
        self._jobs.append(job)
        heapq.heappush(self._events, (time, number, -1))
        return number

    def run(self, until: int | None = None) -> None:
        """Go on until a job is done, or all are."""
        while self._events and (until is None or until not in self.ended):
            self._moment()

    def _moment(self) -> None:
        """All that happens at the next time: what is over, what arrives, what begins."""
        events, jobs = self._events, self._jobs
        now = events[0][0]
        touched = set()
        while events and events[0][0] == now:
            _, number, stage = heapq.heappop(events)
            job = jobs[number]
            if stage >= 0:
                queue = job[stage].queue
                self._busy[queue] = False
                touched.add(queue)
            if stage + 1 == len(job):
                self.ended[number] = now
                continue
            queue, _, moved = job[stage + 1]
            key = moved if self._smallest_first else 0
            heapq.heappush(self._waiting[queue], (key, now, number, stage + 1))
            touched.add(queue)
        for queue in sorted(touched):
            if not self._busy[queue] and self._waiting[queue]:
                _, _, number, stage = heapq.heappop(self._waiting[queue])
                end = now + jobs[number][stage].duration
                self._busy[queue] = True
                self.served.append(Served(number, stage, now, end))
                heapq.heappush(events, (end, number, stage))
