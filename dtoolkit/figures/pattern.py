"""The sparsity pattern of a matrix, with the parts that a layout or a plan cuts it into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from dtoolkit.data.convert import as_csr
from dtoolkit.figures.placement import Side, count_cells, grid, originals, sides
from dtoolkit.figures.theme import (
    CATEGORIES,
    CIVIDIS,
    FATE_COLOURS,
    Mode,
    base_layout,
    count_text,
    plural,
    ticks,
    title,
)

if TYPE_CHECKING:
    from dtoolkit.arrays.layout import Layout
    from dtoolkit.spmm.plan import Plan

__all__ = ["pattern"]

MAX_BOUNDARIES = 128  # lines a direction; more would cover what they divide
MAX_PART_NAMES = 16

FATES = {
    "local": "local: nothing moves",
    "by column": "by column: a row of B is sent",
    "by row": "by row: a partial row of C is sent",
}


def pattern(
    A: Any,
    plan_or_layout: Plan | Layout | None = None,
    *,
    max_size: int = 256,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw where the nonzeros of a matrix are.

    Parameters
    ----------
    A : matrix
        Any object that :func:`dtoolkit.data.as_csr` takes, of shape (m, n).
    plan_or_layout : Plan or Layout, optional
        Draws the boundaries of the parts. Where a part's rows are not neighbours, rows (and
        columns) are reordered so that they are, and the subtitle says so. With a plan, nonzeros are
        coloured by what happens to them: they are multiplied where they are (local), a row of B is
        sent for them (by column), or a partial row of C is (by row).
    max_size : int
        Cells in each direction, at most; larger matrices are binned, and colour says how many
        nonzeros a bin holds.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Rows on y, downwards; columns on x. One heatmap, or one for each of the three fates.

    Raises
    ------
    TypeError, MatrixFormatError
        If ``A`` is not a matrix.
    PlanError
        If the plan was made for another matrix.
    LayoutError
        If the layout is for another number of rows.
    """
    if max_size < 1:
        raise ValueError(f"max_size must be 1 or more, got {max_size}")
    matrix = as_csr(A)
    plan: Any = plan_or_layout if hasattr(plan_or_layout, "by_row") else None
    if plan is not None:
        plan.require(matrix)
    rows, columns = sides(matrix.shape, plan_or_layout, max_size)
    i = np.repeat(np.arange(rows.n, dtype=np.int64), np.diff(matrix.indptr))
    j = matrix.indices.astype(np.int64)
    fate = _fates(plan, i, j) if plan is not None else None
    binned = rows.bins < rows.n or columns.bins < columns.n
    cells = (
        [_plain_trace(rows, columns, i, j, binned)]
        if fate is None
        else _fate_traces(rows, columns, i, j, fate, binned)
    )
    return go.Figure(
        data=[*cells, *_boundaries(rows, columns)],
        layout=_layout(rows, columns, len(i), plan, binned, mode),
    )


