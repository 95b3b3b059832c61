"""Networks that a panel offers, from a few numbers with units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtoolkit.comm import Network

__all__ = ["KINDS", "Wires", "make"]

KINDS = {
    "two-tier": "Two tiers: a card for each rank",
    "fat-node": "Two tiers: a card for each node",
    "flat": "Flat: all ranks alike",
    "ring": "Ring of nodes, switch inside",
}
"""Key in the settings to words."""


@dataclass(frozen=True)
class Wires:
    """What a person chooses of a network; texts carry their units.

    Attributes
    ----------
    kind : str
        A key of ``KINDS``.
    ranks, ranks_per_node : int
    between, inside : str
        Bandwidth to other nodes (of a rank, or of all ranks of a node together), and of a rank
        inside its node.
    latency : str
        Of a message.
    """

    kind: str
    ranks: int
    ranks_per_node: int
    between: str
    inside: str
    latency: str


def make(wires: Wires) -> tuple[Network, str]:
    """Build the network, and write the Python that does.

    Raises
    ------
    ValueError
        In words: a unit that is missing, or ranks that do not fill their nodes.
    """
    name, args, options = _call(wires)
    words = [*map(repr, args), *(f"{key}={value!r}" for key, value in options.items())]
    return getattr(Network, name)(*args, **options), f"dt.comm.Network.{name}({', '.join(words)})"


def _call(w: Wires) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Name and arguments of the constructor."""
    if w.kind == "flat":
        return "flat", (w.ranks,), {"bandwidth": w.between, "latency": w.latency}
    nodes, left = divmod(w.ranks, w.ranks_per_node)
    if left:
        raise ValueError(
            f"{w.ranks} parts do not fill nodes of {w.ranks_per_node} ranks: choose parts that "
            f"{w.ranks_per_node} divides, other ranks a node, or a flat network"
        )
    if w.kind == "ring":
        inner = ("switch", w.ranks_per_node, w.inside, w.latency)
        outer = ("ring", nodes, w.between, w.latency)
        return "dims", ([inner, outer],), {}
    options = {
        "nodes": nodes,
        "ranks_per_node": w.ranks_per_node,
        "inter": w.between,
        "intra": w.inside,
        "inter_latency": w.latency,
        "intra_latency": w.latency,
    }
    if w.kind == "fat-node":
        options["node"] = w.between
    return "two_tier", (), options
