"""TrafficPanel: what ranks sent each other, live or recorded, one trace or two side by side."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import ipywidgets as ipw
import plotly.graph_objects as go

from dtoolkit.cluster import Cluster
from dtoolkit.comm import Trace
from dtoolkit.figures.html import table as html_table
from dtoolkit.figures.theme import Mode, bytes_text, plural, seconds_text
from dtoolkit.figures.traffic_views import played, span_of, traffic_views
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Choice, Number, Upload, button
from dtoolkit.widgets.recordings import RECORDS, record, record_code, trace_file
from dtoolkit.widgets.work import Job
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TrafficPanel"]

_ALL, _NONE, _LIVE, _GIVEN = "all", "none", "live", "given"
_FOLLOW = 0.3  # seconds between two looks at a trace that grows
_TICK = 0.1  # seconds between two pictures of a playback
_PLAY = 6.0  # seconds that a playback takes at speed 1

PRESETS: dict[str, dict[str, Any]] = {
    "Who sends to whom": {},
    "When": {"view": "time"},
    "The load of links": {"view": "network"},
}
"""Name to settings that differ from the defaults; the first is the start."""


class TrafficPanel(Panel):
    """See what ranks sent each other: by pairs, over time, as a network; filtered, played back.

    "Record on the workers" runs a product, a training or a collective, and keeps its trace; files
    that :meth:`dtoolkit.comm.Trace.save` wrote can be uploaded; a cluster is followed live.

    Parameters
    ----------
    trace : Trace or Cluster, optional
        What is shown first; the trace of a cluster grows while others use it.
    other : Trace, optional
        What is laid beside it.
    cluster : Cluster, optional
        Where to record, and what to follow. By default the panel starts workers when it first runs
        something, shares them with other panels, and closes them when it is closed.

    Attributes
    ----------
    traces : dict of str to Trace
        What can be chosen, by key.

    Examples
    --------
    >>> panel = dt.widgets.TrafficPanel(cluster)  # doctest: +SKIP
    >>> panel.set(view="time", phase="spmm/column")
    """

    title = "Traffic: who sent what to whom, and when"

    def __init__(
        self, trace: Any = None, other: Trace | None = None, *, cluster: Cluster | None = None
    ) -> None:
        if isinstance(trace, Cluster):
            trace, cluster = None, trace
        for name, one in (("trace", trace), ("other", other)):
            if one is not None and not isinstance(one, Trace):
                raise TypeError(f"{name}={one!r} is no trace: wanted a Trace or a Cluster")
        self.traces: dict[str, Trace] = {}
        self._words: dict[str, str] = {}
        if trace is not None:
            self.traces[_GIVEN], self._words[_GIVEN] = trace, "the one given"
        if cluster is not None:
            self.traces[_LIVE], self._words[_LIVE] = cluster.trace, "live: the cluster's"
        if other is not None:
            self.traces["other"], self._words["other"] = other, "the other one given"
        self._number = 0
        self._kinds: dict[str, tuple[str, int]] = {}  # what was recorded, on how many workers
        self._workers = Workers(type(self).__name__, cluster)
        self._upload = Upload(
            "Upload a trace", ".jsonl,.json,.trace,.gz", self._guard("_take_file")
        )
        self._play = button("Play", self._guard("play"), icon="play")
        self._follow = button("Follow live", self._guard("follow"), icon="eye")
        self._perfetto = button("Perfetto (JSON)", self._guard("_export_perfetto"), icon="download",
                                tip="For ui.perfetto.dev and chrome://tracing")  # fmt: skip
        super().__init__(
            _groups(self._offered(), self._upload, [self._play, self._follow, self._perfetto]),
            run="Record on the workers",
            presets=PRESETS,
        )
        if cluster is None:
            self._follow.disabled = True
        self.on_close(self._workers.release)
        self.reset()
        if other is not None:
            self.set(beside="other")

    # ------------------------------------------------------------------- what it shows

    def shown(self) -> dict[str, Trace]:
        """Return the one or two traces that are shown, by name, after the filters."""
        s = self.settings
        names = [s["trace"], *([s["beside"]] if s["beside"] != _NONE else [])]
        found = {}
        for name in names:
            trace = self.traces.get(name, Trace())
            words = self._words.get(name, "nothing yet")
            found[words if words not in found else f"{words} (again)"] = trace.filter(
                operation=None if s["operation"] == _ALL else s["operation"],
                phase=None if s["phase"] == _ALL else s["phase"].removeprefix("phase "),
            )
        return found

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw the traces side by side."""
        s = self.settings
        return traffic_views(
            self.shown(), view=s["view"], quantity=s["quantity"], share=s["until"] / 100,
            width=self.room, mode=mode,
        )  # fmt: skip

    def table(self) -> pd.DataFrame:
        """Return the events that are shown, one row each, with the name of their trace."""
        import pandas as pd

        frames = [
            played(trace, self.settings["until"] / 100).frame().assign(trace=name)
            for name, trace in self.shown().items()
        ]
        return pd.concat(frames, ignore_index=True)

    def code(self) -> str:
        """Return Python that makes the figure from a trace."""
        s = self.settings
        keys = [s["trace"], *([s["beside"]] if s["beside"] != _NONE else [])]
        lines = ["import dtoolkit as dt", ""]
        names = []
        for number, key in enumerate(keys):
            name = f"trace{number or ''}"
            lines += self._source(key, name)
            if s["phase"] != _ALL or s["operation"] != _ALL:
                operation = None if s["operation"] == _ALL else s["operation"]
                phase = None if s["phase"] == _ALL else s["phase"].removeprefix("phase ")
                lines.append(f"{name} = {name}.filter(operation={operation!r}, phase={phase!r})")
            names.append(f"{self._words.get(key, key)!r}: {name}")
        lines += [
            f"figure = dt.figures.traffic_views(\n    {{{', '.join(names)}}},\n"
            f"    view={s['view']!r}, quantity={s['quantity']!r}, share={s['until'] / 100!r},\n)",
            "figure  # a last line shows it in a notebook",
        ]
        return "\n".join(lines) + "\n"

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Offer what can be filtered, and say what is shown."""
        self._offer()
        self.redraw()
        self._shell.below.value = self._tabulated()
        self.say(self._said())

    async def execute(self, job: Job) -> None:
        """Run what is to be recorded, and show its trace."""
        s = self.settings
        job.name = "the recording"
        if self._workers.running is None:
            self.say(f"Starting {plural(s['workers'], 'worker')}, which takes some seconds …")
        cluster = await self._workers.get(job, s["workers"], what="Workers")
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.say(f"Recording: {RECORDS[s['record']]} …")
            trace = await job.in_thread(record, cluster, s["record"])
        self._number += 1
        key = f"recorded {self._number}"
        self._add(
            key, f"{self._number}: {RECORDS[s['record']]}, {plural(s['workers'], 'rank')}", trace
        )
        self._kinds[key] = s["record"], s["workers"]
        await self.update(job)

    def play(self, _: Any = None) -> None:
        """Play the trace back from its beginning, or from where it was paused."""
        self._start("running", "the playback", self._playing)

    def follow(self, _: Any = None) -> None:
        """Show the cluster's trace as it grows, until Stop."""
        if _LIVE not in self.traces:
            raise ValueError("there is no cluster to follow: make the panel with one")
        with self.quietly():
            self.controls["trace"].set(_LIVE)
        self._start("running", "following", self._following)

    # ------------------------------------------------------------------- behind the scenes

    async def _playing(self, job: Job) -> None:
        position = self.controls["until"]
        at = 0 if position.value >= 100 else position.value
        step = 100 * _TICK / _PLAY * self.settings["speed"] / 100
        exact = float(at)
        while exact < 100:
            exact = min(100.0, exact + step)
            with self.quietly():
                position.set(round(exact))
            self.progress(round(exact), 100)
            self.redraw()
            self.say(self._said())
            await asyncio.sleep(_TICK)

    async def _following(self, job: Job) -> None:
        seen = -1
        trace = self.traces[_LIVE]
        while True:
            if len(trace) != seen:
                seen = len(trace)
                await self.update(job)
            await asyncio.sleep(_FOLLOW)

    def _choice(self, change: Any) -> None:
        if self._state.activity != "running":  # a playback moves the position itself
            super()._choice(change)

    def _enable(self, enabled: bool) -> None:
        super()._enable(enabled)
        self._upload.enable(enabled)
        self._play.disabled = not enabled
        self._follow.disabled = not enabled or _LIVE not in self.traces

    def _offered(self) -> dict[str, str]:
        return dict(self._words) or {_NONE: "none yet: record one"}

    def _add(self, key: str, words: str, trace: Trace) -> None:
        self.traces[key], self._words[key] = trace, words
        with self.quietly():
            _choice_of(self, "trace").offer(self._offered(), key)
            _choice_of(self, "beside").offer({_NONE: "nothing", **self._words})

    def _offer(self) -> None:
        """Offer the phases and operations that the traces have."""
        events = [e for key in self._chosen() for e in self.traces.get(key, Trace()).events]
        phases = sorted({event.phase for event in events})
        operations = sorted({event.operation for event in events})
        with self.quietly():
            named = {f"phase {p}": p or "outside of any phase" for p in phases}
            _choice_of(self, "phase").offer({_ALL: "all", **named})
            _choice_of(self, "operation").offer({_ALL: "all", **{o: o for o in operations}})

    def _chosen(self) -> list[str]:
        return [self.settings["trace"], self.settings["beside"]]

    def _source(self, key: str, name: str) -> list[str]:
        if key in self._kinds:
            what, workers = self._kinds[key]
            made = record_code(what).splitlines()
            given = self._workers.given is not None
            cluster = [] if given else [f"cluster = dt.Cluster(workers={workers})"]
            return [*cluster, "before = len(cluster.trace)", *made,
                    "launches = {e.launch for e in cluster.trace.events[before:]}",
                    f"{name} = cluster.trace.filter(launch=launches)"]  # fmt: skip
        if key == _LIVE:
            return [f"{name} = cluster.trace"]
        if key.startswith("file "):
            return [f"{name} = dt.comm.Trace.load({key[5:]!r})"]
        return [f"# {name}: {self._words.get(key, 'no trace yet')}"]

    def _said(self) -> str:
        parts = []
        for name, trace in self.shown().items():
            part = played(trace, self.settings["until"] / 100)
            first, last = span_of(trace)
            parts.append(
                f"{name}: {plural(len(part), 'event')}, {bytes_text(part.total)} sent, "
                f"{seconds_text(last - first)} (measured)"
            )
        return "; ".join(parts) + "."

    def _tabulated(self) -> str:
        rows = []
        for name, trace in self.shown().items():
            frame = trace.frame()
            for phase, some in frame.groupby("phase"):
                rows.append([name, str(phase) or "–", f"{len(some):,}",
                             bytes_text(int(some["bytes_sent"].sum())),
                             seconds_text(float(some["seconds"].sum()))])  # fmt: skip
        if not rows:
            return ""
        head = ["trace", "phase", "events", "sent", "time in it, all ranks"]
        return html_table(head, rows[:24], caption="By phase (measured).", label="By phase")

    def _export_perfetto(self, _: Any) -> None:
        trace = next(iter(self.shown().values()))
        self._save("perfetto.json", json.dumps(trace.chrome()).encode(), "application/json")

    def _take_file(self, name: str, content: bytes) -> None:
        self._start("working", f"reading {name}", lambda job: self._read(job, name, content))

    async def _read(self, job: Job, name: str, content: bytes) -> None:
        self.say(f"Reading {name} …")
        trace = await job.in_thread(trace_file, name, content)
        self._add(f"file {name}", f"file: {name}", trace)
        await self.update(job)


