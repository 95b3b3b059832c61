"""Cards of collective schedules, their simulations, and simulated training steps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pandas as pd

from dtoolkit.figures import svg
from dtoolkit.figures.gantt import OPERATION_COLOURS
from dtoolkit.figures.html import card, facts, legend, picture, table
from dtoolkit.figures.theme import bytes_text, plural, seconds_text

if TYPE_CHECKING:
    from dtoolkit.comm.iterations import Iteration
    from dtoolkit.comm.schedules import Schedule
    from dtoolkit.comm.simulation import Simulation

__all__ = ["iteration_card", "schedule_card", "simulation_card"]

MAX_ORDERS = 12


def schedule_card(schedule: Schedule) -> str:
    """Return the card of a schedule: which orders its chunks take, and what that moves.

    Parameters
    ----------
    schedule : Schedule

    Returns
    -------
    str
        HTML.
    """
    orders = Counter(schedule.orders).most_common()
    shares = [float(share) for share in schedule.shares]
    about = facts(
        [
            ("ranks", f"{schedule.ranks:,} as {' × '.join(map(str, schedule.shape))}"),
            ("operation", schedule.operation.replace("_", "-")),
            ("chunks", f"{schedule.chunks:,} in {plural(len(orders), 'order')}"),
            ("sent by a rank", f"{sum(shares):.4g} times the tensor, in any order"),
        ]
    )
    moved = svg.bars(
        [
            (f"{i}: {d.kind} {d.ranks}", share, f"{share:.3g}", False)
            for i, (d, share) in enumerate(zip(schedule.dimensions, shares, strict=True))
        ],
        label="Share of the tensor that a rank sends in each dimension: "
        + ", ".join(f"{share:.3g}" for share in shares)
        + ".",
    )
    rows = [(" → ".join(map(str, order)), f"{count:,}") for order, count in orders[:MAX_ORDERS]]
    more = f", the first {MAX_ORDERS} of {len(orders)}" if len(orders) > MAX_ORDERS else ""
    first = "all-gather" if schedule.operation == "all_gather" else "reduce-scatter"
    return card(
        "Schedule",
        f"{schedule.policy}, {plural(schedule.chunks, 'chunk')}",
        about,
        picture(moved, "sent by each rank in a dimension, in units of the tensor"),
        table(("order", "chunks"), rows, caption=f"dimensions of the {first}{more}"),
        badge="planned",
    )


def simulation_card(simulation: Simulation) -> str:
    """Return the card of a simulated collective: how long, and how busy each dimension was.

    Parameters
    ----------
    simulation : Simulation

    Returns
    -------
    str
        HTML.
    """
    queue = {"fifo": "first come, first served", "scf": "smallest chunk first"}
    ideal = simulation.policy == "ideal"
    about = facts(
        [
            ("time", f"{seconds_text(simulation.time)} (modelled)"),
            ("bandwidth used", f"{simulation.utilisation:.1%}"),
            ("ideal", f"{seconds_text(simulation.ideal)}: all bandwidth, all the time"),
            ("bytes", bytes_text(simulation.size)),
            ("policy", simulation.policy),
            *([] if ideal else [("queues", queue[simulation.order])]),
            *([] if ideal else [("chunks", f"{simulation.chunks:,}")]),
            ("latency", "counted" if simulation.latency and not ideal else "not counted"),
        ]
    )
    return card(
        "Simulation",
        simulation.name,
        about,
        _dimensions(simulation.by_dimension),
        _bars(simulation.bars, len(simulation.dimensions), simulation.time),
        badge="modelled",
    )


def iteration_card(iteration: Iteration) -> str:
    """Return the card of a simulated training step: how long, and what computing waits for.

    Parameters
    ----------
    iteration : Iteration

    Returns
    -------
    str
        HTML.
    """
    waits = iteration.waits
    lasted = (waits["end"] - waits["start"]).groupby(waits["reason"]).sum()
    workload = iteration.workload
    about = facts(
        [
            ("time", f"{seconds_text(iteration.time)} (modelled)"),
            ("computing", seconds_text(iteration.compute)),
            ("waiting", f"{seconds_text(iteration.exposed)} for communication"),
            *((f"of it for {name}s", seconds_text(time)) for name, time in lasted.items()),
            ("gradients", f"{bytes_text(workload.gradient)} a rank"),
            ("copies", f"each on {plural(workload.model_ranks, 'rank')}"),
            (
                "workload",
                f"{workload.note or workload.name}; {plural(len(workload.layers), 'layer')}",
            ),
        ]
    )
    pieces = []
    if len(iteration.bars):
        pieces = [
            _dimensions(iteration.by_dimension),
            _bars(iteration.bars, len(iteration.dimensions), iteration.time),
        ]
    return card("Iteration", iteration.name, about, *pieces, badge="modelled, reconstructed")


def _dimensions(by_dimension: pd.DataFrame) -> str:
    rows = [
        (
            f"{row.dimension}: {row.kind} of {row.ranks}",
            f"{bytes_text(row.bandwidth)}/s",
            bytes_text(row.bytes),
            f"{row.utilisation:.0%}",
        )
        for row in by_dimension.itertuples()
    ]
    return table(("dimension", "bandwidth", "sent by a rank", "used"), rows, caption="by dimension")


def _bars(bars: pd.DataFrame, lanes: int, time: float) -> str:
    """Draw the stages, one lane a dimension."""
    colours = {
        name: colour
        for name, colour in OPERATION_COLOURS.items()
        if (bars["operation"] == name).any()
    }
    drawn = svg.lanes(
        zip(bars["dimension"], bars["start"], bars["end"], bars["operation"], strict=True),
        lanes,
        colours,
        label=f"Modelled timeline of {plural(lanes, 'dimension')} over {seconds_text(time)}: "
        f"{plural(len(bars), 'stage')} of {', '.join(colours) or 'nothing'}.",
    )
    words = {name.replace("_", "-"): colour for name, colour in colours.items()}
    return picture(drawn, f"0 to {seconds_text(time)}, one lane a dimension", legend(words))
