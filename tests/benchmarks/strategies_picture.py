"""The picture of all strategies: a row each, and panels for time, bytes, memory and loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dtoolkit.figures.theme import CATEGORIES, base_layout, title
from tests.figures.readme_picture import HEIGHT, WIDTH, photograph

PANELS = {
    "time, slow (s)": lambda row: row.slow.seconds,
    "time, fast (s)": lambda row: row.fast.seconds,
    "sent (MB a step)": lambda row: row.fast.sent / 1e6,
    "memory (MB)": lambda row: row.fast.memory / 1e6,
    "test loss (nats)": lambda row: row.slow.loss,
}


def picture(rows: Sequence[Any]) -> go.Figure:
    """Draw bars for every strategy, the fastest over the slow network on top."""
    ordered = sorted(rows, key=lambda row: row.slow.seconds, reverse=True)
    names = [row.name for row in ordered]
    base = base_layout(mode="light")
    gap = 0.025
    wide = (1 - gap * (len(PANELS) - 1)) / len(PANELS)
    bars, axes = [], {}
    for number, (words, value) in enumerate(PANELS.items()):
        end = "" if number == 0 else str(number + 1)
        values = [value(row) for row in ordered]
        start = number * (wide + gap)
        shown: dict[str, Any] = {
            "x": values,
            "y": names,
            "marker": {"color": CATEGORIES[number]},
            "text": [f"{one:.3g}" for one in values],
            "xaxis": f"x{end}",
            "showlegend": False,
        }
        if number < len(PANELS) - 1:
            bars.append(go.Bar(**shown, orientation="h", textposition="auto", textangle=0))
        else:  # losses do not begin at 0, and so are no lengths
            place = {"mode": "markers+text", "textposition": "middle right"}
            bars.append(go.Scatter(**shown, **place))
        axes[f"xaxis{end}"] = {
            **base["xaxis"],
            "title": {"text": words, "standoff": 8},
            "domain": [start, start + wide],
            "nticks": 4,
            "range": _range(values, whole=number < len(PANELS) - 1),
        }
    return go.Figure(
        data=bars,
        layout=base_layout(
            mode="light",
            title=title(
                "One model, as many samples, every strategy (measured, emulated networks)",
                "4 workers; fast: 10 Gbit/s, 50 µs; slow: 100 Mbit/s, 1 ms",
            ),
            yaxis={"showgrid": False, "ticks": "", "automargin": True},
            **axes,
            bargap=0.25,
            margin={"l": 170, "r": 16, "t": 76, "b": 56},
            width=WIDTH,
            height=HEIGHT,
        ),
    )


def save_picture(rows: Sequence[Any], path: Path) -> None:
    """Let a browser draw it."""
    drawn = picture(rows).to_html(
        full_html=False, include_plotlyjs=True, config={"displayModeBar": False}
    )
    head = '<!doctype html><meta charset="utf-8"><body style="margin:0;background:#fff">'
    photograph(f"{head}{drawn}</body>", path)


def _range(values: Sequence[float], *, whole: bool) -> list[float]:
    """From 0; of losses, which differ little, from a little below the least."""
    low, top = min(values), max(values)
    wide = (top - low) or 1.0
    return [0, 1.1 * top] if whole else [low - 0.1 * wide, top + 0.4 * wide]
