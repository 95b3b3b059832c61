"""Tables of FaultPanel: the workers as they are now, and what went wrong and was got over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from dtoolkit.figures.fault_overview import SYMBOLS
from dtoolkit.figures.html import table
from dtoolkit.figures.theme import bytes_text
from dtoolkit.widgets.watching import Seat

if TYPE_CHECKING:
    from dtoolkit.training.recovery import Recovery

__all__ = ["recoveries_frame", "recoveries_table", "seats_table"]

_TEXT = "font-size:12.5px;color:var(--jp-ui-font-color1, inherit)"


def seats_table(seats: Sequence[Seat]) -> str:
    """Write the workers as HTML: rank, state as symbol and word, process, memory, steps."""
    rows = [
        [
            str(one.rank),
            f"{SYMBOLS[one.state]} {one.state}",
            str(one.pid),
            bytes_text(one.memory) if one.memory else "–",
            f"{one.step:,}" if one.step >= 0 else "–",
        ]
        for one in seats
    ]
    head = ["rank", "state", "process", "memory", "steps"]
    return f'<div style="{_TEXT}">{table(head, rows, caption=_NOW, label=_NOW)}</div>'


def recoveries_table(recoveries: Sequence[Recovery]) -> str:
    """Write faults and recoveries as HTML; empty if there are none."""
    if not recoveries:
        return ""
    rows = [
        [
            one.fault,
            _seconds(one.injected),
            _seconds(one.detection),
            _seconds(one.recovery),
            f"{one.steps_lost:,}",
            bytes_text(one.bytes_moved) if one.bytes_moved else "0",
            one.how or one.kind,
        ]
        for one in recoveries
    ]
    head = ["fault", "struck at", "noticed after", "went on after", "steps lost", "moved", "how"]
    caption = (
        "Measured; seconds from the beginning, from the fault, and from being noticed. Ranks are "
        "those of the group of then: after a loss it is numbered anew."
    )
    return f'<div style="{_TEXT}">{table(head, rows, caption=caption, label=_FAULTS)}</div>'


def recoveries_frame(recoveries: Sequence[Recovery]) -> pd.DataFrame:
    """Return a row a fault: what, when it struck, was noticed, was got over, and how."""
    return pd.DataFrame(
        [
            {
                "fault": one.fault,
                "kind": one.kind,
                "ranks": list(one.ranks),
                "step": one.step,
                "injected_s": one.injected,
                "detected_s": one.detected,
                "recovered_s": one.recovered,
                "steps_lost": one.steps_lost,
                "steps_repeated": one.steps_repeated,
                "bytes_moved": one.bytes_moved,
                "how": one.how,
            }
            for one in recoveries
        ]
    )


_NOW, _FAULTS = "The workers now", "Faults and recoveries"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"
