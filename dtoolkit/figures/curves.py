"""Curves of one run or of several beside each other, in figures and in cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dtoolkit.figures.svg import FAINT, FONT
from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, plain, title

__all__ = ["DASHES", "curve", "curve_figure", "named_runs", "sparkline"]

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARGIN = 18  # pixels above and below a curve in a card


def named_runs(runs: Any, name: Callable[[Any], str]) -> dict[str, Any]:
    """Give each run a name that no other has.

    Parameters
    ----------
    runs : run, sequence of runs, or mapping of names to runs
    name : callable
        Names a run that came without one.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        There is no run.
    """
    if isinstance(runs, Mapping):
        named = {str(key): run for key, run in runs.items()}
    else:
        named = {}
        for number, run in enumerate(runs if isinstance(runs, Sequence) else [runs]):
            own = name(run)
            named[own if own not in named else f"{own} ({number})"] = run
    if not named:
        raise ValueError("runs is empty: nothing to draw")
    return named


def curve(number: int, name: str, x: Any, y: Any, *, hover: str, **more: Any) -> go.Scatter:
    """Draw the line of a run, whose colour and dash follow from its number.

    Parameters
    ----------
    number : int
        Place of the run among those drawn; 35 in a row differ.
    name : str
        In the legend.
    x, y : array
    hover : str
        What is shown beside the name, as a Plotly template.
    **more
        Further properties of ``plotly.graph_objects.Scatter``; ``line`` is merged.
    """
    style: dict[str, Any] = {
        "color": CATEGORIES[number % len(CATEGORIES)],
        "dash": DASHES[number % len(DASHES)],
        "width": 2,
        **more.pop("line", {}),
    }
    return go.Scatter(
        x=x,
        y=y,
        name=plain(name),
        line=style,
        hovertemplate=f"%{{fullData.name}}<br>{hover}<extra></extra>",
        **{"mode": "lines", **more},
    )


def curve_figure(
    lines: list[go.Scatter], *, heading: str, below: str, x: str, y: str, mode: Mode, **more: Any
) -> go.Figure:
    """Put curves into a figure, with a title, a line below it, titles of axes, and a legend."""
    return go.Figure(
        data=lines,
        layout=base_layout(
            mode=mode,
            title=title(heading, below),
            xaxis={"title": {"text": x}, **more.pop("xaxis", {})},
            yaxis={"title": {"text": y}, **more.pop("yaxis", {})},
            showlegend=True,
            legend={"x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top", "orientation": "v"},
            width=760,
            height=420,
            **more,
        ),
    )


def sparkline(
    curves: Sequence[tuple[NDArray[np.float64], str]],
    *,
    label: str,
    width: int = 280,
    height: int = 110,
) -> str:
    """Draw curves over one range as inline SVG, with the largest and the least value written.

    Parameters
    ----------
    curves : sequence of (float array, colour)
        One that has a value which is not finite is left out.
    label : str
        What is shown, in words.
    width, height : int
        Pixels.
    """
    known = np.concatenate([values[np.isfinite(values)] for values, _ in curves])
    low, top = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    body = [f'<rect width="{width}" height="{height}" fill="{FAINT}"/>']
    for values, colour in curves:
        if len(values) and np.isfinite(values).all():
            points = _points(values, low, top, width, height)
            body.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    body.append(f'<text x="4" y="13" fill="currentColor">{top:.3g}</text>')
    body.append(f'<text x="4" y="{height - 4}" fill="currentColor">{low:.3g}</text>')
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="{FONT}">{"".join(body)}</svg>'
    )


def _points(values: NDArray[np.float64], low: float, top: float, width: int, height: int) -> str:
    """Points of a line, at most one a pixel."""
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), width)).astype(int))
    x = chosen / max(len(values) - 1, 1) * width
    y = height - MARGIN - (values[chosen] - low) / ((top - low) or 1.0) * (height - 2 * MARGIN)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
