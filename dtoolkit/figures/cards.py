"""Cards: how plans, traces, layouts, clusters and distributed arrays show themselves in a notebook.

Each card is HTML of at most about 20 kB with inline SVG, whatever the number of ranks. A card says
whether its numbers were planned or measured. Functions take the object itself, or any other with
the attributes that their docstring lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dtoolkit.figures import svg
from dtoolkit.figures.html import card, facts, legend, link, picture, table
from dtoolkit.figures.theme import (
    bytes_text,
    category_colours,
    count_text,
    plural,
    seconds_text,
)
from dtoolkit.figures.traffic import strategies

if TYPE_CHECKING:
    from dtoolkit.arrays.layout import Layout
    from dtoolkit.comm.trace import Trace
    from dtoolkit.spmm.plan import Plan

__all__ = [
    "ArrayInfo",
    "ClusterInfo",
    "WorkerInfo",
    "array_card",
    "cluster_card",
    "layout_card",
    "plan_card",
    "trace_card",
]

DENSE_COLUMNS = 64  # for which a plan's card states bytes
MAX_WORKERS = 32  # rows of a table of workers, and bars of memory
MAX_OPERATIONS = 8
MAX_PLANNED_AGAIN = 300_000  # nonzeros, for which the joint strategy is planned just to compare
FIRST_ROWS = 48  # that a layout's card draws one by one


class WorkerInfo(Protocol):
    """A worker, as :func:`cluster_card` reads it."""

    rank: int
    address: str
    host: str
    device: str
    threads: int
    memory: int  #: limit, bytes; 0 for none
    pid: int


class ClusterInfo(Protocol):
    """A cluster, as :func:`cluster_card` reads it."""

    workers: Sequence[WorkerInfo]
    dashboard: str
    status: str
    held: Mapping[int, int] | Sequence[int]  #: bytes of distributed arrays, by rank


class ArrayInfo(Protocol):
    """A distributed array, as :func:`array_card` reads it; sparse ones also have ``nnz``."""

    kind: str
    shape: tuple[int, ...]
    dtype: Any
    layout: Layout
    nbytes_by_rank: Sequence[int]


def plan_card(plan: Plan) -> str:
    """Return the card of a plan: what will move, against the other strategies.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        HTML.
    """
    moved = np.asarray(plan.traffic)
    work = np.asarray(plan.work, dtype=float)
    b_rows, c_rows = int(plan.b_ptr[-1]), int(plan.c_ptr[-1])
    proof = ", proven least" if plan.matching is not None else ""
    if proof and plan.weights[0] != plan.weights[1]:
        proof += f" at weights {plan.weights[0]}:{plan.weights[1]} (B:C)"
    largest = int(moved.max(initial=0))
    about = facts(
        [
            ("matrix", f"{plan.shape[0]:,} × {plan.shape[1]:,}, {plural(plan.nnz, 'nonzero')}"),
            ("rows of A, C", _layout_text(plan.rows)),
            ("rows of B", _layout_text(plan.columns)),
            ("rows sent", count_text(plan.volume) + proof),
            ("of them", f"{count_text(b_rows)} of B, {count_text(c_rows)} partial of C"),
            (f"bytes, {DENSE_COLUMNS} columns", _planned_bytes(plan)),
            ("largest pair", plural(largest, "row")),
            ("busiest rank", _balance(work, "nonzeros")),
            ("planned in", f"{seconds_text(plan.setup_seconds)} (measured)"),
            *([("chosen because", plan.reason)] if plan.reason else []),
        ]
    )
    label = (
        f"Planned traffic between {plural(plan.parts, 'rank')}: {plural(plan.volume, 'row')} in "
        f"all, at most {count_text(largest)} from one rank to another."
    )
    traffic = picture(
        svg.heatmap(moved, lambda n: plural(n, "row"), label=label),
        _pairs_text("rows", plan.parts),
    )
    heading = f"{plan.strategy} strategy, {plural(plan.parts, 'part')}"
    return card("Plan", heading, about, traffic, _comparison(plan), badge="planned")


def trace_card(trace: Trace) -> str:
    """Return the card of a trace: what moved, from whom to whom, and when.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    str
        HTML.
    """
    frame, matrix = trace.frame(), trace.matrix()
    ranks = len(matrix)
    if not len(frame):
        state = "nothing recorded yet" if trace.enabled else "recording is off"
        return card("Trace", f"0 events on {plural(ranks, 'rank')}: {state}", badge="measured")
    span = float(frame["end"].max() - frame["start"].min())
    total, largest = int(matrix.sum()), int(matrix.max(initial=0))
    about = facts(
        [
            (
                "events",
                f"{len(frame):,} in {plural(frame['launch'].nunique(), 'launch', 'launches')}",
            ),
            ("bytes sent", f"{bytes_text(total)} ({total:,})"),
            ("largest pair", bytes_text(largest)),
            ("first to last", seconds_text(span)),
            ("clocks agree to", f"±{seconds_text(trace.clock_error)}"),
        ]
    )
    colours = category_colours(frame["operation"].tolist())
    lanes = svg.lanes(
        zip(frame["rank"], frame["start"], frame["end"], frame["operation"], strict=True),
        ranks,
        colours,
        label=f"Measured timeline of {plural(ranks, 'rank')} over {seconds_text(span)}: "
        f"{plural(len(frame), 'event')}, of {_list_text(list(colours))}.",
    )
    heat = svg.heatmap(
        matrix,
        bytes_text,
        label=f"Measured traffic between {plural(ranks, 'rank')}: {bytes_text(total)} in all, at "
        f"most {bytes_text(largest)} from one rank to another.",
    )
    return card(
        "Trace",
        f"{plural(len(frame), 'event')} on {plural(ranks, 'rank')}",
        about,
        picture(heat, _pairs_text("bytes", ranks)),
        _operations(frame),
        picture(
            lanes,
            f"0 to {seconds_text(span)}, left to right; one lane "
            + ("a rank" if ranks <= svg.MAX_LANES else f"for {ranks / svg.MAX_LANES:.3g} ranks"),
            legend(_first(colours)),
        ),
        badge="measured",
    )


def layout_card(layout: Layout) -> str:
    """Return the card of a layout: how many rows each rank has, and which.

    Parameters
    ----------
    layout : Layout

    Returns
    -------
    str
        HTML.
    """
    sizes = np.asarray(layout.sizes)
    empty = int((sizes == 0).sum())
    pairs = [("rows", f"{layout.n:,}"), ("parts", f"{layout.parts:,}")]
    if layout.kind == "block-cyclic":
        pairs.append(("rows a block", f"{layout.block_size:,}"))
    pairs.append(("rows a part", f"{sizes.min():,} to {sizes.max():,}"))
    pairs.append(("largest part", _balance(sizes.astype(float), "rows")))
    if empty:
        pairs.append(("parts without rows", f"{empty:,}"))
    label = (
        f"{layout.n:,} rows on {plural(layout.parts, 'rank')}: {dict(pairs)['rows a part']} each."
    )
    pieces = [picture(svg.strip(sizes, label=label), "rows by rank" + _summed(layout.parts))]
    if not layout.contiguous:
        first = layout.owner(np.arange(min(layout.n, FIRST_ROWS))).tolist()
        words = f"owners of the first {plural(len(first), 'row')}"
        seen = f"{words}: {', '.join(map(str, first))}."
        pieces.append(picture(svg.owners(first, label=seen), words))
    column = f'<div style="display:grid;gap:8px">{"".join(pieces)}</div>'
    return card("Layout", f"{_kind(layout)}, {plural(layout.parts, 'part')}", facts(pairs), column)


def cluster_card(cluster: ClusterInfo) -> str:
    """Return the card of a cluster: its workers, and what they hold.

    Parameters
    ----------
    cluster : object
        With ``workers`` (each with ``rank``, ``address``, ``host``, ``device``, ``threads``,
        ``memory``, ``pid``), ``dashboard`` (address, or empty), ``status`` (a word), and ``held``
        (bytes by rank, as a mapping or a sequence).

    Returns
    -------
    str
        HTML.
    """
    workers = list(cluster.workers)
    held = dict(
        cluster.held.items() if isinstance(cluster.held, Mapping) else enumerate(cluster.held)
    )
    rows = [
        (
            str(w.rank),
            str(w.address),
            str(w.host),
            str(w.device),
            str(w.threads),
            _limit(w.memory),
            bytes_text(held.get(w.rank, 0)),
            str(w.pid),
        )
        for w in workers[:MAX_WORKERS]
    ]
    caption = "workers, one rank each"
    if len(workers) > MAX_WORKERS:
        caption += f": the first {MAX_WORKERS} of {len(workers):,}"
    pieces = [
        table(
            ("rank", "address", "host", "device", "threads", "memory limit", "held", "process id"),
            rows,
            caption=caption,
        )
    ]
    if cluster.dashboard:
        pieces.append(f"<div>dashboard: {link(str(cluster.dashboard))}</div>")
    heading = f"{plural(len(workers), 'worker')}, {bytes_text(sum(held.values()))} held"
    return card("Cluster", heading, *pieces, badge=str(cluster.status))


def array_card(array: ArrayInfo) -> str:
    """Return the card of a distributed array: what it is, and where its memory is.

    Parameters
    ----------
    array : object
        With ``kind`` (its class, in words), ``shape``, ``dtype``, ``layout``, ``nbytes_by_rank``
        (bytes), and for a sparse one ``nnz``.

    Returns
    -------
    str
        HTML.
    """
    held = np.asarray(array.nbytes_by_rank, dtype=np.int64)
    shape = " × ".join(f"{size:,}" for size in array.shape)
    pairs = [("shape", shape), ("dtype", str(array.dtype).removeprefix("torch."))]
    nnz = getattr(array, "nnz", None)
    if nnz is not None:
        cells = math.prod(array.shape)
        share = f" ({nnz / cells:.3%} of the cells)" if cells else ""
        pairs.append(("nonzeros", f"{nnz:,}{share}"))
    pairs += [
        ("rows", _layout_text(array.layout)),
        ("memory", f"{bytes_text(int(held.sum()))} on {plural(len(held), 'rank')}"),
        ("fullest rank", _balance(held.astype(float), "bytes")),
    ]
    label = (
        f"Memory by rank: {bytes_text(int(held.sum()))} in all, "
        f"{bytes_text(int(held.min()) if len(held) else 0)} to "
        f"{bytes_text(int(held.max(initial=0)))} a rank."
    )
    if len(held) <= MAX_WORKERS // 2:
        bars = [(f"rank {r}", float(n), bytes_text(int(n)), False) for r, n in enumerate(held)]
        memory = picture(svg.bars(bars, label=label), "memory by rank")
    else:
        memory = picture(
            svg.strip(held, label=label, unit="bytes"), "memory by rank" + _summed(len(held))
        )
    return card(str(array.kind), shape, facts(pairs), memory)


def _comparison(plan: Plan) -> str:
    """Draw the plan's volume beside those of the other strategies."""
    names, volumes, own = strategies(plan, MAX_PLANNED_AGAIN)
    rows = [
        (name, float(volume), count_text(volume), name == own)
        for name, volume in zip(names, volumes, strict=True)
    ]
    words = ", ".join(f"{name} {volume:,}" for name, volume in zip(names, volumes, strict=True))
    return picture(
        svg.bars(rows, label=f"Rows sent by strategy: {words}."),
        f"rows sent by strategy; orange: this plan ({own})",
    )


