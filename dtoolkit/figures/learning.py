"""Losses over epochs, of one run or of several beside each other; the card of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dtoolkit.figures.html import card, facts, picture
from dtoolkit.figures.svg import FAINT, FONT
from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, plural, title

if TYPE_CHECKING:
    from dtoolkit.graph.result import FullBatchResult

__all__ = ["full_batch_card", "losses"]

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def losses(
    runs: FullBatchResult | Sequence[FullBatchResult] | Mapping[str, FullBatchResult],
    *,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw the training loss of runs over their epochs.

    Parameters
    ----------
    runs : FullBatchResult, or several; a mapping gives their names
        By default they are named by model and workers.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Lines that lie on each other differ in width and dash, the first the widest, so that all are
        seen.

    Raises
    ------
    ValueError
        There is no run to draw.
    """
    named = _named(runs)
    if not named:
        raise ValueError("runs is empty: nothing to draw")
    count = len(named)
    lines = [
        go.Scatter(
            x=run.history["epoch"],
            y=run.history["loss"],
            name=escape(name),
            mode="lines",
            line={
                "color": CATEGORIES[i % len(CATEGORIES)],
                "width": 2 + 3 * (count - 1 - i),
                "dash": _DASHES[i % len(_DASHES)],
            },
            hovertemplate="%{fullData.name}<br>epoch %{x}<br>loss %{y:.6f}<extra></extra>",
        )
        for i, (name, run) in enumerate(named.items())
    ]
    return go.Figure(
        data=lines,
        layout=base_layout(
            mode=mode,
            title=title("Training loss (measured)", _difference(list(named.values()))),
            xaxis={"title": {"text": "epoch (number)"}},
            yaxis={"title": {"text": "mean cross-entropy (nats)"}},
            showlegend=True,
            legend={"x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top", "orientation": "v"},
            width=760,
            height=420,
        ),
    )


def full_batch_card(run: FullBatchResult) -> str:
    """Return the card of a run: accuracy, settings, its losses as a small picture.

    Parameters
    ----------
    run : FullBatchResult

    Returns
    -------
    str
        HTML.
    """
    heading = f"{run.model} on {run.graph}, {plural(run.workers, 'worker')}"
    pieces = [facts(run.facts())]
    if len(run.history):
        pieces.append(picture(_curves(run), "loss over epochs, grey: validation"))
    return card("Full-batch training", heading, *pieces, badge="measured")


def _named(
    runs: FullBatchResult | Sequence[FullBatchResult] | Mapping[str, FullBatchResult],
) -> dict[str, FullBatchResult]:
    if isinstance(runs, Mapping):
        return {str(name): run for name, run in runs.items()}
    listed = list(runs) if isinstance(runs, Sequence) else [runs]
    named: dict[str, FullBatchResult] = {}
    for number, run in enumerate(listed):
        name = f"{run.model}, {plural(run.workers, 'worker')}"
        named[name if name not in named else f"{name} ({number})"] = run
    return named


def _difference(runs: list[FullBatchResult]) -> str:
    """How far the curves lie apart, in words."""
    curves = [run.history["loss"].to_numpy() for run in runs]
    if len(curves) < 2 or len({len(curve) for curve in curves}) > 1 or not len(curves[0]):
        return "over the training nodes, with dropout"
    apart = max(float(np.abs(curve / curves[0] - 1).max()) for curve in curves[1:])
    return f"over the training nodes, with dropout; largest relative difference {apart:.1e}"


def _curves(run: FullBatchResult, width: int = 280, height: int = 110) -> str:
    """Draw training and validation loss as inline SVG."""
    curves = [run.history[name].to_numpy(dtype=float) for name in ("val_loss", "loss")]
    known = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    low, top = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    body = [f'<rect width="{width}" height="{height}" fill="{FAINT}"/>']
    for curve, colour in zip(curves, (CATEGORIES[-1], CATEGORIES[0]), strict=True):
        if np.isfinite(curve).all():
            points = _points(curve, low, top, width, height)
            body.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    words = f"training loss from {curves[1][0]:.3f} to {curves[1][-1]:.3f}"
    body.append(f'<text x="4" y="13" fill="currentColor">{top:.3g}</text>')
    body.append(f'<text x="4" y="{height - 4}" fill="currentColor">{low:.3g}</text>')
    return (
        f'<svg role="img" aria-label="{words}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="{FONT}">{"".join(body)}</svg>'
    )


def _points(curve: NDArray[np.float64], low: float, top: float, width: int, height: int) -> str:
    """Points of a line, at most one a pixel."""
    chosen = np.unique(np.linspace(0, len(curve) - 1, min(len(curve), width)).astype(int))
    x = chosen / max(len(curve) - 1, 1) * width
    y = height - 18 - (curve[chosen] - low) / ((top - low) or 1.0) * (height - 36)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
