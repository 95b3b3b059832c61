"""Phrases that several cards use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtoolkit.figures import svg
from dtoolkit.figures.theme import bytes_text, count_text

if TYPE_CHECKING:
    from dtoolkit.arrays.layout import Layout

__all__ = ["balance_text", "kind_text", "layout_text", "pairs_text", "share_a_clock", "summed_text"]

ONE_CLOCK = 1e-7  # seconds: clocks that were compared by messages are never known as well as this


def share_a_clock(error: float) -> bool:
    """Whether the ranks of a trace with this error of the clock, in seconds, read one clock."""
    return 0 < error < ONE_CLOCK


def layout_text(layout: Layout) -> str:
    """Say how rows are laid out, and how many a rank has."""
    sizes = np.asarray(layout.sizes)
    spread = (
        f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,}–{sizes.max():,}"
    )
    return f"{kind_text(layout)}, {spread} a rank"


def kind_text(layout: Layout) -> str:
    """Name the kind of a layout."""
    return "part vector" if layout.kind == "parts" else layout.kind


def balance_text(amounts: Any, unit: str) -> str:
    """Write the largest amount, and how it compares with the mean."""
    if not len(amounts) or amounts.sum() == 0:
        return f"0 {unit}"
    most = amounts.max()
    text = bytes_text(most) if unit == "bytes" else count_text(most, unit)
    return f"{text}, {most / amounts.mean():.2f} × the mean"


def pairs_text(unit: str, ranks: int) -> str:
    """Say what a cell of a heatmap is."""
    if ranks <= svg.MAX_CELLS:
        return f"{unit} by pair of ranks; brighter is more"
    step = f"{ranks / svg.MAX_CELLS:.3g}"
    return f"{unit}, summed over {step} × {step} ranks a cell; brighter is more"


def summed_text(ranks: int) -> str:
    """Say how many ranks a piece of a strip is."""
    if ranks <= svg.MAX_PIECES:
        return ""
    return f", {ranks / svg.MAX_PIECES:.3g} of them a piece"
