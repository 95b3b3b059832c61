"""What dropping late micro-batches gains: over thresholds, over workers, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, title

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["drop_speed"]

_BLUE, _ORANGE, _GREEN, _RED = CATEGORIES[0], CATEGORIES[1], CATEGORIES[2], CATEGORIES[3]


def drop_speed(
    thresholds: pd.DataFrame,
    workers: pd.DataFrame,
    times: ArrayLike,
    *,
    threshold: float,
    measured: float | None = None,
    size: int | None = None,
    name: str = "",
    width: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw the gain of dropping micro-batches that come too late.

    Parameters
    ----------
    thresholds : DataFrame
        Columns ``threshold`` (seconds), ``simulated`` and ``formula`` (speed-ups), ``dropped``.
    workers : DataFrame
        Columns ``workers``, ``simulated``, ``formula``: the best speed-up for so many workers.
    times : array_like
        Seconds that each worker computes in each step.
    threshold : float
        The one that is looked at, in seconds.
    measured : float, optional
        Speed-up of real workers, drawn at `size` workers.
    size : int, optional
        Workers that are looked at.
    name : str
        Of what was assumed, for the second line of the title.
    width : int, optional
        In pixels.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        Speed-up over the threshold, speed-up over the number of workers, and how the workers' times
        lie about the threshold. Modelled, but for what is `measured`.
    """
    seconds = np.asarray(times, dtype=float).ravel()
    scale, unit = (1e3, "ms") if seconds.max(initial=0) < 10 else (1.0, "s")
    at = float(np.interp(threshold, thresholds["threshold"], thresholds["simulated"]))
    seen = [] if measured is None or size is None else [(size, measured)]
    data = [
        _line(thresholds["threshold"] * scale, thresholds["simulated"], "simulated", _BLUE, "solid",
              "", f"threshold %{{x:.4~g}} {unit}"),
        _line(thresholds["threshold"] * scale, thresholds["formula"], "formula, normal times",
              _ORANGE, "dash", "", f"threshold %{{x:.4~g}} {unit}"),
        _mark([threshold * scale], [at], "the threshold", "diamond", _RED, ""),
        _line(workers["workers"], workers["simulated"], "simulated", _BLUE, "solid", "2",
              "%{x} workers", legend=False),
        _line(workers["workers"], workers["formula"], "formula", _ORANGE, "dash", "2",
              "%{x} workers", legend=False),
        _mark([x for x, _ in seen], [y for _, y in seen], "measured", "star", _GREEN, "2"),
        _histogram(seconds * scale, unit),
    ]  # fmt: skip
    gain = f"speed-up {at:.3f} at a threshold of {threshold * scale:.4g} {unit}"
    upper, lower = [0.58, 1.0], [0.0, 0.33]
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(f"DropCompute: {gain} (modelled)", name),
            xaxis=_axis(f"threshold ({unit})", [0, 0.45], "y"),
            yaxis={"title": {"text": "speed-up"}, "domain": upper},
            xaxis2=_axis(
                "workers", [0.57, 1], "y2", type="log", tickvals=[1, 4, 16, 64, 256, 1024]
            ),
            yaxis2=_axis("", upper, "x2"),
            xaxis3=_axis(f"time that a worker computes in a step ({unit})", [0, 1], "y3"),
            yaxis3=_axis("share (%)", lower, "x3"),
            shapes=[
                {
                    "type": "line", "xref": "x3", "yref": "y3 domain", "x0": threshold * scale,
                    "x1": threshold * scale, "y0": 0, "y1": 1,
                    "line": {"color": _RED, "width": 2, "dash": "dot"},
                },
                {
                    "type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 0.45, "y0": 1,
                    "y1": 1, "line": {"color": "rgba(128,128,128,.6)", "width": 1},
                },
            ],
            showlegend=True,
            hovermode="closest",
            width=width,
            height=560,
            margin={"l": 64, "r": 24, "t": 120, "b": 56},
        ),
    )  # fmt: skip


def _axis(text: str, domain: list[float], anchor: str, **more: Any) -> dict[str, Any]:
    shared = base_layout()["xaxis"]
    return {**shared, "title": {"text": text, "standoff": 8}, "domain": domain,
            "anchor": anchor, **more}  # fmt: skip


def _line(
    x: Any, y: Any, name: str, colour: str, dash: str, axes: str, hover: str, *, legend: bool = True
) -> go.Scatter:
    return go.Scatter(
        x=np.asarray(x, dtype=float),
        y=np.asarray(y, dtype=float),
        name=name,
        mode="lines+markers" if len(x) < 20 else "lines",
        line={"color": colour, "dash": dash, "width": 2},
        xaxis=f"x{axes}",
        yaxis=f"y{axes}",
        showlegend=legend,
        hovertemplate=f"<b>{name}</b><br>{hover}: %{{y:.3f}}<extra></extra>",
    )


def _mark(x: Any, y: Any, name: str, symbol: str, colour: str, axes: str) -> go.Scatter:
    return go.Scatter(
        x=np.asarray(x, dtype=float),
        y=np.asarray(y, dtype=float),
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": 13, "color": colour, "line": {"width": 1}},
        xaxis=f"x{axes}",
        yaxis=f"y{axes}",
        showlegend=len(x) > 0,
        hovertemplate=f"<b>{name}</b>: %{{y:.3f}}<extra></extra>",
    )


def _histogram(seconds: np.ndarray, unit: str) -> go.Bar:
    """Count here: a page need not be sent every time."""
    counts, edges = np.histogram(seconds, bins=60)
    return go.Bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=100 * counts / max(len(seconds), 1),
        width=np.diff(edges),
        marker={"color": CATEGORIES[4], "line": {"width": 0}},
        name="workers' times",
        xaxis="x3",
        yaxis="y3",
        showlegend=False,
        hovertemplate=f"%{{x:.4~g}} {unit}: %{{y:.2f}}% of the steps of workers<extra></extra>",
    )
