"""A plan at a glance: where its nonzeros are and what happens to them, beside who sends to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from dtoolkit.figures.pattern import pattern
from dtoolkit.figures.theme import Mode, base_layout, bytes_text, count_text, plural, title
from dtoolkit.figures.traffic import traffic

if TYPE_CHECKING:
    from dtoolkit.spmm.plan import Plan

__all__ = ["overview"]

_MARGIN = {"l": 62, "r": 74, "t": 132, "b": 52}
_GAP = 118  # pixels between the pictures: names of ranks and an axis stand there
_BETWEEN = 104  # pixels between pictures below each other: an axis and a caption
_SCALE = {
    "xanchor": "left", "xpad": 10, "yanchor": "top", "lenmode": "fraction", "ypad": 0,
    "thickness": 10, "outlinewidth": 0, "tickformat": "~s", "nticks": 5, "title": None,
}  # fmt: skip
_USUAL = {True: 820, False: 540}
_MOST_CELLS = 128  # of the traffic in each direction: a half has two pixels for each, or three
_MOST_NUMBERS = 12  # ranks up to which numbers in the cells of a half can be read
_NARROW = 620  # pixels of width below which the title says less
_LETTER = 6.6  # pixels of a letter of the subtitle, generously


def overview(
    A: Any,
    plan: Plan | None,
    *,
    k: int | None = None,
    dtype: Any = None,
    beside: bool = True,
    width: int | None = None,
    max_size: int = 128,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw the pattern of a planned matrix and the plan's traffic in one figure.

    The same traces come in the same order whatever is shown, so that a figure on a page can be
    brought up to date in place.

    Parameters
    ----------
    A : matrix or None
        What was planned; None (with no plan) leaves both pictures empty.
    plan : Plan or None
    k : int, optional
        Dense columns, to show the traffic in bytes; in rows without.
    dtype : dtype, optional
        Of the dense matrices; float32 where only ``k`` is given.
    beside : bool
        Pictures beside each other, or the traffic below the pattern.
    width : int, optional
        In pixels; by default the figure fills what it is put into, and its height suits 820 pixels
        of width, or 540 where the pictures are below each other.
    max_size : int
        Cells of the pattern in each direction, at most.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    PlanError
        If the plan was made for another matrix.
    """
    places = _places(beside, width or _USUAL[beside])
    unit = "bytes" if k is not None else "rows"
    if plan is None:
        data, left, right, names = _nothing(), {}, {}, []
        head = title("Nothing is planned yet", "choose a matrix")
    else:
        of_nonzeros = pattern(A, plan, max_size=max_size, mode=mode)
        of_ranks = traffic(plan, k=k, dtype=dtype, max_ranks=_MOST_CELLS, mode=mode)
        if plan.parts > _MOST_NUMBERS:
            of_ranks.data[0].update(text=None, texttemplate=None)
        data = [*_padded(of_nonzeros.data), of_ranks.data[0]]
        left, right = of_nonzeros.layout, of_ranks.layout
        names = [note.to_plotly_json() for note in left.annotations]
        head = title(*_heading(plan, k, dtype, of_nonzeros, width or _USUAL[beside]))
    head["font"] = {"size": 15}
    data[-1].update(
        xaxis="x2",
        yaxis="y2",
        colorbar={
            **_SCALE,
            "x": places["x2"][1],
            "y": places["y2"][1],
            "len": places["side"],
        },
    )
    stand = {"constraintoward": "top"}
    return go.Figure(
        data=data,
        layout=base_layout(
            mode=mode,
            title={**head, "y": 1 - 14 / places["height"], "yref": "container"},
            xaxis=_axis(left, "xaxis", domain=places["x"], constraintoward="left"),
            yaxis=_axis(left, "yaxis", domain=places["y"], **stand),
            xaxis2=_axis(
                right, "xaxis", domain=places["x2"], anchor="y2", constraintoward="right"
            ),
            yaxis2=_axis(
                right, "yaxis", domain=places["y2"], anchor="x2", scaleanchor="x2", **stand
            ),
            annotations=[*names, *_captions(places, unit, 0 if plan is None else plan.parts)],
            legend={
                "orientation": "h", "x": 0, "xanchor": "left", "y": places["y"][1],
                "yanchor": "bottom", "itemsizing": "constant", "font": {"size": 11.5},
                "bgcolor": "rgba(0,0,0,0)",
            },
            margin=_MARGIN,
            width=width,
            height=places["height"],
            autosize=width is None,
        ),
    )  # fmt: skip


