"""What was measured of a cluster: pairs of ranks alone, and hosts whose ranks all talk at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.amounts import plural
from dtoolkit.comm.units import bandwidth as read_bandwidth
from dtoolkit.comm.units import seconds, share

__all__ = ["Measured"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements of a cluster's ranks.

    Attributes
    ----------
    latency : float64 array, shape (ranks, ranks)
        Seconds of a small message, [source, target]; 0 on the diagonal.
    bandwidth : float64 array, shape (ranks, ranks)
        Bytes a second of a pair that talks alone; infinite on the diagonal.
    host_capacity : float64 array, shape (nodes,)
        Bytes a second through a host when all of its ranks talk at once.
    nodes : int32 array, shape (ranks,)
        Host of each rank.
    message : float
        Seconds that a rank spends on each message it sends, beside its bytes.
    error : float or None
        Relative error of what is predicted from these numbers.
    """

    latency: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    host_capacity: NDArray[np.float64]
    nodes: NDArray[np.int32]
    message: float
    error: float | None

    @classmethod
    def of(
        cls, latency: Any, bandwidth: Any, host_capacity: Any, nodes: Any, message: Any, error: Any
    ) -> Measured:
        """Check what :meth:`dtoolkit.comm.Network.measured` was given.

        Raises
        ------
        ValueError
            Naming the argument that is wrong.
        """
        late, fast = _pairs(latency, "latency"), _pairs(bandwidth, "bandwidth")
        if late.shape != fast.shape:
            raise ValueError(
                f"latency is of {plural(len(late), 'rank')} and bandwidth of {len(fast)}: wanted "
                "the same"
            )
        np.fill_diagonal(late, 0.0)
        np.fill_diagonal(fast, np.inf)
        off = ~np.eye(len(late), dtype=bool)
        if not (np.isfinite(late[off]) & (late[off] >= 0)).all():
            raise ValueError("latency has entries that are negative or not finite")
        if not (np.isfinite(fast[off]) & (fast[off] > 0)).all():
            raise ValueError("bandwidth has entries that are not above 0 or not finite")
        hosts = _hosts(nodes, len(late))
        made = cls(
            late,
            fast,
            _capacity(host_capacity, int(hosts.max()) + 1),
            hosts,
            seconds(message, "message"),
            None if error is None else share(error, "error", most=np.inf),
        )
        for array in (made.latency, made.bandwidth, made.host_capacity, made.nodes):
            array.flags.writeable = False
        return made


def _pairs(value: Any, name: str) -> NDArray[np.float64]:
    found = _array(value, name, "numbers, ranks by ranks")
    if found.dtype.kind not in "iuf":
        raise ValueError(f"{name}: wanted numbers, ranks by ranks, got {found.dtype}")
    array = found.astype(np.float64)  # a copy: the diagonal is filled
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not len(array):
        raise ValueError(f"{name} has shape {array.shape}: wanted (ranks, ranks)")
    return array


def _hosts(value: Any, ranks: int) -> NDArray[np.int32]:
    if value is None:
        return np.zeros(ranks, dtype=np.int32)
    array = _array(value, "nodes", f"{plural(ranks, 'integer')}, the host of each rank")
    if array.shape != (ranks,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"nodes has shape {array.shape} and dtype {array.dtype}: wanted "
            f"{plural(ranks, 'integer')}, the host of each rank"
        )
    found = np.unique(array)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(f"nodes has hosts {found.tolist()}: wanted 0, 1, 2, ... without a gap")
    return array.astype(np.int32)


def _capacity(value: Any, hosts: int) -> NDArray[np.float64]:
    listed = isinstance(value, list | tuple) or np.ndim(value)
    if not listed:
        return np.full(hosts, read_bandwidth(value, "host_capacity"))
    entries = [read_bandwidth(entry, f"host_capacity[{i}]") for i, entry in enumerate(value)]
    if len(entries) != hosts:
        raise ValueError(f"host_capacity has {len(entries)} entries: wanted one, or {hosts}")
    return np.array(entries)


def _array(value: Any, name: str, wanted: str) -> NDArray[Any]:
    """Make an array of nested lists, unless they are ragged or too deep."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: wanted {wanted} ({error})") from error
