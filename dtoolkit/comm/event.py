"""What a rank writes down of one operation of the communicator."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Event"]


@dataclass(frozen=True, slots=True)
class Event:
    """One operation of the communicator, as one rank measured it.

    Attributes
    ----------
    launch : int
        Number of the launch within the cluster's life.
    rank : int
        The rank that made the call, numbered in the cluster (also in a subgroup).
    operation : str
        Name of the communicator's method, such as ``"all_to_all_v"``.
    phase : str
        Name given by ``with ctx.comm.phase(name)``; empty if none.
    start, end : float
        Seconds on the client's clock; the error of that alignment is ``Trace.clock_error``.
    sent : tuple of int
        Bytes of payload to each rank of the cluster.
    received : int
        Bytes of payload received.
    group : str
        Name of the subgroup; empty for all ranks.
    source, target : str
        Logical ends (clients, stages, shards), where there are more of them than ranks; empty if
        the ranks say it all.
    """

    launch: int
    rank: int
    operation: str
    phase: str
    start: float
    end: float
    sent: tuple[int, ...]
    received: int
    group: str = ""
    source: str = ""
    target: str = ""
