"""Volume, and modelled time, against the number of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.figures.theme import (
    CATEGORIES,
    Mode,
    base_layout,
    count_text,
    plural,
    seconds_text,
    title,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["scaling"]

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
USUAL = ("oblivious", "column", "row", "joint", "hier-joint", "node-pair")  # each its own style

# Column of the table, title of the axis, and how its numbers are written.
_QUANTITIES: dict[str, tuple[str, Any]] = {
    "volume": ("rows sent in all", lambda value: count_text(value, "rows")),
    "between_nodes": ("rows between nodes", lambda value: count_text(value, "rows")),
    "seconds": ("modelled time (s)", seconds_text),
}


def scaling(
    table: pd.DataFrame, *, quantities: tuple[str, ...] | None = None, mode: Mode = "auto"
) -> go.Figure:
    """Draw how volume and time grow with the number of ranks, a line a strategy.

    Parameters
    ----------
    table : DataFrame
        As :func:`dtoolkit.spmm.scaling` makes it: columns ``parts``, ``strategy``, ``volume``
        (rows, planned), and, where they are known, ``between_nodes`` (rows, planned) and
        ``seconds`` (modelled).
    quantities : tuple of str, optional
        Columns to draw, one panel each; by default ``volume`` and, if it is there, ``seconds``.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Ranks on x and the quantity on y, both logarithmic. Strategies differ by colour, symbol and
        dash. Nothing that is zero can be drawn on such an axis; it is left out.

    Raises
    ------
    ValueError
        If the table is empty, lacks a column, or a quantity is not one of the three.
    """
    if quantities is None:
        quantities = ("volume", *(q for q in ("seconds",) if q in table.columns))
    _check(table, quantities)
    names = [str(name) for name in dict.fromkeys(table["strategy"])]
    own = [name for name in names if name not in USUAL]
    counts = sorted({int(count) for count in table["parts"]})
    lines = [
        _line(table, name, [*USUAL, *own].index(name), quantity, panel)
        for panel, quantity in enumerate(quantities)
        for name in names
    ]
    return go.Figure(data=lines, layout=_layout(table, quantities, counts, mode))


def _check(table: pd.DataFrame, quantities: tuple[str, ...]) -> None:
    unknown = [quantity for quantity in quantities if quantity not in _QUANTITIES]
    if unknown or not quantities:
        raise ValueError(
            f"quantities={quantities!r}: wanted one or more of {', '.join(_QUANTITIES)}"
        )
    lacking = [c for c in ("parts", "strategy", *quantities) if c not in table.columns]
    if lacking:
        raise ValueError(
            f"the table lacks {', '.join(lacking)}: wanted what dtoolkit.spmm.scaling returns"
        )
    if not len(table):
        raise ValueError("the table is empty: wanted at least one number of ranks")


def _line(table: pd.DataFrame, name: str, style: int, quantity: str, panel: int) -> go.Scatter:
    own = table[table["strategy"].astype(str) == name].sort_values("parts", kind="stable")
    drawn = own[own[quantity] > 0]
    axis = "" if panel == 0 else str(panel + 1)
    words = _QUANTITIES[quantity][1]
    return go.Scatter(
        x=drawn["parts"].tolist(),
        y=drawn[quantity].tolist(),
        name=name,
        legendgroup=name,
        showlegend=panel == 0,
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
        mode="lines+markers",
        line={"color": CATEGORIES[style % len(CATEGORIES)], "dash": DASHES[style % len(DASHES)]},
        marker={"symbol": SYMBOLS[style % len(SYMBOLS)], "size": 8},
        customdata=[words(value) for value in drawn[quantity]],
        hovertemplate=f"{name}, %{{x}} ranks: %{{customdata}}<extra></extra>",
    )


def _layout(
    table: pd.DataFrame, quantities: tuple[str, ...], counts: list[int], mode: Mode
) -> dict[str, Any]:
    panels, gap = len(quantities), 0.1
    wide = (1 - gap * (panels - 1)) / panels
    base = base_layout(mode=mode)
    axes: dict[str, Any] = {}
    for panel, quantity in enumerate(quantities):
        number = "" if panel == 0 else str(panel + 1)
        start = panel * (wide + gap)
        axes[f"xaxis{number}"] = {
            **base["xaxis"],
            "title": {"text": "ranks", "standoff": 8},
            "type": "log",
            "tickvals": counts,
            "ticktext": [f"{count:,}" for count in counts],
            "domain": [start, start + wide],
            "anchor": f"y{number}",
        }
        axes[f"yaxis{number}"] = {
            **base["yaxis"],
            "title": {"text": _QUANTITIES[quantity][0], "standoff": 8},
            "type": "log",
            "exponentformat": "SI",
            "dtick": 1,
            "anchor": f"x{number}",
        }
    last = table[table["parts"] == counts[-1]]
    least = last.loc[last[quantities[-1]].idxmin()]
    words = _QUANTITIES[quantities[-1]][1](least[quantities[-1]])
    what = "Planned volume" + (" and modelled time" if "seconds" in quantities else "")
    return base_layout(
        mode=mode,
        title=title(
            f"{what} from {counts[0]:,} to {plural(counts[-1], 'rank')}",
            f"least at {counts[-1]:,} ranks: {least['strategy']}, {words}",
        ),
        **axes,
        width=480 + 420 * (panels - 1),
        height=460,
    )
