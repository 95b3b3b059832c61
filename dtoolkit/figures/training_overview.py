"""Runs at a glance, while they go on too: loss, test, bytes or density, and what workers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtoolkit.figures.curves import curve
from dtoolkit.figures.progress import progress, workers_of
from dtoolkit.figures.theme import Mode, base_layout, plain, title

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["training_overview"]

_TESTS = ("test_accuracy", "test_precision", "test_bits_per_byte", "test_loss")
_LABELS = {
    "test_accuracy": "test accuracy (%)",
    "test_precision": "test precision (%)",
    "test_bits_per_byte": "test bits per byte",
    "test_loss": "test loss",
}
_SMOOTH = 10  # steps over which bytes are averaged: rounds of local steps send them all at once
_MOST = 400  # points of a line: a longer one is thinned out, the last point stays


def training_overview(
    runs: Mapping[str, Run | Any],
    *,
    last: str = "",
    steps: int = 0,
    wide: bool = True,
    width: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw runs in four pictures.

    Parameters
    ----------
    runs : mapping of str to Run or Training
        Name to anything with a ``history``; one that goes on will do.
    last : str
        The run whose workers are shown.
    steps : int
        Steps that it is to have; the axes reach so far.
    wide : bool
        Two pictures beside each other, or all below each other.
    width : int, optional
        In pixels.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        Training loss, the evaluations, bytes that all workers send in a step, averaged over ten
        (density where the model is sparse), and samples a second by worker. All of it is measured.
    """
    histories = {name: run.history for name, run in runs.items() if len(run.history)}
    test = next((t for t in _TESTS if any(t in h for h in histories.values())), "test_accuracy")
    sparse = any("density" in h for h in histories.values())
    third = "density" if sparse else "bytes"
    data: list[go.Scatter] = []
    for number, (name, history) in enumerate(histories.items()):
        data += _lines(number, name, history, test, third)
    shown = histories.get(last)
    if shown is not None:
        data += _workers(shown)
    reach = max([steps, *(int(h["step"].max()) + 1 for h in histories.values())], default=1)
    labels = (
        "training loss",
        _LABELS[test],
        "density (%)" if sparse else f"bytes a step (mean of {_SMOOTH})",
        "samples/s by worker",
    )
    below = f"workers: {plain(last)}" if shown is not None else "press Run"
    text = f"{len(histories)} run{'s' if len(histories) != 1 else ''} (measured)"
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(f"Training: {text}", below),
            **_axes(labels, reach, wide, mode),
            showlegend=True,
            legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "yref": "paper"},
            hovermode="closest",
            width=width,
            height=620 if wide else 1080,
            margin={"l": 64, "r": 24, "t": 112 + 20 * ((len(data) > 8) + (not wide)), "b": 52},
        ),
    )


def _lines(
    number: int, name: str, history: pd.DataFrame, test: str, third: str
) -> list[go.Scatter]:
    way = progress(history)
    kept = _thin(len(way))
    loss = way.iloc[kept]
    made = [
        curve(number, name, loss["step"], loss["loss"], hover="step %{x:,}: loss %{y:.5~g}",
              legendgroup=name)
    ]  # fmt: skip
    percent = 100 if test in ("test_accuracy", "test_precision") else 1
    x, y = _there(history, test)
    made.append(
        curve(number, name, x, percent * y, hover="step %{x:,}: %{y:.5~g}", mode="lines+markers",
              xaxis="x2", yaxis="y2", showlegend=False, legendgroup=name)
    )  # fmt: skip
    x, y = _there(history, third)
    if third == "bytes":
        y = pd.Series(y).rolling(_SMOOTH, min_periods=1).mean().to_numpy()
    kept = _thin(len(x))
    scale = 100 if third == "density" else 1
    made.append(
        curve(number, name, x[kept], scale * y[kept], hover="step %{x:,}: %{y:.4~s}",
              xaxis="x3", yaxis="y3", showlegend=False, legendgroup=name)
    )  # fmt: skip
    return made


def _there(history: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    if column not in history:
        return np.zeros(0), np.zeros(0)
    known = history[["step", column]].dropna()
    return known["step"].to_numpy(float) + 1, known[column].to_numpy(float)


def _workers(history: pd.DataFrame) -> list[go.Scatter]:
    """Throughput of each worker over its own steps, smoothed over a twentieth of them."""
    made = []
    for worker in workers_of(history):
        name = f"throughput_{worker}"
        if name not in history:
            continue
        known = history[["step", name]].dropna()
        smooth = known[name].rolling(max(1, len(known) // 20), min_periods=1).mean()
        kept = _thin(len(known))
        made.append(
            curve(worker, f"worker {worker}", known["step"].to_numpy(float)[kept] + 1,
                  smooth.to_numpy(float)[kept], hover="step %{x:,}: %{y:,.0f} samples/s",
                  xaxis="x4", yaxis="y4", line={"width": 1.5})
        )  # fmt: skip
    return made


def _thin(length: int) -> np.ndarray:
    if length <= _MOST:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, _MOST).astype(int))


def _axes(labels: tuple[str, ...], reach: int, wide: bool, mode: Mode) -> dict[str, Any]:
    """Four pairs of axes: two by two, or one below the other."""
    shared = base_layout(mode=mode)["xaxis"]
    axes: dict[str, Any] = {}
    for number, label in enumerate(labels):
        tag = "" if number == 0 else str(number + 1)
        row, column = divmod(number, 2) if wide else (number, 0)
        rows = 2 if wide else 4
        high = (1 - 0.16 * (rows - 1) / (rows / 2)) / rows
        top = 1 - row * (high + (1 - rows * high) / (rows - 1))
        below = "steps done" if row == rows - 1 else ""
        axes[f"xaxis{tag}"] = {
            **shared, "title": {"text": below, "standoff": 8}, "anchor": f"y{tag}",
            "domain": ([0, 0.43], [0.57, 1])[column] if wide else [0, 1],
            "range": [0, reach * 1.02],
        }  # fmt: skip
        axes[f"yaxis{tag}"] = {
            **shared, "title": {"text": label, "standoff": 8}, "anchor": f"x{tag}",
            "domain": [max(top - high, 0), min(top, 1)], "rangemode": "tozero",
            "exponentformat": "SI",
        }  # fmt: skip
    return axes
