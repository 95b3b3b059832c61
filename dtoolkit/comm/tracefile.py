"""Traces as files: JSON lines, a header and then one event a line."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dtoolkit.comm.event import Event

__all__ = ["pack_trace", "read_trace", "unpack_trace", "write_lines", "write_trace"]

FORMAT = "dtoolkit trace"
VERSION = 1


def write_trace(
    path: str | os.PathLike[str],
    events: Sequence[Event],
    ranks: int,
    clock_error: float,
    emulated: str = "",
) -> None:
    """Write a trace to a file, compressed if its name ends in ``.gz``."""
    write_lines(path, _lines(events, ranks, clock_error, emulated))


def pack_trace(
    events: Sequence[Event], ranks: int, clock_error: float, emulated: str = ""
) -> bytes:
    """The file of a trace as compressed bytes, to be part of another file."""
    text = "".join(line + "\n" for line in _lines(events, ranks, clock_error, emulated))
    return gzip.compress(text.encode(), compresslevel=4, mtime=0)


def unpack_trace(data: bytes, name: str) -> tuple[list[Event], int, float, str]:
    """Inverse of :func:`pack_trace`, as :func:`read_trace` returns it; `name` is for errors."""
    return _parse(name, _text(name, data, packed=True))


def _lines(events: Sequence[Event], ranks: int, clock_error: float, emulated: str) -> Iterator[str]:
    header = {
        "format": FORMAT,
        "version": VERSION,
        "ranks": int(ranks),
        "clock_error": float(clock_error),
        "events": len(events),
        **({"emulated": emulated} if emulated else {}),
    }
    yield json.dumps(header)
    for event in events:
        yield json.dumps(_record(event))


def read_trace(path: str | os.PathLike[str]) -> tuple[list[Event], int, float, str]:
    """Read a file of :func:`write_trace`.

    Returns
    -------
    events : list of Event
    ranks : int
    clock_error : float
        Seconds.
    emulated : str
        The network that was emulated; empty if none was.

    Raises
    ------
    ValueError
        The file is no trace, of another version, damaged or cut short; the text says where.
    """
    name = os.fspath(path)
    data = Path(path).read_bytes()
    return _parse(name, _text(name, data, packed=name.endswith(".gz")))


def _parse(name: str, text: str) -> tuple[list[Event], int, float, str]:
    lines = text.splitlines()
    header = _header(name, lines[0] if lines else "")
    events = [_event(name, number, line) for number, line in enumerate(lines[1:], start=2)]
    if len(events) != header["events"]:
        raise ValueError(
            f"{name} is cut short: its header announces {header['events']} events and "
            f"{len(events)} are there"
        )
    return events, header["ranks"], header["clock_error"], header.get("emulated", "")


def write_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    """Write lines to a file, by way of a neighbour, so that a failure leaves no half file."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    try:
        with gzip.open(partial, "wt") if target.suffix == ".gz" else open(partial, "w") as file:
            for line in lines:
                file.write(line + "\n")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _record(event: Event) -> dict[str, Any]:
    """Return an event as JSON types; numbers that came as NumPy scalars become Python's."""
    return {
        "launch": int(event.launch),
        "rank": int(event.rank),
        "operation": event.operation,
        "phase": event.phase,
        "start": float(event.start),
        "end": float(event.end),
        "sent": [int(count) for count in event.sent],
        "received": int(event.received),
        "group": event.group,
        "source": event.source,
        "target": event.target,
    }


def _header(name: str, line: str) -> dict[str, Any]:
    """Check the first line of a file, and return it."""
    try:
        header = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{name} is not a trace: its first line is not JSON") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{name} is not a trace: its first line does not say {FORMAT!r}")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{name} is a trace of version {header.get('version')!r}; this dtoolkit reads version "
            f"{VERSION}. Update dtoolkit, or record the trace again."
        )
    whole = all(isinstance(header.get(key), int) for key in ("ranks", "events"))
    if not whole or header["ranks"] < 0 or not isinstance(header.get("clock_error"), int | float):
        raise ValueError(f"{name}, line 1: ranks, events or clock_error is missing or no number")
    if not isinstance(header.get("emulated", ""), str):
        raise ValueError(f"{name}, line 1: emulated is not the name of a network")
    return header


def _event(name: str, number: int, line: str) -> Event:
    """Make an event of one line of a file."""
    try:
        record = json.loads(line)
        event = Event(**{**record, "sent": tuple(record["sent"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{name}, line {number}: not an event ({error})") from error
    texts = (event.operation, event.phase, event.group, event.source, event.target)
    counts = (event.launch, event.rank, event.received, *event.sent)
    if not (
        all(isinstance(text, str) for text in texts)
        and all(type(count) is int and count >= 0 for count in counts[1:])
        and type(event.launch) is int
        and all(isinstance(time, int | float) for time in (event.start, event.end))
    ):
        raise ValueError(f"{name}, line {number}: an event with a field of the wrong kind")
    return event


def _text(name: str, data: bytes, *, packed: bool) -> str:
    try:
        return (gzip.decompress(data) if packed else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is not a trace, or is damaged: {error}") from error
