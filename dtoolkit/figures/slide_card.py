"""The card of a SLIDE layer: its tables, and what was retrieved from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dtoolkit.figures.html import card, facts
from dtoolkit.figures.theme import bytes_text, plural

if TYPE_CHECKING:
    from dtoolkit.training.slide import SlideLinear

__all__ = ["slide_card"]


def slide_card(layer: SlideLinear) -> str:
    """Return the card of a layer whose neurons are looked up by hash.

    Parameters
    ----------
    layer : SlideLinear

    Returns
    -------
    str
        HTML.
    """
    held, hashing, seen = layer.stop - layer.start, layer.hashing, layer.retrieval
    share = "" if held == layer.out_features else f" of {layer.out_features:,}"
    buckets = layer.tables.buckets()
    room = "uncapped"
    if layer.capacity is not None:
        room = f"{layer.capacity:,} a bucket, {layer.policy}; {buckets.dropped:,} entries left out"
    tables = [
        ("neurons held", f"{held:,}{share}, {layer.in_features:,} inputs each"),
        ("hash functions", f"{hashing.name}, K = {hashing.hashes}, L = {hashing.tables}"),
        ("capacity", room),
        ("buckets in use", f"{buckets.count:,}, {_sizes(buckets.mean, buckets.largest)}"),
        ("memory of the tables", bytes_text(layer.tables.nbytes)),
        ("updates", f"{int(layer.updates):,}, {_refreshes(layer)}"),
    ]
    if not seen.samples:
        return card("SlideLinear", "nothing retrieved yet", facts(tables))
    found = "no labels" if math.isnan(seen.label_share) else f"{100 * seen.label_share:.1f}%"
    retrieved = [
        ("active a sample", f"{seen.mean:,.1f} ({100 * seen.share:.3g}% of those held)"),
        ("fewest, most", f"{seen.smallest:,}, {seen.largest:,}"),
        ("labels found by hash", f"{found} of {seen.labels:,}" if seen.labels else found),
        ("counted over", f"{plural(seen.samples, 'sample')}, {seen.batches:,} batches"),
    ]
    heading = f"{seen.mean:,.0f} of {held:,} neurons a sample"
    return card("SlideLinear", heading, facts(tables), facts(retrieved), badge="measured")


def _sizes(mean: float, largest: int) -> str:
    return f"{mean:,.1f} neurons each, {largest:,} at most"


def _refreshes(layer: SlideLinear) -> str:
    if layer.schedule is None:
        return "tables made anew by hand"
    done = layer.schedule.count(int(layer.updates))
    return f"tables made anew {plural(done, 'time')}"
