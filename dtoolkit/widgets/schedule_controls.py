"""What a person chooses in SchedulePanel: its controls and presets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as ipw

from dtoolkit.comm.units import seconds, size
from dtoolkit.widgets import grids
from dtoolkit.widgets.controls import Choice, Control, Number, Text
from dtoolkit.widgets.grids import NAMED, OWN, named_text

__all__ = ["POLICIES", "REFERENCES", "SHOWN", "Lines", "groups", "presets"]

POLICIES = {
    "baseline, FIFO": ("baseline", "fifo"),
    "baseline, SCF": ("baseline", "scf"),
    "Themis, FIFO": ("themis", "fifo"),
    "Themis, SCF": ("themis", "scf"),
    "bound": ("ideal", "fifo"),
}
"""Lines of the table: scheduler, and which chunk a dimension serves first."""

SHOWN = {pair: name for name, pair in POLICIES.items()}
"""Scheduler and policy to their line."""

REFERENCES = {
    "2D-SW_SW": 1.533,
    "3D-homo": 2.758,
    "3D-hetero": 1.622,
    "3D-FC_Ring_SW": 1.556,
    "4D-Ring_SW_SW_SW": 1.753,
    "4D-Ring_FC_Ring_SW": 1.552,
}
"""Gain of Themis with SCF in the queue model: an all-reduce in 64 chunks, no latency."""

_OWN_TEXT = "switch 8 x 450GB/s, 1us\nswitch 16 x 50GB/s, 5us"

PRESETS: dict[str, dict[str, Any]] = {
    "3D, unequal": {"network": "3D-hetero"},
    "3D, equal: the most to gain": {"network": "3D-homo"},
    "2D, two switches": {"network": "2D-SW_SW"},
    "3D, FC, ring, switch": {"network": "3D-FC_Ring_SW"},
    "4D, ring and switches": {"network": "4D-Ring_SW_SW_SW"},
    "4D, ring, FC, ring, switch": {"network": "4D-Ring_FC_Ring_SW"},
    "Slow hops: Themis loses": {
        "network": "3D-FC_Ring_SW", "size": "100MB", "latency": "0.3us",
    },
    "Four chunks are too few": {"network": "4D-Ring_FC_Ring_SW", "chunks": 4},
    "Your own: nodes of 8": {"network": OWN, "dimensions": _OWN_TEXT},
}  # fmt: skip
"""Name to settings that differ from the defaults; the first is the start."""


class Lines(Text):
    """A text of several lines that must parse.

    Parameters
    ----------
    name, label, default, parse, tip
        As for :class:`Text`.
    rows : int
        Lines that are seen.
    """

    def __init__(
        self,
        name: str,
        label: str,
        default: str,
        parse: Callable[[str, str], object],
        *,
        rows: int = 4,
        tip: str = "",
    ) -> None:
        super().__init__(name, label, default, parse, tip=tip)
        small = self.widget
        box = ipw.Textarea(
            value=default,
            rows=rows,
            description=label,
            tooltip=small.tooltip,
            continuous_update=False,
            style={"description_width": small.style.description_width},
            layout={"width": "100%", "min_width": "0"},
        )
        small.close()
        Control.__init__(self, name, label, default, box, box)


def groups() -> list[tuple[str, list[Any]]]:
    """Return the controls, under their headings."""
    networks = {**NAMED, OWN: "Your own, as written"}
    operations = {
        "all_reduce": "all-reduce",
        "reduce_scatter": "reduce-scatter",
        "all_gather": "all-gather",
    }
    first = "3D-hetero"
    where = [
        Choice("network", "Network", networks, first, tip="Six of the paper, or your own"),
        Lines(
            "dimensions", "Dimensions", named_text(first), grids.read,
            tip="A line each, the first inside: ring 16 x 200GB/s, 1us",
        ),
        Text("latency", "Latency a hop", "0s", seconds, tip="Where a line states none, as 0.3us"),
    ]  # fmt: skip
    what = [
        Choice("operation", "Operation", operations),
        Text("size", "Size", "1GB", size, tip="Of the tensor on a rank, as 100MB"),
        Number("chunks", "Chunks", 64, 1, 512, slide_from=1),
    ]
    how = [
        Choice("scheduler", "Scheduler", {"themis": "Themis", "baseline": "baseline"}),
        Choice(
            "order", "Policy", {"scf": "smallest chunk first", "fifo": "first come, first"},
            tip="Which chunk a dimension serves first: SCF or FIFO",
        ),
    ]  # fmt: skip
    return [("Network (modelled)", where), ("Collective", what), ("Shown below", how)]


def presets(own: str) -> dict[str, dict[str, Any]]:
    """Return presets, the first for the dimensions that the panel was given, if it was."""
    usual = {
        name: values
        if values["network"] == OWN
        else {**values, "dimensions": named_text(values["network"])}
        for name, values in PRESETS.items()
    }
    if not own:
        return usual
    return {"What the panel was given": {"network": OWN, "dimensions": own}, **usual}
