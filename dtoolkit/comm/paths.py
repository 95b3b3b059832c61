"""What a network is called, what one message takes on it, and what it is with more ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.comm.amounts import bandwidth_text, plural, seconds_text
from dtoolkit.comm.dimension import count
from dtoolkit.comm.units import size

if TYPE_CHECKING:
    from dtoolkit.comm.network import Network

__all__ = ["name", "time", "with_ranks"]


def time(network: Network, source: ArrayLike, target: ArrayLike, nbytes: ArrayLike | str) -> Any:
    """Seconds of one message that has the network to itself: see :meth:`Network.time`."""
    s, t = _ranks(source, network.ranks, "source"), _ranks(target, network.ranks, "target")
    s, t, amount = np.broadcast_arrays(s, t, _sizes(nbytes))
    late, speed = _alone(network, s, t)
    result = np.where(s == t, 0.0, late + amount / speed)
    return float(result) if result.ndim == 0 else result


def with_ranks(network: Network, ranks: int) -> Network:
    """Return the same kind of network with other ranks: see :meth:`Network.with_ranks`."""
    ranks = count(ranks, "ranks")
    if network.kind == "flat":
        (one,) = network.dimensions
        return replace(network, ranks=ranks, dimensions=(replace(one, ranks=ranks),))
    if network.kind == "two-tier":
        inner, outer = network.dimensions
        each = min(inner.ranks, ranks)
        if ranks % each:
            raise ValueError(f"ranks={ranks} fill no whole number of nodes of {each} ranks")
        tiers = (replace(inner, ranks=each), replace(outer, ranks=ranks // each))
        node = network.node_bandwidth
        if node == inner.ranks * outer.bandwidth:
            node = each * outer.bandwidth
        return replace(network, ranks=ranks, dimensions=tiers, node_bandwidth=node)
    if ranks == network.ranks:
        return network
    raise ValueError(
        f"a {network.kind} network of {network.ranks} ranks does not say what it is with {ranks}: "
        "make another network"
    )


def name(network: Network) -> str:
    """Name a network in a few words."""
    ranks = plural(network.ranks, "rank")
    if network.table is not None:
        return f"measured, {ranks} on {plural(len(network.table.host_capacity), 'host')}"
    speeds = [f"{bandwidth_text(d.bandwidth)}{_late(d.latency)}" for d in network.dimensions]
    if network.kind == "flat":
        return f"flat, {ranks} at {speeds[0]}"
    if network.kind == "two-tier":
        inner, outer = network.dimensions
        shared = ""
        if network.node_bandwidth != inner.ranks * outer.bandwidth:
            shared = f", {bandwidth_text(network.node_bandwidth or 0)} a node"
        return (
            f"two-tier, {plural(outer.ranks, 'node')} × {plural(inner.ranks, 'rank')}: "
            f"{speeds[0]} inside, {speeds[1]} between nodes{shared}"
        )
    parts = [
        f"{d.kind} {d.ranks:,} at {speed}"
        for d, speed in zip(network.dimensions, speeds, strict=True)
    ]
    return f"{len(parts)}D, {ranks}: {' × '.join(parts)}"


def _alone(network: Network, s: NDArray, t: NDArray) -> tuple[NDArray, NDArray]:
    """Latency and bandwidth of messages that are alone."""
    table = network.table
    if table is not None:
        return table.latency[s, t] + table.message, table.bandwidth[s, t]
    if network.kind == "two-tier":
        inner, outer = network.dimensions
        near = s // inner.ranks == t // inner.ranks
        far = min(outer.bandwidth, network.node_bandwidth or np.inf)
        return np.where(near, inner.latency, outer.latency), np.where(near, inner.bandwidth, far)
    late, speed = np.zeros(s.shape), np.full(s.shape, np.inf)
    below = 1
    for d in network.dimensions:
        a, b = s // below % d.ranks, t // below % d.ranks
        late = late + d.hops(a, b) * d.latency
        speed = np.where(a != b, np.minimum(speed, d.bandwidth), speed)
        below *= d.ranks
    return late, speed


def _ranks(value: ArrayLike, ranks: int, name: str) -> NDArray[np.int64]:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() < ranks):
        raise ValueError(f"{name}={value!r}: wanted ranks, integers from 0 to {ranks - 1}")
    return array.astype(np.int64)


def _sizes(value: Any) -> NDArray[Any]:
    if isinstance(value, str) or np.ndim(value) == 0:
        return np.asarray(size(value, "nbytes"), dtype=np.float64)
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise ValueError("nbytes: wanted whole numbers of bytes, at least 0")
    return array


def _late(latency: float) -> str:
    return f" and {seconds_text(latency)}" if latency else ""
