"""A trace laid out in arrays, for fast questions: who had sent how much to whom until when.

Bytes count from the moment at which the operation that sent them had ended: what is under way is
not cut into pieces, so that the parts of a trace always sum to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtoolkit.comm.traffic import Phase, Traffic

if TYPE_CHECKING:
    from dtoolkit.comm.trace import Trace

__all__ = ["Replay"]

PHASES = {"phase": "str", "events": "int64", "messages": "int64", "bytes": "int64",
          "seconds": "float64"}  # fmt: skip
PAIRS = {"source": "int64", "target": "int64", "bytes": "int64", "messages": "int64"}


class Replay:
    """The events of a trace as they are now, to be played back.

    Parameters
    ----------
    trace : Trace
    operation, phase, launch : optional
        Take only these events, as in :meth:`Trace.filter`.

    Attributes
    ----------
    ranks : int
        Those of the whole trace.
    span : float
        Seconds from the start of the first event to the end of the last.
    clock_error : float
        Seconds, as of the trace.
    emulated : str
        As of the trace.
    rank, launch, received : int64 arrays of shape (events,)
    start, end : float64 arrays of shape (events,)
        Seconds from the start of the first event; in order of `end`.
    operation, phase : object arrays of str of shape (events,)
    event, target, sent : int64 arrays of shape (messages,)
        Bytes that an event sent to a rank; pairs without any are left out.

    Examples
    --------
    >>> replay = Replay(cluster.trace, phase="spmm/fetch")  # doctest: +SKIP
    >>> replay.matrix(until=0.5 * replay.span)  # what half of the time had moved
    """

    def __init__(
        self,
        trace: Trace,
        *,
        operation: str | Iterable[str] | None = None,
        phase: str | Iterable[str] | None = None,
        launch: int | Iterable[int] | None = None,
    ) -> None:
        whole = trace.events
        seen = (max(one.rank + 1, len(one.sent)) for one in whole)
        self.ranks = max(trace.ranks, max(seen, default=0))
        part = trace.filter(operation, phase, launch)
        events = sorted(part.events, key=lambda one: one.end)
        count = len(events)
        self.clock_error, self.emulated = trace.clock_error, part.emulated
        self.rank, self.launch, self.received = (
            np.fromiter((getattr(one, name) for one in events), np.int64, count)
            for name in ("rank", "launch", "received")
        )
        start = np.fromiter((one.start for one in events), np.float64, count)
        end = np.fromiter((one.end for one in events), np.float64, count)
        origin = start.min(initial=np.inf)
        self.start = start - origin if count else start
        self.end = end - origin if count else end
        self.span = float(self.end[-1]) if count else 0.0
        self.operation, self.phase = (
            np.array([getattr(one, name) for one in events], dtype=object)
            for name in ("operation", "phase")
        )
        moved = [
            (number, target, sent)
            for number, one in enumerate(events)
            for target, sent in enumerate(one.sent)
            if sent
        ]
        self.event, self.target, self.sent = np.array(moved, dtype=np.int64).reshape(-1, 3).T

    def __len__(self) -> int:
        return len(self.rank)

    def __repr__(self) -> str:
        return f"<Replay: {len(self):,} events on {self.ranks} ranks, {self.span * 1e3:,.3f} ms>"

    def ended(self, since: float | None = None, until: float | None = None) -> slice:
        """Which events ended after `since` and not after `until` (seconds); all by default."""
        first = 0 if since is None else int(np.searchsorted(self.end, since, side="right"))
        last = len(self) if until is None else int(np.searchsorted(self.end, until, side="right"))
        return slice(first, max(first, last))

    def matrix(
        self,
        since: float | None = None,
        until: float | None = None,
        *,
        messages: bool = False,
    ) -> NDArray[np.int64]:
        """Bytes by pair of ranks, of the events that ended in a window of time.

        Parameters
        ----------
        since, until : float, optional
            Seconds from the start of the first event: after the one, and not after the other.
        messages : bool
            Count, in place of bytes, in how many events the one sent something to the other.

        Returns
        -------
        int64 array of shape (ranks, ranks)
            [source, target]; without a window it is :meth:`Trace.matrix` of the same events.
        """
        moved = self._moved(since, until)
        pair = self.rank[self.event[moved]] * self.ranks + self.target[moved]
        out = np.zeros(self.ranks**2, dtype=np.int64)
        np.add.at(out, pair, 1 if messages else self.sent[moved])
        return out.reshape(self.ranks, self.ranks)

    def peak(self, window: float, *, messages: bool = False) -> int:
        """Most that a pair of ranks exchanged in one of the windows that follow each other.

        Parameters
        ----------
        window : float
            Seconds of each window.
        messages : bool
            Count messages, as in :meth:`matrix`.
        """
        if not len(self.sent) or window <= 0:
            return 0
        number = np.floor(self.end[self.event] / window).astype(np.int64)
        pair = self.rank[self.event] * self.ranks + self.target
        _, which = np.unique(number * self.ranks**2 + pair, return_inverse=True)
        sums = np.zeros(which.max() + 1, dtype=np.int64)
        np.add.at(sums, which, 1 if messages else self.sent)
        return int(sums.max())

    def pairs(self, since: float | None = None, until: float | None = None) -> pd.DataFrame:
        """One row for each pair of ranks of which the one sent something to the other.

        Returns
        -------
        DataFrame
            Columns source, target, bytes, messages.
        """
        sent = self.matrix(since, until)
        source, target = np.nonzero(sent)
        counted = self.matrix(since, until, messages=True)
        columns = (source, target, sent[source, target], counted[source, target])
        return pd.DataFrame(
            {n: pd.Series(c, dtype=PAIRS[n]) for n, c in zip(PAIRS, columns, strict=True)}
        )

    def frame(self, since: float | None = None, until: float | None = None) -> pd.DataFrame:
        """One row an event, in the order in which they ended.

        Returns
        -------
        DataFrame
            Columns launch, rank, operation, phase, start, end and seconds (from the start of the
            first event), bytes_sent, bytes_received.
        """
        sent = np.zeros(len(self), dtype=np.int64)
        np.add.at(sent, self.event, self.sent)
        columns = {
            "launch": self.launch, "rank": self.rank, "operation": self.operation,
            "phase": self.phase, "start": self.start, "end": self.end,
            "seconds": self.end - self.start, "bytes_sent": sent, "bytes_received": self.received,
        }  # fmt: skip
        here = self.ended(since, until)
        return pd.DataFrame({name: column[here] for name, column in columns.items()})

    def phases(self, since: float | None = None, until: float | None = None) -> pd.DataFrame:
        """One row a phase, in the order in which they first ended.

        Returns
        -------
        DataFrame
            Columns phase (empty outside any), events, messages, bytes, and seconds: in which ranks
            were in these operations, summed over ranks, waiting included.
        """
        here, moved = self.ended(since, until), self._moved(since, until)
        names, which = np.unique(self.phase.astype(str), return_inverse=True)
        many = len(names)
        of_moved = which[self.event[moved]]
        amounts = np.zeros(many, dtype=np.int64)
        np.add.at(amounts, of_moved, self.sent[moved])
        events = np.bincount(which[here], minlength=many)
        columns = {
            "phase": names,
            "events": events,
            "messages": np.bincount(of_moved, minlength=many),
            "bytes": amounts,
            "seconds": np.bincount(which[here], (self.end - self.start)[here], minlength=many),
        }
        first = [int(np.argmax(which == number)) for number in range(many)]
        order = [number for number in np.argsort(first, kind="stable") if events[number]]
        frame = {n: pd.Series(columns[n][order], dtype=kind) for n, kind in PHASES.items()}
        return pd.DataFrame(frame)

    def traffic(self, since: float | None = None, until: float | None = None) -> Traffic:
        """What was sent, for :func:`dtoolkit.comm.predict`: all of a phase taken as one exchange.

        Events outside any phase are gathered by operation. This tells the load of links;
        :meth:`Trace.traffic`, which keeps each exchange for itself, tells the time.
        """
        moved = self._moved(since, until)
        event = self.event[moved]
        named = np.where(self.phase != "", self.phase, self.operation)[event].astype(str)
        names, first, which = np.unique(named, return_index=True, return_inverse=True)
        phases = []
        for number in np.argsort(first):
            mine = which == number
            sent = np.zeros((self.ranks, self.ranks), dtype=np.int64)
            np.add.at(sent, (self.rank[event][mine], self.target[moved][mine]),
                      self.sent[moved][mine])  # fmt: skip
            phases.append(Phase(str(names[number]), sent))
        none = Phase("nothing", np.zeros((self.ranks, self.ranks), dtype=np.int64))
        return Traffic(tuple(phases or [none]), "a measured trace")

    def _moved(self, since: float | None, until: float | None) -> slice:
        """The messages of the events that ended in a window."""
        here = self.ended(since, until)
        first, last = np.searchsorted(self.event, [here.start, here.stop])
        return slice(int(first), int(last))
