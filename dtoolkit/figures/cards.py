"""Cards: how plans, traces, layouts, clusters and distributed arrays show themselves in a notebook.

Each card is HTML of at most about 20 kB with inline SVG, whatever the number of ranks. A card says
whether its numbers were planned or measured. Functions take the object itself, or any other with
the attributes that their docstring lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtoolkit.figures import svg
from dtoolkit.figures.html import card, facts, legend, picture, table
from dtoolkit.figures.live_cards import array_card, cluster_card
from dtoolkit.figures.phrases import (
    balance_text,
    kind_text,
    layout_text,
    pairs_text,
    share_a_clock,
    summed_text,
)
from dtoolkit.figures.theme import (
    CATEGORIES,
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

__all__ = ["array_card", "cluster_card", "layout_card", "plan_card", "trace_card"]

DENSE_COLUMNS = 64  # for which a plan's card states bytes
MAX_OPERATIONS = 8
MAX_PLANNED_AGAIN = 300_000  # nonzeros, for which the joint strategy is planned just to compare
FIRST_ROWS = 48  # that a layout's card draws one by one


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
    b_rows, c_rows = int(plan.own_load.b_sent.sum()), int(plan.own_load.c_sent.sum())
    proof = f", {plan.proof}" if plan.proof else ""
    largest = int(moved.max(initial=0))
    about = facts(
        [
            ("matrix", f"{plan.shape[0]:,} × {plan.shape[1]:,}, {plural(plan.nnz, 'nonzero')}"),
            ("rows of A, C", layout_text(plan.rows)),
            ("rows of B", layout_text(plan.columns)),
            ("rows sent", count_text(plan.volume) + proof),
            ("of them", f"{count_text(b_rows)} of B, {count_text(c_rows)} partial of C"),
            *_stage_facts(plan),
            (f"bytes, {DENSE_COLUMNS} columns", _planned_bytes(plan)),
            ("largest pair", plural(largest, "row")),
            ("busiest rank, work", balance_text(work, "nonzeros")),
            ("busiest rank, traffic", f"{balance_text(plan.own_load.moved, 'rows')}, in and out"),
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
        pairs_text("rows", plan.parts),
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
    badge = "measured, emulated network" if trace.emulated else "measured"
    network = [("emulated", trace.emulated)] if trace.emulated else []
    if not len(frame):
        state = "nothing recorded yet" if trace.enabled else "recording is off"
        heading = f"0 events on {plural(ranks, 'rank')}: {state}"
        return card("Trace", heading, facts(network), badge=badge)
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
            _clocks(trace.clock_error),
            *network,
        ]
    )
    operations = _main_operations(frame)
    colours = category_colours(operations)
    lanes = svg.lanes(
        zip(frame["rank"], frame["start"], frame["end"], operations, strict=True),
        ranks,
        colours,
        label=f"Measured timeline of {plural(ranks, 'rank')} over {seconds_text(span)}: "
        f"{plural(len(frame), 'event')}, of {', '.join(colours)}.",
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
        picture(heat, pairs_text("bytes", ranks)),
        _operations(frame),
        picture(
            lanes,
            f"0 to {seconds_text(span)}, left to right; one lane "
            + ("a rank" if ranks <= svg.MAX_LANES else f"for {ranks / svg.MAX_LANES:.3g} ranks"),
            legend(colours),
        ),
        badge=badge,
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
    pairs.append(("largest part", balance_text(sizes.astype(float), "rows")))
    if empty:
        pairs.append(("parts without rows", f"{empty:,}"))
    label = (
        f"{layout.n:,} rows on {plural(layout.parts, 'rank')}: {dict(pairs)['rows a part']} each."
    )
    pieces = [picture(svg.strip(sizes, label=label), "rows by rank" + summed_text(layout.parts))]
    if not layout.contiguous:
        first = layout.owner(np.arange(min(layout.n, FIRST_ROWS))).tolist()
        words = f"owners of the first {plural(len(first), 'row')}"
        seen = f"{words}: {', '.join(map(str, first))}."
        pieces.append(picture(svg.owners(first, label=seen), words))
    column = f'<div style="display:grid;gap:8px">{"".join(pieces)}</div>'
    return card(
        "Layout", f"{kind_text(layout)}, {plural(layout.parts, 'part')}", facts(pairs), column
    )


def _clocks(error: float) -> tuple[str, str]:
    """Say how far clocks may be apart, or that there is only one."""
    if share_a_clock(error):
        return "clock", "one machine's, shared by all ranks"
    return "clocks agree to", f"±{seconds_text(error)}"


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
    ) + _candidates(plan)


def _candidates(plan: Plan) -> str:
    """Draw the predicted times that the strategy was chosen by, where it was."""
    if not plan.candidates:
        return ""
    rows = [
        (one.strategy, one.seconds, seconds_text(one.seconds), one.strategy == plan.strategy)
        for one in plan.candidates
    ]
    words = ", ".join(f"{name} {text}" for name, _, text, _ in rows)
    return picture(
        svg.bars(rows, label=f"Predicted time by strategy: {words}."),
        "time of a product by strategy (modelled)",
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


def _main_operations(frame: Any) -> list[str]:
    """Name the operation of each event; where there are too many, the shortest become one."""
    names = frame["operation"].astype(str)
    time = frame["seconds"].groupby(names).sum().sort_values(ascending=False, kind="stable")
    if len(time) <= len(CATEGORIES):
        return names.tolist()
    main = time.index[: len(CATEGORIES) - 1]
    return names.where(names.isin(main), "~ other operations").tolist()


def _stage_facts(plan: Plan) -> list[tuple[str, str]]:
    """Write what moves in which stage, and between nodes, where there are any."""
    found = []
    if len(plan.stages) > 1:
        steps = (f"{stage.name} {count_text(stage.volume)}" for stage in plan.stages)
        found.append(("in stages", " → ".join(steps)))
    if plan.nodes is not None:
        between, inside = plan.volume_between_nodes, plan.volume_inside_nodes
        nodes = plural(len(np.unique(plan.nodes)), "node")
        found.append(
            (f"over {nodes}", f"{count_text(between)} between, {count_text(inside)} inside")
        )
    return found


def _planned_bytes(plan: Plan) -> str:
    """Write the bytes of a product at 4 bytes for the narrower of the two dtypes."""
    b_size, c_size = (4 * weight // min(plan.weights) for weight in plan.weights)
    own = plan.own_load
    moved = DENSE_COLUMNS * (int(own.b_sent.sum()) * b_size + int(own.c_sent.sum()) * c_size)
    if b_size == c_size:
        return f"{bytes_text(moved)} in float32"
    return f"{bytes_text(moved)}, at {b_size} bytes a number of B and {c_size} of C"
