"""SchedulePanel: a collective over a network of several dimensions, in one order or in many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.comm import Network, Simulation, simulate
from dtoolkit.comm.units import seconds, size
from dtoolkit.figures.html import table as html_table
from dtoolkit.figures.schedules import schedules
from dtoolkit.figures.theme import Mode, base_layout, bytes_text, notice, seconds_text
from dtoolkit.widgets.base import Panel
from dtoolkit.widgets.controls import Choice, Number, Text
from dtoolkit.widgets.grids import NAMED, OWN, grid, grid_code, parse_dimensions
from dtoolkit.widgets.work import Job

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SchedulePanel"]

PRESETS: dict[str, dict[str, Any]] = {
    "Three unequal dimensions": {"network": "3D-hetero"},
    "Three equal dimensions: the most to gain": {"network": "3D-homo"},
    "Small tensors over slow hops: Themis loses": {
        "network": "3D-FC_Ring_SW", "size": "100MB", "latency": "0.3us",
    },
    "Four chunks are too few": {"network": "4D-Ring_FC_Ring_SW", "chunks": 4},
    "A network of your own": {
        "network": OWN, "dimensions": "switch 8 450GB/s 1us; switch 16 50GB/s 5us",
    },
}  # fmt: skip
"""Name to settings that differ from the defaults; the first is the start."""

POLICIES = {
    "baseline, FIFO": ("baseline", "fifo"),
    "Themis, FIFO": ("themis", "fifo"),
    "Themis, SCF": ("themis", "scf"),
    "bound": ("ideal", "fifo"),
}
"""Lines of the table: policy, and which chunk a dimension serves first."""

KNOWN = {
    "2D-SW_SW": 1.533,
    "3D-homo": 2.758,
    "3D-hetero": 1.622,
    "3D-FC_Ring_SW": 1.556,
    "4D-Ring_SW_SW_SW": 1.753,
    "4D-Ring_FC_Ring_SW": 1.552,
}
"""Gain of Themis with SCF in the queue model: 64 chunks, no latency."""


class SchedulePanel(Panel):
    """Cut an all-reduce into chunks, and see which dimension of a network carries which when.

    The baseline sends every chunk through the dimensions in one order; Themis gives each chunk the
    dimension that has the least to do. All of it is modelled: no worker is started.

    Parameters
    ----------
    dimensions : sequence of tuple, optional
        (kind, ranks, bandwidth[, latency]) of each dimension of a network of your own, as
        :meth:`dtoolkit.comm.Network.dims` takes them; six networks of the paper can be chosen.

    Attributes
    ----------
    simulations : dict of str to Simulation
        By the names of ``POLICIES``.

    Notes
    -----
    S. Rashidi et al., "Themis", ISCA 2022, arXiv 2110.04478.

    Examples
    --------
    >>> panel = dt.widgets.SchedulePanel()  # doctest: +SKIP
    >>> panel.set(network="3D-homo", size="100MB")
    >>> panel.simulations["Themis, SCF"].time
    """

    title = "Schedule: which dimension carries which chunk when"

    def __init__(self, dimensions: Any = None) -> None:
        self.simulations: dict[str, Simulation] = {}
        self._asked: dict[str, Any] = {}
        own = "; ".join(" ".join(map(str, one)) for one in dimensions or ())
        if own:
            parse_dimensions(own, "dimensions")
        first = {"What the panel was given": {"network": OWN, "dimensions": own}} if own else {}
        super().__init__(_groups(), run="", presets={**first, **PRESETS})
        self.reset()

    def figure(self, mode: Mode = "auto") -> go.Figure:
        """Draw the baseline above Themis."""
        if not self.simulations:
            return go.Figure(layout=base_layout(mode=mode, annotations=[notice("one moment")]))
        shown = "baseline, FIFO", f"Themis, {self._asked['order'].upper()}"
        return schedules({n: self.simulations[n] for n in shown}, width=self.room, mode=mode)

    def table(self) -> pd.DataFrame:
        """Return a row a policy: seconds, gain, share of the bandwidth, bytes a dimension."""
        import pandas as pd

        base = self.simulations["baseline, FIFO"].time if self.simulations else 0.0
        rows = []
        for name, one in self.simulations.items():
            sent = {f"bytes_dimension_{i}": b for i, b in enumerate(one.bytes_sent)}
            gain = base / one.time if one.time else 1.0
            rows.append({"policy": name, "seconds_modelled": one.time, "gain": gain,
                         "utilisation": one.utilisation, **sent})  # fmt: skip
        return pd.DataFrame(rows)

    def code(self) -> str:
        """Return Python that makes these simulations and their figure."""
        s = self.settings
        name = f"Themis, {s['order'].upper()}"
        common = f"chunks={s['chunks']}, operation={s['operation']!r}"
        return (
            "import dtoolkit as dt\n\n"
            f"network = {grid_code(s['network'], s['dimensions'], s['latency'])}\n"
            f"plain = dt.comm.simulate(network, {s['size']!r}, {common})\n"
            f"themis = dt.comm.simulate(\n    network, {s['size']!r}, policy='themis', "
            f"order={s['order']!r}, {common}\n)\n"
            f"figure = dt.figures.schedules({{'baseline, FIFO': plain, {name!r}: themis}})\n"
            "figure  # a last line shows it in a notebook\n"
        )

    async def update(self, job: Job) -> None:
        """Simulate all policies."""
        s = self.settings
        named = s["network"] != OWN
        self.controls["latency"].show(named)
        self.controls["dimensions"].show(not named)
        for name in ("size", "latency") if named else ("size", "dimensions"):
            self.controls[name].parsed()  # type: ignore[attr-defined]
        network = grid(s["network"], s["dimensions"], s["latency"])
        job.name = "the simulation"
        self.say(f"Simulating {s['chunks']} chunks …")
        self.simulations = await job.in_thread(_simulate, network, s)
        self._asked = s
        self.redraw()
        self._shell.below.value = self._tabulated()
        self.say(self._words())

    async def execute(self, job: Job) -> None:
        """Do nothing: there is no Run button."""

    # ------------------------------------------------------------------- behind the scenes

    def _tabulated(self) -> str:
        frame = self.table()
        sent = [name for name in frame if name.startswith("bytes")]
        rows = [
            [
                row["policy"], seconds_text(row["seconds_modelled"]), f"{row['gain']:.3f}",
                f"{row['utilisation']:.1%}", ", ".join(bytes_text(row[name]) for name in sent),
            ]
            for _, row in frame.iterrows()
        ]  # fmt: skip
        head = ["policy", "time (modelled)", "gain over baseline", "bandwidth used"]
        caption = "Gain 2 is twice as fast. The bound uses all bandwidth all the time."
        head.append("a rank sends, by dimension")
        return html_table(head, rows, caption=caption, label="Policies side by side")

    def _words(self) -> str:
        base = self.simulations["baseline, FIFO"]
        name = f"Themis, {self._asked['order'].upper()}"
        one = self.simulations[name]
        gain = base.time / one.time if one.time else 1.0
        verdict = f"{gain:.2f} times as fast" if gain >= 1 else f"{1 / gain:.2f} times as slow"
        kind = base.operation.replace("_", "-")
        text = (
            f"{kind} of {bytes_text(base.size)} in {base.chunks} chunks: "
            f"{name} takes {seconds_text(one.time)}, the baseline {seconds_text(base.time)}: "
            f"{verdict} (modelled)"
        )
        known = KNOWN.get(self._asked["network"])
        free = all(one.latency == 0 for one in base.dimensions)
        reduced = base.operation == "all_reduce" and base.chunks == 64
        if known and free and reduced and name.endswith("SCF"):
            text += f"; the reference for this network is {known:.3f}"
        return text + "."


def _simulate(network: Network, s: dict[str, Any]) -> dict[str, Simulation]:
    return {
        name: simulate(
            network, s["size"], policy, order, chunks=s["chunks"], operation=s["operation"]
        )
        for name, (policy, order) in POLICIES.items()
    }


def _groups() -> list[tuple[str, list[Any]]]:
    networks = {**NAMED, OWN: "Your own, below"}
    operations = {
        "all_reduce": "all-reduce",
        "reduce_scatter": "reduce-scatter",
        "all_gather": "all-gather",
    }
    where = [
        Choice("network", "Network", networks, "3D-hetero"),
        Text("latency", "Latency a hop", "0s", seconds, tip="As 0.3us; it takes from the gain"),
        Text(
            "dimensions", "Dimensions", "switch 8 450GB/s 1us; switch 16 50GB/s 5us",
            parse_dimensions, tip="kind ranks bandwidth [latency]; the next one",
        ),
    ]  # fmt: skip
    what = [
        Choice("operation", "Operation", operations),
        Text("size", "Tensor", "1GB", size, tip="Bytes on a rank, as 100MB"),
        Number("chunks", "Chunks", 64, 1, 512, slide_from=1),
        Choice(
            "order", "Themis serves",
            {"scf": "smallest chunk first (SCF)", "fifo": "first come, first (FIFO)"},
        ),
    ]  # fmt: skip
    return [("Network (modelled)", where), ("Collective", what)]
