"""What failures cost: when faults struck and were got over, and what policies make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.figures.curves import curve, curve_figure
from dtoolkit.figures.theme import (
    CATEGORIES,
    Mode,
    base_layout,
    bytes_text,
    notice,
    plain,
    plural,
    seconds_text,
    title,
)

if TYPE_CHECKING:
    from dtoolkit.training import RecoveryPlan, Run
    from dtoolkit.training.recovery import Recovery, RecoveryReport
    from dtoolkit.training.stacked import Simulation

__all__ = ["SPANS", "recovery_policies", "recovery_timeline", "redundancy"]

SPANS = {"not noticed yet": CATEGORIES[1], "noticed, not running yet": CATEGORIES[0]}
STRUCK = CATEGORIES[3]
MAX_TEXT = 34  # characters of a fault beside its lane
GIVEN_UP = 200.0  # times the ideal, which a simulation follows a run for


def recovery_timeline(report: RecoveryReport | Run, *, mode: Mode = "auto") -> go.Figure:
    """Draw when each fault of a run struck, was noticed and was got over.

    Parameters
    ----------
    report : RecoveryReport or Run
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Seconds from the beginning of the run on x, a lane a fault, downwards (measured). A cross
        is where it struck, if that is known; orange is the time until it was noticed, blue that
        until the run went on.
    """
    entries = list(report.recoveries if hasattr(report, "recoveries") else report)
    spans = [
        _spans(name, colour, [(row, *_span(entry, name)) for row, entry in enumerate(entries)])
        for name, colour in SPANS.items()
    ]
    known = [entry.recovery for entry in entries if entry.recovery is not None]
    below = f"{plural(sum(e.steps_lost for e in entries), 'step')} lost, "
    below += f"{bytes_text(sum(e.bytes_moved for e in entries))} moved to recover"
    if known:
        below += f", {seconds_text(max(known))} at most from noticing to going on"
    return go.Figure(
        data=[*spans, _struck(entries)],
        layout=base_layout(
            mode=mode,
            title=title(
                f"Faults and recoveries (measured): {plural(len(entries), 'fault')}", below
            ),
            xaxis={"title": {"text": "time from the run's beginning (s)"}, "rangemode": "tozero"},
            yaxis={
                "title": {"text": "fault (in the order noticed)"},
                "range": [max(len(entries), 1) - 0.5, -0.5],
                "showgrid": False,
                "tickvals": list(range(len(entries))),
                "ticktext": [plain(_short(entry.fault)) for entry in entries],
            },
            annotations=[] if entries else [notice("no faults: nothing went wrong")],
            hovermode="closest",
            showlegend=True,
            legend={"x": 1.01, "y": 1, "xanchor": "left", "yanchor": "top", "orientation": "v"},
            width=1000,
            height=180 + 34 * min(max(len(entries), 2), 20),
            margin={"l": 250, "r": 24, "t": 88, "b": 56},
        ),
    )


def recovery_policies(plan: RecoveryPlan | Simulation, *, mode: Mode = "auto") -> go.Figure:
    """Draw the time to train by policy, over that without failures.

    Parameters
    ----------
    plan : RecoveryPlan or Simulation
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        Policies on x, time over the ideal on y, logarithmic (modelled): bars for the closed forms,
        where there are any, and for the simulation. A simulated run that was given up is drawn at
        200 times the ideal and says so.
    """
    series: dict[str, list[tuple[str, float]]] = {}
    if hasattr(plan, "outcomes"):
        series["simulated"] = [(one.policy, one.ratio) for one in plan.outcomes]
    else:
        series["closed form"] = [(one.name, one.expected) for one in plan.policies]
        simulated = [(one.name, one.simulated) for one in plan.policies]
        known = [(name, ratio) for name, ratio in simulated if ratio is not None]
        series |= {"simulated": known} if known else {}
    bars = [_bars(name, rows, number) for number, (name, rows) in enumerate(series.items())]
    best, least = min(list(series.values())[-1], key=lambda row: row[1])
    return go.Figure(
        data=bars,
        layout=base_layout(
            mode=mode,
            title=title(
                f"Time to train under failures, {plural(plan.groups, 'group')} (modelled)",
                f"least: {best}, {_times(least)} that without failures",
            ),
            barmode="group",
            xaxis={"title": {"text": "policy"}},
            yaxis={"title": {"text": "time over that without failures (times)"}, "type": "log"},
            showlegend=len(series) > 1,
            legend={"x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top"},
            width=760,
            height=420,
        ),
    )


def redundancy(
    groups: int | Sequence[int],
    *,
    mtbf: float = 300.0,
    save: float = 60.0,
    restart: float = 3600.0,
    most: int | None = None,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw what stacked parallelism costs by redundancy, with the best marked.

    Parameters
    ----------
    groups : int or sequence of int
        Numbers of groups, a line each.
    mtbf, save, restart : float
        Seconds, as of :func:`dtoolkit.training.stacked.cost`.
    most : int, optional
        Largest redundancy drawn; by default as far as there are rulers, and at most twice the best.
    mode : {"auto", "light", "dark"}

    Returns
    -------
    plotly.graph_objects.Figure
        Redundancy on x, J on y: time over that without failures, by the closed forms (modelled).

    Raises
    ------
    ValueError
        There is no number of groups, or one is below 1.
    """
    from dtoolkit.training import stacked

    counts = [groups] if isinstance(groups, int) else list(groups)
    if not counts:
        raise ValueError("groups is empty: wanted at least one number of groups")
    lines, marks, words = [], [], []
    for number, n in enumerate(counts):
        best = stacked.best_redundancy(n, mtbf=mtbf, save=save, restart=restart)
        last = min(stacked.largest_redundancy(n), most or max(2 * best, 4))
        x = list(range(1, last + 1))
        y = [stacked.cost(n, r, mtbf=mtbf, save=save, restart=restart) for r in x]
        endured = [f"{stacked.endurable(n, r):.0f} losses endured" for r in x]
        name = plural(n, "group")
        hover = "redundancy %{x}: %{y:.3f} times<br>%{customdata}"
        lines.append(curve(number, name, x, y, hover=hover, customdata=endured))
        if best <= last:
            marks.append((number, best, y[best - 1]))
        words.append(f"{best} for {name}")
    best_of = go.Scatter(
        x=[mark[1] for mark in marks],
        y=[mark[2] for mark in marks],
        mode="markers",
        name="best",
        marker={
            "size": 12,
            "symbol": "circle-open",
            "color": [CATEGORIES[mark[0] % len(CATEGORIES)] for mark in marks],
            "line": {"width": 2},
        },
        hovertemplate="best: redundancy %{x}, %{y:.3f} times<extra></extra>",
    )
    return curve_figure(
        [*lines, best_of],
        heading="What stacks cost by redundancy (modelled)",
        below=f"best: {', '.join(words)}; a failure every {seconds_text(mtbf)}",
        x="redundancy r (shards of a stack)",
        y="time over that without failures (times)",
        mode=mode,
        yaxis={"type": "log", "dtick": "D1"},
    )