def _fates(plan: Plan, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return what happens to each nonzero, as a number in the order of ``FATES``."""
    away = plan.rows.owner(i) != plan.columns.owner(j)
    return np.where(away, np.where(plan.by_row, 2, 1), 0).astype(np.int8)


def _plain_trace(
    rows: Side, columns: Side, i: NDArray[np.int64], j: NDArray[np.int64], binned: bool
) -> go.Heatmap:
    counts = count_cells(rows, columns, i, j)
    most = int(counts.max(initial=1))
    if not binned or most == 1:
        colours: dict[str, Any] = {
            "colorscale": [[0, CATEGORIES[0]], [1, CATEGORIES[0]]],
            "showscale": False,
        }
    else:
        colours = {
            "colorscale": _by_magnitude(most, CIVIDIS[2:9]),  # the ends vanish on black, or white
            "colorbar": {
                "title": {"text": "nonzeros a cell", "side": "right"},
                "tickformat": "~s",
                **ticks(most <= 8),
                "x": 1.1,
                "thickness": 14,
                "outlinewidth": 0,
            },
        }
    return go.Heatmap(
        z=_gaps(counts),
        zmin=1,
        zmax=max(most, 2),
        name="nonzeros",
        customdata=originals(rows, columns, i, j) if not binned else None,
        hovertemplate=_hover(rows, columns, binned, "nonzeros: %{z:,}"),
        **grid(rows, columns),
        **colours,
    )


def _fate_traces(
    rows: Side,
    columns: Side,
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    fate: NDArray[np.int8],
    binned: bool,
) -> Iterator[go.Heatmap]:
    """Yield a heatmap for each fate, over the cells in which it is the most frequent one."""
    by_fate = np.stack([count_cells(rows, columns, i[fate == f], j[fate == f]) for f in range(3)])
    together, winner = by_fate.sum(axis=0), by_fate.argmax(axis=0)
    for f, (name, words) in enumerate(FATES.items()):
        shown = np.where(winner == f, by_fate[f], 0)
        own = fate == f
        most = int(shown.max(initial=1))
        extra = together if binned else originals(rows, columns, i[own], j[own])
        text = "%{z:,} of %{customdata:,} nonzeros of the cell" if binned else ""
        yield go.Heatmap(
            z=_gaps(shown),
            zmin=1,
            zmax=max(most, 2),
            name=f"{name} ({count_text(int(own.sum()))})",
            showlegend=True,
            showscale=False,
            colorscale=_tints(FATE_COLOURS[name], most),
            customdata=extra,
            hovertemplate=_hover(rows, columns, binned, f"{words}<br>{text}" if text else words),
            **grid(rows, columns),
        )


def _gaps(counts: NDArray[np.int64]) -> NDArray[Any]:
    """Return counts as floats that hold them exactly, with nothing where there are none."""
    exact = np.float32 if counts.max(initial=0) < 2**24 else np.float64
    return np.where(counts > 0, counts, np.nan).astype(exact)


def _hover(rows: Side, columns: Side, binned: bool, text: str) -> str:
    if binned:
        return f"near row %{{y:,.0f}}, column %{{x:,.0f}}<br>{text}<extra></extra>"
    if rows.permuted or columns.permuted:
        where = "row %{customdata[0]}, column %{customdata[1]} (drawn at %{y}, %{x})"
    else:
        where = "row %{y}, column %{x}"
    return f"{where}<br>{text}<extra></extra>"


def _by_magnitude(most: int, colours: tuple[str, ...]) -> list[list[Any]]:
    """Spread colours over the logarithm of 1 to ``most``, for values that stay as they are."""
    most = max(most, 2)
    last = len(colours) - 1
    at = [(most ** (k / last) - 1) / (most - 1) for k in range(last)] + [1.0]
    return [[place, colour] for place, colour in zip(at, colours, strict=True)]


def _tints(colour: str, most: int) -> list[list[Any]]:
    """Return one colour, the more opaque the more there is; alone, one count is opaque."""
    r, g, b = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    opacities = (1.0, 1.0) if most <= 1 else (0.45, 0.6, 0.75, 0.9, 1.0)
    return _by_magnitude(most, tuple(f"rgba({r},{g},{b},{a})" for a in opacities))


def _boundaries(rows: Side, columns: Side) -> Iterator[go.Scatter]:
    """Yield the lines between parts, as one trace, and none where they would cover the picture."""
    x: list[float | None] = []
    y: list[float | None] = []
    for side, across, along, low, high in (
        (rows, y, x, -0.5, columns.n - 0.5),
        (columns, x, y, -0.5, rows.n - 0.5),
    ):
        lines = np.unique(side.starts)
        lines = lines[(lines > 0) & (lines < side.n)]
        if len(lines) > MAX_BOUNDARIES:
            continue
        for line in lines.tolist():
            across.extend((line - 0.5, line - 0.5, None))
            along.extend((low, high, None))
    if x:
        yield go.Scatter(
            x=x,
            y=y,
            mode="lines",
            name="part boundaries",
            line={"color": "rgba(128,128,128,0.9)", "width": 1.5},
            hoverinfo="skip",
            showlegend=False,
        )


def _layout(
    rows: Side, columns: Side, nnz: int, plan: Any, binned: bool, mode: Mode
) -> dict[str, Any]:
    notes = []
    parts = rows.layout.parts if rows.layout is not None else 0
    if parts:
        notes.append(f"{plural(parts, 'part')}, {rows.layout.kind} layout")  # type: ignore[union-attr]
    moved = [side.name + "s" for side in (rows, columns) if side.permuted]
    if moved:
        notes.append(f"{' and '.join(moved)} reordered so that parts are contiguous")
    if parts - 1 > MAX_BOUNDARIES:
        notes.append("boundaries too dense to draw")
    if binned:
        notes.append(
            f"a cell is {rows.step:.3g} × {columns.step:.3g}"
            + (", coloured by its most frequent case" if plan is not None else "")
        )
    if plan is not None and not (moved or binned):
        notes.append("by column: rows of B are sent, by row: partial rows of C")
    square = 0.4 < rows.n / max(columns.n, 1) < 2.5
    what = f"Planned fate of {plural(nnz, 'nonzero')}" if plan is not None else "Sparsity pattern"
    return base_layout(
        mode=mode,
        title=title(
            f"{what}, {rows.n:,} × {columns.n:,}",
            "; ".join(notes) if plan is not None else "; ".join([plural(nnz, "nonzero"), *notes]),
        ),
        xaxis=_axis(columns, constrain="domain", range=[-0.5, max(columns.n, 1) - 0.5]),
        yaxis=_axis(
            rows,
            range=[max(rows.n, 1) - 0.5, -0.5],
            **({"scaleanchor": "x", "constrain": "domain"} if square else {}),
        ),
        annotations=_part_names(rows, columns),
        width=640,
        height=640,
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.01,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
        margin={"l": 64, "r": 64, "t": 110 if plan is not None else 88, "b": 56},
    )


def _axis(side: Side, **more: Any) -> dict[str, Any]:
    unit = "position after reordering" if side.permuted else "index"
    return {
        "title": {"text": f"{side.name} ({unit})"},
        "showgrid": False,
        "tickformat": ",d",
        **more,
    }


def _part_names(rows: Side, columns: Side) -> list[dict[str, Any]]:
    """Name the parts at the right edge, beside their rows, where there are few."""
    if rows.layout is None or rows.layout.parts > MAX_PART_NAMES:
        return []
    ends = np.cumsum(rows.layout.sizes)
    return [
        {
            "text": f"rank {part}",
            "x": columns.n - 0.5,
            "y": float(end - size / 2 - 0.5),
            "xanchor": "left",
            "xshift": 4,
            "showarrow": False,
            "font": {"size": 12},
        }
        for part, (end, size) in enumerate(zip(ends, rows.layout.sizes, strict=True))
        if size > 0
    ]
