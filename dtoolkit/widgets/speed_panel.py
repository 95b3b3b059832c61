"""SpeedPanel: slow workers, and what dropping their late micro-batches gains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go

from dtoolkit.cluster import Cluster
from dtoolkit.comm.units import seconds
from dtoolkit.figures.html import table as html_table
from dtoolkit.figures.speed import drop_speed
from dtoolkit.figures.theme import Mode, base_layout, notice, plural, seconds_text
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Choice, Number, Text
from dtoolkit.widgets.speeding import DELAYS, Answer, Question, answer, over_workers
from dtoolkit.widgets.work import Job
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["SpeedPanel"]

PRESETS: dict[str, dict[str, Any]] = {
    "Sentences of all lengths, 64 workers": {},
    "Normal times: the formula is exact": {
        "delay": "normal", "mean": "1s", "spread": 30, "compute": "0s", "rule": "at",
    },
    "1,024 workers": {"workers": 1024, "steps": 50},
    "Four real workers": {
        "workers": 4, "micro_batches": 8, "mean": "10ms", "compute": "5ms", "overhead": "10ms",
        "steps": 40,
    },
    "Nobody is late": {"delay": "constant"},
}  # fmt: skip
"""Name to settings that differ from the defaults; the first is the start."""

MOST_REAL, REAL_STEPS = 8, 40
"""Workers that a run may start, and steps that it measures at most."""


class SpeedPanel(Panel):
    """Draw how late workers are, choose a threshold, and see what DropCompute gains.

    Simulated times and the closed form need no workers; "Run on the workers" trains a small model
    twice on real ones whose delays are drawn from the same distribution, waiting and dropping.

    Parameters
    ----------
    cluster : Cluster, optional
        Where to run; by default the panel starts workers when it first runs something.

    Attributes
    ----------
    answer : Answer or None
        Simulation of the asked number of workers.
    by_workers : DataFrame
        Best speed-up over the number of workers: simulated and by the closed form.
    measured : float or None
        Speed-up of the last run on workers, as long as the question is the same.

    Notes
    -----
    N. Giladi et al., "DropCompute", NeurIPS 2023, arXiv 2306.10598.

    Examples
    --------
    >>> panel = dt.widgets.SpeedPanel()  # doctest: +SKIP
    >>> panel.set(workers=200, delay="normal")
    >>> panel.answer.chosen.speedup
    """

    title = "Speed: late workers, and what dropping their work gains"

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.answer: Answer | None = None
        self.by_workers = pd.DataFrame(columns=["workers", "simulated", "formula"], dtype=float)
        self.measured: float | None = None
        self._asked: Question | None = None
        self._workers = Workers(type(self).__name__, cluster)
        presets = PRESETS
        if cluster is not None:
            first = {**PRESETS["Four real workers"], "workers": cluster.size}
            presets = {"What the panel was given": first, **PRESETS}
        super().__init__(_groups(), run="Run on the workers", presets=presets)
        self.on_close(self._workers.release)
        self.reset()

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw speed-ups over thresholds and workers, and the workers' times."""
        if self.answer is None or self._asked is None:
            return go.Figure(layout=base_layout(mode=mode, annotations=[notice("one moment")]))
        q = self._asked
        name = (
            f"{plural(q.workers, 'worker')}, {q.micro_batches} micro-batches of "
            f"{seconds_text(q.compute)} and a {DELAYS[q.delay]} delay of {seconds_text(q.mean)}"
        )
        return drop_speed(
            self.answer.curve,
            self.by_workers,
            self.answer.times,
            threshold=self.answer.chosen.threshold,
            measured=self.measured,
            size=q.workers,
            name=name,
            width=self.room,
            mode=mode,
        )

    def table(self) -> pd.DataFrame:
        """Return speed-up over the threshold: simulated, by the formula, and what is dropped."""
        return pd.DataFrame() if self.answer is None else self.answer.curve

    def code(self) -> str:
        """Return Python that draws the times, simulates and finds the threshold."""
        if self._asked is None:
            return "# Nothing is simulated yet.\n"
        q = self._asked
        threshold = "best.threshold" if q.choose == "best" else repr(self._threshold())
        made = (
            "import dtoolkit as dt\n"
            "from dtoolkit.training.dropcompute import expected_speedup\n"
            "from dtoolkit.training.dropsimulation import best_simulated, simulate\n\n"
            f"delay = {q.distribution_code()}\n"
            f"times = {q.compute!r} + delay.table(\n    {q.seed}, workers={q.workers}, "
            f"steps={q.steps}, micro_batches={q.micro_batches}\n)\n"
            f"best = best_simulated(times, rule={q.rule!r}, overhead={q.overhead!r})\n"
            f"threshold = {threshold}\n"
            f"chosen = simulate(times, threshold, rule={q.rule!r}, overhead={q.overhead!r})\n"
            "formula = expected_speedup(\n"
            f"    threshold, {q.workers}, {q.micro_batches}, {q.compute!r} + delay.mean, "
            f"delay.std, overhead={q.overhead!r}\n)\n"
            "print(chosen.speedup, formula, chosen.dropped)\n"
        )
        return made + self._run_code(q) if self.measured is not None else made

    async def update(self, job: Job) -> None:
        """Simulate the asked workers first, then all numbers of workers."""
        q = self._question()
        job.name = "the simulation"
        self.say(f"Simulating {plural(q.workers, 'worker')} …")
        self.answer = await job.in_thread(answer, q)
        if q != self._asked:
            self.measured = None
        self._asked = q
        self.redraw()
        self.say(self._words())
        self.by_workers = await job.in_thread(over_workers, q)
        self._shell.below.value = self._tabulated()

    async def execute(self, job: Job) -> None:
        """Train on real workers with and without dropping, and hold it against the simulation."""
        if self._asked != self._question():
            await self.update(job)
        q = self._asked
        assert q is not None
        if q.workers > MOST_REAL or q.micro_batches < 2:
            raise ValueError(
                f"a run takes at most {MOST_REAL} real workers and 2 micro-batches or more: set "
                f"Workers to {MOST_REAL} or fewer, here it is {q.workers}"
            )
        job.name = "the run"
        if self._workers.running is None:
            self.say(f"Starting {plural(q.workers, 'worker')}, which takes some seconds …")
        cluster = await self._workers.get(job, q.workers)
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.say("Training, waiting for the late ones …")
            self.progress(0, 2)
            waits = await job.in_thread(_train, cluster, q, None)
            self.progress(1, 2)
            self.say("Training, dropping what is late …")
            drops = await job.in_thread(_train, cluster, q, self._threshold())
        self.measured = _rate(drops) / _rate(waits)
        self._shell.below.value = self._tabulated()
        self.say(
            f"Measured on {plural(q.workers, 'worker')}: dropping gave {self.measured:.3f} times "
            f"the samples a second, where {self._simulated():.3f} were simulated; final losses "
            f"{_loss(waits):.3f} and, with less work, {_loss(drops):.3f}."
        )

    # ------------------------------------------------------------------- behind the scenes

    def _question(self) -> Question:
        s = self.settings
        self.controls["spread"].show(s["delay"] in ("normal", "lognormal"))
        self.controls["threshold"].show(s["choose"] == "own")
        parsed = {
            name: self.controls[name].parsed()  # type: ignore[attr-defined]
            for name in ("mean", "compute", "overhead", "threshold")
        }
        return Question(**{**s, **parsed})

    def _threshold(self) -> float:
        assert self.answer is not None
        return self.answer.chosen.threshold

    def _simulated(self) -> float:
        assert self.answer is not None
        return self.answer.chosen.speedup

    def _tabulated(self) -> str:
        assert self.answer is not None
        one = self.answer.chosen
        rows = [
            ["simulated", f"{one.speedup:.3f}", f"{one.dropped:.1%}",
             seconds_text(one.synchronous), seconds_text(one.seconds)],
            ["formula for normal times", f"{self.answer.formula:.3f}", "", "", ""],
        ]  # fmt: skip
        if self.measured is not None:
            rows.append(["measured on workers", f"{self.measured:.3f}", "", "", ""])
        head = ["", "speed-up", "dropped", "a step, waiting", "a step, dropping"]
        caption = "Speed-up: samples really used a second, over those without dropping."
        return html_table(head, rows, caption=caption, label="Simulated, formula, measured")

    def _words(self) -> str:
        assert self.answer is not None
        one = self.answer.chosen
        return (
            f"With a threshold of {seconds_text(one.threshold)} a step takes "
            f"{seconds_text(one.seconds)} in place of {seconds_text(one.synchronous)}, and "
            f"{one.dropped:.1%} of the micro-batches are dropped: {one.speedup:.3f} times the "
            f"samples a second (simulated), {self.answer.formula:.3f} by the formula."
        )

    def _run_code(self, q: Question) -> str:
        return (
            f"\ncluster = dt.Cluster(workers={q.workers})\n"
            f"slow = dt.faults.Slow(seconds={q.compute!r}, delay=delay)\n"
            f"same = dict(steps={min(q.steps, REAL_STEPS)}, seed={q.seed}, "
            f"accumulate={q.micro_batches}, faults=[slow])\n"
            "task = dt.training.tasks.digits()\n"
            "waits = dt.train(cluster, task, 'data-parallel', **same)\n"
            "drops = dt.train(\n    cluster, task, "
            "dt.training.strategies.DropCompute(threshold), **same\n)\n"
            "dt.figures.run_table({'waits': waits, 'drops': drops})\n"
        )


