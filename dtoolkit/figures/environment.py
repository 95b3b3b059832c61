"""The card of an environment, and the memory of its processes."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from dtoolkit.figures.html import card, facts
from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, bytes_text, title

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.about import Environment

__all__ = ["environment_card", "memory_bars"]

_LOOKS = {
    "this kernel": (CATEGORIES[0], ""),
    "worker": (CATEGORIES[1], "/"),
    "fork server": (CATEGORIES[2], "x"),
    "helper": (CATEGORIES[6], "."),
}


def environment_card(environment: Environment) -> str:
    """Return the card of an environment: what is there, and what is to be done, in words.

    Parameters
    ----------
    environment : Environment

    Returns
    -------
    str
        HTML.
    """
    problems = environment.problems
    words = [f"To be done: {problem}" for problem in problems] or [
        "Ready: nothing stands in the way of the course."
    ]
    if environment.missing:
        words.append(
            f"Optional, and not here: {', '.join(environment.missing)}. What needs them is left "
            'out and says so; pip install "dtoolkit[partition]" brings them.'
        )
    said = "".join(f'<li style="margin:2px 0">{escape(one)}</li>' for one in words)
    listed = f'<ul style="margin:0;padding-left:18px;max-width:420px">{said}</ul>'
    heading = f"{len(problems)} to be done" if problems else "ready"
    return card("Environment", heading, facts(environment.facts()), listed)


def memory_bars(processes: pd.DataFrame, limit: float, *, mode: Mode = "auto") -> go.Figure:
    """Draw what processes take of the memory, one on top of the other, against a limit.

    Parameters
    ----------
    processes : DataFrame
        As :func:`dtoolkit.about.processes` gives it.
    limit : float
        Bytes that all of them may take together.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
    """
    total = int(processes["bytes"].sum())
    bars = []
    for kind, group in processes.groupby("process", sort=False):
        colour, shape = _LOOKS[str(kind)]
        for number, (pid, size) in enumerate(zip(group["pid"], group["bytes"], strict=True)):
            bars.append(
                go.Bar(
                    x=[size / 1e6],
                    y=["memory"],
                    orientation="h",
                    name=f"{kind} ({len(group)})" if len(group) > 1 else str(kind),
                    legendgroup=str(kind),
                    showlegend=number == 0,
                    marker={
                        "color": colour,
                        "line": {"width": 1, "color": "white"},
                        "pattern": {"shape": shape, "size": 6, "solidity": 0.2},
                    },
                    hovertemplate=f"{kind} {pid}<br>{bytes_text(int(size))}<extra></extra>",
                )
            )
    words = f"{bytes_text(total)} in all, of {bytes_text(int(limit))}"
    layout = base_layout(
        mode=mode,
        title=title("Memory of this kernel and of what it started (MB)", f"measured: {words}"),
        barmode="stack",
        height=250,
        xaxis={"title": {"text": "proportional set size (MB)"}, "rangemode": "tozero"},
        yaxis={"title": {"text": "all processes"}, "showticklabels": False},
        shapes=[
            {
                "type": "line", "xref": "x", "yref": "paper", "x0": limit / 1e6, "x1": limit / 1e6,
                "y0": 0, "y1": 1, "line": {"color": CATEGORIES[3], "width": 2, "dash": "dash"},
            }
        ],
    )  # fmt: skip
    return go.Figure(bars, layout)
