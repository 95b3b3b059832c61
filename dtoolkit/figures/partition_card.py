"""Card of a partition's quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtoolkit.figures import svg
from dtoolkit.figures.html import card, facts, picture
from dtoolkit.figures.phrases import balance_text, summed_text
from dtoolkit.figures.theme import count_text, plural

if TYPE_CHECKING:
    from dtoolkit.arrays.quality import PartitionQuality

__all__ = ["quality_card"]


def quality_card(quality: PartitionQuality) -> str:
    """Return the card of a partition's quality: balance of rows, nonzeros and rows received.

    Parameters
    ----------
    quality : PartitionQuality

    Returns
    -------
    str
        HTML.
    """
    m, n = quality.shape
    pairs = [
        ("matrix", f"{m:,} × {n:,}, {plural(int(quality.nonzeros.sum()), 'nonzero')}"),
        ("largest part", balance_text(quality.rows, "rows")),
        ("heaviest part", balance_text(quality.nonzeros, "nonzeros")),
        ("busiest receiver", balance_text(quality.received, "rows of B")),
        ("edges cut", f"{quality.cut:,}"),
        ("column volume", count_text(quality.column_volume, "rows of B")),
        ("row volume", count_text(quality.row_volume, "partial rows of C")),
    ]
    if quality.empty:
        pairs.append(("parts without rows", f"{quality.empty:,}"))
    strips = [
        picture(
            svg.strip(
                amounts,
                label=f"{words} by part: {int(amounts.min()):,} to {int(amounts.max()):,}.",
                unit=words,
                width=360,
            ),
            f"{words} by part{summed_text(quality.parts)}",
        )
        for words, amounts in (
            ("nonzeros", np.asarray(quality.nonzeros)),
            ("rows of B received", np.asarray(quality.received)),
        )
    ]
    column = f'<div style="display:grid;gap:8px">{"".join(strips)}</div>'
    return card("Partition", plural(quality.parts, "part"), facts(pairs), column, badge="planned")
