"""What TrafficPanel says: its table, its status line, and the code that makes the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtoolkit.comm import Replay, Trace
from dtoolkit.figures.html import table
from dtoolkit.figures.theme import bytes_text, plural, seconds_text
from dtoolkit.widgets.recordings import RECORDS, record_code
from dtoolkit.widgets.traffic_controls import END, GIVEN, MEASURED, OTHER

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Shown", "code", "frames", "said", "tabulated"]

_MOST_ROWS = 30


@dataclass(frozen=True, eq=False)
class Shown:
    """A trace that is shown.

    Attributes
    ----------
    key, name : str
        In the settings, and in words.
    trace : Trace
    kept : dict
        What it is filtered by, as :meth:`Trace.filter` takes it.
    """

    key: str
    name: str
    trace: Trace
    kept: dict[str, Any]

    @property
    def question(self) -> tuple[Any, ...]:
        """What was chosen."""
        return self.key, id(self.trace), tuple(self.kept.items())

    def state(self) -> tuple[Any, ...]:
        """What tells whether it has changed."""
        events = self.trace.events
        last = id(events[-1]) if events else 0
        return *self.question, len(events), last

    def replay(self) -> Replay:
        """Lay it out."""
        return Replay(self.trace, **self.kept)


def said(
    replays: Mapping[str, Replay],
    since: float | None,
    until: float | None,
    *,
    live: bool,
    notes: Sequence[str],
) -> str:
    """Say what the figure shows."""
    parts = [*(f"{note[0].upper()}{note[1:]}" for note in notes)]
    for name, one in replays.items():
        here = one.ended(since, until)
        count = plural(here.stop - here.start, "event")
        when = "in all" if since is None and until is None else f"of {len(one):,}"
        sums = one.matrix(since, until).sum(), one.matrix(since, until, messages=True).sum()
        parts.append(
            f"{name}: {count} {when}, {bytes_text(int(sums[0]))} in "
            f"{plural(int(sums[1]), 'message')}, {_time(one, since, until)} (measured)"
        )
    return ". ".join(parts) + (". It is followed as it grows." if live else ".")


def tabulated(replays: Mapping[str, Replay], since: float | None, until: float | None) -> str:
    """Write the sums by phase as a table."""
    rows, left = [], 0
    for name, one in replays.items():
        frame = one.phases(since, until)
        left += max(0, len(frame) - _MOST_ROWS)
        for row in frame.head(_MOST_ROWS).itertuples():
            cells = [
                row.phase or "outside of any", f"{row.events:,}", f"{row.messages:,}",
                bytes_text(row.bytes), seconds_text(row.seconds),
            ]  # fmt: skip
            cells = [cell.replace(" ", "\u00a0") for cell in cells]
            first = [name if row.Index == 0 else ""] if len(replays) > 1 else []
            rows.append([*first, *cells])
    if not rows:
        return ""
    head = ["phase", "events", "messages", "sent", "time in it, all ranks"]
    caption = "Measured. Time: summed over ranks, with what they waited for each other."
    if left:
        caption += f" {plural(left, 'further phase')} in the data (CSV) alone."
    return table(
        [*(["trace"] if len(replays) > 1 else []), *head], rows, caption=caption, label="By phase"
    )


def frames(
    replays: Mapping[str, Replay], question: str, since: float | None, until: float | None
) -> pd.DataFrame:
    """Ask each for a table, and put the name of the trace before it."""
    import pandas as pd

    found = []
    for name, one in replays.items():
        frame = getattr(one, question)(since, until)
        frame.insert(0, "trace", name)
        found.append(frame)
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame({"trace": []})


def code(
    s: Mapping[str, Any],
    shown: Sequence[Shown],
    networks: Sequence[str],
    *,
    own_cluster: bool,
    own_trace: bool,
) -> str:
    """Write Python that makes the figure and its numbers.

    Parameters
    ----------
    s : mapping
        Settings.
    shown : sequence of Shown
    networks : sequence of str
        What makes the network of each.
    own_cluster, own_trace : bool
        Whether the panel starts its workers, and was given a trace in place of a cluster.
    """
    lines: list[str] = []
    laid = []
    for number, one in enumerate(shown):
        name = "trace" if number == 0 else "other"
        lines += _source(one, name, own_cluster=own_cluster, own_trace=own_trace)
        kept = dict(one.kept)
        words = "".join(f", {n}={v!r}" for n, v in kept.items() if n != "launch")
        if "launch" in kept:
            words += f", launch={_launch(one, name, kept['launch'])}"
        laid.append(("replay", "beside")[number])
        lines.append(f"{laid[-1]} = dt.comm.Replay({name}{words})")
    names = ", ".join(f"{one.name!r}: {name}" for one, name in zip(shown, laid, strict=True))
    lines.append("")
    since, until = _bounds(s)
    if since != "None" or until != "None":
        spans = [f"{name}.span" for name in laid]
        lines.append(f"span = {spans[0] if len(spans) == 1 else 'max(' + ', '.join(spans) + ')'}")
        lines += [f"since = {since}", f"until = {until}"]
        since, until = "since", "until"
    counted = ", messages=True" if s["quantity"] == "messages" else ""
    lines += [f"print({name}.matrix({since}, {until}{counted}))  # measured" for name in laid]
    tree = ""
    if s["view"] == "network" and s["network"] != MEASURED:
        many = list(dict.fromkeys(networks))
        lines.append(f"network = {many[0] if len(many) == 1 else '[' + ', '.join(many) + ']'}")
        tree = "    network=network,\n"
    lines += [
        "figure = dt.figures.traffic_views(",
        f"    {{{names}}},",
        f"    view={s['view']!r}, quantity={s['quantity']!r}, since={since}, until={until},",
        f"{tree})",
        "figure  # shown, as the last line of a cell",
    ]
    text = "\n".join(lines) + "\n"
    imports = [f"import {n}\n" for n, word in _IMPORTS.items() if f"{word}." in text]
    return "".join(imports) + "\nimport dtoolkit as dt\n\n" + text


_IMPORTS = {"numpy as np": "np", "torch": "torch"}


def _source(one: Shown, name: str, *, own_cluster: bool, own_trace: bool) -> list[str]:
    """Lines that come by a trace."""
    kind, _, rest = one.key.partition(" ")
    if kind == GIVEN:
        if own_trace:
            return [] if name == "trace" else ["other = trace"]
        return [f"{name} = cluster.trace  # of the cluster that the panel was given"]
    if kind == OTHER:
        return [] if name == "other" else ["trace = other"]
    if kind == "file":
        return [f"{name} = dt.comm.Trace.load({rest!r})  # the file that was uploaded"]
    made = record_code(kind).splitlines()
    cluster = [f"cluster = dt.Cluster(workers={rest})"] if own_cluster else []
    return [
        f"# {RECORDS[kind]}: recorded anew, so times are not the same, and bytes are",
        *cluster,
        *made,
        f"{name} = cluster.trace.filter(launch=made)",
        *(["cluster.close()"] if own_cluster else []),
        "",
    ]


def _launch(one: Shown, name: str, launch: int) -> str:
    """A launch by its number, or by its place among those that are recorded anew."""
    if one.key.partition(" ")[0] not in RECORDS:
        return repr(launch)
    place = sorted({event.launch for event in one.trace}).index(launch)
    return f"sorted({{event.launch for event in {name}}})[{place}]"


def _bounds(s: Mapping[str, Any]) -> tuple[str, str]:
    """The window in Python, as :func:`traffic_controls.window` has it in seconds."""
    at = f"{s['position']} / {END} * span"
    until = "None" if s["position"] == END else at
    if s["extent"] == "until":
        return "None", until
    return f"{at} - {s['window']} / {END} * span", until


def _time(one: Replay, since: float | None, until: float | None) -> str:
    end = one.span if until is None else min(until, one.span)
    if since is None:
        part = "" if end == one.span else f"the first {seconds_text(end)} of "
        return f"{part}{seconds_text(one.span)}"
    return f"from {seconds_text(max(since, 0.0))} to {seconds_text(end)}"
