"""What it takes to reach a loss: seconds and bytes of runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtoolkit.figures.curves import curve, named_runs
from dtoolkit.figures.theme import Mode, base_layout, bytes_text, plain, seconds_text, title
from dtoolkit.figures.training_table import strategy_of

if TYPE_CHECKING:
    from dtoolkit.training import Run

__all__ = ["loss_costs", "time_to_loss"]

_PANELS = (
    ("seconds", [0.0, 0.46], "time in steps (s)", "%{x:.3~g} s"),
    ("megabytes", [0.54, 1.0], "sent by all workers (MB)", "%{x:.3~g} MB"),
)


def loss_costs(run: Run, *, y: str = "test_loss") -> pd.DataFrame:
    """What a run had spent by each of its evaluations.

    Parameters
    ----------
    run : Run
        Or anything with its ``history``.
    y : str
        A column of the history that is lower where it is better; rows without it are left out.

    Returns
    -------
    DataFrame
        ``step``, steps done; ``seconds``, of all steps so far, on average over the workers, without
        evaluations between them; ``bytes``, sent in steps by all workers; and `y`.

    Raises
    ------
    ValueError
        The history has no such column.
    """
    history = run.history
    if y not in history:
        raise ValueError(f"y={y!r}: wanted a column of the history, such as 'test_loss' or 'loss'")
    table = pd.DataFrame(
        {
            "step": history["step"] + 1,
            "seconds": history["seconds"].cumsum(),
            "bytes": history["bytes"].cumsum(),
            y: history[y],
        }
    )
    return table[table[y].notna()].reset_index(drop=True)


def time_to_loss(
    runs: Run | Sequence[Run] | Mapping[str, Run],
    target: float,
    *,
    y: str = "test_loss",
    mode: Mode = "auto",
) -> go.Figure:
    """Draw a loss over the time, and over the bytes, that runs spent on it; a line at a target.

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of names to Run
        By default they are named by strategy.
    target : float
        A loss. The legend says what each run had spent when it was first at most that.
    y : str
        As of :func:`loss_costs`.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Two panels with one axis of losses (measured): seconds on the left, megabytes on the right,
        both logarithmic. Evaluations, and the time and messages they take, are left out.

    Raises
    ------
    ValueError
        There is no run, no such column, or the target is not finite.
    """
    if not np.isfinite(target):
        raise ValueError(f"target={target!r}: wanted a loss, a finite number")
    named = named_runs(runs, strategy_of)
    costs = {name: loss_costs(run, y=y) for name, run in named.items()}
    lines = [
        _line(number, name, table, y, panel, target)
        for panel in range(len(_PANELS))
        for number, (name, table) in enumerate(costs.items())
    ]
    emulated = {getattr(getattr(run, "trace", None), "emulated", "") for run in named.values()}
    below = [f"emulated: {one}" for one in sorted(emulated) if one]
    return go.Figure(
        data=lines,
        layout=_layout(y.replace("_", " "), target, [*below, "evaluations left out"], mode),
    )


def _line(
    number: int, name: str, table: pd.DataFrame, y: str, panel: int, target: float
) -> go.Scatter:
    column, _, _, words = _PANELS[panel]
    x = table["seconds"] if column == "seconds" else table["bytes"] / 1e6
    axis = "" if panel == 0 else "2"
    return curve(
        number,
        f"{name}: {_spent(table, y, target)}",
        x,
        table[y],
        hover=f"{words}<br>{y.replace('_', ' ')} %{{y:.4~g}}",
        mode="lines+markers",
        legendgroup=name,
        showlegend=panel == 0,
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
    )


def _spent(table: pd.DataFrame, y: str, target: float) -> str:
    """What a run had spent when it reached the target, in words."""
    there = table[table[y] <= target]
    if not len(there):
        return "not reached"
    first = there.iloc[0]
    return f"{seconds_text(float(first['seconds']))}, {bytes_text(int(first['bytes']))}"


def _layout(quantity: str, target: float, below: list[str], mode: Mode) -> dict[str, Any]:
    layout = base_layout(
        mode=mode,
        title=title(f"Time and bytes to a {quantity} of {target:g} (measured)", "; ".join(below)),
        xaxis={"type": "log", "domain": _PANELS[0][1], "title": {"text": _PANELS[0][2]}},
        yaxis={"title": {"text": plain(quantity)}},
        showlegend=True,
        legend={"x": 0, "y": -0.22, "xanchor": "left", "yanchor": "top", "orientation": "h"},
        width=900,
        height=470,
    )
    layout["xaxis2"] = {
        **layout["xaxis"],
        "domain": _PANELS[1][1],
        "title": {**layout["xaxis"]["title"], "text": _PANELS[1][2]},
        "anchor": "y2",
    }
    layout["yaxis2"] = {**layout["yaxis"], "title": {}, "anchor": "x2", "matches": "y"}
    layout["shapes"] = [
        {
            "type": "line",
            "xref": f"{axis} domain",
            "yref": axis.replace("x", "y"),
            "x0": 0,
            "x1": 1,
            "y0": target,
            "y1": target,
            "line": {"dash": "dash", "width": 1, "color": "#888888"},
        }
        for axis in ("x", "x2")
    ]
    return layout
