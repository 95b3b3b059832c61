"""The Chrome trace event format, which Perfetto and chrome://tracing open.

Source: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
(complete events "X" and metadata events "M"), and Perfetto's FAQ on overlapping events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtoolkit.comm.trace import Event

__all__ = ["chrome_trace"]

NAMED_PEERS = 16  # receivers that an event names; the rest are summed, or 1,000 ranks fill a file


def chrome_trace(
    events: Sequence[Event], ranks: int, clock_error: float, emulated: str = ""
) -> dict[str, Any]:
    """Return events in the Chrome trace event format.

    Parameters
    ----------
    events : sequence of Event
        In any order.
    ranks : int
        Ranks of the cluster; each gets a thread, also without events.
    clock_error : float
        Seconds; written to ``otherData``.
    emulated : str
        The network that was emulated, if one was; written to ``otherData``.

    Returns
    -------
    dict
        ``traceEvents``, ``displayTimeUnit`` and ``otherData``; made of plain JSON types.
    """
    origin = min((event.start for event in events), default=0.0)
    lanes: dict[int, list[list[int]]] = {}  # by rank and lane: ends of the intervals still open
    threads = {(rank, 0) for rank in range(ranks)}
    slices = []
    for event in sorted(events, key=lambda event: (event.rank, event.start, -event.end)):
        start = round((event.start - origin) * 1e9)
        end = max(start, round((event.end - origin) * 1e9))
        lane = _lane(lanes.setdefault(event.rank, []), start, end)
        threads.add((event.rank, lane))
        slices.append(_slice(event, start, end, event.rank + lane * ranks))
    return {
        "traceEvents": [*_names(threads, ranks), *slices],
        "displayTimeUnit": "ms",
        "otherData": {
            "made_by": "dtoolkit",
            "first_event_seconds": float(origin),
            "clock_error_seconds": float(clock_error),
            **({"emulated_network": emulated} if emulated else {}),
        },
    }


def _lane(lanes: list[list[int]], start: int, end: int) -> int:
    """Return the first lane in which [start, end] follows, or lies within, what is open there."""
    for number, open_ends in enumerate(lanes):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if not open_ends or end <= open_ends[-1]:
            open_ends.append(end)
            return number
    lanes.append([end])
    return len(lanes) - 1


def _slice(event: Event, start: int, end: int, thread: int) -> dict[str, Any]:
    """Return an event as a complete event ("X"); the arguments are nanoseconds."""
    peers = sorted((-int(n), rank) for rank, n in enumerate(event.sent) if n)
    args: dict[str, Any] = {
        "bytes_sent": int(sum(event.sent)),
        "bytes_received": int(event.received),
        "launch": int(event.launch),
    }
    args |= {f"bytes_to_rank_{rank}": -n for n, rank in peers[:NAMED_PEERS]}
    if len(peers) > NAMED_PEERS:
        args["bytes_to_other_ranks"] = -sum(n for n, _ in peers[NAMED_PEERS:])
    for key in ("phase", "group", "source", "target"):
        if getattr(event, key):
            args[key] = getattr(event, key)
    return {
        "name": event.operation,
        "cat": event.phase or "communication",
        "ph": "X",
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "pid": 0,
        "tid": int(thread),
        "args": args,
    }


def _names(threads: set[tuple[int, int]], ranks: int) -> list[dict[str, Any]]:
    """Return the metadata events ("M") that name and order the process and its threads."""
    names = [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "cluster"}},
    ]
    for order, (rank, lane) in enumerate(sorted(threads)):
        where: dict[str, Any] = {"ph": "M", "pid": 0, "tid": rank + lane * ranks}
        label = f"rank {rank}" + (f", overlapping {lane}" if lane else "")
        names.append({"name": "thread_name", **where, "args": {"name": label}})
        names.append({"name": "thread_sort_index", **where, "args": {"sort_index": order}})
    return names
