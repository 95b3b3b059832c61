"""Cards of what lives on workers: clusters, and distributed arrays."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from dtoolkit.figures import svg
from dtoolkit.figures.html import card, facts, link, picture, table
from dtoolkit.figures.phrases import balance_text, layout_text, summed_text
from dtoolkit.figures.theme import bytes_text, plural

if TYPE_CHECKING:
    from dtoolkit.arrays.array import DistArray
    from dtoolkit.cluster.cluster import Cluster

__all__ = ["array_card", "cluster_card"]

MAX_WORKERS = 32  # rows of a table of workers
MAX_BARS = 16  # ranks whose memory is drawn as one bar each


def cluster_card(cluster: Cluster) -> str:
    """Return the card of a cluster: its workers, and what they hold.

    Parameters
    ----------
    cluster : Cluster
        Or any object with ``workers`` (each with ``rank``, ``address``, ``host``, ``device``,
        ``threads``, ``memory`` (limit, bytes), ``pid``), ``dashboard`` (address, or empty),
        ``status`` (in words), ``held`` (bytes by rank), and ``emulate`` (a network, or None; it may
        be absent). Of a closed one only ``status``, which is "closed", is read.

    Returns
    -------
    str
        HTML.
    """
    if cluster.status == "closed":
        return card("Cluster", "nothing runs on it any more", badge="closed")
    workers, held = list(cluster.workers), list(cluster.held)
    rows = [
        (
            str(w.rank),
            str(w.address),
            str(w.host),
            str(w.device),
            str(w.threads),
            _limit(w.memory),
            bytes_text(held[w.rank] if w.rank < len(held) else 0),
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
    emulated = getattr(cluster, "emulate", None)
    if emulated is not None:
        pieces.append(f"<div>messages between workers are emulated: {escape(emulated.name)}</div>")
    if cluster.dashboard:
        pieces.append(f"<div>dashboard: {link(str(cluster.dashboard))}</div>")
    heading = f"{plural(len(workers), 'worker')}, {bytes_text(sum(held))} held"
    return card("Cluster", heading, *pieces, badge=str(cluster.status))


def array_card(array: DistArray) -> str:
    """Return the card of a distributed array: what it is, and where its memory is.

    Parameters
    ----------
    array : DistArray
        Or any object with ``shape``, ``dtype``, ``layout``, ``nbytes_by_rank`` (bytes), for a
        sparse one ``nnz``, and ``kind``, what the card calls it: by default the name of its class.

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
        ("rows", layout_text(array.layout)),
        ("memory", f"{bytes_text(int(held.sum()))} on {plural(len(held), 'rank')}"),
        ("fullest rank", balance_text(held.astype(float), "bytes")),
    ]
    label = (
        f"Memory by rank: {bytes_text(int(held.sum()))} in all, "
        f"{bytes_text(int(held.min()) if len(held) else 0)} to "
        f"{bytes_text(int(held.max(initial=0)))} a rank."
    )
    if len(held) <= MAX_BARS:
        bars = [(f"rank {r}", float(n), bytes_text(int(n)), False) for r, n in enumerate(held)]
        memory = picture(svg.bars(bars, label=label), "memory by rank")
    else:
        memory = picture(
            svg.strip(held, label=label, unit="bytes"), "memory by rank" + summed_text(len(held))
        )
    kind = getattr(array, "kind", type(array).__name__)
    return card(str(kind), shape, facts(pairs), memory)


def _limit(memory: int | None) -> str:
    return bytes_text(memory) if memory else "none"