def _heading(
    plan: Plan, k: int | None, dtype: Any, drawn: go.Figure, width: int
) -> tuple[str, str]:
    """Title and subtitle, with as many of the pattern's notes as there is room for."""
    head = f"Planned: {plan.strategy} over {plural(plan.parts, 'part')}"
    moved = [count_text(plan.volume, "rows sent")]
    if k is not None:
        size = bytes_text(plan.bytes(k, "float32" if dtype is None else dtype))
        moved.append(f"{size} a product")
    shape = f"{plan.shape[0]:,} × {plan.shape[1]:,}, {plural(plan.nnz, 'nonzero')}"
    narrow = width < _NARROW
    parts = [*moved[1:], shape] if narrow else [shape]
    letters = (width - _MARGIN["l"]) / _LETTER
    for note in _subtitle(drawn).split("; "):
        short = note.partition(",")[0].replace(" so that parts are contiguous", " by part")
        if short and "by column" not in short and len("; ".join([*parts, short])) <= letters:
            parts.append(short)
    return f"{head}: {moved[0] if narrow else ', '.join(moved)}", "; ".join(parts)


def _subtitle(figure: go.Figure) -> str:
    """What the pattern says of itself beside the number of parts, which the title has."""
    notes = str(figure.layout.title.subtitle.text or "").split("; ")
    return "; ".join(note for note in notes if " layout" not in note)


def _places(beside: bool, width: int) -> dict[str, Any]:
    """Where the pictures are, in shares of the figure, and how high it is in pixels."""
    inside = max(width - _MARGIN["l"] - _MARGIN["r"], 200)
    if beside:
        side = max((inside - _GAP) / 2, 120)
        share = side / inside
        areas = {"x": [0, share], "y": [0, 1], "x2": [1 - share, 1], "y2": [0, 1]}
        high = side
    else:
        side = min(inside - _GAP / 2, 460)
        high = 2 * side + _BETWEEN
        across, share = side / inside, side / high
        areas = {"x": [0, across], "y": [1 - share, 1], "x2": [0, across], "y2": [0, share]}
    total = round(high + _MARGIN["t"] + _MARGIN["b"])
    narrow = width < _NARROW
    return {**areas, "height": total, "side": side / high, "beside": beside, "narrow": narrow}


def _captions(places: dict[str, Any], unit: str, ranks: int) -> list[dict[str, Any]]:
    """Say above each picture what it is."""
    step = f"{ranks / _MOST_CELLS:.3g}"
    summed = f" ({step} × {step} ranks a cell)" if ranks > _MOST_CELLS else ""
    texts = (
        (
            "What happens to each nonzero",
            places["x"][0],
            places["y"][1],
            42 if places["narrow"] else 24,
        ),
        (
            f"Who sends to whom, in {unit}{summed}",
            places["x2"][0],
            places["y2"][1],
            24 if places["beside"] else 6,
        ),
    )
    return [
        {
            "text": f"<b>{text}</b>", "x": x, "y": y, "xref": "paper", "yref": "paper",
            "xanchor": "left", "yanchor": "bottom", "yshift": shift, "showarrow": False,
            "font": {"size": 12.5},
        }
        for text, x, y, shift in texts
    ]  # fmt: skip


def _padded(traces: tuple[Any, ...]) -> list[Any]:
    """The three heatmaps of a pattern, and its boundaries, which may be none."""
    return [*traces, *_lines()] if len(traces) < 4 else list(traces)


def _lines() -> list[go.Scatter]:
    return [
        go.Scatter(
            x=[], y=[], mode="lines", name="part boundaries", hoverinfo="skip", showlegend=False
        )
    ]


def _nothing() -> list[Any]:
    empty = [go.Heatmap(z=[[None]], showscale=False, hoverinfo="skip") for _ in range(4)]
    return [*empty[:3], *_lines(), empty[3]]


def _axis(layout: Any, name: str, **more: Any) -> dict[str, Any]:
    """Copy an axis, and say where it is to stand."""
    axis = layout[name].to_plotly_json() if layout else {"visible": False}
    axis.setdefault("visible", True)
    return {**axis, **more}
