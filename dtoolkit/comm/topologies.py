"""The six networks of 1,024 ranks that Themis was evaluated on, by name.

Source: S. Rashidi et al., ISCA 2022, arXiv 2110.04478: ranks and bandwidth in each dimension.
Latencies are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dtoolkit.comm import units
from dtoolkit.comm.network import Network

__all__ = ["TOPOLOGIES", "topology"]

TOPOLOGIES: dict[str, tuple[tuple[str, int, float], ...]] = {
    "2D-SW_SW": (("switch", 16, 150e9), ("switch", 64, 100e9)),
    "3D-homo": (("switch", 16, 100e9), ("switch", 8, 100e9), ("switch", 8, 100e9)),
    "3D-hetero": (("switch", 16, 200e9), ("switch", 8, 100e9), ("switch", 8, 50e9)),
    "3D-FC_Ring_SW": (("fc", 8, 175e9), ("ring", 16, 100e9), ("switch", 8, 50e9)),
    "4D-Ring_SW_SW_SW": (
        ("ring", 4, 250e9),
        ("switch", 4, 200e9),
        ("switch", 8, 100e9),
        ("switch", 8, 50e9),
    ),
    "4D-Ring_FC_Ring_SW": (
        ("ring", 4, 375e9),
        ("fc", 8, 175e9),
        ("ring", 4, 150e9),
        ("switch", 8, 100e9),
    ),
}
"""Kind, ranks and bytes a second a rank of each dimension, the first one inside."""


def topology(name: str, *, latency: float | str | Sequence[float | str] = 0.0) -> Network:
    """Make one of the six networks.

    Parameters
    ----------
    name : str
        One of :data:`TOPOLOGIES`.
    latency : float, str, or a sequence of them
        Seconds a hop, or text such as ``"0.3us"``; one for all dimensions, or one for each.

    Returns
    -------
    Network

    Raises
    ------
    ValueError
        For an unknown name, a negative latency, or as many latencies as there are not dimensions.

    Examples
    --------
    >>> topology("3D-hetero", latency="0.5us").shape
    (16, 8, 8)
    """
    if not isinstance(name, str) or name not in TOPOLOGIES:
        raise ValueError(f"name must be one of {', '.join(TOPOLOGIES)}; got {name!r}")
    dimensions = TOPOLOGIES[name]
    if isinstance(latency, Sequence) and not isinstance(latency, str):
        each = list(latency)
    else:
        each = [latency] * len(dimensions)
    if len(each) != len(dimensions):
        raise ValueError(
            f"latency has {len(each)} entries for the {len(dimensions)} dimensions of {name}"
        )
    return Network.dims(
        [
            (*dimension, units.seconds(one, "latency"))
            for dimension, one in zip(dimensions, each, strict=True)
        ]
    )
