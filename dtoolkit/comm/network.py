"""Networks: how fast ranks reach each other, as data that is made without any cluster.

A :class:`Network` is flat (a rank's way out and way in), two-tier (nodes of ranks), of D dimensions
(rings, fully connected groups and switches), or measured pair by pair. It says what one message
takes (:meth:`Network.time`) and how a matrix of bytes loads its links (:meth:`Network.loads`), on
which :func:`dtoolkit.comm.predict` stands. All times are modelled.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtoolkit.comm import links, networkfile, paths
from dtoolkit.comm.dimension import Dimension, count
from dtoolkit.comm.links import Links
from dtoolkit.comm.measured import Measured
from dtoolkit.comm.rates import rate_of, rates
from dtoolkit.comm.units import bandwidth, seconds, share

__all__ = ["Dimension", "Network"]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """What connects ranks (modelled). Make one by :meth:`flat`, :meth:`two_tier`, :meth:`dims`.

    Attributes
    ----------
    kind : {"flat", "two-tier", "dims", "measured"}
    ranks : int
    dimensions : tuple of Dimension
        From the fastest varying: one switch of a flat network; of a two-tier one the ranks inside a
        node and then the nodes; none of a measured one.
    node_bandwidth : float or None
        Two-tier: bytes a second that all ranks of a node together send to other nodes, and receive
        from them.
    rate : float, mapping of str to float, or None
        Nonzeros times dense columns that a rank's kernel multiplies a second, also by name of
        dtype; None: time to compute is not modelled.
    table : Measured or None
        What was measured, of a measured network.
    overhead : float
        Seconds that a launch takes beside what the ranks do in it.
    overlap : float
        Share of the shorter of sending and computing that hides behind the other one, from 0 (they
        share the same cores) to 1.
    """

    kind: str
    ranks: int
    dimensions: tuple[Dimension, ...] = ()
    node_bandwidth: float | None = None
    rate: float | Mapping[str, float] | None = None
    table: Measured | None = None
    overhead: float = 0.0
    overlap: float = 1.0

    @classmethod
    def flat(
        cls,
        ranks: int,
        *,
        bandwidth: float | str,
        latency: float | str = 0.0,
        rate: float | Mapping[str, float] | None = None,
    ) -> Network:
        """Any rank reaches any other; each has one way out and one way in, used at the same time.

        Parameters
        ----------
        ranks : int
        bandwidth : float or str
            Of each way, in bytes a second, or text such as ``"10GB/s"``.
        latency : float or str
            Of each message, in seconds, or text such as ``"5us"``.
        rate : float or mapping of str to float, optional
            Nonzeros times dense columns a second of a rank's kernel.

        Raises
        ------
        ValueError
            Naming the argument that is wrong.
        """
        one = Dimension("switch", ranks, bandwidth, latency)  # type: ignore[arg-type]
        return cls("flat", one.ranks, (one,), rate=rates(rate))

    @classmethod
    def two_tier(
        cls,
        *,
        nodes: int,
        ranks_per_node: int,
        inter: float | str,
        intra: float | str,
        inter_latency: float | str = 0.0,
        intra_latency: float | str = 0.0,
        node: float | str | None = None,
        rate: float | Mapping[str, float] | None = None,
    ) -> Network:
        """Nodes of ranks: ranks 0, 1, ... of the first node, then those of the second.

        Parameters
        ----------
        nodes, ranks_per_node : int
        inter : float or str
            Bytes a second of one rank's way to other nodes, and of its way from them.
        intra : float or str
            Bytes a second of one rank's way to the other ranks of its node, and from them.
        inter_latency, intra_latency : float or str
            Seconds of a message between nodes, and inside one.
        node : float or str, optional
            Bytes a second that all ranks of a node together send to other nodes, and receive; by
            default as much as they can send each by itself.
        rate : float or mapping of str to float, optional
            Nonzeros times dense columns a second of a rank's kernel.

        Raises
        ------
        ValueError
            Naming the argument that is wrong.
        """
        nodes, each = count(nodes, "nodes"), count(ranks_per_node, "ranks_per_node")
        inner = Dimension(
            "switch", each, bandwidth(intra, "intra"), seconds(intra_latency, "intra_latency")
        )
        outer = Dimension(
            "switch", nodes, bandwidth(inter, "inter"), seconds(inter_latency, "inter_latency")
        )
        all_ranks = bandwidth(each * outer.bandwidth if node is None else node, "node")
        ranks = count(nodes * each, "nodes * ranks_per_node")
        return cls("two-tier", ranks, (inner, outer), all_ranks, rates(rate))

    @classmethod
    def dims(
        cls,
        dimensions: Iterable[Dimension | tuple[Any, ...]],
        *,
        rate: float | Mapping[str, float] | None = None,
    ) -> Network:
        """Ranks in a grid of D dimensions, each a ring, a fully connected group or a switch.

        Rank ``c0 + n0 * (c1 + n1 * c2 ...)`` has coordinates ``(c0, c1, c2, ...)``. A message goes
        dimension by dimension, the first one first.

        Parameters
        ----------
        dimensions : iterable of Dimension or of (kind, ranks, bandwidth[, latency])
            Kind ``"ring"``, ``"fc"`` (``"fully-connected"``) or ``"switch"`` (``"sw"``); ranks in
            this dimension; bytes a second that a rank sends in it, over all its links there;
            seconds a hop.
        rate : float or mapping of str to float, optional
            Nonzeros times dense columns a second of a rank's kernel.

        Raises
        ------
        ValueError
            Naming the dimension and what is wrong with it.
        """
        wanted = "wanted a list of (kind, ranks, bandwidth[, latency])"
        if isinstance(dimensions, str | Mapping) or not isinstance(dimensions, Iterable):
            raise ValueError(f"dimensions={dimensions!r}: {wanted}")
        made = tuple(Dimension.of(d, f"dimension {i}") for i, d in enumerate(dimensions))
        if not made:
            raise ValueError(f"dimensions is empty: {wanted}")
        ranks = count(math.prod(d.ranks for d in made), "ranks of all dimensions together")
        return cls("dims", ranks, made, None, rates(rate))

    @classmethod
    def measured(
        cls,
        *,
        latency: ArrayLike,
        bandwidth: ArrayLike,
        host_capacity: ArrayLike | str,
        nodes: ArrayLike | None = None,
        message: float | str = 0.0,
        rate: float | Mapping[str, float] | None = None,
        overhead: float | str = 0.0,
        overlap: float = 1.0,
        error: float | None = None,
    ) -> Network:
        """Ranks as they were measured, pair by pair and all at once.

        Parameters
        ----------
        latency : array of float, shape (ranks, ranks)
            Seconds of a small message, [source, target]; the diagonal is not read.
        bandwidth : array of float, shape (ranks, ranks)
            Bytes a second of a pair that talks alone; the diagonal is not read.
        host_capacity : float, str or array of float, shape (nodes,)
            Bytes a second that move through a host when all of its ranks talk at once: what they
            send, and what comes to them from other hosts.
        nodes : array of int, shape (ranks,), optional
            Host of each rank, from 0; by default all ranks are on one.
        message : float or str
            Seconds that a rank spends on each message that it sends, beside its bytes.
        rate : float or mapping of str to float, optional
            Nonzeros times dense columns a second of a rank's kernel, also by name of dtype.
        overhead : float or str
            Seconds that a launch takes beside what the ranks do in it.
        overlap : float
            Share of the shorter of sending and computing that hides behind the other, 0 to 1.
        error : float, optional
            Relative error of what this network says, as it was measured (0.1 is 10%).

        Raises
        ------
        ValueError
            Naming the argument that is wrong.
        """
        table = Measured.of(latency, bandwidth, host_capacity, nodes, message, error)
        return cls(
            "measured",
            len(table.nodes),
            rate=rates(rate),
            table=table,
            overhead=seconds(overhead, "overhead"),
            overlap=share(overlap, "overlap"),
        )

    @cached_property
    def nodes(self) -> NDArray[np.int32]:
        """Node of each rank: int32 array of shape (ranks,).

        In a flat network each rank is its own node; in one of dimensions, ranks along the first
        one are a node.
        """
        if self.table is not None:
            return self.table.nodes
        each = 1 if self.kind == "flat" else self.dimensions[0].ranks
        return (np.arange(self.ranks) // each).astype(np.int32)

    @property
    def ranks_per_node(self) -> int | None:
        """Ranks of each node; None where nodes have different numbers of them."""
        sizes = np.bincount(self.nodes)
        return int(sizes[0]) if (sizes == sizes[0]).all() else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Ranks in each dimension, from the fastest varying."""
        return tuple(d.ranks for d in self.dimensions) or (self.ranks,)

    @property
    def name(self) -> str:
        """The network in a few words."""
        return paths.name(self)

    def rate_of(self, dtype: Any = None) -> float | None:
        """Nonzeros times columns a second of a rank's kernel for a dtype; None: not modelled.

        Parameters
        ----------
        dtype : dtype or str, optional
            NumPy's, torch's, or a name; not needed where one rate holds for all.

        Raises
        ------
        ValueError
            If rates are known by dtype, and not for this one.
        """
        return rate_of(self.rate, dtype)

    def time(self, source: ArrayLike, target: ArrayLike, nbytes: ArrayLike | str) -> Any:
        """Seconds of one message that has the network to itself (modelled).

        Parameters
        ----------
        source, target : int or array of int
            Ranks; arrays are broadcast. A message to oneself takes no time.
        nbytes : int, str or array of int
            Bytes.

        Returns
        -------
        float, or float64 array

        Raises
        ------
        ValueError
            For what is not a rank, or a negative size.
        """
        return paths.time(self, source, target, nbytes)

    def loads(self, sent: ArrayLike) -> tuple[Links, ...]:
        """Tell how bytes that are all sent at once load each link (modelled).

        Parameters
        ----------
        sent : array of int, shape (ranks, ranks)
            Bytes, [source, target]; the diagonal stays where it is and loads nothing.

        Returns
        -------
        tuple of Links
            Groups of links of one kind: bytes, seconds and latency of each.

        Raises
        ------
        ValueError
            If the shape is another, or bytes are negative or no whole numbers.
        """
        return links.loads(self, sent)

    def with_ranks(self, ranks: int) -> Network:
        """Return the same kind of network with another number of ranks.

        A two-tier network gets more or fewer nodes, of the same number of ranks (of fewer, where
        one node is not filled); its ``node`` bandwidth stays.

        Raises
        ------
        ValueError
            If ``ranks`` fills no whole number of nodes, or the network has dimensions or was
            measured: what it would be with more ranks is not known.
        """
        return paths.with_ranks(self, ranks)

    def to_json(self) -> str:
        """Write the network as JSON text, which :meth:`from_json` reads."""
        return networkfile.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Network:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            If the text is no network, or one of a newer version; in words.
        """
        return networkfile.from_json(cls, text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_json` to a file."""
        networkfile.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Network:
        """Read a file of :meth:`save`.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        ValueError
            If it is no network; in words.
        """
        return networkfile.load(cls, path)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Network):
            return NotImplemented
        return self is other or self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"<Network: {self.name}>"

    def _repr_html_(self) -> str:
        from dtoolkit.figures.network_cards import network_card

        return network_card(self)