def _choice_of(panel: TrafficPanel, name: str) -> Choice:
    choice = panel.controls[name]
    assert isinstance(choice, Choice)
    return choice


def _groups(
    offered: dict[str, str], taking: Upload, buttons: list[Any]
) -> list[tuple[str, list[Any]]]:
    views = {"pairs": "Pairs of ranks", "time": "Time", "network": "Network"}
    play, follow, perfetto = buttons
    keep = ipw.Box([follow, perfetto], layout={"flex_flow": "row wrap", "overflow": "visible"})
    keep.add_class("dtk-buttons")
    absent = dict.fromkeys(
        [_LIVE, _GIVEN, "other"], "the settings want a trace that their panel was made with"
    )
    what = [
        Choice("trace", "Trace", offered, absent=absent),
        Choice("beside", "Beside it", {_NONE: "nothing", **offered}, _NONE, absent=absent),
        taking,
        keep,
    ]
    how = [
        Choice("view", "View", views),
        Choice("quantity", "Quantity", {"bytes": "bytes", "messages": "messages"}),
        Choice("phase", "Phase", {_ALL: "all"}),
        Choice("operation", "Operation", {_ALL: "all"}),
    ]
    when = [
        Number("until", "Until (%)", 100, 0, 100, tip="Of the time of the trace"),
        Number("speed", "Speed (%)", 100, 10, 1000, tip="100: six seconds"),
        play,
    ]
    new = [
        Choice("record", "Record", RECORDS),
        Number("workers", "Workers", 4, 1, 16),
    ]
    return [("Trace", what), ("Show", how), ("Play back", when), ("Record", new)]
