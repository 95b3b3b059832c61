"""The route of a plan as one rank sees it: what goes into each message, and where that goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import add

import torch

from dtoolkit.cluster import Context

__all__ = ["Hop", "Link", "reverse", "travel"]


@dataclass(frozen=True)
class Link:
    """Rows of one message that are rows of another.

    Attributes
    ----------
    stage, peer : int
        The other message: to or from this peer in this stage.
    index : int64 tensor
        Places there, among the rows of B, or among the partial rows of C.
    """

    stage: int
    peer: int
    index: torch.Tensor

    def to(self, device: torch.device) -> Link:
        """The same on another device."""
        return replace(self, index=self.index.to(device))


@dataclass(frozen=True)
class Hop:
    """One stage on one rank.

    A message holds rows of B, then partial rows of C. Of the rows of B those that the sender owns
    come first, then those that it got in earlier stages; of the partial rows those that the
    receiver owns come first, then those that it adds to what it sends later.

    Attributes
    ----------
    phase : str
        What the trace calls it.
    whole : bool
        Peers get the whole shard of B as it lies, or nothing; `gather` is empty.
    gather : tuple of int64 tensors
        Local rows of B to send to each peer.
    forward : tuple of tuples of Link
        Rows of B received earlier that follow them, by peer.
    scatter : tuple of int64 tensors
        Local rows of C that the first partial rows from each peer are added to.
    relay : tuple of tuples of Link
        Partial rows of later messages that those after them are added to, by peer.
    b_out, b_in, c_out, c_in : tuple of int
        Rows of B and partial rows of C, to and from each peer.
    """

    phase: str
    whole: bool
    gather: tuple[torch.Tensor, ...]
    forward: tuple[tuple[Link, ...], ...]
    scatter: tuple[torch.Tensor, ...]
    relay: tuple[tuple[Link, ...], ...]
    b_out: tuple[int, ...]
    b_in: tuple[int, ...]
    c_out: tuple[int, ...]
    c_in: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """Where the message of each peer begins in the received parcel, and its length."""
        return [0, *accumulate(map(add, self.b_in, self.c_in))]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All lists of rows."""
        links = [link.index for group in (*self.forward, *self.relay) for link in group]
        return (*self.gather, *self.scatter, *links)

    def to(self, device: torch.device) -> Hop:
        """The same on another device."""
        return replace(
            self,
            gather=tuple(index.to(device) for index in self.gather),
            scatter=tuple(index.to(device) for index in self.scatter),
            forward=_moved(self.forward, device),
            relay=_moved(self.relay, device),
        )


def reverse(hops: Sequence[Hop]) -> tuple[Hop, ...]:
    """The opposite direction: what was received is sent, what was added is gathered."""
    last = len(hops) - 1

    def turned(links: tuple[tuple[Link, ...], ...]) -> tuple[tuple[Link, ...], ...]:
        return tuple(
            tuple(replace(link, stage=last - link.stage) for link in group) for group in links
        )

    return tuple(
        Hop(
            phase=hop.phase,
            whole=False,
            gather=hop.scatter,
            forward=turned(hop.relay),
            scatter=_whole_shards(hop) if hop.whole else hop.gather,
            relay=turned(hop.forward),
            b_out=hop.c_in,
            b_in=hop.c_out,
            c_out=hop.b_in,
            c_in=hop.b_out,
        )
        for hop in reversed(hops)
    )


def travel(
    ctx: Context, hops: Sequence[Hop], X: torch.Tensor, phase: str, *, agreed: bool = False
) -> list[torch.Tensor]:
    """Send rows along the way of the rows of B, and nothing else.

    Parameters
    ----------
    ctx : Context
    hops : sequence of Hop
        In the plan's direction for rows laid out as B; reversed (:func:`reverse`) for rows of C,
        which then reach everybody who computes partial sums of them.
    X : torch.Tensor, shape (rows here, ...)
    phase : str
        For the trace; followed by the name of the stage, where there are several.
    agreed : bool
        All ranks are known to pass the same dtype and width.

    Returns
    -------
    list of torch.Tensor, shape (rows of the parcel, ...)
        What came in each stage, where the product's parcel has it; room for partial rows between.
    """
    parcels: list[torch.Tensor] = []
    views: list[list[torch.Tensor]] = []
    for hop in hops:
        starts = hop.starts
        parcel = X.new_empty((starts[-1], *X.shape[1:]))
        places = [parcel[start : start + b] for start, b in zip(starts, hop.b_in, strict=False)]
        sends = []
        for peer, index in enumerate(hop.gather):
            if hop.whole:
                sends.append(X if hop.b_out[peer] else X[:0])
                continue
            later = [views[link.stage][link.peer][link.index] for link in hop.forward[peer]]
            sends.append(torch.cat([X[index], *later]))
        with ctx.comm.phase(phase + hop.phase.removeprefix("spmm")):
            ctx.comm.all_to_all(sends, out=places, agreed=agreed)
        parcels.append(parcel)
        views.append(places)
    return parcels


def _whole_shards(hop: Hop) -> tuple[torch.Tensor, ...]:
    """Places of the whole shard for each peer that gets it."""
    return tuple(torch.arange(n, device=hop.gather[0].device) for n in hop.b_out)


def _moved(
    links: tuple[tuple[Link, ...], ...], device: torch.device
) -> tuple[tuple[Link, ...], ...]:
    return tuple(tuple(link.to(device) for link in group) for group in links)
