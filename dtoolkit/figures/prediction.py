"""How long strategies take on a network, phase by phase (modelled)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.figures.theme import CATEGORIES, Mode, base_layout, plain, plural, seconds_text, title

if TYPE_CHECKING:
    from dtoolkit.comm.prediction import Prediction

__all__ = ["prediction"]

MAX_BARS = 32
REST = "other phases"
_UNITS = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))


def prediction(
    predictions: Prediction | Sequence[Prediction] | Mapping[str, Prediction],
    *,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw modelled seconds as bars, one a strategy, with phases stacked.

    Parameters
    ----------
    predictions : Prediction, sequence of Prediction, or mapping of str to Prediction
        Bars carry the keys of a mapping, and else the labels of the predictions. The fastest 32 are
        drawn where there are more.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Strategies on x, time on y in the unit that suits; the time of all phases above each bar.
        Above seven names of phases the shortest are one piece. Hover tells what a phase waits for.

    Raises
    ------
    ValueError
        If there is no prediction, or for an unknown mode.
    """
    named = _named(predictions)
    shown = _fastest(named)
    tables = {name: p.by_phase() for name, p in shown.items()}
    phases = _main_phases(tables)
    longest = max(p.seconds for p in shown.values())
    scale, unit = _unit(longest)
    bars = [
        _bar(phase, colour, tables, phases, scale)
        for phase, colour in zip(phases, CATEGORIES, strict=False)
    ]
    best = min(named, key=lambda name: named[name].seconds)
    return go.Figure(
        data=[*bars, _totals(shown, scale)],
        layout=base_layout(
            mode=mode,
            title=title("Modelled time by strategy", _subtitle(named, shown, best)),
            xaxis={"title": {"text": "strategy"}, "type": "category", "showgrid": False},
            yaxis={"title": {"text": f"time ({unit})"}, "rangemode": "tozero"},
            barmode="stack",
            legend={**base_layout()["legend"], "traceorder": "normal"},
            bargap=0.4,
            width=680,
            height=460,
        ),
    )


def _named(
    predictions: Prediction | Sequence[Prediction] | Mapping[str, Prediction],
) -> dict[str, Prediction]:
    """Give each prediction a name of its own."""
    if isinstance(predictions, Mapping):
        named = {str(name): p for name, p in predictions.items()}
    else:
        several = predictions if isinstance(predictions, Sequence) else [predictions]
        named = {}
        for number, p in enumerate(several, start=1):
            name = p.label or f"prediction {number}"
            named[name if name not in named else f"{name} ({number})"] = p
    if not named:
        raise ValueError("predictions is empty: wanted at least one Prediction")
    return {plain(name): p for name, p in named.items()}


def _fastest(named: dict[str, Prediction]) -> dict[str, Prediction]:
    """Keep the fastest, in the order in which they came."""
    kept = sorted(named, key=lambda name: named[name].seconds)[:MAX_BARS]
    return {name: p for name, p in named.items() if name in kept}


def _main_phases(tables: dict[str, Any]) -> list[str]:
    """Name phases in order of appearance; where there are too many, the shortest are left out."""
    time: dict[str, float] = {}
    for table in tables.values():
        for phase, seconds in table["seconds"].items():
            time[str(phase)] = time.get(str(phase), 0.0) + seconds
    if len(time) <= len(CATEGORIES):
        return list(time)
    main = sorted(time, key=lambda phase: -time[phase])[: len(CATEGORIES) - 1]
    return [phase for phase in time if phase in main] + [REST]


def _bar(
    phase: str, colour: str, tables: dict[str, Any], phases: list[str], scale: float
) -> go.Bar:
    heights, hovers = [], []
    for table in tables.values():
        rows = (
            table.loc[~table.index.isin(phases)]
            if phase == REST
            else table.loc[table.index == phase]
        )
        seconds = float(rows["seconds"].sum())
        heights.append(seconds * scale)
        parts = ", ".join(
            f"{word} {seconds_text(float(rows[column].sum()))}"
            for column, word in (
                ("exchange", "exchange"),
                ("compute", "computing beside it"),
                ("after", "computing after it"),
            )
        )
        waits = plain(str(rows["bottleneck"].iloc[0])) if len(rows) == 1 else "several"
        hovers.append(f"{seconds_text(seconds)}: {parts}<br>waits for {waits}")
    return go.Bar(
        name=plain(phase),
        x=list(tables),
        y=heights,
        customdata=hovers,
        marker={"color": colour},
        hovertemplate=f"%{{x}}, {plain(phase)}<br>%{{customdata}}<extra></extra>",
    )


def _totals(shown: dict[str, Prediction], scale: float) -> go.Scatter:
    """Write the time of all phases above each bar."""
    return go.Scatter(
        x=list(shown),
        y=[p.seconds * scale for p in shown.values()],
        text=[seconds_text(p.seconds) for p in shown.values()],
        mode="text",
        textposition="top center",
        cliponaxis=False,
        showlegend=False,
        hoverinfo="skip",
    )


def _subtitle(named: dict[str, Prediction], shown: dict[str, Prediction], best: str) -> str:
    networks = {p.network.name for p in named.values()}
    where = networks.pop() if len(networks) == 1 else f"{plural(len(networks), 'network')}"
    parts = [f"on {where}"]
    if len(named) > 1:
        parts.insert(0, f"fastest: {best}, {seconds_text(named[best].seconds)}")
    if len(shown) < len(named):
        parts.append(f"the fastest {len(shown)} of {len(named)}")
    if any(p.exchange_only for p in named.values()):
        parts.append("without time to compute, where the network has no rate")
    return "; ".join(parts)


def _unit(longest: float) -> tuple[float, str]:
    """Choose the unit in which the longest time is at least 1."""
    return next(((scale, unit) for limit, scale, unit in _UNITS if longest < limit), (1.0, "s"))
