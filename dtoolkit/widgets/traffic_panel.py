"""TrafficPanel: what ranks sent each other, live or recorded, played back, one or two together."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

import plotly.graph_objects as go

from dtoolkit.cluster import Cluster
from dtoolkit.comm import Network, Replay, Trace
from dtoolkit.comm.tracefile import pack_trace
from dtoolkit.figures.theme import Mode, plural
from dtoolkit.figures.traffic_views import traffic_views
from dtoolkit.widgets import traffic_clock, traffic_controls, traffic_text
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Choice, Upload, button
from dtoolkit.widgets.recordings import RECORDS, perfetto, record, trace_file
from dtoolkit.widgets.traffic_controls import END, GIVEN, NONE, OTHER, Filter
from dtoolkit.widgets.traffic_text import Shown
from dtoolkit.widgets.work import Job, Throttle
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TrafficPanel"]

_TELL = 1.0  # seconds between two status lines meanwhile: a screen reader reads them

_SOURCES = ("trace", "beside")
_NOTHING = {NONE: "nothing"}
_STAY = (*_SOURCES, "record", "workers")  # settings that presets leave alone


class TrafficPanel(Panel):
    """See who sent what to whom and when: live or recorded, filtered, played back, side by side.

    "Run on the workers" runs a product, a training or a collective, and keeps its trace; a file
    that :meth:`dtoolkit.comm.Trace.save` wrote can be uploaded; the trace of a cluster is followed
    while others use it.

    Parameters
    ----------
    trace : Trace or Cluster, optional
        What is shown first, and followed as it grows. A cluster is also what runs on.
    other : Trace, optional
        What is laid beside it.
    cluster : Cluster, optional
        What runs on, where `trace` is not it; its trace is shown where there is no other. By
        default the panel starts workers when it first runs something, shares them with other
        panels, and closes them when it is closed.

    Attributes
    ----------
    traces : dict of str to Trace
        What can be chosen, by key.
    replays : dict of str to Replay
        What is shown, one or two, by name, after the filters.
    following : bool
        Whether traces that grow are drawn as they grow.
    playing : bool

    Examples
    --------
    >>> dt.widgets.TrafficPanel(cluster)  # doctest: +SKIP
    """

    title = "Traffic: who sent what to whom, and when"
    more_exports: ClassVar = {
        "Perfetto (JSON)": ("_export_perfetto", "For ui.perfetto.dev and chrome://tracing"),
        "Trace (file)": ("_export_trace", "To be uploaded again, or read by dt.comm.Trace.load"),
    }

    def __init__(
        self, trace: Any = None, other: Trace | None = None, *, cluster: Cluster | None = None
    ) -> None:
        if isinstance(trace, Cluster):
            trace, cluster = None, trace
        for name, one in (("trace", trace), ("other", other)):
            if one is not None and not isinstance(one, Trace):
                raise TypeError(f"{name} is a {type(one).__name__}: wanted a Trace or a Cluster")
        self.traces: dict[str, Trace] = {}
        self._names: dict[str, str] = {}
        if trace is not None:
            self._keep(GIVEN, "the trace given", trace)
        elif cluster is not None:
            self._keep(GIVEN, "the cluster's, live", cluster.trace)
        if other is not None:
            self._keep(OTHER, "the other one given", other)
        self.replays: dict[str, Replay] = {}
        self.following, self.playing = True, False
        self._own_trace = trace is not None
        self._frozen: dict[str, Trace] = {}
        self._gone: list[str] = []
        self._laid: dict[Any, Replay] = {}
        self._wires: list[tuple[Network | None, str]] = []
        self._workers = Workers(type(self).__name__, cluster)
        self._emulated = None if cluster is None else cluster.emulate
        self._tasks: list[Any] = []
        self.retell = Throttle(self._guard("_tell"), _TELL)
        kinds, take = ".trace,.jsonl,.json,.gz", self._guard("_take_file")
        self._upload = Upload("Upload a trace", kinds, take, tip="What Trace.save wrote")
        self._follow = button("Stop following", self._guard("follow"), icon="eye")
        self._follow.layout.display = None if self._growing() else "none"
        self._play = button("Play", self._guard("play"), icon="play")
        super().__init__(
            traffic_controls.groups(
                self._names,
                self._emulated,
                None if cluster is None else cluster.size,
                taking=self._upload,
                follow=self._follow,
                play=self._play,
            ),
            run="Run on the workers",
            presets=traffic_controls.PRESETS,
        )
        if self.traces.keys() > {OTHER}:
            self._choose(GIVEN, OTHER)
        self.on_close(self._workers.release)
        self.reset()
        self._spawn(traffic_clock.followed)

    # ------------------------------------------------------------------- what it shows

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw what is shown, as far as it is played."""
        s = self.settings
        since, until = self._window() if self.replays else (None, None)
        networks = [network for network, _ in self._wires if network is not None]
        return traffic_views(
            self.replays or {"nothing yet": Replay(Trace())},
            view=s["view"],
            quantity=s["quantity"],
            since=since,
            until=until,
            network=networks if len(networks) == len(self.replays) > 0 else None,
            beside=self.wide,
            width=self.room,
            mode=mode,
        )

    def table(self) -> pd.DataFrame:
        """Return the numbers of the figure, with the name of the trace in the first column.

        Returns
        -------
        DataFrame
            Of the pairs and the network: :meth:`Replay.pairs`; over time: :meth:`Replay.frame`.
        """
        return traffic_text.frames(
            self.replays, "frame" if self.settings["view"] == "time" else "pairs", *self._window()
        )

    def phases(self) -> pd.DataFrame:
        """Return the sums by phase (:meth:`Replay.phases`), by trace."""
        return traffic_text.frames(self.replays, "phases", *self._window())

    def code(self) -> str:
        """Return Python that makes the figure and its numbers."""
        if not self.replays:
            return "# Nothing is shown yet.\n"
        return traffic_text.code(
            self.settings,
            self._shown(),
            [code for _, code in self._wires],
            own_cluster=self._workers.given is None,
            own_trace=self._own_trace,
        )

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Lay out what is shown, and say what it is."""
        self._settle()
        await self._lay(job.in_thread)
        self._wire()
        self._show()
        self._tell()

    async def execute(self, job: Job) -> None:
        """Run what is to be recorded, and show its trace."""
        s = self.settings
        job.name = "the recording"
        self.pause()
        if s["workers"] > 1 and self._workers.running is None:
            self.say(f"Starting {plural(s['workers'], 'worker')}, which takes some seconds …")
        cluster = await self._workers.get(job, s["workers"], what="Workers")
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.say(f"Recording: {RECORDS[s['record']]} …")
            trace = await job.in_thread(record, cluster, s["record"])
        key = f"{s['record']} {s['workers']}"
        self._keep(key, f"{RECORDS[s['record']]} on {s['workers']}", trace)
        self._choose(key)
        await self.update(job)

    def play(self, _: Any = None) -> None:
        """Play from the position on, from the beginning if that is the end; or pause."""
        if self.playing:
            self.pause()
            return
        if not self.replays:
            raise ValueError("there is nothing to play: run something, or upload a trace")
        self.playing = True
        if self.settings["position"] >= END:
            self.place(0)
        if not self._spawn(traffic_clock.played):  # in a script nobody sees it go by
            self.place(END)
            self.pause()
        self._label()

    def pause(self) -> None:
        """Stay where it is."""
        if self.playing:
            self.playing = False
            self._label()
            self._show()
            self._tell()
            self._name_preset()

    def follow(self, _: Any = None) -> None:
        """Draw traces as they grow, or stop doing so: what is shown stays as it is then."""
        self.following = not self.following
        grown = () if self.following else self._growing()
        self._frozen = {key: self.traces[key].filter() for key in grown}
        self._label()
        self._recompute()

    def close(self) -> None:
        """End what goes on and take the panel away, with all that it started."""
        for task in self._tasks:
            task.cancel()
        super().close()

    # ------------------------------------------------------------------- behind the scenes

    def _keep(self, key: str, words: str, trace: Trace) -> None:
        self.traces[key], self._names[key] = trace, words

    def _growing(self) -> list[str]:
        return [key for key in (GIVEN, OTHER) if key in self.traces]

    def _shown(self) -> list[Shown]:
        """The traces that are shown, and how they are filtered."""
        found: list[Shown] = []
        for number, name in enumerate(_SOURCES):
            key = self.settings[name]
            if key not in self.traces:
                continue
            wanted = {n: self._filter(n).wanted for n in ("phase", "operation")}
            kept: dict[str, Any] = {n: one for n, one in wanted.items() if one is not None}
            launch = self._filter("launch_beside" if number else "launch").wanted
            if launch is not None:
                kept["launch"] = int(launch)
            again = " (again)" if any(key == one.key for one in found) else ""
            trace = self._frozen.get(key, self.traces[key])
            found.append(Shown(key, self._names[key] + again, trace, kept))
        return found

    def _filter(self, name: str) -> Filter:
        control = self.controls[name]
        assert isinstance(control, Filter)
        return control

    def _settle(self) -> None:
        """Offer what the traces have, and show the controls that matter."""
        s = self.settings
        traces = [self._frozen.get(s[n], self.traces.get(s[n], Trace())) for n in _SOURCES]
        events = [one.events for one in traces]
        with self.quietly():
            self._gone += traffic_controls.offer(self.controls, *events)
        traffic_controls.fit(self.controls, s, beside=bool(events[1]))

    async def _lay(self, run: Callable[..., Awaitable[Any]]) -> bool:
        """Lay the traces out for questions; False, and nothing, if others were chosen meanwhile."""
        laid: dict[Any, Replay] = {}
        replays = {}
        wanted = self._shown()
        for one in wanted:
            key = one.state()
            laid[key] = self._laid.get(key) or await run(one.replay)
            replays[one.name] = laid[key]
        same = [one.question for one in wanted] == [one.question for one in self._shown()]
        if same:
            self._laid, self.replays = laid, replays
        return same

    def _wire(self) -> None:
        """Build the network for each trace, where one is drawn."""
        s = self.settings
        for name in ("between", "inside", "latency"):
            self.controls[name].parsed()  # type: ignore[attr-defined]
        self._wires = []
        self._wires = [
            traffic_controls.wired(s, one.ranks, self._emulated)
            for one in self.replays.values()
            if s["view"] == "network" and one.ranks
        ]

    def _window(self) -> tuple[float | None, float | None]:
        """Seconds that count."""
        span = max((one.span for one in self.replays.values()), default=0.0)
        return traffic_controls.window(self.settings, span)

    def _show(self) -> None:
        self.redraw()
        self._shell.below.value = traffic_text.tabulated(self.replays, *self._window())

    def _tell(self) -> None:
        if not self.replays:
            self.say("No trace is here yet: press Run on the workers, or upload one.")
            return
        live = self.following and not self._own_trace and self.settings["trace"] == GIVEN
        notes, self._gone = self._gone, []
        self.say(traffic_text.said(self.replays, *self._window(), live=live, notes=notes))

    def _choose(self, key: str, beside: str | None = None) -> None:
        """Offer all traces, and choose one, or two."""
        with self.quietly():
            for name, none, wanted in (("trace", {}, key), ("beside", _NOTHING, beside)):
                choice = self.controls[name]
                assert isinstance(choice, Choice)
                choice.offer({**none, **self._names}, wanted)

    def _settings_of(self, preset: str) -> dict[str, Any]:
        """Presets are of how it is shown; the traces stay."""
        return {**super()._settings_of(preset), **{n: self.settings[n] for n in _STAY}}

    def _label(self) -> None:
        """Name the buttons by what they will do."""
        self._play.description = "Pause" if self.playing else "Play"
        self._play.icon = "pause" if self.playing else "play"
        self._follow.description = "Stop following" if self.following else "Follow"

    def place(self, position: int) -> None:
        """Go to a position without computing anew."""
        with self.quietly():
            self.controls["position"].set(position)
        self.redraw()

    def _enable(self, enabled: bool) -> None:
        super()._enable(enabled)
        self._upload.enable(enabled)
        self._play.disabled = not enabled

    def _spawn(self, make: Callable[[Any], Any]) -> bool:
        """Let something go on beside the panel's job, if an event loop runs."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(loop.create_task(make(weakref.ref(self))))
        return True

    async def look_again(self) -> None:
        """Lay out anew what has grown; a job that goes on will do so itself."""
        if not self.following or self._state.activity == "working":
            return
        if all(one.state() in self._laid for one in self._shown()):
            return
        self._settle()
        if await self._lay(asyncio.to_thread):
            self._wire()
            self._show()
            if self._state.activity == "idle":
                self.retell()

    def _export_perfetto(self, _: Any) -> None:
        self._save("perfetto.json", perfetto(self._parts()), "application/json")

    def _export_trace(self, _: Any) -> None:
        part = next(iter(self._parts().values()))
        packed = pack_trace(part.events, part.ranks, part.clock_error, part.emulated)
        self._save("trace.jsonl.gz", packed, "application/gzip")

    def _parts(self) -> dict[str, Trace]:
        """The traces that are shown, filtered, for files."""
        parts = {one.name: one.trace.filter(**one.kept) for one in self._shown()}
        if not parts:
            raise ValueError("there is no trace yet to be exported")
        return parts

    def _take_file(self, name: str, content: bytes) -> None:
        self._start("working", f"reading {name}", lambda job: self._read(job, name, content))

    async def _read(self, job: Job, name: str, content: bytes) -> None:
        self.say(f"Reading {name} …")
        trace = await job.in_thread(trace_file, name, content)
        self._keep(f"file {name}", name, trace)
        self._choose(f"file {name}")
        await self.update(job)
