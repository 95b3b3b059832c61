"""Policies: what chooses the order in which chunks visit the dimensions of a network.

The baseline sends every chunk through dimension 1, 2, ... D, as hierarchical collectives do; the
first dimension then moves nearly all bytes, and the bandwidth of the others idles. Themis keeps the
load of each dimension and sends each chunk first where least is to be done.

Source: S. Rashidi et al., ISCA 2022, arXiv 2110.04478. No message is needed: the choice is a pure
function, computed in whole numbers, so that all ranks make the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

from dtoolkit.comm.exact import rational, whole
from dtoolkit.comm.network import Dimension

__all__ = ["POLICIES", "Baseline", "Policy", "Themis", "chosen", "cite"]


@runtime_checkable
class Policy(Protocol):
    """What a user's own policy must have.

    Attributes
    ----------
    name : str
        What it is called on cards and in figures.
    """

    @property
    def name(self) -> str:
        """What the policy is called."""
        ...

    def orders(
        self, dimensions: tuple[Dimension, ...], chunks: int, operation: str
    ) -> Sequence[Sequence[int]]:
        """Choose the order of each chunk.

        It must be a pure function: every rank calls it, and all must get the same.

        Parameters
        ----------
        dimensions : tuple of Dimension
            Each with ``kind``, ``ranks``, ``bandwidth`` (bytes a second a rank) and ``latency``
            (seconds a hop).
        chunks : int
        operation : {"reduce_scatter", "all_gather"}
            An all-reduce asks for its reduce-scatter, and gathers in the reverse.

        Returns
        -------
        sequence of sequence of int
            For each chunk a permutation of ``range(len(dimensions))``.
        """
        ...


@dataclass(frozen=True)
class Baseline:
    """Every chunk in the order of the dimensions, an all-gather in the reverse."""

    name: str = "baseline"

    def orders(
        self, dimensions: tuple[Dimension, ...], chunks: int, operation: str
    ) -> Sequence[Sequence[int]]:
        """See :meth:`Policy.orders`."""
        return [_default(len(dimensions), operation)] * chunks


@dataclass(frozen=True)
class Themis:
    """Every chunk first where the load is least (Rashidi et al., ISCA 2022).

    A chunk goes in the default order where loads are so even that what the least loaded dimension
    could absorb is under a `fineness`-th of it. Latency is not part of the load, as in the paper.
    The chunk that an all-gather is compared with is the shard that its first stage starts with;
    this reading of the paper is *reconstructed* (its figures are of all-reduces, whose chunk is
    what the reduce-scatter starts with).

    Parameters
    ----------
    fineness : int
        16 in the paper.
    """

    fineness: int = 16
    name: str = "themis"

    def __post_init__(self) -> None:
        if not isinstance(self.fineness, int) or self.fineness < 1:
            raise ValueError(f"fineness must be a whole number above 0, got {self.fineness!r}")

    def orders(
        self, dimensions: tuple[Dimension, ...], chunks: int, operation: str
    ) -> Sequence[Sequence[int]]:
        """See :meth:`Policy.orders`."""
        gathers = operation == "all_gather"
        default = _default(len(dimensions), operation)
        # A dimension of one rank moves nothing: it neither has a load nor matters where it stands.
        visited = [k for k in default if dimensions[k].ranks > 1]
        idle = [k for k in default if dimensions[k].ranks == 1]
        if not visited:
            return [default] * chunks
        ranks = [d.ranks for d in dimensions]
        speeds, _ = whole([rational(d.bandwidth) for d in dimensions])
        costs, unit = whole([1 / rational(speed) for speed in speeds])  # of a byte
        parts = prod(ranks)
        chunk = 1 if gathers else parts  # bytes, so that every share of it is a whole number
        load = [0] * len(dimensions)
        chosen_orders = []
        for _ in range(chunks):
            least = min(visited, key=lambda k: (load[k], k))
            gap = (max(load[k] for k in visited) - load[least]) * unit
            room = gap * speeds[least] * ranks[least] / (ranks[least] - 1)
            if room * self.fineness < chunk:
                order = default
            else:
                # Ties keep the default order, which the sort of an all-gather must not turn.
                order = sorted(visited, key=lambda k: -load[k] if gathers else load[k]) + idle
            left = chunk
            for k in order:
                if gathers:
                    load[k] += left * (ranks[k] - 1) * costs[k]
                    left *= ranks[k]
                else:
                    load[k] += left * (ranks[k] - 1) // ranks[k] * costs[k]
                    left //= ranks[k]
            chosen_orders.append(order)
        return chosen_orders


POLICIES: dict[str, Policy] = {"baseline": Baseline(), "themis": Themis()}

_SOURCES = {
    "baseline": (
        "Hierarchical collectives, dimension by dimension: the baseline of S. Rashidi et al., "
        "ISCA 2022, arXiv 2110.04478."
    ),
    "themis": (
        "S. Rashidi, W. Won, S. Srinivasan, S. Sridharan, T. Krishna, 'Themis: a network "
        "bandwidth-aware collective scheduling policy for distributed training of DL models', "
        "ISCA 2022, arXiv 2110.04478."
    ),
    "ideal": (
        "All bandwidth of all dimensions in use all the time: the bound of S. Rashidi et al., "
        "ISCA 2022, arXiv 2110.04478."
    ),
}


def chosen(policy: str | Policy) -> Policy:
    """Look a policy up by name; a user's own object is returned.

    Raises
    ------
    ValueError
        For an unknown name, or an object without ``name`` and ``orders``.
    """
    if isinstance(policy, str):
        if policy in POLICIES:
            return POLICIES[policy]
        hint = (
            "; 'ideal' is a bound on time, which no order of chunks stands for"
            if policy == "ideal"
            else ""
        )
        raise ValueError(
            f"policy must be one of {', '.join(POLICIES)} or an object with name and orders; got "
            f"{policy!r}{hint}"
        )
    own = isinstance(policy, Policy) and not isinstance(policy, type)
    if not own or not callable(policy.orders):
        raise ValueError(
            f"policy must be one of {', '.join(POLICIES)} or an object with name and orders("
            f"dimensions, chunks, operation); got {policy!r}"
        )
    return policy


def cite(policy: str = "themis") -> str:
    """Source of a policy, as text; a user's own names none."""
    return _SOURCES.get(policy, f"{policy}: no source is known to dtoolkit.")


def _default(dimensions: int, operation: str) -> list[int]:
    order = list(range(dimensions))
    return order[::-1] if operation == "all_gather" else order
