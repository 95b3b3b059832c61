"""A run under faults as it happens: what each worker is, what struck it, and the loss below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, notice, plain, plural, title

if TYPE_CHECKING:
    import pandas as pd

    from dtoolkit.training.recovery import Recovery

__all__ = ["SYMBOLS", "fault_overview"]

_STATES = {
    "alive": CATEGORIES[2],
    "slow": CATEGORIES[1],
    "hung": CATEGORIES[5],
    "dead": CATEGORIES[3],
    "joining": CATEGORIES[4],
}
_DASHES = {"slow": "dash", "hung": "dot"}
_WIDTHS = {"alive": 5, "dead": 2}  # pixels; else 10
SYMBOLS = {"alive": "●", "slow": "◐", "hung": "❚❚", "dead": "✕", "joining": "○"}
"""What stands beside the word, so that nobody needs the colour."""

_MARKS = {
    "struck": ("x", CATEGORIES[3]),
    "noticed": ("triangle-down", CATEGORIES[0]),
    "went on": ("triangle-up", CATEGORIES[2]),
}
_MOST = 400  # points of the loss
_NEAR = 1.5  # seconds from a loss's being noticed to its being seen


def fault_overview(
    spans: Sequence[tuple[int, str, float, float]],
    recoveries: Sequence[Recovery],
    history: pd.DataFrame,
    *,
    strikes: Sequence[tuple[int, str, float]] = (),
    workers: int = 0,
    name: str = "",
    width: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw the workers of a run over time, faults, recoveries, and the loss.

    Parameters
    ----------
    spans : sequence of (int, str, float, float)
        Rank, state ("alive", "slow", "hung", "dead", "joining"), seconds from and to.
    recoveries : sequence of Recovery
        What went wrong and was got over, so far.
    history : DataFrame
        Of the run.
    strikes : sequence of (int, str, float)
        Rank, what was done to it by hand, and when.
    workers : int
        Ranks that are drawn, if nothing was seen of them.
    name : str
        For the second line of the title.
    width : int, optional
        In pixels.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        A lane a worker with its states, marks where it was struck, where that was noticed and where
        the run went on, and the training loss over the same seconds. All of it is measured.
    """
    ranks = max([workers, *(rank + 1 for rank, *_ in spans)], default=0)
    data = [_lane(state, [s for s in spans if s[1] == state]) for state in _STATES]
    data += _marks(recoveries, strikes, spans)
    data.append(_loss(history))
    got_over = sum(one.recovered is not None for one in recoveries)
    text = f"{plural(len(recoveries), 'fault')} seen, {got_over} got over (measured)"
    shared = base_layout(mode=mode)["xaxis"]
    height = 300 + 34 * max(ranks, 2)
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(text, name),
            xaxis={"rangemode": "tozero", "anchor": "y", "matches": "x2", "showticklabels": False},
            yaxis={
                "title": {"text": "worker"},
                "tickmode": "array",
                "tickvals": list(range(ranks)),
                "ticktext": [f"rank {rank}" for rank in range(ranks)],
                "range": [max(ranks, 1) - 0.4, -0.6],
                "showgrid": False,
                "domain": [0.42, 1],
            },
            xaxis2={
                **shared, "title": {"text": "time (s)", "standoff": 8}, "anchor": "y2",
                "rangemode": "tozero",
            },
            yaxis2={
                **shared, "title": {"text": "training loss", "standoff": 8}, "anchor": "x2",
                "rangemode": "tozero", "domain": [0, 0.34],
            },
            annotations=[] if spans else [notice("press Run, then strike a worker")],
            showlegend=True,
            hovermode="closest",
            width=width,
            height=height,
            margin={"l": 64, "r": 24, "t": 124, "b": 52},
        ),
    )  # fmt: skip


def _lane(state: str, spans: Sequence[tuple[int, str, float, float]]) -> go.Scatter:
    x, y = [], []
    for rank, _, start, end in spans:
        x += [start, max(end, start + 0.01), None]
        y += [rank, rank, None]
    return go.Scatter(
        x=x,
        y=y,
        name=f"{SYMBOLS[state]} {state}",
        mode="lines",
        line={"color": _STATES[state], "width": _WIDTHS.get(state, 10),
              "dash": _DASHES.get(state, "solid")},
        connectgaps=False,
        showlegend=bool(spans),
        hovertemplate=f"rank %{{y}}: {state}, %{{x:.2f}} s<extra></extra>",
    )  # fmt: skip


def _marks(
    recoveries: Sequence[Recovery],
    strikes: Sequence[tuple[int, str, float]],
    spans: Sequence[tuple[int, str, float, float]],
) -> list[go.Scatter]:
    found: dict[str, list[tuple[float, int, str]]] = {name: [] for name in _MARKS}
    found["struck"] += [(at, rank, f"{what}, by hand") for rank, what, at in strikes]
    for one in recoveries:
        for rank in _lanes(one, spans):
            times = {"struck": one.injected, "noticed": one.detected, "went on": one.recovered}
            for name, at in times.items():
                if at is not None:
                    found[name].append((at, rank, plain(str(one))))
    return [
        go.Scatter(
            x=[at for at, *_ in marks],
            y=[rank for _, rank, _ in marks],
            customdata=[text for *_, text in marks],
            name=name,
            mode="markers",
            marker={
                "symbol": _MARKS[name][0],
                "color": _MARKS[name][1],
                "size": 11,
                "line": {"width": 1, "color": "rgba(255,255,255,.8)"},
            },
            showlegend=bool(marks),
            hovertemplate=f"<b>{name}</b> at %{{x:.2f}} s<br>%{{customdata}}<extra></extra>",
        )
        for name, marks in found.items()
    ]


def _lanes(one: Recovery, spans: Sequence[tuple[int, str, float, float]]) -> tuple[int, ...]:
    """Workers that a recovery is about.

    After a loss the group is numbered anew, so that a rank of then need not be the worker of that
    number; who was lost is known by whose process was gone.
    """
    if one.kind in ("lost", "hung") and one.detected is not None and len(one.ranks) == 1:
        gone = [
            (abs(start - one.detected), rank) for rank, what, start, _ in spans if what == "dead"
        ]
        near = min(gone, default=(_NEAR, 0))
        if near[0] < _NEAR:
            return (near[1],)
    return one.ranks or (0,)


def _loss(history: pd.DataFrame) -> go.Scatter:
    x: Any = np.zeros(0)
    y: Any = np.zeros(0)
    ends = [name for name in history.columns if str(name).startswith("end_")]
    if len(history) and ends:
        x = history[ends].max(axis=1).to_numpy(float)
        y = history["loss"].to_numpy(float)
        kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST)).astype(int))
        x, y = x[kept], y[kept]
    return go.Scatter(
        x=x,
        y=y,
        name="loss",
        mode="lines",
        line={"color": CATEGORIES[0], "width": 2},
        xaxis="x2",
        yaxis="y2",
        showlegend=False,
        hovertemplate="%{x:.2f} s: loss %{y:.4g}<extra></extra>",
    )
