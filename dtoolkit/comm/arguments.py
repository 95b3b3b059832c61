"""What collectives are asked with: the checks that their functions share."""

from __future__ import annotations

import numpy as np

from dtoolkit.comm.dimension import Dimension
from dtoolkit.comm.exact import rational
from dtoolkit.comm.network import Network

__all__ = [
    "OPERATIONS",
    "ORDERS",
    "check_chunks",
    "check_latency",
    "check_operation",
    "check_order",
    "check_stages",
    "dimensions_of",
]

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather")
ORDERS = ("fifo", "scf")
MOST_STAGES = 500_000  # of a simulation: about ten seconds


def dimensions_of(network: Network) -> tuple[Dimension, ...]:
    """Dimensions that a collective can visit.

    A node of a two-tier network that lets less through than its ranks could send together shares
    that out among them.

    Raises
    ------
    ValueError
        For what is no network, and for a measured one, which has no dimensions.
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"network must be a dtoolkit.comm.Network, got {type(network).__name__}; make one with "
            "Network.dims([(kind, ranks, bandwidth, latency), ...])"
        )
    if not network.dimensions:
        raise ValueError(
            f"a {network.kind} network has no dimensions: state them with "
            "Network.dims([(kind, ranks, bandwidth, latency), ...])"
        )
    if network.kind != "two-tier" or network.node_bandwidth is None:
        return network.dimensions
    inside, between = network.dimensions
    each = min(rational(between.bandwidth), rational(network.node_bandwidth) / inside.ranks)
    return inside, Dimension(between.kind, between.ranks, float(each), between.latency)


def check_operation(operation: str) -> None:
    """Refuse what is no collective that can be scheduled.

    Raises
    ------
    ValueError
    """
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}; got {operation!r}")


def check_order(order: str) -> None:
    """Refuse what is no order of a queue.

    Raises
    ------
    ValueError
    """
    if order not in ORDERS:
        raise ValueError(
            "order must be 'fifo' (first come, first served) or 'scf' (smallest chunk first), got "
            f"{order!r}"
        )


def check_chunks(chunks: int) -> None:
    """Refuse what is no number of chunks.

    Raises
    ------
    ValueError
    """
    if isinstance(chunks, bool) or not isinstance(chunks, int | np.integer) or chunks < 1:
        raise ValueError(f"chunks must be a whole number of at least 1, got {chunks!r}")


def check_stages(chunks: int, stages: int) -> None:
    """Refuse more stages than can be simulated in about ten seconds.

    Parameters
    ----------
    chunks : int
        As the argument has it.
    stages : int
        In all.

    Raises
    ------
    ValueError
    """
    if stages > MOST_STAGES:
        raise ValueError(
            f"chunks={int(chunks)} makes {stages:,} stages: wanted so few chunks that there are at "
            f"most {MOST_STAGES:,}"
        )


def check_latency(latency: bool) -> None:
    """Refuse what says not whether latencies count.

    Raises
    ------
    ValueError
    """
    if not isinstance(latency, bool | np.bool_):
        raise ValueError(
            f"latency must be True or False (its seconds are the network's), got {latency!r}"
        )
