"""What each dimension of a network does when, as a collective is simulated: a Gantt chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dtoolkit.figures.theme import (
    CATEGORIES,
    Mode,
    base_layout,
    bytes_text,
    notice,
    plural,
    seconds_text,
    title,
)

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.comm.iterations import Iteration
    from dtoolkit.comm.simulation import Simulation

__all__ = ["OPERATION_COLOURS", "operations", "schedule", "time_unit"]

OPERATION_COLOURS = {
    "reduce_scatter": CATEGORIES[0],
    "all_gather": CATEGORIES[1],
    "all_to_all": CATEGORIES[2],
}

MARKED_BARS = 500  # up to here each bar has end marks, so that neighbours can be told apart


def schedule(simulation: Simulation | Iteration, *, mode: Mode = "auto") -> go.Figure:
    """Draw which chunk is served when in each dimension.

    Parameters
    ----------
    simulation : Simulation or Iteration
        What :func:`dtoolkit.comm.simulate` or :func:`dtoolkit.comm.iteration` gave.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Time on x, dimensions on y, downwards, each with its utilisation; one trace an operation,
        drawn as thick lines with gaps: 20,000 stages are no burden. All of it is modelled.
    """
    bars, table = simulation.bars, simulation.by_dimension
    scale, unit = time_unit(simulation.time)
    lane = float(np.clip(0.7 * (_height(len(table)) - 144) / max(len(table), 1), 1.0, 26.0))
    data = operations(bars, scale, unit, lane)
    names = [
        f"{row.dimension}: {row.kind} of {row.ranks}<br>{bytes_text(row.bandwidth)}/s, "
        f"{row.utilisation:.0%} used"
        for row in table.itertuples()
    ]
    used = f", {simulation.utilisation:.0%} of the bandwidth used" if len(bars) else ""
    text = f"Modelled schedule: {seconds_text(simulation.time)}{used}"
    stages = (
        "the bound, in no order" if simulation.policy == "ideal" else plural(len(bars), "stage")
    )
    latency = "" if simulation.latency else ", latency not counted"
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(text, f"{simulation.name}; {stages}{latency}"),
            xaxis={
                "title": {"text": f"time ({unit})"},
                "range": [0, max(simulation.time * scale, 1e-12) * 1.01],
            },
            yaxis={
                "title": {"text": "dimension"},
                "tickmode": "array",
                "tickvals": list(range(len(names))),
                "ticktext": names,
                "range": [max(len(names), 1) - 0.5, -0.5],
                "showgrid": False,
            },
            annotations=[] if len(bars) else [notice("nothing moves")],
            hovermode="closest",
            showlegend=True,
            width=900,
            height=_height(len(names)),
            margin={"l": 64, "r": 24, "t": 104, "b": 56},
        ),
    )


def operations(bars: pd.DataFrame, scale: float, unit: str, lane: float) -> list[go.Scatter]:
    """Draw the stages of a simulation, one trace an operation.

    Parameters
    ----------
    bars : DataFrame
        Of a Simulation or an Iteration.
    scale, unit
        As :func:`time_unit` gives them.
    lane : float
        Width of a line in pixels.
    """
    return [
        _operation(str(name), some, scale, unit, lane, len(bars) <= MARKED_BARS)
        for name, some in bars.groupby("operation", sort=False)
    ]


def time_unit(seconds: float) -> tuple[float, str]:
    """Return what seconds are multiplied by so that they read well, and the unit."""
    if seconds < 1e-3:
        return 1e6, "µs"
    return (1e3, "ms") if seconds < 10 else (1.0, "s")


def _operation(
    name: str, bars: pd.DataFrame, scale: float, unit: str, lane: float, marked: bool
) -> go.Scatter:
    """Draw all stages of one operation as one line with gaps."""
    x = np.full((len(bars), 3), np.nan)
    x[:, 0] = bars["start"] * scale
    x[:, 1] = bars["end"] * scale
    numbers = np.stack(
        [bars["chunk"], bars["bytes"], (bars["end"] - bars["start"]) * scale], axis=1
    ).astype(np.float32)
    colour = OPERATION_COLOURS.get(name, CATEGORIES[-1])
    label = name.replace("_", "-")
    who = "all chunks" if (bars["chunk"] < 0).all() else "chunk %{customdata[0]:d}"
    return go.Scatter(
        x=x.ravel(),
        y=np.repeat(bars["dimension"].to_numpy(dtype=np.int32), 3),
        mode="lines+markers" if marked else "lines",
        connectgaps=False,
        name=label,
        line={"color": colour, "width": lane, "simplify": False},
        marker={
            "symbol": "line-ns-open",
            "size": lane / 1.4,  # this symbol is 1.4 times as tall as its size says
            "color": "rgba(255,255,255,0.45)",
            "line": {"width": 0.7},
        },
        customdata=np.repeat(numbers, 3, axis=0),
        hovertemplate=(
            f"<b>{label}</b>, {who}<br>%{{customdata[2]:.4~g}} {unit}; at %{{x:.6~g}} {unit}"
            "<br>%{customdata[1]:.3~s}B sent by each rank<extra></extra>"
        ),
    )


def _height(lanes: int) -> int:
    return int(np.clip(160 + 56 * max(lanes, 2), 260, 760))
