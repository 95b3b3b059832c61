"""A network drawn as a tree of its tiers, with the load of each link (modelled)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dtoolkit.comm.prediction import Prediction, predict
from dtoolkit.figures.theme import (
    CATEGORIES,
    CIVIDIS,
    Mode,
    base_layout,
    cividis,
    plain,
    plural,
    seconds_text,
    title,
)
from dtoolkit.figures.tiers import Tier, lay_out, sizes

if TYPE_CHECKING:
    from dtoolkit.comm.network import Network

__all__ = ["network"]

LEVELS = 8  # colours of lines


def network(
    network: Network, traffic: Any = None, *, busiest: float | None = None, mode: Mode = "auto"
) -> go.Figure:
    """Draw a network, and how long traffic keeps each of its links busy.

    Parameters
    ----------
    network : Network
    traffic : Traffic, Plan, Trace or Prediction, optional
        What loads the links; without, the network is drawn alone. A prediction must be one on this
        network.
    busiest : float, optional
        Seconds at the top of the scale, to draw several on the same one; by default those of the
        busiest link here.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Ranks at the bottom, and above them, tier by tier, what connects them: a line from each
        member of a tier to its node, ring, group or switch. Its colour is the modelled time that
        the busiest of its ways out and in are busy, all phases together; hover tells bytes. Above
        256 lines neighbours are drawn as one, in the colour of the busiest of them.

    Raises
    ------
    ValueError
        If the traffic is of another number of ranks, or the prediction of another network.
    """
    made = _prediction(network, traffic)
    tiers = lay_out(network, made)
    most = max([busiest or 0.0, *(float(t.busy.max(initial=0.0)) for t in tiers)])
    data: list[Any] = []
    for level, tier in enumerate(tiers):
        data += _lines(tier, level, most, loaded=made is not None)
    data += [_marks(tiers, most, loaded=made is not None), _members(network, tiers)]
    heading, subtitle = _heading(network, made)
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title=title(heading, subtitle),
            xaxis=_ranks_axis(network, tiers),
            yaxis={
                "title": {"text": "tier of the network"},
                "showgrid": False,
                "range": [-0.25, len(tiers) + 0.25],
                "tickvals": [0.0, *(level + 0.5 for level in range(len(tiers)))],
                "ticktext": ["ranks", *(tier.words for tier in tiers)],
                "ticks": "",
            },
            width=820,
            height=200 + 130 * len(tiers),
            showlegend=False,
        ),
    )


def _prediction(network: Network, traffic: Any) -> Prediction | None:
    """Predict, where that has not been done."""
    if traffic is None:
        return None
    if not isinstance(traffic, Prediction):
        return predict(traffic, network)
    if traffic.network != network:
        raise ValueError(
            f"the prediction is on {traffic.network.name}, not on {network.name}: predict again"
        )
    return traffic


def _ranks_axis(network: Network, tiers: list[Tier]) -> dict[str, Any]:
    """Return the axis of ranks, which stand by host where they were measured."""
    margin = 0.5 + 0.02 * network.ranks
    words = "rank (number)"
    lines, drawn = sum(sizes(network)), sum(len(tier.x) for tier in tiers)
    if drawn < lines:
        words += f"; {drawn} lines stand for {lines:,}, by the busiest"
    axis: dict[str, Any] = {
        "title": {"text": words},
        "showgrid": False,
        "range": [-margin, network.ranks - 1 + margin],
    }
    order = np.argsort(network.nodes, kind="stable")
    if network.ranks <= 16:
        return {**axis, "tickvals": list(range(network.ranks)), "ticktext": order.tolist()}
    if (np.diff(order) < 0).any():
        return {**axis, "showticklabels": False}
    return axis


def _lines(tier: Tier, level: int, most: float, *, loaded: bool) -> list[go.Scatter]:
    """Draw lines of one tier, those of like load in one trace."""
    share = tier.busy / most if most else np.zeros_like(tier.busy)
    step = np.minimum((share * LEVELS).astype(np.int64), LEVELS - 1)
    lines = []
    for value in np.unique(step):
        mine = np.flatnonzero(step == value)
        x = np.column_stack([tier.x[mine], tier.up[mine], np.full(len(mine), np.nan)]).ravel()
        y = np.tile([level + 0.06, level + 0.94, np.nan], len(mine))
        colour = cividis((value + 0.5) / LEVELS) if loaded else CATEGORIES[-1]
        lines.append(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                line={"color": colour, "width": 1.5 + 2.5 * float(value) / LEVELS},
                hoverinfo="skip",
            )
        )
    return lines


def _marks(tiers: list[Tier], most: float, *, loaded: bool) -> go.Scatter:
    """Put a mark on each line, which carries its colour and its words."""
    x = np.concatenate([(tier.x + tier.up) / 2 for tier in tiers])
    y = np.concatenate([np.full(len(tier.x), level + 0.5) for level, tier in enumerate(tiers)])
    busy = np.concatenate([tier.busy for tier in tiers])
    marker: dict[str, Any] = {"size": 9, "color": CATEGORIES[-1]}
    if loaded:
        marker = {
            "size": 9,
            "color": busy,
            "cmin": 0,
            "cmax": most or 1.0,
            "colorscale": [[i / (len(CIVIDIS) - 1), c] for i, c in enumerate(CIVIDIS)],
            "line": {"width": 1, "color": CATEGORIES[-1]},
            "colorbar": {
                "title": {"text": "busy (s)", "side": "right"},
                "tickformat": "~s",
                "ticksuffix": "s",
                "thickness": 14,
                "outlinewidth": 0,
            },
        }
    return go.Scatter(
        x=x,
        y=y,
        mode="markers",
        marker=marker,
        customdata=[words for tier in tiers for words in tier.hover],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _members(network: Network, tiers: list[Tier]) -> go.Scatter:
    """Mark ranks and what connects them."""
    x = [tiers[0].x, *(np.unique(tier.up) for tier in tiers)]
    y = [np.full(len(points), float(level)) for level, points in enumerate(x)]
    words = ["ranks", *(f"what connects {tier.member}s" for tier in tiers)]
    symbols = ["circle", *(_symbol(network, level) for level in range(len(tiers)))]
    return go.Scatter(
        x=np.concatenate(x),
        y=np.concatenate(y),
        mode="markers",
        marker={
            "size": 8,
            "color": CATEGORIES[0],
            "symbol": [s for s, points in zip(symbols, x, strict=True) for _ in points],
        },
        text=[w for w, points in zip(words, x, strict=True) for _ in points],
        hovertemplate="%{text}<extra></extra>",
    )


def _symbol(network: Network, level: int) -> str:
    kind = network.dimensions[level].kind if level < len(network.dimensions) else "switch"
    return {"ring": "circle-open", "fc": "diamond", "switch": "square"}[kind]


def _heading(network: Network, made: Prediction | None) -> tuple[str, str]:
    """Say what is drawn."""
    if made is None:
        word = "Measured" if network.table is not None else "Modelled"
        return f"{word} network of {plural(network.ranks, 'rank')}", plain(network.name)
    of = f" of {made.label}" if made.label else ""
    return (
        plain(f"Modelled load by link{of}: {seconds_text(made.seconds)}"),
        plain(f"{network.name}<br>bottleneck: {made.bottleneck}").replace("&lt;br&gt;", "<br>"),
    )
