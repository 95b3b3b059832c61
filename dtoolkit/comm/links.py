"""Which links a pair's bytes load, and for how long (modelled).

A link is a way out or a way in: of a rank, or of a node, and of each dimension or tier of the
network. Ways out and ways in are used at the same time. A link is busy for its bytes over its
bandwidth, and ends no earlier than the latency of the slowest message on it. So what is all sent at
once takes ``max over links of (bytes / bandwidth + latency)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.comm.amounts import plural
from dtoolkit.comm.grid import dimension_loads

if TYPE_CHECKING:
    from dtoolkit.comm.measured import Measured
    from dtoolkit.comm.network import Network

__all__ = ["Links", "byte_matrix", "loads"]


@dataclass(frozen=True, eq=False)
class Links:
    """Links of one kind, one a rank or one a node, and what loads them.

    Attributes
    ----------
    words : str
        What such a link is called, with ``{}`` for the number of its rank or node: ``"rank {}'s way
        out"``.
    owner : {"rank", "node"}
        Who has one link of this kind each.
    tier : int
        Dimension of the network, from 0; of a two-tier one 0 is inside a node and 1 is between
        nodes; of a measured one 0 is ranks and 1 is hosts.
    direction : {"out", "in", "through"}
    bytes : int64 array, shape (n,)
        Bytes that go through each.
    bandwidth : float64 array, shape (n,)
        Bytes a second of each.
    latency : float64 array, shape (n,)
        Seconds that come on top: of the slowest message on the link; 0 where there is none.
    """

    words: str
    owner: str
    tier: int
    direction: str
    bytes: NDArray[np.int64]
    bandwidth: NDArray[np.float64]
    latency: NDArray[np.float64]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """How long each link is busy: bytes over bandwidth, and latency."""
        return self.bytes / self.bandwidth + self.latency

    def name(self, index: int) -> str:
        """Name one link: ``"rank 3's way out"``."""
        return self.words.format(index)


def loads(network: Network, sent: ArrayLike) -> tuple[Links, ...]:
    """Load links with bytes that are all sent at once: see :meth:`Network.loads`."""
    matrix = byte_matrix(sent, network.ranks)
    return _LOADS[network.kind](network, matrix)


def byte_matrix(sent: Any, ranks: int | None = None, name: str = "sent") -> NDArray[np.int64]:
    """Check bytes by pair of ranks, and return them as a matrix whose diagonal is empty.

    Raises
    ------
    ValueError
        If it is not square, of another number of ranks, negative, or no whole numbers.
    """
    array = np.asarray(sent.toarray() if hasattr(sent, "toarray") else sent)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} has shape {array.shape}: wanted (ranks, ranks) of bytes")
    if ranks is not None and len(array) != ranks:
        raise ValueError(f"{name} is of {plural(len(array), 'rank')}, the network of {ranks}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {array.dtype}: wanted bytes as integers")
    matrix = array.astype(np.int64)  # a copy: the diagonal is emptied
    if matrix.size and matrix.min() < 0:
        raise ValueError(f"{name} has negative bytes")
    if matrix.sum(dtype=np.float64) * len(matrix) >= 2.0**63:  # hops of a ring count bytes again
        raise ValueError(f"{name} has more bytes than 64 bits can count")
    np.fill_diagonal(matrix, 0)
    return matrix


def _flat(network: Network, sent: NDArray[np.int64]) -> tuple[Links, ...]:
    (port,) = network.dimensions
    out, into = sent.sum(axis=1), sent.sum(axis=0)
    return (
        _even("rank {}'s way out", "rank", 0, "out", out, port.bandwidth, port.latency),
        _even("rank {}'s way in", "rank", 0, "in", into, port.bandwidth, port.latency),
    )


def _two_tier(network: Network, sent: NDArray[np.int64]) -> tuple[Links, ...]:
    inner, outer = network.dimensions
    each, nodes = inner.ranks, outer.ranks
    blocks = np.einsum("iaib->iab", sent.reshape(nodes, each, nodes, each))
    near_out, near_in = blocks.sum(axis=2).ravel(), blocks.sum(axis=1).ravel()
    far_out, far_in = sent.sum(axis=1) - near_out, sent.sum(axis=0) - near_in
    node_out, node_in = (far.reshape(nodes, each).sum(axis=1) for far in (far_out, far_in))
    inside, between = (inner.bandwidth, inner.latency), (outer.bandwidth, outer.latency)
    node = (network.node_bandwidth, outer.latency)
    return (
        _even("rank {}'s way out inside its node", "rank", 0, "out", near_out, *inside),
        _even("rank {}'s way in inside its node", "rank", 0, "in", near_in, *inside),
        _even("rank {}'s way out to other nodes", "rank", 1, "out", far_out, *between),
        _even("rank {}'s way in from other nodes", "rank", 1, "in", far_in, *between),
        _even("node {}'s way out", "node", 1, "out", node_out, *node),
        _even("node {}'s way in", "node", 1, "in", node_in, *node),
    )


def _dims(network: Network, sent: NDArray[np.int64]) -> tuple[Links, ...]:
    made = []
    for tier, loaded in enumerate(dimension_loads(network.dimensions, sent)):
        kind = network.dimensions[tier]
        where = f"in dimension {tier} ({kind.kind} of {kind.ranks:,})"
        for direction, moved, latency in loaded:
            made.append(
                Links(
                    f"rank {{}}'s way {direction} {where}",
                    "rank",
                    tier,
                    direction,
                    moved,
                    np.full(network.ranks, kind.bandwidth),
                    latency,
                )
            )
    return tuple(made)


def _measured(network: Network, sent: NDArray[np.int64]) -> tuple[Links, ...]:
    table = network.table
    assert table is not None
    latency = np.where(sent > 0, table.latency, 0.0)
    messages = (sent > 0).sum(axis=1) * table.message
    transfer = sent / table.bandwidth
    pairs: list[Links] = []
    for direction, axis, extra in (("out", 1, messages), ("in", 0, np.zeros(len(sent)))):
        moved, busy = sent.sum(axis=axis), transfer.sum(axis=axis)
        alone = _usual(table.bandwidth, axis)
        with np.errstate(divide="ignore", invalid="ignore"):
            speed = np.where(moved > 0, moved / busy, alone)
        pairs.append(
            Links(
                f"rank {{}}'s way {direction}",
                "rank",
                0,
                direction,
                moved,
                speed,
                np.asarray(latency.max(axis=axis) + extra),
            )
        )
    return (*pairs, _hosts(table, sent, *pairs))


def _hosts(table: Measured, sent: NDArray[np.int64], out: Links, into: Links) -> Links:
    """Load hosts: at their capacity while several ranks talk, at a pair's while one does.

    The last bytes of the rank with the most are those that it moves alone, as fast as its fastest
    pair, so that more bytes never take less time.
    """
    hosts = len(table.host_capacity)
    foreign = np.where(table.nodes[:, None] != table.nodes[None, :], sent, 0)
    through = sent.sum(axis=1) + foreign.sum(axis=0)
    late = np.maximum(out.latency, into.latency * (foreign.sum(axis=0) > 0))
    moved, busy, latency = np.zeros(hosts, dtype=np.int64), np.zeros(hosts), np.zeros(hosts)
    for host, capacity in enumerate(table.host_capacity):
        mine = table.nodes == host
        *_, second, most = np.sort(np.append(through[mine], [0]))
        pairs = np.append(table.bandwidth[mine], table.bandwidth[:, mine])
        fastest = np.where(np.isfinite(pairs), pairs, 0).max(initial=capacity)
        moved[host] = through[mine].sum()
        busy[host] = (moved[host] - (most - second)) / capacity + (most - second) / fastest
        latency[host] = late[mine].max()
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = np.where(moved > 0, moved / busy, table.host_capacity)
    return Links("host {}, all of its ranks", "node", 1, "through", moved, speed, latency)


def _usual(bandwidth: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Bandwidth of each rank's median pair; of a rank alone in the world, infinite."""
    if len(bandwidth) == 1:
        return np.full(1, np.inf)
    others = np.where(np.isfinite(bandwidth), bandwidth, np.nan)
    return np.asarray(np.nanmedian(others, axis=axis), dtype=np.float64)


def _even(
    words: str,
    owner: str,
    tier: int,
    direction: str,
    moved: NDArray[np.int64],
    bandwidth: float | None,
    latency: float,
) -> Links:
    """Make links that are all alike."""
    assert bandwidth is not None
    speed = np.full(len(moved), bandwidth, dtype=np.float64)
    late = np.where(moved > 0, latency, 0.0)
    return Links(words, owner, tier, direction, moved, speed, late)


_LOADS: dict[str, Callable[[Network, NDArray[np.int64]], tuple[Links, ...]]] = {
    "flat": _flat,
    "two-tier": _two_tier,
    "dims": _dims,
    "measured": _measured,
}
