"""SpeedPanel: late workers, and what dropping their late work gains."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.cluster import Cluster
from dtoolkit.figures.html import table as html_table
from dtoolkit.figures.speed import drop_speed
from dtoolkit.figures.theme import Mode, base_layout, notice, plural, seconds_text
from dtoolkit.training.dropsimulation import Rule
from dtoolkit.training.dropstudy import Gain, Straggling, Study
from dtoolkit.training.droptrial import Trial
from dtoolkit.widgets import speed_controls, speed_run
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Text
from dtoolkit.widgets.speed_controls import COUNTS, OWN, REFERENCES
from dtoolkit.widgets.work import Job
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SpeedPanel"]

_SENT = 0.03  # seconds in which the figure is on its way before more is computed
_RANKS = "Workers to run"


class SpeedPanel(Panel):
    """Say how late workers are, choose a threshold, and see what DropCompute gains.

    The simulation and the closed form need no workers, and go to 1,024 of them. "Run on the
    workers" trains a small model on real ones under delays of the same distribution, waiting and
    dropping, and puts what was measured beside both.

    Parameters
    ----------
    cluster : Cluster, optional
        Where to run; by default the panel starts workers when it first runs something, and shares
        them with other panels.

    Attributes
    ----------
    study : Study or None
        The thresholds of the asked number of workers.
    gains : list of Gain
        The best by number of workers, as far as they are simulated.
    trial : Trial or None
        The last run on workers, as long as the delays are the same.

    Notes
    -----
    N. Giladi et al., "DropCompute", NeurIPS 2023, arXiv 2306.10598.

    Examples
    --------
    >>> panel = dt.widgets.SpeedPanel()  # doctest: +SKIP
    >>> panel.set(workers=200, delay="normal")
    >>> await panel.wait()
    >>> panel.study.chosen.speedup
    """

    title = "Speed: late workers, and what dropping their late work gains"

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.study: Study | None = None
        self.gains: list[Gain] = []
        self.trial: Trial | None = None
        self._tried: tuple[Straggling, Any] | None = None
        self._late: Straggling | None = None
        self._workers = Workers(type(self).__name__, cluster)
        ranks = cluster.size if cluster is not None else None
        super().__init__(
            speed_controls.groups(ranks),
            run="Run on the workers",
            presets=speed_controls.presets(ranks),
        )
        self.on_close(self._workers.release)
        self.reset()

    # ------------------------------------------------------------------- what it shows

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw speed-ups over workers and thresholds, what is dropped, and how long steps take."""
        if self.study is None:
            return go.Figure(layout=base_layout(mode=mode, annotations=[notice("one moment")]))
        return drop_speed(
            self.study, self.gains, self.trial, beside=self.wide, width=self.room, mode=mode
        )

    def table(self) -> pd.DataFrame:
        """Return all numbers of the figure.

        Returns
        -------
        DataFrame
            Columns curve ("chosen", "measured", "workers", "threshold"), source ("simulated, at",
            "simulated, after", "formula", "measured"), workers, threshold_seconds, speedup,
            dropped.
        """
        import pandas as pd

        head = ["curve", "source", "workers", "threshold_seconds", "speedup", "dropped"]
        return pd.DataFrame(self._rows(), columns=head)

    def code(self) -> str:
        """Return Python that makes these simulations, their figure and the measured run."""
        if self.study is None or self._late is None:
            return "# Nothing is simulated yet.\n"
        counts = tuple(one.workers for one in self.gains)
        made = (
            "import dtoolkit as dt\n"
            "from dtoolkit.training.dropstudy import Straggling\n\n"
            f"work = {speed_controls.written(self._late)}\n"
            f"study = work.study({self.study.workers}, {self._threshold()!r}, "
            f"rule={self.study.chosen.rule!r})\n"
            "print(study.chosen.speedup, study.formula, study.chosen.dropped)  # modelled\n"
            f"gains = [work.gain(workers) for workers in {counts}]\n"
        )
        if self.trial is None:
            return made + "dt.figures.drop_speed(study, gains)\n"
        return (
            made
            + speed_run.code(self._late, self.trial)
            + ("dt.figures.drop_speed(study, gains, trial)\n")
        )

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Simulate the asked number of workers first, then the curve over all numbers."""
        s = self._settle()
        job.name = "the simulation"
        work = speed_controls.work(s)
        self.say(f"Simulating {plural(s['workers'], 'worker')} …")
        rule: Rule = s["rule"]
        study = await job.in_thread(lambda: work.study(s["workers"], self._threshold(), rule=rule))
        if work != self._late:
            self.gains = []
        if self._tried != self._question(work):
            self.trial = None
        self.study, self._late = study, work
        self._show()
        self.say(self._words())
        if not self.gains:
            await asyncio.sleep(_SENT)
            await self._curve(job, work)

    async def execute(self, job: Job) -> None:
        """Train on real workers, waiting and dropping, and hold it against the simulation."""
        s = self._settle()
        if self._late is None or speed_controls.work(s) != self._late:
            await self.update(job)
        work = self._late
        assert work is not None
        job.name = "the run"
        if s["ranks"] > 1 and self._workers.running is None:
            self.say(f"Starting {plural(s['ranks'], 'worker')}, which takes some seconds …")
        cluster = await self._workers.get(job, s["ranks"], what=_RANKS)
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.trial = await speed_run.trial(
                job, cluster, work, self._threshold(), s["steps"], self._tell
            )
        self._tried = self._question(work)
        self._show()
        self.say(self._measured_words(self.trial))

    # ----------------------------------------------------------------- behind the scenes

    async def _curve(self, job: Job, work: Straggling) -> None:
        found: list[Gain] = []
        for number, count in enumerate(COUNTS):
            self.progress(number, len(COUNTS))
            found.append(await job.in_thread(work.gain, count))
        self.gains = found
        self._show()

    def _settle(self) -> dict[str, Any]:
        """Show the controls that matter, and read what they say."""
        s = self.settings
        self.controls["deviation"].show(s["delay"] == "normal")
        self.controls["sigma"].show(s["delay"] == "lognormal")
        self.controls["threshold"].show(s["choose"] == OWN)
        texts = {n: c.parsed() for n, c in self.controls.items() if isinstance(c, Text)}
        return {**s, **texts}

    def _threshold(self) -> str | float:
        """How the threshold is chosen, as the library takes it."""
        chosen = self.settings["choose"]
        if chosen != OWN:
            return str(chosen)
        text = self.controls["threshold"]
        assert isinstance(text, Text)
        return float(text.parsed())

    def _question(self, work: Straggling) -> tuple[Straggling, Any]:
        return work, self._threshold()

    def _show(self) -> None:
        self.redraw()
        self._shell.below.value = self._tabulated()

    def _rows(self) -> list[tuple[Any, ...]]:
        if self.study is None:
            return []
        study, one = self.study, self.study.chosen
        by = f"simulated, {one.rule}"
        tau, work = one.threshold, study.work
        rows: list[tuple[Any, ...]] = [
            ("chosen", by, study.workers, tau, one.speedup, one.dropped),
            ("chosen", "formula", study.workers, tau, study.formula, work.formula_dropped(tau)),
        ]
        if self.trial is not None:
            t = self.trial
            expected = t.simulated
            rows += [
                ("measured", "measured", t.workers, t.threshold, t.gain, t.dropped),
                ("measured", "simulated, after", t.workers, t.threshold, expected.speedup,
                 expected.dropped),
                ("measured", "formula", t.workers, t.threshold, t.formula, None),
            ]  # fmt: skip
        for g in self.gains:
            rows.append(("workers", "formula", g.workers, None, g.formula, None))
            rows += [
                ("workers", f"simulated, {r.rule}", g.workers, r.threshold, r.speedup, r.dropped)
                for r in (g.at, g.after)
            ]
        for i, tried in enumerate(study.thresholds):
            rows.append(
                ("threshold", by, study.workers, tried, study.speedups[i], study.dropped[i])
            )
            rows.append(
                ("threshold", "formula", study.workers, tried, study.formulas[i],
                 study.formulas_dropped[i])
            )  # fmt: skip
        return rows

    def _tabulated(self) -> str:
        assert self.study is not None
        study, one = self.study, self.study.chosen
        tau, n = seconds_text(one.threshold), f"{study.workers:,}"
        rule = "looking after each" if one.rule == "after" else "cut at the threshold"
        lost = f"{study.work.formula_dropped(one.threshold):.1%}"
        rows = [
            [f"simulated, {rule}", n, tau, seconds_text(one.synchronous),
             seconds_text(one.seconds), f"{one.dropped:.1%}", f"{one.speedup:.3f}"],
            ["formula for normal times", n, tau, "", "", lost, f"{study.formula:.3f}"],
        ]  # fmt: skip
        known = self._reference()
        if known:
            rows.append(["reference figure, best threshold", n, "", "", "", "", f"{known:.3f}"])
        if self.trial is not None:
            t = self.trial
            tau, n = seconds_text(t.threshold), f"{t.workers:,}"
            e = t.simulated
            rows += [
                ["measured on workers", n, tau, seconds_text(t.waiting), seconds_text(t.dropping),
                 f"{t.dropped:.1%}", f"{t.gain:.3f}"],
                ["simulated on the same delays", n, tau, seconds_text(e.synchronous),
                 seconds_text(e.seconds), f"{e.dropped:.1%}", f"{e.speedup:.3f}"],
                ["formula with their mean and deviation", n, tau, "", "", "", f"{t.formula:.3f}"],
            ]  # fmt: skip
        head = ["", "workers", "threshold", "a step, waiting", "a step, dropping", "dropped",
                "speed-up"]  # fmt: skip
        caption = (
            "Speed-up: samples really used a second, over those without dropping. The paper "
            "reports up to 18% for BERT of 1.5 billion parameters, and that dropping up to about "
            "10% did no harm."
        )
        return html_table(head, rows, caption=caption, label="Simulated, formula, measured")

    def _reference(self) -> float | None:
        """A figure that is known for just this, in whatever unit of time."""
        assert self.study is not None
        s, work = self.settings, self.study.work
        unit, half = work.mean, 0.5 * work.mean
        if s["delay"] == "heavy":
            unit, half = work.compute, 0.5 * work.compute
            alike = abs(2 * (work.mean - work.compute) - unit) < 1e-9
        else:
            alike = work.compute == 0 and abs(work.std - 0.3 * unit) < 1e-9
        usual = work.micro_batches == 12 and abs(work.overhead - half) < 1e-9
        if not (alike and usual and s["choose"] == "best"):
            return None
        return REFERENCES.get((s["delay"], s["rule"]), {}).get(self.study.workers)

    def _words(self) -> str:
        assert self.study is not None
        one, n = self.study.chosen, self.study.workers
        alone = float(self.study.alone.mean())
        text = (
            f"A worker computes {seconds_text(alone)} in a step; the slowest of {n:,} takes "
            f"{seconds_text(float(self.study.slowest.mean()))}"
        )
        if one.dropped == 0:
            return (
                f"{text}. At this threshold nothing is dropped, and nothing is gained (modelled)."
            )
        verdict = "gains" if one.speedup >= 1 else "loses"
        return (
            f"{text}. A threshold of {seconds_text(one.threshold)} drops {one.dropped:.1%} of the "
            f"micro-batches and {verdict}: {one.speedup:.3f} times the samples a second by "
            f"simulation, {self.study.formula:.3f} by the formula (modelled)."
        )

    def _measured_words(self, t: Trial) -> str:
        return (
            f"Measured on {plural(t.workers, 'worker')} over {plural(t.steps, 'step')}: a "
            f"threshold of {seconds_text(t.threshold)} dropped {t.dropped:.1%} and gave "
            f"{t.gain:.3f} times the samples a second, where {t.simulated.speedup:.3f} are "
            f"simulated for the same delays and {t.formula:.3f} follow from the formula. Losses of "
            f"the last step: {t.loss_waiting:.3f} waiting, {t.loss_dropping:.3f} dropping."
        )

    def _tell(self, words: str, done: int, total: int) -> None:
        self.say(f"{words}: step {done} of {total} …")
        self.progress(done, total)
