"""SchedulePanel: a collective over a network of several dimensions, in one order or in many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.comm import Network, Simulation, simulate
from dtoolkit.figures.html import table as html_table
from dtoolkit.figures.schedules import schedules
from dtoolkit.figures.theme import Mode, base_layout, bytes_text, notice, seconds_text
from dtoolkit.widgets import grids, schedule_controls
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Text
from dtoolkit.widgets.grids import OWN, grid, grid_code
from dtoolkit.widgets.schedule_controls import POLICIES, REFERENCES, SHOWN
from dtoolkit.widgets.work import Job

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SchedulePanel"]

_BASE = "baseline, FIFO"


class SchedulePanel(Panel):
    """Cut a collective into chunks, and see which dimension of a network carries which when.

    The baseline sends every chunk through the dimensions in one order; Themis gives each chunk the
    dimension that has the least to do. All of it is modelled: no worker is started.

    Parameters
    ----------
    network : Network, str, or sequence of (kind, ranks, bandwidth[, latency]), optional
        What to start with; six networks of the paper can be chosen, and each can be edited.

    Attributes
    ----------
    simulations : dict of str to Simulation
        By scheduler and policy, "baseline, FIFO" to "bound".

    Notes
    -----
    S. Rashidi et al., "Themis", ISCA 2022, arXiv 2110.04478.

    Examples
    --------
    >>> panel = dt.widgets.SchedulePanel()  # doctest: +SKIP
    >>> panel.set(network="3D-homo", size="100MB")
    >>> await panel.wait()
    >>> panel.simulations["Themis, SCF"].time
    """

    title = "Schedule: which dimension carries which chunk when"

    def __init__(self, network: Any = None) -> None:
        self.simulations: dict[str, Simulation] = {}
        self._asked: dict[str, Any] = {}
        self._named = ""
        own = "" if network is None else grids.text_of(network)
        super().__init__(schedule_controls.groups(), run="", presets=schedule_controls.presets(own))
        self.reset()

    # ------------------------------------------------------------------- what it shows

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw the baseline above what was chosen."""
        if not self.simulations:
            return go.Figure(layout=base_layout(mode=mode, annotations=[notice("one moment")]))
        shown = {name: self.simulations[name] for name in (_BASE, self._chosen)}
        return schedules(shown, width=self.room, mode=mode)

    def table(self) -> pd.DataFrame:
        """Return a row a scheduler and policy: seconds, gain, use of the bandwidth, bytes sent."""
        import pandas as pd

        base = self.simulations[_BASE].time if self.simulations else 0.0
        rows = []
        for name, one in self.simulations.items():
            sent = {f"bytes_dimension_{i}": b for i, b in enumerate(one.bytes_sent)}
            used = {
                f"utilisation_dimension_{i}": share
                for i, share in enumerate(one.by_dimension["utilisation"])
            }
            rows.append(
                {
                    "policy": name,
                    "seconds_modelled": one.time,
                    "gain": base / one.time if one.time else 1.0,
                    "utilisation": one.utilisation,
                    "seconds_bound": one.ideal,
                    **sent,
                    **used,
                }
            )
        return pd.DataFrame(rows)

    def code(self) -> str:
        """Return Python that makes these simulations and their figure."""
        if not self._asked:
            return "# Nothing is simulated yet.\n"
        s = self._asked
        common = f"chunks={s['chunks']}, operation={s['operation']!r}"
        made = (
            "import dtoolkit as dt\n\n"
            f"network = {grid_code(s['network'], s['dimensions'], s['latency'])}\n"
            "simulations = {\n"
            f"    name: dt.comm.simulate(\n        network, {s['size']!r}, policy=policy, "
            f"order=order, {common}\n    )\n"
            "    for name, policy, order in (\n"
        )
        made += "".join(
            f"        ({name!r}, {policy!r}, {order!r}),\n"
            for name, (policy, order) in POLICIES.items()
        )
        shown = ", ".join(repr(name) for name in dict.fromkeys((_BASE, self._chosen)))
        return made + (
            "    )\n}\n"
            "for name, one in simulations.items():\n"
            "    print(name, one.time, one.utilisation)  # modelled\n"
            f"dt.figures.schedules({{name: simulations[name] for name in ({shown},)}})\n"
        )

    # --------------------------------------------------------------------- what it does

    async def update(self, job: Job) -> None:
        """Simulate all schedulers and policies."""
        self._follow()
        s = self.settings
        for control in self.controls.values():
            if isinstance(control, Text):
                control.parsed()
        network = grid(s["network"], s["dimensions"], s["latency"])
        job.name = "the simulation"
        self.say(f"Simulating {s['chunks']} chunks …")
        self.simulations = await job.in_thread(_simulate, job, network, s)
        self._asked = s
        self.redraw()
        self._shell.below.value = self._tabulated()
        self.say(self._words())

    async def execute(self, job: Job) -> None:
        """Do nothing: there is no Run button."""

    # ----------------------------------------------------------------- behind the scenes

    def _follow(self) -> None:
        """Write down a network that was chosen by name; one that was edited is a person's own."""
        choice, text = self.controls["network"], self.controls["dimensions"]
        with self.quietly():
            if choice.value != OWN:
                known = grids.named_text(choice.value)
                if choice.value != self._named:
                    text.set(known)
                elif grids.read(text.value, text.label) != grids.read(known):
                    choice.set(OWN)
        self._named = choice.value

    @property
    def _chosen(self) -> str:
        """Name of what is drawn below."""
        return SHOWN[self._asked["scheduler"], self._asked["order"]]

    def _tabulated(self) -> str:
        rows = [
            [
                name,
                seconds_text(one.time),
                f"{self._gain(name):.3f}",
                f"{one.utilisation:.1%}",
                ", ".join(bytes_text(b) for b in one.bytes_sent),
            ]
            for name, one in self.simulations.items()
        ]
        known = self._reference()
        if known:
            rows.append(["reference, Themis, SCF", "", f"{known:.3f}", "", ""])
        head = ["", "time", "speed-up", "bandwidth used", "a rank sends, by dimension"]
        caption = (
            "Modelled, nothing is measured. Speed-up: over the baseline. The bound uses all "
            "bandwidth all the time, and no latency."
        )
        if self._asked["network"] != OWN:
            caption += (
                " The paper reports that Themis uses 1.72 times the bandwidth of the baseline in "
                "the mean over its networks, and 2.70 times at most, by its own simulator."
            )
        return html_table(head, rows, caption=caption, label="Schedulers and policies")

    def _gain(self, name: str) -> float:
        one, base = self.simulations[name], self.simulations[_BASE]
        return base.time / one.time if one.time else 1.0

    def _reference(self) -> float | None:
        """What is known of just this."""
        base = self.simulations[_BASE]
        free = all(one.latency == 0 for one in base.dimensions)
        if not free or base.operation != "all_reduce" or base.chunks != 64:
            return None
        return REFERENCES.get(self._asked["network"])

    def _words(self) -> str:
        base, name = self.simulations[_BASE], self._chosen
        what = (
            f"{base.operation.replace('_', '-').capitalize()} of {bytes_text(base.size)} in "
            f"{base.chunks} chunks"
        )
        took = f"the baseline takes {seconds_text(base.time)}"
        bound = f"the bound is {seconds_text(base.ideal)}"
        if name == _BASE:
            used = f"{base.utilisation:.0%} of the bandwidth"
            return f"{what}: {took} and uses {used}, {bound} (modelled)."
        gain, one = self._gain(name), self.simulations[name]
        verdict = f"{gain:.2f} times as fast" if gain >= 1 else f"{1 / gain:.2f} times as slow"
        text = f"{what}: {took}, {name} {seconds_text(one.time)}, {verdict}; {bound} (modelled)"
        known = self._reference()
        if known and name == "Themis, SCF":
            text += f"; the reference for this network is {known:.3f}"
        return f"{text}."


def _simulate(job: Job, network: Network, s: dict[str, Any]) -> dict[str, Simulation]:
    made = {}
    for name, (policy, order) in POLICIES.items():
        job.check()
        made[name] = simulate(
            network, s["size"], policy, order, chunks=s["chunks"], operation=s["operation"]
        )
    return made
