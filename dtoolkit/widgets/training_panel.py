"""TrainingPanel: train by any strategy, sparse or not, over any network, and compare runs live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as ipw
import pandas as pd
import plotly.graph_objects as go

import dtoolkit as dt
from dtoolkit.cluster import Cluster
from dtoolkit.figures.html import table as html_table
from dtoolkit.figures.theme import Mode, bytes_text, plural
from dtoolkit.figures.training_overview import training_overview
from dtoolkit.figures.training_table import run_table
from dtoolkit.widgets import training_controls
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import button
from dtoolkit.widgets.live_run import LiveRun
from dtoolkit.widgets.training_request import Request
from dtoolkit.widgets.work import Job
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["TrainingPanel"]

KEPT = 8
"""Runs that are kept for comparing; the oldest goes first."""


class TrainingPanel(Panel):
    """Choose task, strategy, sparsity, network and faults; train on workers, and watch.

    Runs are kept and drawn beside each other. Stop ends a run where its workers meet next, so that
    Resume can go on from there, to the bit as if it had never stopped.

    Parameters
    ----------
    task : Task, optional
        One of your own; ready ones can be chosen.
    cluster : Cluster, optional
        Where to train. By default the panel starts workers when it first runs something, shares
        them with other panels, and closes them when it is closed.

    Attributes
    ----------
    runs : dict of str to Run
        What has ended, by name.
    live : LiveRun or None
        What goes on.
    stopped : str
        Name of the run that Resume goes on with; empty if there is none.

    Examples
    --------
    >>> panel = dt.widgets.TrainingPanel()  # doctest: +SKIP
    >>> panel.set(strategy="local-sgd", steps=50)
    >>> panel.run()
    >>> await panel.wait()
    """

    title = "Training: one task, many ways, side by side"

    def __init__(self, task: Any = None, cluster: Cluster | None = None) -> None:
        self.runs: dict[str, Run] = {}
        self.live: LiveRun | None = None
        self.stopped = ""
        self._task = task
        self._name = ""
        self._asked: Request | None = None
        self._number = 0
        self._workers = Workers(type(self).__name__, cluster)
        self._resume = button("Resume", self._guard("resume"), icon="forward", disabled=True)
        self._clear = button("Clear runs", self._guard("clear"), icon="trash")
        keep = ipw.Box([self._resume, self._clear], layout={"flex_flow": "row wrap"})
        keep.add_class("dtk-buttons")
        super().__init__(
            training_controls.groups(task, [keep]),
            presets=training_controls.presets(task, None if cluster is None else cluster.size),
        )
        self.on_close(self._workers.release)
        self.reset()

    # ------------------------------------------------------------------- what it shows

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw all runs: loss, test, bytes or density, and the last one's workers."""
        steps = self._asked.settings["steps"] if self.live is not None and self._asked else 0
        return training_overview(
            self._shown(), last=self._name, steps=steps, wide=self.wide, width=self.room, mode=mode
        )

    def table(self) -> pd.DataFrame:
        """Return a row a run (:func:`dtoolkit.figures.run_table`)."""
        shown = {name: run for name, run in self._shown().items() if len(run.history)}
        if not shown:
            return pd.DataFrame()
        return run_table(shown).rename_axis("run").reset_index()

    def code(self) -> str:
        """Return Python that trains as chosen."""
        return self._request().code(cluster_given=self._workers.given is not None)

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Say what Run will do; nothing is trained before."""
        s = self.settings
        self.controls["density"].show(s["sparsity"] != "none")
        for name in ("bandwidth", "latency"):
            self.controls[name].show(s["network"] == "own")
            self.controls[name].parsed()  # type: ignore[attr-defined]
        self.say(
            f"Run trains by {self._request().name}: {plural(s['steps'], 'step')} on "
            f"{plural(s['workers'], 'worker')}. {self._compared()}"
        )

    async def execute(self, job: Job) -> None:
        """Train as chosen."""
        request = self._request()
        self._number += 1
        await self._train(job, request, f"{self._number}: {request.name}", {})

    def resume(self, pressed: Any = None) -> None:
        """Go on with the run that was stopped."""
        if not self.stopped:
            self.say("No run was stopped: there is nothing to go on with.")
            return
        self._start("running", "the run", self._go_on)
        if pressed is not None:
            self._stop.focus()  # the button that was pressed can hold it no longer

    def clear(self, _: Any = None) -> None:
        """Forget all runs that have ended."""
        self.runs, self.stopped = {}, ""
        self._resume.disabled = True
        self._tell()
        self.say("No runs are kept.")

    def close(self) -> None:
        """End what goes on and take the panel away, with all that it started."""
        if self.live is not None:
            self.live.cancel()
        super().close()

    # ------------------------------------------------------------------- behind the scenes

    def _request(self) -> Request:
        return Request(self.settings, self._task)

    def _shown(self) -> dict[str, Any]:
        live = {} if self.live is None else {self._name: self.live.training}
        return {**self.runs, **live}

    async def _go_on(self, job: Job) -> None:
        """Train on from the run that was stopped, under its name."""
        assert self._asked is not None
        name = self.stopped
        if self.live is not None:
            self.say("Waiting until the workers have met …")
            await self._collect()
        if name not in self.runs:
            raise ValueError(f"{name}: the workers did not meet, there is nothing to go on with")
        await self._train(job, self._asked, name, {"resume": self.runs[name]})

    async def _train(self, job: Job, request: Request, name: str, more: dict[str, Any]) -> None:
        await self._collect()
        job.name = name
        ranks = int(request.settings["workers"])
        task, network = request.task(), request.network()
        if self._workers.running is None:
            self.say(f"Starting {plural(ranks, 'worker')}, which takes some seconds …")
        cluster = await self._workers.get(job, ranks, network, what="Workers")
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.say(f"{name}: the workers load what they need …")
            arguments = {**request.arguments(), **more}
            training = await job.in_thread(
                lambda: dt.submit_training(cluster, task, request.settings["strategy"], **arguments)
            )
            self._asked, self._name, self.stopped = request, name, name
            self.live = LiveRun(training, self._tell)
            run = await self.live.follow(job)
        self.live, self.stopped = None, ""
        self._keep(name, run)
        self.say(f"{name}: {self._ended(run)}")

    async def _collect(self) -> None:
        """Take the run that was stopped, once its workers have met."""
        live, self.live = self.live, None
        run = await live.ended() if live is not None else None
        if run is not None:
            self._keep(self._name, run)

    def _keep(self, name: str, run: Run) -> None:
        self.runs[name] = run
        for oldest in list(self.runs)[:-KEPT]:
            del self.runs[oldest]
        self._tell()

    def _tell(self) -> None:
        """Show how far it is."""
        if self.live is not None and self._state.activity == "running":
            training = self.live.training
            self.progress(training.step, training.steps)
            self.say(f"{self._name}: {training.status}")
        self.redraw()
        self._shell.below.value = self._tabulated()

    def _enable(self, enabled: bool) -> None:
        super()._enable(enabled)
        self._resume.disabled = not (enabled and self.stopped)
        self._clear.disabled = not enabled

    def _ended(self, run: Run) -> str:
        last = run_table([run]).iloc[0]
        tests = [f"{n} {last[n]:.4g}" for n in last.index if str(n).startswith("test ")]
        faults = f"; {plural(len(run.recoveries), 'fault')} got over" if len(run.recoveries) else ""
        return (
            f"{plural(run.state.step, 'step')} done, loss {last['loss']:.4g}, "
            f"{', '.join(tests[:2])}, {last['samples/s']:,.0f} samples a second, "
            f"{bytes_text(last['bytes a step'])} a step{faults} (measured)."
        )

    def _compared(self) -> str:
        return f"{plural(len(self.runs), 'run')} kept." if self.runs else ""

    def _tabulated(self) -> str:
        frame = self.table()
        if not len(frame):
            return ""
        tests = [name for name in frame if str(name).startswith("test ")][:2]
        rows = [
            [
                str(row["run"]), f"{row['steps']:,}", f"{row['loss']:.4g}",
                *(f"{row[name]:.4g}" for name in tests), f"{row['samples/s']:,.0f}",
                f"{row['idle']:.0%}", bytes_text(row["bytes a step"]),
            ]
            for _, row in frame.iterrows()
        ]  # fmt: skip
        head = ["run", "steps", "loss", *map(str, tests), "samples/s", "idle", "bytes a step"]
        caption = "Measured. Loss: of the last tenth of the steps. Idle: waiting for others."
        return html_table(head, rows, caption=caption, label="Runs side by side")
