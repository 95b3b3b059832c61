"""One dimension of a network: how the ranks that differ in one coordinate are connected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtoolkit.comm.units import bandwidth, seconds

__all__ = ["Dimension", "count"]

KINDS = {
    "ring": "ring",
    "fc": "fc",
    "fully-connected": "fc",
    "fully connected": "fc",
    "fully_connected": "fc",
    "fullyconnected": "fc",
    "switch": "switch",
    "sw": "switch",
}


@dataclass(frozen=True)
class Dimension:
    """One dimension of a network.

    Attributes
    ----------
    kind : {"ring", "fc", "switch"}
        Neighbours on a ring; each connected with each (also ``"fully-connected"``); all on one
        switch (also ``"sw"``).
    ranks : int
        Ranks along this dimension.
    bandwidth : float
        Bytes a second that a rank sends in this dimension, over all its links there; as much comes
        in at the same time. Text such as ``"100GB/s"`` is read.
    latency : float
        Seconds a hop. A message takes one hop, on a ring as many as the short way has.

    Raises
    ------
    ValueError
        Naming the field that is wrong.
    """

    kind: str
    ranks: int
    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        kind = KINDS.get(self.kind.lower()) if isinstance(self.kind, str) else None
        if kind is None:
            raise ValueError(f"kind={self.kind!r}: wanted 'ring', 'fc' or 'switch'")
        values = {
            "kind": kind,
            "ranks": count(self.ranks, "ranks"),
            "bandwidth": bandwidth(self.bandwidth),
            "latency": seconds(self.latency, "latency"),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, value: Any, name: str) -> Dimension:
        """Make a dimension of ``(kind, ranks, bandwidth[, latency])``, or return the one it is.

        Raises
        ------
        ValueError
            Naming the dimension (``name``) and what is wrong with it.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, tuple | list) or len(value) not in (3, 4):
            raise ValueError(f"{name} is {value!r}: wanted (kind, ranks, bandwidth[, latency])")
        try:
            return cls(*value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def hops(self, source: Any, target: Any) -> Any:
        """Hops between coordinates in this dimension: int, or int array."""
        if self.kind != "ring":
            return (source != target) * 1
        away = (target - source) % self.ranks
        return np.minimum(away, self.ranks - away)


def count(value: Any, name: str) -> int:
    """Check that a number of ranks or nodes is a whole one, of at least 1, in 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}={value!r}: wanted an integer of at least 1")
    if value >= 2**31:
        raise ValueError(f"{name}={value!r}: wanted at most {2**31 - 1:,}")
    return int(value)