def _span(entry: Recovery, name: str) -> tuple[float | None, float | None, str]:
    """Start, end and words of a part of a recovery."""
    first = name == next(iter(SPANS))
    start, end = (entry.injected, entry.detected) if first else (entry.detected, entry.recovered)
    seconds = entry.detection if first else entry.recovery
    took = "" if seconds is None else f"{name}: {seconds_text(seconds)}<br>"
    return start, end, took + _words(entry)


def _spans(
    name: str, colour: str, rows: list[tuple[int, float | None, float | None, str]]
) -> go.Scatter:
    x: list[float | None] = []
    y: list[int | None] = []
    words: list[str] = []
    for row, start, end, text in rows:
        if start is not None and end is not None:
            x += [start, end, None]
            y += [row, row, None]
            words += [text, text, ""]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines+markers",
        connectgaps=False,
        name=name,
        line={"color": colour, "width": 14},
        marker={"color": colour, "size": 6, "symbol": "line-ns-open", "line": {"width": 1.5}},
        text=words,
        hovertemplate="%{text}<br>at %{x:.3f} s<extra></extra>",
    )


def _struck(entries: list[Recovery]) -> go.Scatter:
    known = [(row, e, e.injected) for row, e in enumerate(entries) if e.injected is not None]
    return go.Scatter(
        x=[at for _, _, at in known],
        y=[row for row, _, _ in known],
        mode="markers",
        name="struck",
        marker={"color": STRUCK, "symbol": "x", "size": 10},
        text=[_words(entry) for _, entry, _ in known],
        hovertemplate="%{text}<br>struck at %{x:.3f} s<extra></extra>",
    )


def _words(entry: Recovery) -> str:
    """What hovers over an entry."""
    where = "" if entry.step is None else f", step {entry.step}"
    lines = [f"<b>{plain(entry.fault)}</b>{where}", plain(entry.how or entry.kind)]
    lines.append(
        f"{plural(entry.steps_lost, 'step')} lost, {entry.steps_repeated:,} repeated, "
        f"{bytes_text(entry.bytes_moved)} moved"
    )
    return "<br>".join(lines)


def _bars(name: str, rows: list[tuple[str, float]], number: int) -> go.Bar:
    drawn: list[Any] = [min(ratio, GIVEN_UP) for _, ratio in rows]
    return go.Bar(
        x=[policy for policy, _ in rows],
        y=drawn,
        name=name,
        marker={"color": CATEGORIES[4 * number % len(CATEGORIES)]},
        text=[_times(ratio) for _, ratio in rows],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"%{{x}}, {name}: %{{text}} the time without failures<extra></extra>",
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio < GIVEN_UP else f"over {GIVEN_UP:.0f} × (given up)"


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
