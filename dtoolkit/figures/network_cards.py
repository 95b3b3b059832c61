"""Cards of networks, of traffic, and of what is predicted from the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dtoolkit.comm.amounts import bandwidth_text
from dtoolkit.figures import svg
from dtoolkit.figures.html import card, facts, picture, table
from dtoolkit.figures.phrases import pairs_text
from dtoolkit.figures.theme import bytes_text, count_text, plural, seconds_text

if TYPE_CHECKING:
    from dtoolkit.comm.network import Network
    from dtoolkit.comm.prediction import Prediction
    from dtoolkit.comm.traffic import Traffic

__all__ = ["network_card", "prediction_card", "traffic_card"]

MAX_PHASES = 12  # rows of a table
MESSAGE = 1_000_000  # bytes, of the one message that a network's card times


def network_card(network: Network) -> str:
    """Return the card of a network: its links, and what one message takes.

    Parameters
    ----------
    network : Network

    Returns
    -------
    str
        HTML.
    """
    nodes = int(network.nodes.max()) + 1
    pairs = [("kind", network.kind), ("ranks", f"{network.ranks:,}")]
    if network.kind != "flat":
        pairs.append(("nodes", f"{nodes:,}"))
    if network.node_bandwidth is not None:
        pairs.append(("a node's way out", bandwidth_text(network.node_bandwidth)))
    pairs.append(("a rank computes", _rate_text(network.rate)))
    if network.overhead:
        pairs.append(("a launch by itself", seconds_text(network.overhead)))
    if network.overlap < 1:
        pairs.append(("hides behind the longer", f"{network.overlap:.0%} of the shorter"))
    if network.table is None:
        heading, badge = network.name, "modelled"
        speeds = _dimensions(network)
    else:
        heading, badge = network.name.removeprefix("measured, "), "measured"
        pairs += _measured_facts(network)
        speeds = _pairs_picture(network)
    return card("Network", heading, facts(pairs), speeds, badge=badge)


def prediction_card(prediction: Prediction) -> str:
    """Return the card of a prediction: how long each phase takes, and what it waits for.

    Parameters
    ----------
    prediction : Prediction

    Returns
    -------
    str
        HTML.
    """
    moved = sum(int(step.sent) for step in prediction.steps)
    pairs = [
        ("time", seconds_text(prediction.seconds)),
        ("bottleneck", prediction.bottleneck),
        ("bytes sent", bytes_text(moved)),
        ("network", prediction.network.name),
    ]
    if prediction.exchange_only:
        pairs.append(("left out", "time to compute: the network has no rate"))
    if prediction.error is not None:
        pairs.append(("error of the network", f"{prediction.error:.0%} (measured)"))
    phases = prediction.by_phase()
    columns = ["seconds", "exchange", "compute", "after"]
    rows = [
        (str(name), *map(seconds_text, row[columns]), str(row["bottleneck"]))
        for name, row in phases.head(MAX_PHASES).iterrows()
    ]
    bars = [
        (str(name).rpartition("/")[2][:11], float(t), seconds_text(t), False)
        for name, t in phases["seconds"].head(MAX_PHASES).items()
    ]
    words = ", ".join(f"{name} {text}" for name, _, text, _ in bars)
    drawn = svg.bars(bars, label=f"Modelled time by phase: {words}.")
    more = len(phases) - len(rows)
    caption = "by phase, modelled: the longer of exchange and beside it, and after it"
    head = ("phase", "time", "exchange", "beside it", "after it", "waits for")
    return card(
        "Prediction",
        prediction.label or plural(len(prediction.steps), "phase"),
        facts(pairs),
        picture(drawn, "time by phase"),
        table(head, rows, caption=caption + (f"; {more:,} more" if more else "")),
        badge="modelled",
    )


def traffic_card(traffic: Traffic) -> str:
    """Return the card of traffic: bytes by pair of ranks, and by phase.

    Parameters
    ----------
    traffic : Traffic

    Returns
    -------
    str
        HTML.
    """
    sent = traffic.sent
    total, largest = traffic.total, int(sent.max(initial=0))
    about = facts(
        [
            ("ranks", f"{traffic.ranks:,}"),
            ("bytes", bytes_text(total)),
            ("largest pair", bytes_text(largest)),
        ]
    )
    rows = [
        (
            phase.name,
            bytes_text(int(phase.sent.sum())),
            count_text(float(phase.work.sum())),
            count_text(float(phase.after.sum())),
        )
        for phase in traffic.phases[:MAX_PHASES]
    ]
    more = len(traffic.phases) - len(rows)
    caption = "by phase; computed: nonzeros times columns" + (f"; {more:,} more" if more else "")
    heat = svg.heatmap(
        sent,
        bytes_text,
        label=f"Traffic between {plural(traffic.ranks, 'rank')}: {bytes_text(total)} in all, at "
        f"most {bytes_text(largest)} from one rank to another.",
    )
    head = ("phase", "bytes", "computed beside it", "after it")
    return card(
        "Traffic",
        traffic.label or plural(len(traffic.phases), "phase"),
        about,
        picture(heat, pairs_text("bytes", traffic.ranks)),
        table(head, rows, caption=caption),
    )


def _rate_text(rate: float | Mapping[str, float] | None) -> str:
    """Say how fast a rank computes."""
    if rate is None:
        return "not modelled (no rate)"
    if isinstance(rate, Mapping):
        return ", ".join(f"{_rate_text(value)} in {name}" for name, value in rate.items())
    return f"{count_text(rate)} nonzeros × columns a second"


def _dimensions(network: Network) -> str:
    """List dimensions or tiers, and what a message takes in each alone."""
    names = {"two-tier": ("inside a node", "between nodes"), "flat": ("any pair",)}
    rows = []
    below = 1
    for i, d in enumerate(network.dimensions):
        alone = network.time(0, below, MESSAGE) if d.ranks > 1 else 0.0
        name = names.get(network.kind, ())[i : i + 1] or (f"{i} ({d.kind})",)
        rows.append(
            (
                name[0],
                f"{d.ranks:,}",
                bandwidth_text(d.bandwidth),
                seconds_text(d.latency),
                seconds_text(alone) if d.ranks > 1 else "",
            )
        )
        below *= d.ranks
    head = ("dimension", "size", "a rank's bandwidth", "latency", "1 MB alone")
    bars = [
        (row[0].removesuffix(" a node").removesuffix(" nodes"), d.bandwidth, row[2], False)
        for row, d in zip(rows, network.dimensions, strict=True)
    ]
    words = ", ".join(f"{name} {text}" for name, _, text, _ in bars)
    drawn = svg.bars(bars, label=f"Bandwidth of a rank by dimension: {words}.")
    return table(head, rows, caption="modelled") + picture(drawn, "bandwidth of a rank")


def _measured_facts(network: Network) -> list[tuple[str, str]]:
    """Sum up what was measured."""
    measured = network.table
    assert measured is not None
    off = ~np.eye(network.ranks, dtype=bool)
    late, fast = measured.latency[off], measured.bandwidth[off]
    pairs = []
    if len(late):
        pairs = [
            ("latency of a pair", _span(late.min(), late.max(), seconds_text)),
            ("a pair alone", _span(fast.min(), fast.max(), bandwidth_text)),
        ]
    capacity = measured.host_capacity
    pairs.append(("a host, all at once", _span(capacity.min(), capacity.max(), bandwidth_text)))
    if measured.message:
        pairs.append(("each message", seconds_text(measured.message)))
    if measured.error is not None:
        pairs.append(("error of predictions", f"{measured.error:.0%}"))
    return [*pairs, ("times made from it", "modelled")]


def _pairs_picture(network: Network) -> str:
    """Draw the bandwidth of each pair."""
    measured = network.table
    assert measured is not None
    fast = np.where(np.isfinite(measured.bandwidth), measured.bandwidth, 0)
    if network.ranks > svg.MAX_CELLS:
        return ""  # cells of several pairs would show sums
    label = f"Measured bandwidth between {plural(network.ranks, 'rank')}, by pair."
    heat = svg.heatmap(fast.astype(np.int64), bandwidth_text, label=label)
    return picture(heat, "bytes a second by pair of ranks; brighter is faster")


def _span(low: float, high: float, text: object) -> str:
    assert callable(text)
    return text(low) if text(low) == text(high) else f"{text(low)} to {text(high)}"
