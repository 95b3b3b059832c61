"""Which ranks share a machine, and whether a network can be emulated on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Client

from dtoolkit.cluster.member import Member
from dtoolkit.comm.network import Network

__all__ = ["check_emulation", "nodes_of", "ranks_to_emulate"]


def nodes_of(members: Sequence[Member]) -> tuple[int, ...]:
    """Number of each member's machine, from 0 in the order in which they come."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(_machine(m), len(numbers)) for m in members)


def ranks_to_emulate(network: Any, workers: int | None, client: Client | None) -> int:
    """Check an ``emulate=`` before anything starts; gives the number of workers.

    Raises
    ------
    TypeError
        It is no network.
    ValueError
        It has another number of ranks than the workers asked for, or than the client's.
    """
    if not isinstance(network, Network):
        raise TypeError(
            f"emulate must be a dtoolkit.comm.Network, got {type(network).__name__}: make one by "
            "Network.flat, .two_tier or .dims"
        )
    if workers is None and client is not None:
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
    if workers not in (None, network.ranks):
        raise ValueError(_other_size(network, workers))
    return network.ranks


def check_emulation(network: Network, members: Sequence[Member]) -> None:
    """Check that a network can be emulated between these workers.

    Raises
    ------
    ValueError
        It has fewer ranks than there are, or they do not share a clock: they are on several
        machines.
    """
    if len(members) > network.ranks:
        raise ValueError(_other_size(network, len(members)))
    machines = {_machine(m): m.host for m in members}
    if len(machines) > 1:
        raise ValueError(
            f"emulate={network.name!r} needs workers on one machine, which share a clock; these "
            f"are on {len(machines)}: {', '.join(sorted(machines.values()))}. Measure their own "
            "network instead: dtoolkit.cluster.calibrate(cluster)"
        )


def _machine(member: Member) -> str:
    return member.boot or member.host


def _other_size(network: Network, workers: int | None) -> str:
    return (
        f"emulate is a network of {network.ranks} ranks ({network.name}) and the cluster has "
        f"{workers} workers: they must be as many"
    )
