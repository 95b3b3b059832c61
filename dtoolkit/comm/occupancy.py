"""When each link of an emulated network is free: one table for all processes of a machine.

A message occupies every link on its way, each for as long as its bytes take there, in the order of
sending. It has arrived when the last of them has carried it, one latency later. So links that are
loaded at once end exactly when :func:`dtoolkit.comm.predict` says: a phase lasts as long as its
busiest link. What this leaves out: that a link stands idle while a message waits for another one,
and that messages which share a link slow each other down instead of taking turns. Hosts of a
measured network have their capacity also for a rank that talks alone.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.links import Links
from dtoolkit.comm.network import Network

__all__ = ["Occupancy"]

_PROBE = 1 << 30  # bytes of the message whose way through the network is looked up

Way = tuple[tuple[tuple[int, float], ...], float]


class Occupancy:
    """The table of one group of ranks, in a file that all of them map.

    Parameters
    ----------
    network : Network
    name : str
        Name of the group, never used twice: what a stopped launch has left on the links is not
        found by the next one.
    rank : int
        This process's rank.

    Raises
    ------
    OSError
        The file cannot be made.
    """

    def __init__(self, network: Network, name: str, rank: int) -> None:
        self.network = network
        self._path = Path(tempfile.gettempdir()) / f"dtoolkit-{name.replace('/', '-')}.links"
        self._ways: dict[tuple[int, int], Way] = {}
        self._one_at_a_time = threading.Lock()
        nothing = np.zeros((network.ranks, network.ranks), np.int64)
        starts = np.cumsum([0, *(len(links.bytes) for links in network.loads(nothing))])
        self._starts = [int(start) for start in starts]
        words = self._starts[-1] + network.ranks  # a mark of each rank behind the links
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC
        self._file = io.FileIO(os.open(self._path, flags, 0o600), "r+")
        self._file.truncate(8 * words)  # zeros: free since ever
        self._map = mmap.mmap(self._file.fileno(), 8 * words)
        self._free_at = memoryview(self._map).cast("d")
        self._free_at[self._starts[-1] + rank] = 1.0

    def gathered(self, ranks: int) -> bool:
        """Whether the first `ranks` ranks have opened this very table; the file's name goes then.

        To be asked once the group has formed, that is after every rank has opened its table.
        """
        first = self._starts[-1]
        self.forget()
        return all(self._free_at[first + rank] for rank in range(ranks))

    def forget(self) -> None:
        """Take the file's name away; those who have it open keep it."""
        self._path.unlink(missing_ok=True)

    def send(self, source: int, messages: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
        """Let messages set out now, one after the other.

        Parameters
        ----------
        source : int
            Rank.
        messages : sequence of (int, int)
            Target rank and bytes of each.

        Returns
        -------
        list of (float, float)
            When the last link has carried it, and when it has arrived; on ``time.perf_counter``,
            which the processes of a machine share.
        """
        ways = [self._way(source, target) for target, _ in messages]
        table, times = self._free_at, []
        with self._locked():
            now = time.perf_counter()
            for (links, latency), (_, nbytes) in zip(ways, messages, strict=True):
                through = now
                for link, seconds in links:
                    free = max(table[link], now) + nbytes * seconds
                    table[link] = free
                    through = max(through, free)
                times.append((through, through + latency))
        return times

    def _way(self, source: int, target: int) -> Way:
        """Links with their seconds a byte, and the latency, from one rank to another."""
        way = self._ways.get((source, target))
        if way is None:
            sent = np.zeros((self.network.ranks, self.network.ranks), np.int64)
            sent[source, target] = _PROBE
            links = []
            for start, group in zip(self._starts, self.network.loads(sent), strict=False):
                seconds = group.bytes / self._bandwidth(group) / _PROBE
                links += [(start + int(n), float(seconds[n])) for n in np.flatnonzero(seconds)]
            latency = float(self.network.time(source, target, 0))
            way = self._ways[source, target] = (tuple(links), latency)
        return way

    def _bandwidth(self, links: Links) -> NDArray[np.float64]:
        """Bytes a second; of a measured host what it carries while all of its ranks talk."""
        table = self.network.table
        if table is not None and links.direction == "through":
            return table.host_capacity
        return links.bandwidth

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The threads of a process share the file's lock, so they have one of their own. A process
        # that is killed gives the file's lock back.
        with self._one_at_a_time:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