def _train(cluster: Cluster, q: Question, threshold: float | None) -> Run:
    import dtoolkit as dt

    strategy = (
        "data-parallel" if threshold is None else dt.training.strategies.DropCompute(threshold)
    )
    return dt.train(
        cluster,
        dt.training.tasks.digits(),
        strategy,
        steps=min(q.steps, REAL_STEPS),
        seed=q.seed,
        accumulate=q.micro_batches,
        faults=[dt.faults.Slow(seconds=q.compute, delay=q.distribution())],
    )


def _rate(run: Run) -> float:
    """Samples really used a second; the first step, which sets things up, is left out."""
    later = run.history.iloc[1:]
    return float(later["samples"].sum() / later["seconds"].sum())


def _loss(run: Run) -> float:
    return float(run.history["loss"].iloc[-1])


def _groups() -> list[tuple[str, list[Any]]]:
    rules = {"after": "after a micro-batch, as workers can", "at": "at once (idealised)"}
    chosen = {"best": "the best one", "formula": "by the formula", "own": "by hand, below"}
    late = [
        Choice("delay", "Delay", DELAYS),
        Text("mean", "Mean delay", "500ms", seconds, tip="Of a micro-batch, as 10ms"),
        Number("spread", "Spread (%)", 30, 0, 300, tip="Deviation over mean; 100 sigma"),
        Text("compute", "Computing", "1s", seconds, tip="Of a micro-batch, as 10ms"),
        Text("overhead", "Rest of a step", "500ms", seconds, tip="Exchange and update"),
    ]
    who = [
        Number("workers", "Workers", 64, 1, 1024, slide_from=1),
        Number("micro_batches", "Micro-batches", 12, 1, 64),
        Number("steps", "Steps", 200, 10, 400),
        Number("seed", "Seed", 0, 0, 2**31 - 1),
    ]
    when = [
        Choice("choose", "Threshold", chosen),
        Text("threshold", "Own threshold", "15s", seconds),
        Choice("rule", "Workers look", rules),
    ]
    return [("Slow workers", late), ("Training", who), ("DropCompute", when)]
