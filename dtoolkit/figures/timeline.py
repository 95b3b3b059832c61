"""Who was doing what, when: the events of a trace, one lane a rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dtoolkit.figures.phrases import share_a_clock
from dtoolkit.figures.theme import (
    Mode,
    base_layout,
    bytes_text,
    category_colours,
    notice,
    plain,
    plural,
    seconds_text,
    ticks,
    title,
)

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.comm.trace import Trace

__all__ = ["event_lines", "timeline"]

TOLD_EVENTS = 5_000  # up to here each event says its phase where one points at it
MARKED_EVENTS = 2_000  # up to here each event has end marks, so that the shortest can be seen
MAX_LANE_NAMES = 32


def timeline(trace: Trace, *, mode: Mode = "auto") -> go.Figure:
    """Draw the events of a trace over time, one lane a rank.

    Parameters
    ----------
    trace : Trace
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Milliseconds from the first event on x, ranks on y, downwards. One trace an operation, drawn
        as thick lines with gaps: 20,000 events are no burden, as bars they would be. Times are
        measured, and the title says so where a network was emulated meanwhile; the subtitle says
        how far the clocks of two ranks may be apart.
    """
    frame = trace.frame()
    ranks = max(trace.ranks, int(frame["rank"].max()) + 1 if len(frame) else 0)
    origin = float(frame["start"].min()) if len(frame) else 0.0
    data = event_lines(frame, ranks, origin)
    span = float(frame["end"].max()) - origin if len(frame) else 0.0
    total = int(frame["bytes_sent"].sum())
    word = "Emulated network, measured timeline" if trace.emulated else "Measured timeline"
    text = f"{word}: {plural(len(frame), 'event')} in {seconds_text(span)}"
    error = (
        "all ranks read one machine's clock"
        if share_a_clock(trace.clock_error)
        else f"clocks of the ranks agree within ±{seconds_text(trace.clock_error)}"
    )
    if trace.emulated:
        error += f"; emulated: {trace.emulated}"
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(text, f"{bytes_text(total)} sent; {error}"),
            xaxis={"title": {"text": "time from the first event (ms)"}, "rangemode": "tozero"},
            yaxis={
                "title": {"text": "rank (number)"},
                "range": [max(ranks, 1) - 0.5, -0.5],
                "showgrid": False,
                **ticks(ranks <= MAX_LANE_NAMES, about=16),
            },
            annotations=[] if len(frame) else [notice("no events: nothing was recorded yet")],
            hovermode="closest",
            showlegend=True,
            legend={"x": 1.01, "y": 1, "xanchor": "left", "yanchor": "top"},
            width=900,
            height=_height(ranks),
            margin={"l": 64, "r": 24, "t": 88, "b": 56},
        ),
    )


def event_lines(
    frame: pd.DataFrame, ranks: int, origin: float, *, beside: Iterable[str] = ()
) -> list[go.Scatter]:
    """Draw events, one trace an operation, as thick lines with gaps.

    Parameters
    ----------
    frame : DataFrame
        Of :meth:`dtoolkit.comm.Trace.frame`.
    ranks : int
        Lanes.
    origin : float
        What is 0 on x, in seconds of the client's clock; x is in milliseconds.
    beside : iterable of str
        Operations that are drawn beside these, so that each has one colour in both.
    """
    colours = category_colours([*frame["operation"].unique(), *beside])
    lane = _lane_width(ranks)
    marked = len(frame) <= MARKED_EVENTS
    return [
        _operation(name, events, origin, colours[str(name)], lane, marked)
        for name, events in frame.groupby("operation", sort=True)
    ]


def _operation(
    name: Any, events: pd.DataFrame, origin: float, colour: str, lane: float, marked: bool
) -> go.Scatter:
    """Draw all events of one operation as one line with gaps."""
    count = len(events)
    x = np.full((count, 3), np.nan)
    x[:, 0] = (events["start"] - origin) * 1e3
    x[:, 1] = (events["end"] - origin) * 1e3
    y = np.repeat(events["rank"].to_numpy(dtype=np.int32), 3)
    numbers = np.stack(
        [events[c].to_numpy() for c in ("bytes_sent", "bytes_received", "seconds", "launch")],
        axis=1,
    ).astype(np.float32)
    numbers[:, 2] *= 1e3
    told = count <= TOLD_EVENTS
    phases = [f"<br>phase {p}" if p else "" for p in events["phase"].map(plain)] if told else []
    return go.Scatter(
        x=x.ravel(),
        y=y,
        mode="lines+markers" if marked else "lines",
        connectgaps=False,
        name=plain(str(name)),
        line={"color": colour, "width": lane, "simplify": False},
        marker={
            "symbol": "line-ns-open",
            "size": lane / 1.4,  # this symbol is 1.4 times as tall as its size says
            "color": colour,
            "line": {"width": 1.5, "color": colour},
        },
        customdata=np.repeat(numbers, 3, axis=0),
        text=[phase for phase in phases for _ in range(3)] if any(phases) else None,
        hovertemplate=(
            f"<b>{plain(str(name))}</b>, rank %{{y}}, launch %{{customdata[3]:d}}%{{text}}"
            "<br>%{customdata[2]:.4~g} ms; at %{x:.6~g} ms"
            "<br>sent %{customdata[0]:.3~s}B, received %{customdata[1]:.3~s}B<extra></extra>"
        ).replace("%{text}", "%{text}" if any(phases) else ""),
    )


def _lane_width(ranks: int) -> float:
    return float(np.clip(0.7 * (_height(ranks) - 144) / max(ranks, 1), 1.0, 22.0))


def _height(ranks: int) -> int:
    return int(np.clip(144 + 34 * max(ranks, 2), 260, 760))
