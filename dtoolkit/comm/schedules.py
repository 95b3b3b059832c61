"""Schedules of collectives over a network of dimensions: in what order each chunk visits them.

A collective over ranks in a grid is cut in chunks. A chunk's reduce-scatter goes dimension by
dimension, and after one of ``p`` ranks only a ``p``-th of it is left for the next; an all-gather is
the reverse. Any order gives the same result and moves the same bytes in all, but which dimension
moves most of them depends on the order, and every chunk may take its own. A :class:`Schedule` is
that choice as data, made by a pure function (:func:`schedule`) of the network and the number of
chunks, so that all ranks make the same one without a message.

Source: S. Rashidi et al., "Themis: a network bandwidth-aware collective scheduling policy for
distributed training of DL models", ISCA 2022, arXiv 2110.04478.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import prod
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.amounts import grid_text, plural
from dtoolkit.comm.arguments import check_chunks, check_operation, check_stages, dimensions_of
from dtoolkit.comm.network import Dimension, Network
from dtoolkit.comm.themis import Policy, chosen, cite

__all__ = ["Schedule", "Stage", "schedule", "stage_count"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of one chunk in one dimension.

    Attributes
    ----------
    dimension : int
    operation : {"reduce_scatter", "all_gather"}
    moved : Fraction
        What each rank sends, as a share of the chunk; a chunk's size is that of the whole tensor
        (what a reduce-scatter starts with, what an all-gather ends with) over the number of chunks.
    """

    dimension: int
    operation: str
    moved: Fraction


