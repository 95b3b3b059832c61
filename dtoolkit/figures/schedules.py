"""Schedules of one collective below each other, and what each dimension uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dtoolkit.figures.gantt import operations, time_unit
from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, bytes_text, seconds_text, title

if TYPE_CHECKING:
    from dtoolkit.comm.simulation import Simulation

__all__ = ["schedules"]

_TOP, _BOTTOM, _GAP = 128, 56, 0.16  # pixels, pixels, and share between two schedules
_LANE = 34  # pixels of a dimension
_USUAL, _BESIDE = 900, 170  # pixels: a figure that fills what it is put into, and beside the bars
_MARKED = 4.5  # pixels of a bar from which its ends are marked


def schedules(
    simulations: Mapping[str, Simulation], *, width: int | None = None, mode: Mode = "auto"
) -> go.Figure:
    """Draw simulations of one collective below each other.

    Parameters
    ----------
    simulations : mapping of str to Simulation
        Name to what :func:`dtoolkit.comm.simulate` gave; of one network.
    width : int, optional
        In pixels; by default the figure fills what it is put into.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        For each: which chunk is served when in each dimension, and beside it the share of the
        dimension's bandwidth that moves bytes. All of it is modelled.

    Raises
    ------
    ValueError
        There is none.
    """
    if not simulations:
        raise ValueError("simulations is empty: wanted at least one, by name")
    longest = max(one.time for one in simulations.values())
    scale, unit = time_unit(longest)
    first = next(iter(simulations.values()))
    many = len(simulations)
    high = (1 - _GAP * (many - 1)) / many
    height = _TOP + _BOTTOM + many * max(120, _LANE * len(first.dimensions) + 24)
    layout: dict[str, Any] = {}
    data: list[go.Scatter | go.Bar] = []
    notes = []
    for place, (name, one) in enumerate(simulations.items()):
        top = 1 - place * (high + _GAP)
        tag = "" if place == 0 else str(place + 1)
        lane = min(0.62 * _LANE, 22.0)
        for trace in operations(one.bars, scale, unit, lane):
            _thin_out(trace, longest * scale, width or _USUAL)
            data.append(trace.update(yaxis=f"y{tag}", showlegend=place == 0))
        data.append(_used(one, f"y{tag}"))
        layout[f"yaxis{tag}"] = _dimensions(one, [max(top - high, 0.0), min(top, 1.0)])
        used = f"{one.utilisation:.0%} of bandwidth"
        notes.append(_caption(f"{name}: {seconds_text(one.time)}, {used}", top))
    text, said = _title(simulations)
    y = layout.pop("yaxis")
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(text, said),
            xaxis={
                "title": {"text": f"time ({unit})"},
                "domain": [0, 0.74],
                "range": [0, max(longest * scale, 1e-12) * 1.01],
                "anchor": f"y{many if many > 1 else ''}",
            },
            yaxis=y,
            **_rest(layout, mode),
            xaxis2={
                "title": {"text": "used (%)", "standoff": 8},
                "domain": [0.79, 1],
                "range": [0, 109],
                "tickvals": [0, 50, 100],
                "gridcolor": "rgba(128,128,128,0.25)",
                "zeroline": False,
                "anchor": f"y{many if many > 1 else ''}",
            },
            annotations=notes,
            hovermode="closest",
            barmode="overlay",
            bargap=0.4,
            legend={"orientation": "h", "x": 0, "y": 1 + 34 / height, "yanchor": "bottom"},
            showlegend=True,
            width=width,
            height=height,
            margin={"l": 64, "r": 24, "t": _TOP, "b": _BOTTOM},
        ),
    )


def _thin_out(trace: go.Scatter, longest: float, width: int) -> None:
    """Mark the ends of bars alone that are wide enough: else the marks are all that is seen."""
    if trace.mode == "lines" or not longest:
        return
    starts, ends = trace.x[::3], trace.x[1::3]
    pixels = (ends - starts) * (0.74 * (width - _BESIDE)) / longest
    trace.marker.size = np.repeat(np.where(pixels >= _MARKED, trace.marker.size, 0.0), 3)


def _rest(layout: dict[str, Any], mode: Mode) -> dict[str, Any]:
    """Axes below the first, with the look that all axes share."""
    shared = base_layout(mode=mode)["yaxis"]
    return {
        name: {**shared, **axis, "title": {**shared["title"], **axis.get("title", {})}}
        for name, axis in layout.items()
    }


def _dimensions(one: Simulation, domain: list[float]) -> dict[str, Any]:
    names = [f"{d.kind} of {d.ranks}<br>{bytes_text(d.bandwidth)}/s" for d in one.dimensions]
    return {
        "domain": domain,
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "range": [max(len(names), 1) - 0.5, -0.5],
        "showgrid": False,
        "title": {"text": "dimension"},
    }


def _used(one: Simulation, yaxis: str) -> go.Bar:
    """Share of each dimension's bandwidth, written on its bar."""
    table = one.by_dimension
    percent = 100 * table["utilisation"].to_numpy()
    return go.Bar(
        x=percent,
        y=table["dimension"],
        orientation="h",
        xaxis="x2",
        yaxis=yaxis,
        marker={"color": CATEGORIES[2]},
        text=[f"{share:.0f}%" for share in percent],
        textposition="auto",
        insidetextanchor="end",
        showlegend=False,
        hovertemplate="dimension %{y}: %{x:.1f}% of its bandwidth moves bytes<extra></extra>",
    )


def _caption(text: str, top: float) -> dict[str, Any]:
    return {
        "text": f"<b>{text}</b>", "x": 0, "y": top, "xref": "paper", "yref": "paper",
        "xanchor": "left", "yanchor": "bottom", "yshift": 4, "showarrow": False,
        "font": {"size": 13},
    }  # fmt: skip


def _title(simulations: Mapping[str, Simulation]) -> tuple[str, str]:
    (name, base), *others = simulations.items()
    kind = base.operation.replace("_", "-")
    said = f"{kind} of {bytes_text(base.size)}, {base.chunks} chunks, {_latency(base)}"
    if not others or not others[-1][1].time:
        return f"{name}: {seconds_text(base.time)} (modelled)", said
    other, one = others[-1]
    gain = base.time / one.time
    verdict = f"{gain:.2f} times as fast" if gain >= 1 else f"{1 / gain:.2f} times as slow"
    return f"{other}: {verdict} (modelled)", said


def _latency(one: Simulation) -> str:
    hops = sorted({d.latency for d in one.dimensions}) if one.latency else [0.0]
    if hops == [0.0]:
        return "no latency"
    said = " to ".join(seconds_text(hop) for hop in dict.fromkeys((hops[0], hops[-1])))
    return f"latency {said} a hop"
