"""Losses over epochs, of one run or of several beside each other; the card of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dtoolkit.figures.curves import curve, curve_figure, named_runs, sparkline
from dtoolkit.figures.html import card, facts, picture
from dtoolkit.figures.theme import CATEGORIES, Mode, plural

if TYPE_CHECKING:
    from dtoolkit.graph.result import FullBatchResult

__all__ = ["full_batch_card", "losses"]


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
    named = named_runs(runs, lambda run: f"{run.model}, {plural(run.workers, 'worker')}")
    count = len(named)
    lines = [
        curve(
            i,
            name,
            run.history["epoch"],
            run.history["loss"],
            hover="epoch %{x}<br>loss %{y:.6f}",
            line={"width": 2 + 3 * (count - 1 - i)},
        )
        for i, (name, run) in enumerate(named.items())
    ]
    return curve_figure(
        lines,
        heading="Training loss (measured)",
        below=_difference(list(named.values())),
        x="epoch (number)",
        y="mean cross-entropy (nats)",
        mode=mode,
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


def _difference(runs: list[FullBatchResult]) -> str:
    """How far the curves lie apart, in words."""
    curves = [run.history["loss"].to_numpy() for run in runs]
    if len(curves) < 2 or len({len(curve) for curve in curves}) > 1 or not len(curves[0]):
        return "over the training nodes, with dropout"
    apart = max(float(np.abs(curve / curves[0] - 1).max()) for curve in curves[1:])
    return f"over the training nodes, with dropout; largest relative difference {apart:.1e}"


def _curves(run: FullBatchResult) -> str:
    """Draw training loss, and in grey validation loss."""
    loss, validation = (run.history[name].to_numpy(dtype=float) for name in ("loss", "val_loss"))
    words = f"training loss from {loss[0]:.3f} to {loss[-1]:.3f}"
    return sparkline([(validation, CATEGORIES[-1]), (loss, CATEGORIES[0])], label=words)
