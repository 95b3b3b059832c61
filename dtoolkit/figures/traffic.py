"""Who sends how much to whom: ranks by ranks, and strategies side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from dtoolkit.figures.bins import bin_matrix, edges
from dtoolkit.figures.theme import (
    CATEGORIES,
    CIVIDIS,
    Mode,
    base_layout,
    bytes_text,
    count_text,
    plural,
    ticks,
    title,
)

if TYPE_CHECKING:
    from dtoolkit.comm.trace import Trace
    from dtoolkit.spmm.plan import Plan

__all__ = ["compare", "traffic"]

MAX_RANKS = 256
MAX_TEXT_RANKS = 16
USUAL_ORDER = ("oblivious", "column", "row", "joint")


def traffic(
    source: Plan | Trace | ArrayLike,
    *,
    k: int | None = None,
    dtype: Any = None,
    unit: str | None = None,
    max_ranks: int = MAX_RANKS,
    mode: Mode = "auto",
) -> go.Figure:
    """Draw what each rank sends to each other rank, as a heatmap.

    Parameters
    ----------
    source : Plan, Trace or array of int, shape (ranks, ranks)
        A plan is drawn in rows, or in bytes where ``k`` and ``dtype`` are given. A trace is drawn
        in the bytes that were measured. An array is drawn as ``[source, target]`` in ``unit``.
    k : int, optional
        Dense columns, for a plan in bytes.
    dtype : dtype, optional
        Of the dense matrices, for a plan in bytes; float32 where only ``k`` is given.
    unit : str, optional
        For an array: ``"bytes"`` (default), ``"rows"``, or what is counted.
    max_ranks : int
        Cells in each direction, at most: above that neighbours are summed into so many bins.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Source rank on y, target rank on x; up to 16 ranks the cells carry their numbers. The title
        has the total and the largest pair, and says where cells are sums and where a network was
        emulated.

    Raises
    ------
    ValueError
        For an array that is not square, ``k`` or ``dtype`` with what is not a plan, or a
        ``max_ranks`` below 1.
    """
    if max_ranks < 1:
        raise ValueError(f"max_ranks must be 1 or more, got {max_ranks}")
    matrix, unit, word = _matrix(source, k, dtype, unit)
    ranks = len(matrix)
    cells = bin_matrix(matrix, max_ranks)
    total, largest = int(matrix.sum()), int(matrix.max(initial=0))
    amount = bytes_text if unit == "bytes" else lambda n: count_text(n, unit)
    subtitle = f"largest pair {amount(largest)}, {plural(ranks, 'rank')}"
    if unit == "rows" and word and len(cells) == ranks:
        subtitle += "; rows that a rank owns are not sent"
    if len(cells) < ranks:
        subtitle += f"; a cell sums {ranks / len(cells):.3g} × {ranks / len(cells):.3g} ranks"
    word = f"{word} traffic" if word else "Traffic"
    emulated = getattr(source, "emulated", "")
    if emulated:
        word = f"Emulated network, {word[0].lower()}{word[1:]}"
        subtitle += f"; emulated: {emulated}"
    return go.Figure(
        data=[_heatmap(cells, ranks, unit)],
        layout=base_layout(
            mode=mode,
            title=title(f"{word}: {amount(total)} in all", subtitle),
            xaxis=_ranks_axis("target", len(cells), ranks, constrain="domain"),
            yaxis=_ranks_axis(
                "source",
                len(cells),
                ranks,
                autorange="reversed",
                scaleanchor="x",
                constrain="domain",
            ),
            width=620,
            height=560,
        ),
    )


def compare(plans: Plan | Sequence[Plan] | Mapping[str, Plan], *, mode: Mode = "auto") -> go.Figure:
    """Draw how many rows the strategies send, as bars.

    Parameters
    ----------
    plans : Plan, sequence of Plan, or mapping of str to Plan
        One plan is drawn beside what the other strategies would send (``plan.compare()``); several
        plans are drawn beside each other, under their strategies' names or the mapping's keys.
    mode : {"auto", "light", "dark"}
        Ink, as in :func:`dtoolkit.figures.theme.base_layout`.

    Returns
    -------
    plotly.graph_objects.Figure
        Strategies on x, rows sent in all on y; one bar each with its number.
    """
    names, volumes, chosen = strategies(plans)
    heights = np.asarray(volumes, dtype=np.int64)
    most = int(heights.max(initial=0))
    shares = [f"{v / most:.0%} of the largest" if most else "nothing moves" for v in volumes]
    best = names[int(heights.argmin())] if names else "none"
    subtitle = f"fewest rows: {best}" + (f"; orange: this plan ({chosen})" if chosen else "")
    weights = getattr(plans, "weights", (1, 1))
    if weights[0] != weights[1]:
        subtitle += f"; joint is least in bytes, with B to C as {weights[0]} to {weights[1]}"
    return go.Figure(
        data=[
            go.Bar(
                x=names,
                y=heights,
                text=[count_text(v) for v in volumes],
                textposition="outside",
                cliponaxis=False,
                customdata=shares,
                marker={"color": [CATEGORIES[1] if n == chosen else CATEGORIES[0] for n in names]},
                hovertemplate="%{x}: %{y:,} rows<br>%{customdata}<extra></extra>",
            )
        ],
        layout=base_layout(
            mode=mode,
            title=title("Planned volume by strategy", subtitle),
            xaxis={"title": {"text": "strategy"}, "type": "category", "showgrid": False},
            yaxis={
                "title": {"text": "rows sent in all (rows)"},
                "rangemode": "tozero",
                "tickformat": ",d",
            },
            bargap=0.4,
            width=620,
            height=420,
            showlegend=False,
        ),
    )


def strategies(
    plans: Plan | Sequence[Plan] | Mapping[str, Plan], max_nonzeros: float = math.inf
) -> tuple[list[str], list[int], str | None]:
    """Return names and volumes (rows) of strategies, and which is the plan's own, if it is one.

    A plan that is not joint itself is compared with the joint one where that can be planned: it
    still has its matrix, which has at most ``max_nonzeros`` nonzeros.
    """
    if isinstance(plans, Mapping):
        return list(plans), [int(p.volume) for p in plans.values()], None
    if isinstance(plans, Sequence):
        several = len({p.parts for p in plans}) > 1
        names = [f"{p.strategy}, {p.parts} parts" if several else p.strategy for p in plans]
        names = [n if n not in names[:i] else f"{n} ({i + 1})" for i, n in enumerate(names)]
        return names, [int(p.volume) for p in plans], None
    loads = {load.strategy: load.volume for load in plans.loads}
    if "joint" not in loads and plans.structure is not None and plans.nnz <= max_nonzeros:
        loads = plans.compare()["volume"].to_dict()
    known = [name for name in USUAL_ORDER if name in loads]
    names = known + [str(name) for name in loads if name not in known]
    return names, [int(loads[name]) for name in names], plans.strategy


def _matrix(
    source: Any, k: int | None, dtype: Any, unit: str | None
) -> tuple[NDArray[np.int64], str, str]:
    """Return the matrix, what it counts, and the word for how it is known."""
    if hasattr(source, "bytes_matrix"):
        if k is None and dtype is None:
            return np.asarray(source.traffic, dtype=np.int64), "rows", "Planned"
        columns = 1 if k is None else k
        moved = source.bytes_matrix(columns, np.float32 if dtype is None else dtype)
        return np.asarray(moved, dtype=np.int64), "bytes", "Planned"
    if k is not None or dtype is not None:
        raise ValueError("k and dtype turn the rows of a plan into bytes; this is not a plan")
    if callable(getattr(source, "matrix", None)):
        return source.matrix(), "bytes", "Measured"
    matrix = np.asarray(source, dtype=np.int64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"source must be a plan, a trace or a square array of ranks by ranks, got an array of "
            f"shape {matrix.shape}"
        )
    return matrix, unit or "bytes", ""


def _heatmap(cells: NDArray[np.int64], ranks: int, unit: str) -> go.Heatmap:
    bins = len(cells)
    labels = _labels(bins, ranks)
    in_bytes = unit == "bytes"
    amount = bytes_text if in_bytes else count_text
    texts = None
    if bins <= MAX_TEXT_RANKS:
        texts = [[amount(int(n)) if n else "" for n in row] for row in cells]
    number = "%{z:,} bytes" if in_bytes else f"%{{z:,}} {unit}"
    return go.Heatmap(
        z=cells,
        x=labels,
        y=labels,
        zmin=0,
        zmax=max(1, int(cells.max(initial=0))),
        colorscale=[[i / (len(CIVIDIS) - 1), c] for i, c in enumerate(CIVIDIS)],
        text=texts,
        texttemplate="%{text}" if texts else None,
        hovertemplate=f"rank %{{y}} → rank %{{x}}: {number}<extra></extra>",
        colorbar={
            "title": {"text": unit, "side": "right"},
            "tickformat": "~s",
            "ticksuffix": "B" if in_bytes else "",
            **ticks(cells.max(initial=0) <= 8),
            "thickness": 14,
            "outlinewidth": 0,
        },
        xgap=1 if bins <= 64 else 0,
        ygap=1 if bins <= 64 else 0,
    )


def _labels(bins: int, ranks: int) -> list[str] | list[int]:
    if bins == ranks:
        return list(range(ranks))
    starts = edges(ranks, bins)
    return [
        f"{a}–{b - 1}" if b - a > 1 else f"{a}"
        for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ]


def _ranks_axis(text: str, bins: int, ranks: int, **more: Any) -> dict[str, Any]:
    """Return an axis of ranks: each named up to 16 of them, else about ten, or five of bins.

    Its type and the mode of its ticks never change: on a page Plotly turns an axis around that gets
    another type.
    """
    named = bins if ranks <= MAX_TEXT_RANKS else 10
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    round_step = next(step for step in steps if step * named >= bins)
    return {
        "title": {"text": f"{text} (rank number)"},
        "showgrid": False,
        "type": "category",
        "tickangle": 0,
        "tickmode": "linear",
        "tick0": 0,
        "dtick": round_step if bins == ranks else -(-bins // 5),
        **more,
    }
