"""What a person chooses in TrafficPanel: its controls and presets, and a position to play from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as ipw

from dtoolkit.comm import Event, Network
from dtoolkit.comm.units import bandwidth, seconds
from dtoolkit.widgets import networks
from dtoolkit.widgets.controls import Choice, Control, Number, Text
from dtoolkit.widgets.recordings import RECORDS

__all__ = [
    "ALL",
    "END",
    "GIVEN",
    "MEASURED",
    "NONE",
    "OTHER",
    "PRESETS",
    "Filter",
    "Position",
    "Source",
    "fit",
    "groups",
    "offer",
    "window",
    "wired",
]

ALL, NONE, NO_PHASE = "all", "none", "(no phase)"
GIVEN, OTHER = "given", "other"
MEASURED, EMULATED = "measured", "emulated"
END = 1000
"""The last position."""

SPEEDS = {"3": "all in 3 s", "10": "all in 10 s", "30": "all in 30 s", "60": "all in 60 s"}
_MOST_LAUNCHES = 200  # that are offered, the latest

PRESETS: dict[str, dict[str, Any]] = {
    "Who sends to whom": {},
    "Who did what when": {"view": "time"},
    "The load of each link": {"view": "network"},
    "The load of a network of nodes": {"view": "network", "network": "two-tier"},
    "A window that moves": {"extent": "window", "position": 200, "window": 200},
}
"""Name to settings that differ from the defaults; the first is the start."""


class Filter(Choice):
    """A choice among what a trace has; a name that it does not have is refused when it is used."""

    def check(self, value: Any) -> str:
        """Take any text."""
        if not isinstance(value, str):
            raise ValueError(f"{self.label}: {value!r} is not a text")
        return value

    def set(self, value: Any) -> None:
        """Set the value, and offer it."""
        if self.check(value) not in self.options:
            self.offer({**self.options, value: value})
        super().set(value)

    @property
    def wanted(self) -> str | None:
        """What :meth:`Trace.filter` takes."""
        return None if self.value == ALL else "" if self.value == NO_PHASE else str(self.value)


class Position(Number):
    """A place in time, in thousandths, with a slider that goes evenly."""

    def __init__(self, name: str, label: str) -> None:
        super().__init__(name, label, END, 0, END, tip="Thousandths of the time; 1,000 is the end")
        box = self.widget
        self._even = ipw.IntSlider(
            value=END,
            min=0,
            max=END,
            readout=False,
            tooltip=f"{label}, 0 to {END:,}",
            tabbable=False,
            layout={"width": "auto", "margin": "0 12px 2px 120px"},
        )
        box.observe(lambda _: self._follow(), "value")
        self._even.observe(self._lead, "value")
        self._leading = True
        self.widget = ipw.VBox([box, self._even], layout={"overflow": "visible"})

    def enable(self, enabled: bool) -> None:
        """Let it be changed, or not."""
        super().enable(enabled)
        self._even.disabled = not enabled

    def _follow(self) -> None:
        self._leading = False
        try:
            self._even.value = self.value
        finally:
            self._leading = True

    def _lead(self, change: Any) -> None:
        if self._leading:
            self.set(change["new"])


class Source(Choice):
    """A choice among traces, which says how to come by one that is not there."""

    def check(self, value: Any) -> str:
        """Refuse what is not among the options."""
        if isinstance(value, str) and value not in self.options:
            kind, _, rest = value.partition(" ")
            if kind == "file" and rest:
                raise ValueError(f"{self.label}: upload {rest} first")
            if kind in RECORDS and rest:
                raise ValueError(f"{self.label}: run it first ({RECORDS[kind]}, {rest} workers)")
            if value in (GIVEN, OTHER):
                raise ValueError(
                    f"{self.label}: the settings want a trace that their panel was made with: "
                    "make this one with it"
                )
        return super().check(value)


def groups(
    offered: Mapping[str, str],
    emulated: Network | None,
    ranks: int | None,
    *,
    taking: Any,
    follow: Any,
    play: Any,
) -> list[tuple[str, list[Any]]]:
    """Return the controls, under their headings.

    Parameters
    ----------
    offered : mapping of str to str
        Traces that are there.
    emulated : Network or None
        What the cluster that the panel was given emulates.
    ranks : int or None
        Of that cluster.
    taking, follow, play : Upload and buttons
    """
    wires = {MEASURED: "a link for each pair"}
    wires |= {EMULATED: f"emulated: {emulated.name}"} if emulated is not None else {}
    traces = [
        Source("trace", "Trace", offered or {NONE: "none yet: run one"}),
        Source("beside", "Beside it", {NONE: "nothing", **offered}, NONE),
        taking,
        follow,
    ]
    new = [
        Choice("record", "What to run", RECORDS),
        Number("workers", "Workers", ranks or 4, 1, 16),
    ]
    views = {"pairs": "Ranks × ranks", "time": "Timeline by rank", "network": "Network by link"}
    how = [
        Choice("view", "View", views),
        Choice("quantity", "Count", {"bytes": "bytes", "messages": "messages"}),
        Filter("phase", "Phase", {ALL: "all"}),
        Filter("operation", "Operation", {ALL: "all"}),
        Filter("launch", "Launch", {ALL: "all"}),
        Filter("launch_beside", "Launch beside", {ALL: "all"}),
        Choice("network", "Network", {**wires, **networks.KINDS}),
        Number("ranks_per_node", "Ranks a node", 2, 1, 1024),
        Text("between", "Between nodes", "10GB/s", bandwidth, tip="Bytes or bits a second"),
        Text("inside", "Inside a node", "100GB/s", bandwidth, tip="Bytes or bits a second"),
        Text("latency", "Latency", "5us", seconds, tip="Of a message, as 5us"),
    ]
    when = [
        Position("position", "Position (‰)"),
        Choice("extent", "What counts", {"until": "all until then", "window": "a window"}),
        Number("window", "Window (‰)", 100, 1, END, tip="Thousandths of the time"),
        Choice("speed", "Speed", SPEEDS, "10"),
        play,
    ]
    return [("Trace", traces), ("Record one", new), ("Show", how), ("Play back", when)]


def window(s: Mapping[str, Any], span: float) -> tuple[float | None, float | None]:
    """Seconds that count: since and until; None for what has no bound."""
    until = s["position"] / END * span
    end = None if s["position"] == END else until
    if s["extent"] == "until":
        return None, end
    return until - s["window"] / END * span, end


def wired(s: Mapping[str, Any], ranks: int, emulated: Network | None) -> tuple[Network | None, str]:
    """Build the network that was chosen, and write the Python that does.

    Raises
    ------
    ValueError
        In words: a unit that is missing, or ranks that do not fit.
    """
    kind = s["network"]
    if kind == MEASURED:
        return None, "None"
    if kind == EMULATED:
        assert emulated is not None
        if emulated.ranks != ranks:
            raise ValueError(
                f"Network: the one that is emulated has {emulated.ranks} ranks, and a trace "
                f"{ranks}: choose another"
            )
        return emulated, "cluster.emulate"
    if kind != "flat" and ranks % s["ranks_per_node"]:
        raise ValueError(
            f"Ranks a node: {ranks} ranks do not fill nodes of {s['ranks_per_node']}: choose a "
            f"number that divides {ranks}, or the flat network"
        )
    return networks.make(
        networks.Wires(
            kind, ranks, s["ranks_per_node"], s["between"], s["inside"], s["latency"]
        )
    )  # fmt: skip


def offer(
    controls: Mapping[str, Control], first: Sequence[Event], second: Sequence[Event]
) -> list[str]:
    """Offer what two traces have to the filters; returns what was chosen and is not there."""
    both = [*first, *second]
    phases = dict.fromkeys(sorted({event.phase for event in both}))
    operations = sorted({event.operation for event in both})
    there = {
        "phase": {name or NO_PHASE: name or "outside of any" for name in phases},
        "operation": {name: name for name in operations},
        "launch": _launches(first),
        "launch_beside": _launches(second),
    }
    gone = []
    for name, options in there.items():
        control = controls[name]
        assert isinstance(control, Filter)
        options = {ALL: "all", **options}
        if options != control.options:
            lost = control.value not in options
            if lost and both:
                gone.append(f"{control.label} {control.value} is not there: all are shown")
            control.offer(options, ALL if lost else control.value)
    return gone


def fit(controls: Mapping[str, Control], s: Mapping[str, Any], *, beside: bool) -> None:
    """Show the controls that matter."""
    links = s["view"] == "network"
    tree = links and s["network"] in networks.KINDS
    show = {
        "launch_beside": beside,
        "quantity": s["view"] == "pairs" or (links and s["network"] == MEASURED),
        "network": links,
        "window": s["extent"] == "window",
        **dict.fromkeys(("between", "latency"), tree),
        **dict.fromkeys(("ranks_per_node", "inside"), tree and s["network"] != "flat"),
    }
    for name, shown in show.items():
        controls[name].show(shown)


def _launches(events: Sequence[Event]) -> dict[str, str]:
    """Launches that can be chosen: value to words that say what they were."""
    found: dict[int, dict[str, None]] = {}
    for event in events:
        found.setdefault(event.launch, {})[event.phase or event.operation] = None
    latest = sorted(found)[-_MOST_LAUNCHES:]
    return {str(n): f"{n}: {_shortly(list(found[n]))}" for n in latest}


def _shortly(names: list[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