def _operations(frame: Any) -> str:
    """Sum up the events of a trace by operation."""
    groups = frame.groupby("operation", sort=True)
    total = groups.agg(
        events=("rank", "size"), sent=("bytes_sent", "sum"), seconds=("seconds", "sum")
    ).sort_values("sent", ascending=False, kind="stable")
    rows = [
        (str(name), f"{row.events:,.0f}", bytes_text(row.sent), seconds_text(row.seconds))
        for name, row in zip(total.index[:MAX_OPERATIONS], total.itertuples(), strict=False)
    ]
    more = f", the first {MAX_OPERATIONS} of {len(total)}" if len(total) > MAX_OPERATIONS else ""
    return table(
        ("operation", "events", "sent", "time on all ranks"), rows, caption="by operation" + more
    )


def _planned_bytes(plan: Plan) -> str:
    """Write the bytes of a product at 4 bytes for the narrower of the two dtypes."""
    b_size, c_size = (4 * weight // min(plan.weights) for weight in plan.weights)
    moved = DENSE_COLUMNS * (int(plan.b_ptr[-1]) * b_size + int(plan.c_ptr[-1]) * c_size)
    if b_size == c_size:
        return f"{bytes_text(moved)} in float32"
    return f"{bytes_text(moved)}, at {b_size} bytes a number of B and {c_size} of C"


def _layout_text(layout: Layout) -> str:
    sizes = np.asarray(layout.sizes)
    spread = (
        f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,}–{sizes.max():,}"
    )
    return f"{_kind(layout)}, {spread} a rank"


