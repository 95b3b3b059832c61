"""What moved: events measured on the ranks, and the trace that collects them.

Each call of the communicator leaves one :class:`Event` on the rank that made it. A cluster gathers
them in a :class:`Trace`, which tells who sent how much to whom and when, as a table
(:meth:`Trace.frame`), as a matrix of bytes (:meth:`Trace.matrix`), as a file, or as a timeline that
Perfetto opens (:meth:`Trace.save_chrome`). Everything in a trace was measured.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtoolkit.comm.chrome import chrome_trace
from dtoolkit.comm.event import Event
from dtoolkit.comm.tracefile import read_trace, write_lines, write_trace
from dtoolkit.comm.traffic import Traffic, of_events

__all__ = ["Event", "Trace"]

COLUMNS = {
    "launch": "int64",
    "rank": "int64",
    "operation": "str",
    "phase": "str",
    "group": "str",
    "source": "str",
    "target": "str",
    "start": "float64",
    "end": "float64",
    "seconds": "float64",
    "bytes_sent": "int64",
    "bytes_received": "int64",
}

T = TypeVar("T", int, str)


class Trace:
    """A growing list of events, safe to extend from several threads.

    Parameters
    ----------
    events : iterable of Event, optional
        What the trace starts with.
    ranks : int, optional
        Ranks of the cluster that the trace belongs to. Matrices have at least this size; they are
        larger where events of a larger cluster are in the trace.
    clock_error : float, optional
        Bound of the error of ``start`` and ``end`` between ranks, in seconds (plus or minus).
    emulated : str, optional
        The network that was emulated while the events were measured; empty if none was.

    Attributes
    ----------
    ranks : int
    clock_error : float
    enabled : bool
        While False, :meth:`extend` drops what it is given: recording is off.
    """

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        ranks: int = 0,
        clock_error: float = 0.0,
        emulated: str = "",
    ) -> None:
        if ranks < 0:
            raise ValueError(f"ranks must be 0 or more, got {ranks}")
        self.ranks = ranks
        self.clock_error = clock_error
        self.enabled = True
        self._network = emulated
        self._marks: dict[int, list[str]] = {}  # what disturbed the links, by launch
        self._events: list[Event] = list(events)
        self._lock = threading.Lock()

    @property
    def emulated(self) -> str:
        """The network that was emulated, and links that were made slow, while this was measured."""
        with self._lock:
            marks = {launch: list(texts) for launch, texts in self._marks.items()}
        there = {event.launch for event in self.events} if marks else set()
        texts = [text for launch, some in marks.items() if launch in there for text in some]
        return "; ".join(dict.fromkeys(text for text in (self._network, *texts) if text))

    def mark(self, launch: int, text: str) -> None:
        """Say that messages of a launch were held back, and by what; shown as `emulated`.

        Parameters
        ----------
        launch : int
        text : str
            Such as ``"a slow link between ranks 0 and 1 (5ms more)"``.
        """
        with self._lock:
            marks = self._marks.setdefault(launch, [])
            if text not in marks:
                marks.append(text)

    @property
    def events(self) -> list[Event]:
        """The events so far, in the order of arrival (a copy, which grows no more)."""
        with self._lock:
            return list(self._events)

    def extend(self, events: Iterable[Event]) -> None:
        """Append events; nothing is appended while ``enabled`` is False."""
        if not self.enabled:
            return
        new = list(events)
        with self._lock:
            self._events.extend(new)

    def clear(self) -> None:
        """Forget all events; everything else stays."""
        with self._lock:
            self._events.clear()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def total(self) -> int:
        """Bytes of payload sent, by all ranks in all events."""
        return sum(sum(event.sent) for event in self.events)

    def filter(
        self,
        operation: str | Iterable[str] | None = None,
        phase: str | Iterable[str] | None = None,
        launch: int | Iterable[int] | None = None,
        rank: int | Iterable[int] | None = None,
    ) -> Trace:
        """Return a new trace of the events that fit, with the same ranks, error and network.

        Parameters
        ----------
        operation, phase : str or iterable of str, optional
            Keep events of this name, or of any of these; None keeps all. ``phase=""`` keeps the
            events outside any phase.
        launch, rank : int or iterable of int, optional
            Keep events of this launch or rank, or of any of these; None keeps all.
        """
        operations, phases = _wanted(operation), _wanted(phase)
        launches, ranks = _wanted(launch), _wanted(rank)
        kept = (
            event
            for event in self.events
            if (operations is None or event.operation in operations)
            and (phases is None or event.phase in phases)
            and (launches is None or event.launch in launches)
            and (ranks is None or event.rank in ranks)
        )
        part = Trace(kept, ranks=self.ranks, clock_error=self.clock_error, emulated=self._network)
        with self._lock:
            part._marks = {launch: list(texts) for launch, texts in self._marks.items()}
        return part

    def matrix(
        self,
        operation: str | Iterable[str] | None = None,
        phase: str | Iterable[str] | None = None,
        launch: int | Iterable[int] | None = None,
    ) -> NDArray[np.int64]:
        """Bytes of payload by pair of ranks.

        Parameters
        ----------
        operation, phase, launch : optional
            Count only these events, as in :meth:`filter`.

        Returns
        -------
        ndarray of int64, shape (n, n)
            Entry ``[source, target]`` is what rank ``source`` sent to rank ``target``; ``n`` is
            ``ranks``, or the largest cluster seen in the trace if that is larger (whatever the
            filter keeps, so that matrices of one trace fit each other).
        """
        size = self._size()
        matrix = np.zeros((size, size), dtype=np.int64)
        for event in self.filter(operation, phase, launch):
            matrix[event.rank, : len(event.sent)] += np.asarray(event.sent, dtype=np.int64)
        return matrix

    def between(
        self, nodes: Sequence[int] | NDArray[np.integer], phase: str | Iterable[str] | None = None
    ) -> int:
        """Bytes of payload sent from a rank of one node to a rank of another; inside is the rest.

        Parameters
        ----------
        nodes : sequence of int
            Number of each rank's node, such as ``plan.nodes`` or ``cluster.nodes``.
        phase : str or iterable of str, optional
            Count only these events, as in :meth:`filter`.

        Raises
        ------
        ValueError
            If `nodes` does not name a node for each rank.
        """
        matrix, of_rank = self.matrix(phase=phase), np.asarray(nodes)
        if of_rank.shape != (len(matrix),):
            raise ValueError(
                f"nodes has shape {of_rank.shape}; wanted the node of each of {len(matrix)} ranks"
            )
        return int(matrix[of_rank[:, None] != of_rank[None, :]].sum())

    def traffic(
        self,
        phase: str | Iterable[str] | None = None,
        launch: int | Iterable[int] | None = None,
    ) -> Traffic:
        """Return what was sent, for :func:`dtoolkit.comm.predict`: bytes alone, no computing.

        Parameters
        ----------
        phase, launch : optional
            Take only these events, as in :meth:`filter`.

        Returns
        -------
        Traffic
            The first call of an operation in a phase of a launch on each rank is taken for one
            exchange, all second calls for the next one, and so on; each is a phase with the name of
            the events' phase, or of the operation where they have none. Their order is that in
            which they began. Operations that moved nothing are left out.
        """
        return of_events(self.filter(phase=phase, launch=launch), self._size(), "a measured trace")

    def _size(self) -> int:
        seen = (max(event.rank + 1, len(event.sent)) for event in self.events)
        return max(self.ranks, max(seen, default=0))

    def frame(self) -> pd.DataFrame:
        """One row an event, in order of arrival.

        Returns
        -------
        DataFrame
            Columns launch, rank, operation, phase, group, source, target, start, end and seconds
            (seconds on the client's clock), bytes_sent, bytes_received. An empty trace has the same
            columns and dtypes.
        """
        events = self.events
        values: dict[str, list[Any]] = {
            name: [getattr(event, name) for event in events]
            for name in ("launch", "rank", "operation", "phase", "group", "source", "target")
        }
        values["start"] = [event.start for event in events]
        values["end"] = [event.end for event in events]
        values["seconds"] = [event.end - event.start for event in events]
        values["bytes_sent"] = [sum(event.sent) for event in events]
        values["bytes_received"] = [event.received for event in events]
        return pd.DataFrame(
            {name: pd.Series(values[name], dtype=dtype) for name, dtype in COLUMNS.items()}
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON lines: a header, then one event a line.

        Parameters
        ----------
        path : str or path
            File to write; compressed with gzip if its name ends in ``.gz``. An existing file is
            replaced only once the new one is complete.
        """
        write_trace(path, self.events, self.ranks, self.clock_error, self.emulated)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace that :meth:`save` wrote.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ValueError
            The file is no trace, is of a newer version, or is damaged or cut short; the text says
            where.
        """
        events, ranks, clock_error, emulated = read_trace(path)
        return cls(events, ranks=ranks, clock_error=clock_error, emulated=emulated)

    def chrome(self) -> dict[str, Any]:
        """Return the trace in the Chrome trace event format, which Perfetto opens.

        One process named "cluster" with one thread a rank. Times are microseconds from the first
        event. Operations that overlap on one rank (non-blocking ones) lie on a further thread of
        that rank, because Perfetto draws only nested intervals on one thread. ``args`` hold the
        bytes, with the largest receivers by name.

        Returns
        -------
        dict
            ``traceEvents``, ``displayTimeUnit`` and ``otherData``; made of plain JSON types.
        """
        return chrome_trace(self.events, self._size(), self.clock_error, self.emulated)

    def save_chrome(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`chrome` as JSON (compressed if the name ends in ``.gz``) for Perfetto."""
        write_lines(path, [json.dumps(self.chrome())])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_events": self.events, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        events = self.events
        span = max((e.end for e in events), default=0.0) - min((e.start for e in events), default=0)
        notes = f", emulated: {self.emulated}" if self.emulated else ""
        notes += "" if self.enabled else ", recording is off"
        return (
            f"<Trace: {len(events):,} events on {self._size()} ranks, {self.total:,} bytes sent, "
            f"{span * 1e3:,.3f} ms from first to last{notes}>"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.cards import trace_card

        return trace_card(self)


def _wanted(value: T | Iterable[T] | None) -> frozenset[T] | None:
    """Return the accepted values as a set; None for all."""
    if value is None:
        return None
    if isinstance(value, str | int | np.integer):
        return frozenset([value])
    return frozenset(value)
