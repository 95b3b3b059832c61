"""FaultPanel: kill, freeze and slow workers while they train, and see what becomes of the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import ipywidgets as ipw
import pandas as pd
import plotly.graph_objects as go

import dtoolkit as dt
from dtoolkit.cluster import Cluster
from dtoolkit.figures.fault_overview import fault_overview
from dtoolkit.figures.theme import Mode, plural, seconds_text
from dtoolkit.widgets import fault_controls
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import button
from dtoolkit.widgets.fault_schedule import Line, drawn, faults_of, parse_schedule, written
from dtoolkit.widgets.fault_tables import recoveries_frame, recoveries_table, seats_table
from dtoolkit.widgets.live_run import LiveRun
from dtoolkit.widgets.training_request import GIVEN, HUNG
from dtoolkit.widgets.watching import Braking, Watch, last_steps, strike
from dtoolkit.widgets.work import Job
from dtoolkit.widgets.workers import Workers

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["FaultPanel"]

_LOOK = 0.25  # seconds between two looks at the workers


class FaultPanel(Panel):
    """Train over workers, strike them by hand or by a schedule, and see how the run goes on.

    Kill, Freeze, Continue and Slow strike a worker's process at once, with real signals; faults of
    the schedule strike at their step. "Is the result still right?" trains again without faults and
    compares the two to the bit.

    Parameters
    ----------
    task : Task, optional
        One of your own; handwritten digits can be chosen.
    cluster : Cluster, optional
        Where to train; its workers must be processes of this machine for faults by hand. By default
        the panel starts workers when it first runs something, and closes them when it is closed.

    Attributes
    ----------
    watch : Watch or None
        What was seen of the workers.
    live : LiveRun or None
        The run that goes on.
    result : Run or None
        The last run, if it came to its end.

    Examples
    --------
    >>> panel = dt.widgets.FaultPanel()  # doctest: +SKIP
    >>> panel.run()
    >>> panel.strike("kill", 2)  # while it goes on
    """

    title = "Faults: strike workers, and see what becomes of the run"

    def __init__(self, task: Any = None, cluster: Cluster | None = None) -> None:
        self.watch: Watch | None = None
        self.live: LiveRun | None = None
        self.result: Run | None = None
        self._task = task
        self._asked: dict[str, Any] = {}
        self._shown: tuple[Any, Any] = ((), pd.DataFrame())
        self._brakes: dict[int, Braking] = {}
        self._workers = Workers(type(self).__name__, cluster)
        names = {"kill": "Kill", "hang": "Freeze", "continue": "Continue", "slow": "Slow"}
        self._strikes = [
            button(words, self._guard(f"_press_{what}"), disabled=True)
            for what, words in names.items()
        ]
        self._plan = [
            button("Add to schedule", self._guard("_add"), icon="plus"),
            button("Clear schedule", self._guard("_clear")),
            button("Draw at random", self._guard("_draw_plan"), icon="random"),
        ]
        self._compare = button(
            "Is the result still right?", self._guard("compare"), disabled=True, icon="check"
        )
        self._now = ipw.HTML("", layout={"width": "100%"})
        super().__init__(
            fault_controls.groups(
                task, [_box(self._strikes), self._now], [_box(self._plan), self._compare]
            ),
            presets=fault_controls.presets(task, None if cluster is None else cluster.size),
        )
        self.on_close(self._workers.release)
        self.reset()

    # ------------------------------------------------------------------- what it shows

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw the workers over time, faults and recoveries, and the loss."""
        watch = self.watch
        recoveries, history = self._shown
        policy = self._asked.get("recovery", "")
        return fault_overview(
            watch.spans if watch else (),
            recoveries,
            history,
            strikes=watch.strikes if watch else (),
            workers=self.settings["workers"],
            name=f"{policy}: {fault_controls.POLICY_WORDS[policy]}" if policy else "",
            width=self.room,
            mode=mode,
        )

    def table(self) -> pd.DataFrame:
        """Return a row a fault: what, when it struck, was noticed, was got over, and how."""
        return recoveries_frame(self._shown[0])

    def code(self) -> str:
        """Return Python that trains under the schedule, and compares with a run without faults."""
        s = self.settings
        faults = faults_of(parse_schedule(s["schedule"]), s["workers"])
        listed = "".join(f"    dt.faults.{one!r},\n" for one in [*self._pace(s), *faults])
        lines = ["import dtoolkit as dt", ""]
        given = self._workers.given is not None
        if not given:
            lines.append(f"cluster = dt.Cluster(workers={s['workers']})")
        if s["task"] != GIVEN:
            lines.append("task = dt.training.tasks.digits()")
        lines += [
            f"faults = [\n{listed}]" if listed else "faults = []",
            f"same = dict(steps={s['steps']}, seed={s['seed']})",
            f"run = dt.train(\n    cluster, task, faults=faults, recovery={s['recovery']!r}, "
            f"deadline={HUNG}, **same\n)",
            "whole = dt.train(cluster, task, **same)  # without faults",
            "print(run.recoveries)",
            "verdict = run.recoveries.compared(whole)",
            "print(verdict)",
        ]
        return "\n".join([*lines, *([] if given else ["cluster.close()"])]) + "\n"

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Check the schedule, and say what Run will do."""
        s = self.settings
        lines = parse_schedule(s["schedule"])
        faults_of(lines, s["workers"])
        late = [str(line) for line in lines if line.step >= s["steps"]]
        if late:
            raise ValueError(f"Schedule: {late[0]}: the run has steps 0 to {s['steps'] - 1}")
        self.say(
            f"Run trains {plural(s['steps'], 'step')} on {plural(s['workers'], 'worker')} under "
            f"{plural(len(lines), 'fault')}; {s['recovery']} {self._promise(s['recovery'])}."
        )

    async def execute(self, job: Job) -> None:
        """Train under the schedule, and look at the workers meanwhile."""
        s = self._asked = self.settings
        faults = [*self._pace(s), *faults_of(parse_schedule(s["schedule"]), s["workers"])]
        self.result, self._shown = None, ((), pd.DataFrame())
        cluster = await self._cluster(job, s["workers"])
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.watch = Watch(await job.in_thread(lambda: cluster.pids))
            run = await self._train(job, cluster, {
                "faults": faults, "recovery": s["recovery"], "deadline": HUNG,
            })  # fmt: skip
        self.result = run
        self._take(run)
        self._compare.disabled = False
        ended = f"{plural(run.state.step, 'step')} done, loss {run.history['loss'].iloc[-1]:.4g}"
        self.say(f"{ended}; {plural(len(run.recoveries), 'fault')}. {self._gone_on(run)}")

    def strike(self, what: str, rank: int) -> None:
        """Strike a worker now, for real.

        Parameters
        ----------
        what : {"kill", "hang", "continue", "slow"}
            "slow" stops the process four fifths of the time, until it is told to continue.
        rank : int

        Raises
        ------
        ValueError
            Nothing runs, there is no such worker here, or it is dead.
        """
        watch = self.watch
        if self.live is None or watch is None:
            raise ValueError("nothing runs: press Run first, and strike while it goes on")
        if not 0 <= rank < len(watch.seats):
            raise ValueError(f"Rank: there are ranks 0 to {len(watch.seats) - 1}; got {rank}")
        cluster = self._workers.running
        if cluster is None or not cluster.is_local:
            raise ValueError("faults by hand need workers of this machine: use the schedule")
        seat = watch.seats[rank]
        if what != "slow" and seat.pid in self._brakes:
            self._brakes.pop(seat.pid).end()
            watch.slow.discard(rank)
        if what == "slow":
            watch.slow.add(rank)
            self._brakes.setdefault(seat.pid, Braking(seat.pid))
        else:
            strike(what, seat.pid)
        watch.struck(rank, what)
        self.say(f"Rank {rank} (process {seat.pid}): {what}.")
        self._look_now()

    def compare(self, pressed: Any = None) -> None:
        """Train again without faults, and say whether the result is the same."""
        self._start("running", "the comparison", self._hold_against)
        if pressed is not None:
            self._stop.focus()  # the button that was pressed can hold it no longer

    def close(self) -> None:
        """End what goes on and take the panel away, with all that it started."""
        self._release()
        if self.live is not None:
            self.live.cancel()
        super().close()

    # ------------------------------------------------------------------- behind the scenes

    async def _cluster(self, job: Job, ranks: int) -> Cluster:
        if self._workers.running is None:
            self.say(f"Starting {plural(ranks, 'worker')}, which takes some seconds …")
        return await self._workers.get(job, ranks, what="Workers")

    async def _train(self, job: Job, cluster: Cluster, more: dict[str, Any]) -> Run:
        """Train, and look at the workers until the run ends, in whatever way."""
        s = self._asked
        task = self._task if s["task"] == GIVEN else dt.training.tasks.digits()
        training = await job.in_thread(
            lambda: dt.submit_training(cluster, task, steps=s["steps"], seed=s["seed"], **more)
        )
        self.live = LiveRun(training, lambda: None)
        if self.watch is not None:
            self.watch.restart()  # the run begins here
        self._allow(True)
        looking = asyncio.ensure_future(self._look_on(job, cluster))
        try:
            return await self.live.follow(job)
        finally:
            looking.cancel()
            self._release()
            self._allow(False)
            self._take(training)
            self.live = None
            if self.watch is not None:
                self.watch.finished()
                self._now.value = seats_table(self.watch.seats)

    async def _look_on(self, job: Job, cluster: Cluster) -> None:
        """Look at the workers again and again; where one is missing, ask who comes."""
        while self.live is not None and self.watch is not None:
            training = self.live.training
            self._take(training)
            self._look_now()
            self.progress(training.step, training.steps)
            self.say(f"{training.status}. {self._states()}")
            if self.watch.missing:
                waiting = asyncio.ensure_future(job.in_thread(lambda: cluster.pids))
                while not waiting.done():
                    await asyncio.wait([waiting], timeout=_LOOK)
                    self._look_now()
                if waiting.exception() is None:
                    self.watch.replaced(waiting.result())
            await asyncio.sleep(_LOOK)

    def _look_now(self) -> None:
        if self.watch is not None:
            steps = last_steps(self._shown[1])
            for line in parse_schedule(self._asked["schedule"]):
                if line.kind == "slow" and steps.get(line.rank, -1) > line.step:
                    self.watch.slow.add(line.rank)
            self.watch.look(steps)
            self._now.value = seats_table(self.watch.seats)
            self.redraw()

    def _take(self, one: Any) -> None:
        """Take what a run, or a training that goes on, tells."""
        self._shown = (list(one.recoveries), one.history)
        self._shell.below.value = recoveries_table(self._shown[0])

    async def _hold_against(self, job: Job) -> None:
        """Train without faults on the same workers."""
        if self.result is None:
            raise ValueError("no run has come to its end: press Run first")
        job.name = "the comparison"
        cluster = await self._cluster(job, self._asked["workers"])
        async with self._workers.turn(cluster, lambda words: self.say(f"Waiting {words} …")):
            self.say("Training once more, without faults …")
            s, task = self._asked, self._task
            if s["task"] != GIVEN:
                task = dt.training.tasks.digits()
            whole = await job.in_thread(
                lambda: dt.train(cluster, task, steps=s["steps"], seed=s["seed"])
            )
        told = self.result.recoveries.compared(whole)
        unseen = [one.fault for one in self.result.recoveries if one.kind == "unnoticed"]
        more = f" Nobody noticed: {', '.join(unseen)}." if unseen else ""
        policy = s["recovery"]
        verdict = "Yes" if "to the bit" in told else "No"
        self.say(f"{verdict}: {told}. {policy} {self._promise(policy)}.{more}")

    def _pace(self, s: dict[str, Any]) -> list[Any]:
        return [dt.faults.Slow(seconds=s["pace"] / 1000)] if s["pace"] else []

    def _promise(self, policy: str) -> str:
        return fault_controls.POLICY_WORDS[policy]

    def _allow(self, running: bool) -> None:
        """Let a person strike, which only makes sense while something runs."""
        for one in self._strikes:
            one.disabled = not running
        self.controls["rank"].enable(True)

    def _release(self) -> None:
        """Let all workers go on at full speed, and none be frozen for good."""
        for brake in self._brakes.values():
            brake.end()
        self._brakes.clear()

    def _enable(self, enabled: bool) -> None:
        super()._enable(enabled)
        for one in self._plan:
            one.disabled = not enabled
        self._compare.disabled = not (enabled and self.result is not None)
        if not enabled:
            self.controls["rank"].enable(True)

    def _choice(self, change: Any) -> None:
        """Compute anew after a choice, but for a rank that is chosen while something runs."""
        if self._state.activity != "running":
            super()._choice(change)

    def _press_kill(self, _: Any) -> None:
        self.strike("kill", self.controls["rank"].value)

    def _press_hang(self, _: Any) -> None:
        self.strike("hang", self.controls["rank"].value)

    def _press_continue(self, _: Any) -> None:
        self.strike("continue", self.controls["rank"].value)

    def _press_slow(self, _: Any) -> None:
        self.strike("slow", self.controls["rank"].value)

    def _add(self, _: Any) -> None:
        s = self.settings
        lines = parse_schedule(s["schedule"])
        self.set(schedule=written([*lines, Line(s["kind"], s["rank"], s["step"])]))

    def _clear(self, _: Any) -> None:
        self.set(schedule="")

    def _draw_plan(self, _: Any) -> None:
        s = self.settings
        self.set(schedule=written(drawn(s["seed"], s["workers"], s["steps"])))

    def _states(self) -> str:
        assert self.watch is not None
        found = [f"rank {one.rank} {one.state}" for one in self.watch.seats if one.state != "alive"]
        return f"Workers: {', '.join(found)}." if found else "All workers are alive."

    def _gone_on(self, run: Run) -> str:
        known = [one.recovery for one in run.recoveries if one.recovery is not None]
        if not known:
            return "Is the result still right? Press the button."
        return f"It went on {seconds_text(max(known))} after noticing, at most (measured)."


def _box(members: list[Any]) -> Any:
    box = ipw.Box(members, layout={"flex_flow": "row wrap", "overflow": "visible"})
    box.add_class("dtk-buttons")
    return box