@dataclass(frozen=True)
class Schedule:
    """In what order each chunk of a collective visits the dimensions of a network.

    Attributes
    ----------
    dimensions : tuple of Dimension
        Of the network, from the fastest varying.
    orders : tuple of tuple of int
        For each chunk a permutation of the dimensions: the order of its reduce-scatter. An
        all-reduce gathers in the exact reverse. For an all-gather alone: the order of that.
    operation : {"all_reduce", "reduce_scatter", "all_gather"}
    policy : str
        Name of what chose the orders.

    Raises
    ------
    ValueError
        For no chunks, an order that is no permutation, or an unknown operation.
    """

    dimensions: tuple[Dimension, ...]
    orders: tuple[tuple[int, ...], ...]
    operation: str = "all_reduce"
    policy: str = "own"

    def __post_init__(self) -> None:
        made = tuple(Dimension.of(d, f"dimension {i}") for i, d in enumerate(self.dimensions))
        object.__setattr__(self, "dimensions", made)
        object.__setattr__(self, "orders", _permutations(self.orders, len(made)))
        check_operation(self.operation)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.orders)

    @property
    def shape(self) -> tuple[int, ...]:
        """Ranks in each dimension, from the fastest varying."""
        return tuple(d.ranks for d in self.dimensions)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return prod(self.shape)

    def stages(self, chunk: int) -> tuple[Stage, ...]:
        """Operations of a chunk, in their order; a dimension of one rank has none."""
        return _stages(self.shape, self.orders[chunk], self.operation)

    @cached_property
    def shares(self) -> tuple[Fraction, ...]:
        """What each rank sends in each dimension, as a share of the whole tensor; exact.

        Their sum does not depend on the orders: ``1 - 1/ranks``, twice that for an all-reduce.
        """
        total = [Fraction(0)] * len(self.dimensions)
        for order, times in Counter(self.orders).items():
            for stage in _stages(self.shape, order, self.operation):
                total[stage.dimension] += times * stage.moved
        return tuple(share / self.chunks for share in total)

    def bytes_sent(self, elements: int, itemsize: int) -> NDArray[np.int64]:
        """Bytes that each rank sends in each dimension when an all-reduce is really executed.

        Where sizes do not divide, the first chunks and the first ranks of a dimension have one
        element more, as in :func:`dtoolkit.comm.all_reduce_scheduled`.

        Parameters
        ----------
        elements : int
            Of the tensor.
        itemsize : int
            Bytes of an element.

        Returns
        -------
        int64 array, shape (ranks, dimensions)
        """
        strides = np.cumprod([1, *self.shape])
        places = [np.arange(self.ranks) // s % p for s, p in zip(strides, self.shape, strict=False)]
        sent = np.zeros((self.ranks, len(self.shape)), dtype=np.int64)
        chunk, longer = divmod(elements, self.chunks)
        kinds = Counter((order, int(i < longer)) for i, order in enumerate(self.orders))
        for (order, more), times in kinds.items():
            held = np.full(self.ranks, chunk + more, dtype=np.int64)
            for k in order:
                own = held // self.shape[k] + (places[k] < held % self.shape[k])
                if self.operation != "all_gather":
                    sent[:, k] += times * (held - own)
                if self.operation != "reduce_scatter":
                    sent[:, k] += times * own * (self.shape[k] - 1)
                held = own
        return sent * itemsize

    @cached_property
    def digest(self) -> int:
        """Number below 2**62 that tells schedules apart, the same on every machine."""
        data = hashlib.blake2b(self.to_json().encode(), digest_size=8).digest()
        return int.from_bytes(data, "big") >> 2

    def cite(self) -> str:
        """Source of the policy, as text."""
        return cite(self.policy)

    def to_json(self) -> str:
        """Write the schedule as JSON text, which :meth:`from_json` reads."""
        return json.dumps(
            {
                "dtoolkit schedule": _VERSION,
                "dimensions": [[d.kind, d.ranks, d.bandwidth, d.latency] for d in self.dimensions],
                "operation": self.operation,
                "policy": self.policy,
                "orders": self.orders,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            If the text is no schedule, or one of a newer version.
        """
        try:
            data = json.loads(text)
            version = data["dtoolkit schedule"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"this is no schedule: {error}") from error
        if version != _VERSION:
            raise ValueError(f"schedule of version {version}; this dtoolkit reads {_VERSION}")
        try:
            return cls(tuple(data["dimensions"]), data["orders"], data["operation"], data["policy"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"this schedule is damaged: {error!r}") from error

    def __repr__(self) -> str:
        kinds = len(set(self.orders))
        return (
            f"<Schedule: {self.policy}, {self.operation} over {grid_text(self.shape)}, "
            f"{plural(self.chunks, 'chunk')} in {plural(kinds, 'order')}>"
        )

    def _repr_html_(self) -> str:
        from dtoolkit.figures.schedule_cards import schedule_card

        return schedule_card(self)


def schedule(
    network: Network,
    policy: str | Policy = "themis",
    *,
    chunks: int = 64,
    operation: str = "all_reduce",
) -> Schedule:
    """Choose the order of every chunk: a pure function, with the same result on every rank.

    Parameters
    ----------
    network : Network
        Of dimensions, two-tier (two switches, the ranks of a node first) or flat (one switch).
    policy : {"baseline", "themis"} or Policy
        Or a user's own, :class:`dtoolkit.comm.themis.Policy`.
    chunks : int
        So few that they have at most 500,000 stages between them: one in each dimension of more
        than one rank, two for an all-reduce.
    operation : {"all_reduce", "reduce_scatter", "all_gather"}

    Returns
    -------
    Schedule

    Raises
    ------
    ValueError
        For an argument out of place, too many chunks, or a policy that gives no permutations.
    """
    check_operation(operation)
    check_chunks(chunks)
    dimensions = dimensions_of(network)
    check_stages(chunks, stage_count(dimensions, chunks, operation))
    choice = chosen(policy)
    half = "all_gather" if operation == "all_gather" else "reduce_scatter"
    orders = _permutations(choice.orders(dimensions, int(chunks), half), len(dimensions))
    if len(orders) != chunks:
        raise ValueError(f"policy {choice.name!r} gave {len(orders)} orders for {chunks} chunks")
    return Schedule(dimensions, orders, operation, choice.name)


def stage_count(dimensions: tuple[Dimension, ...], chunks: int, operation: str) -> int:
    """Stages that chunks have between them; where there are none, each chunk counts as one."""
    visits = sum(d.ranks > 1 for d in dimensions)
    return int(chunks) * max(1, visits * (2 if operation == "all_reduce" else 1))


@lru_cache(maxsize=4096)
def _stages(shape: tuple[int, ...], order: tuple[int, ...], operation: str) -> tuple[Stage, ...]:
    stages = []
    left = Fraction(1)
    visits = [k for k in order if shape[k] > 1]
    if operation != "all_gather":
        for k in visits:
            stages.append(Stage(k, "reduce_scatter", left * (shape[k] - 1) / shape[k]))
            left /= shape[k]
        visits.reverse()
    if operation != "reduce_scatter":
        left = Fraction(1, prod(shape))
        for k in visits:
            stages.append(Stage(k, "all_gather", left * (shape[k] - 1)))
            left *= shape[k]
    return tuple(stages)


def _permutations(orders: Any, dimensions: int) -> tuple[tuple[int, ...], ...]:
    made = []
    if not isinstance(orders, Iterable):
        raise ValueError(f"orders must list an order for each chunk, got {orders!r}")
    for chunk, order in enumerate(orders):
        try:
            one = tuple(index(k) for k in order)
        except TypeError as error:
            raise ValueError(f"order of chunk {chunk} must list dimensions: {order!r}") from error
        if sorted(one) != list(range(dimensions)):
            raise ValueError(
                f"order of chunk {chunk} is {one}: wanted each of the dimensions 0 to "
                f"{dimensions - 1} once"
            )
        made.append(one)
    if not made:
        raise ValueError("a schedule has at least one chunk; orders is empty")
    return tuple(made)