def _kind(layout: Layout) -> str:
    return "part vector" if layout.kind == "parts" else layout.kind


def _balance(amounts: Any, unit: str) -> str:
    """Write the largest amount, and how it compares with the mean."""
    if not len(amounts) or amounts.sum() == 0:
        return f"0 {unit}"
    most = amounts.max()
    text = bytes_text(most) if unit == "bytes" else count_text(most, unit)
    return f"{text}, {most / amounts.mean():.2f} × the mean"


def _limit(memory: int | None) -> str:
    return bytes_text(memory) if memory else "none"


def _pairs_text(unit: str, ranks: int) -> str:
    """Say what a cell of a heatmap is."""
    if ranks <= svg.MAX_CELLS:
        return f"{unit} by pair of ranks; brighter is more"
    step = f"{ranks / svg.MAX_CELLS:.3g}"
    return f"{unit}, summed over {step} × {step} ranks a cell; brighter is more"


def _summed(ranks: int) -> str:
    """Say how many ranks a piece of a strip is."""
    if ranks <= svg.MAX_PIECES:
        return ""
    return f", {ranks / svg.MAX_PIECES:.3g} of them a piece"


def _list_text(names: list[str]) -> str:
    return ", ".join(names[:MAX_OPERATIONS]) + (
        " and others" if len(names) > MAX_OPERATIONS else ""
    )


def _first(colours: dict[str, str]) -> dict[str, str]:
    return dict(list(colours.items())[:MAX_OPERATIONS])
