"""Operations on the same tensors again and again: prepared once, then started with little work.

What :class:`~dtoolkit.comm.communicator.Communicator` does anew in each call (views of the pieces,
room for what comes, a comparison of what the ranks are about to do) is done once. Each start is a
few messages, in the background, and leaves its event in the trace.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from dtoolkit.comm.exchange import USER_TAGS, Tensors, flat
from dtoolkit.comm.messages import DTYPES
from dtoolkit.comm.pairs import between_pairs
from dtoolkit.comm.pending import Pending, Staged
from dtoolkit.comm.reduction import reduce_into
from dtoolkit.errors import MessageMismatch

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = ["StandingGather", "StandingSum", "StandingSwap"]

_SWAP_TAGS = USER_TAGS + (1 << 20), 1 << 20  # from where on, and how many
_HEAD = 16  # bytes before a swapped tensor, which may be of any dtype then


class _Standing(ABC):
    """An operation that waits to be started.

    All ranks make it together and start it in the same order as their other calls; a start must
    have ended before the next one of the same operation.
    """

    operation: str
    packed = False  # what is sent lies end to end in memory, and so does what is filled
    _second: Callable[[], tuple[Tensors, Tensors]] | None = None  # a second round, if there is one

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def start(self) -> Pending:
        """Start it; ``wait()`` on what is returned ends it."""
        comm = self._comm
        began, phase = time.perf_counter(), comm._recorder.phase
        if comm._recorder.watch is not None:
            comm._recorder.watch.begins(self.operation, phase[0])
        comm._sequence += 1
        tag = 2 * (comm._sequence % (USER_TAGS // 2))
        second = self._second

        def following() -> Pending:
            assert second is not None
            return self._send(*second(), tag + 1)

        def finish() -> None:
            self._end()
            comm._record(self.operation, phase, began, call.ended, dict(self._sent), self._received)

        in_order = comm._transport.in_order
        call = Staged(
            self._send(*self._first(), tag),
            following if second is not None else None,
            finish,
            background=not in_order,
        )
        if second is not None and in_order:
            call.wait()
        comm._awaited(call, False)
        return call

    def _count(self, *stages: tuple[Tensors, Tensors]) -> None:
        """Bytes that a start sends to each rank, and receives."""
        others = [peer for peer in range(self._comm.size) if peer != self._comm.rank]
        self._sent = {peer: sum(_size(sends[peer]) for sends, _ in stages) for peer in others}
        self._received = sum(_size(fill[peer]) for _, fill in stages for peer in others)

    def _others(self, tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
        """As bytes, without this rank's own."""
        rank = self._comm.rank
        return [None if p == rank else flat(t).view(torch.uint8) for p, t in enumerate(tensors)]

    def _send(self, sends: Tensors, receives: Tensors, tag: int) -> Pending:
        if self._comm.size == 1:
            pending = Pending(self._comm._transport.interrupt)
            pending.complete()
            return pending
        return self._comm._transport.exchange(sends, receives, tag, packed=self.packed)

    @abstractmethod
    def _first(self) -> tuple[Tensors, Tensors]:
        """What each rank gets, and what to fill."""

    def _end(self) -> None:  # noqa: B027  -- most have nothing
        """What is left to do once all has come."""


class StandingSum(_Standing):
    """The sum of a tensor over all ranks, in rank order, put in its place.

    The same as ``comm.all_reduce(tensor, out=tensor)``: the same bits and bytes.

    Parameters
    ----------
    comm : Communicator
    tensor : torch.Tensor
        Contiguous; the same size and dtype on all ranks, which are compared here, once.
    message : torch.Tensor, optional
        Of two ranks only, which tell each other all that they have: memory that begins with the
        tensor, as uint8. What is behind it travels too.
    agreed : bool
        True: the ranks know that theirs are alike; they are not compared, and nothing is sent.

    Attributes
    ----------
    came : torch.Tensor or None
        The other rank's `message`; filled by every start.

    Raises
    ------
    ValueError
        The tensor is not contiguous, or the message cannot travel with it.
    MessageMismatch
        Ranks have tensors of another size or dtype.
    """

    operation = "all_reduce"

    def __init__(
        self,
        comm: Communicator,
        tensor: torch.Tensor,
        *,
        message: torch.Tensor | None = None,
        agreed: bool = False,
    ) -> None:
        super().__init__(comm)
        _check(comm, tensor, agreed=agreed)
        whole = flat(tensor.detach())
        # Two ranks tell each other all that they have: as many bytes, in one round instead of two.
        self._pair = comm.size == 2
        self.came: torch.Tensor | None = None
        if message is not None:
            self._lay_pair(whole, message)
            return
        pieces = [whole, whole] if self._pair else list(torch.tensor_split(whole, comm.size))
        own = pieces[comm.rank]
        # What the others send of this rank's share; its own part lies where the sum will.
        self._rows = [own if p == comm.rank else torch.empty_like(own) for p in range(comm.size)]
        self._spread = self._others(pieces), self._others(self._rows)
        self._gather = self._others([own] * comm.size), self._others(pieces)
        self._second = None if self._pair else self._summed
        self._count(*([self._spread] if self._pair else [self._spread, self._gather]))

    def _lay_pair(self, whole: torch.Tensor, message: torch.Tensor) -> None:
        """Where what the two ranks tell each other lies."""
        if not self._pair or message.data_ptr() != whole.data_ptr():
            raise ValueError(
                f"message is for sums of 2 ranks, and begins with the tensor; there are "
                f"{self._comm.size} ranks"
            )
        self.came = torch.empty_like(message)
        theirs = self.came[: whole.nbytes].view(whole.dtype)
        self._rows = [whole if p == self._comm.rank else theirs for p in range(2)]
        self._spread = self._others([message] * 2), self._others([self.came] * 2)
        self._count(self._spread)

    def _first(self) -> tuple[Tensors, Tensors]:
        return self._spread

    def _summed(self) -> tuple[Tensors, Tensors]:
        reduce_into(self._rows, self._comm.rank, "sum")
        return self._gather

    def _end(self) -> None:
        if self._pair:
            reduce_into(self._rows, self._comm.rank, "sum")


class StandingGather(_Standing):
    """The tensors of all ranks on every rank; for small ones: this rank's is laid out P times.

    Parameters
    ----------
    comm : Communicator
    tensor : torch.Tensor
        As of :class:`StandingSum`; read at every start.
    agreed : bool
        As of :class:`StandingSum`.

    Attributes
    ----------
    whole : torch.Tensor
        Shape ``(size, *tensor.shape)``, in rank order; filled by every start.
    """

    operation = "all_gather"

    def __init__(self, comm: Communicator, tensor: torch.Tensor, *, agreed: bool = False) -> None:
        super().__init__(comm)
        _check(comm, tensor, agreed=agreed)
        self._tensor = tensor.detach()
        self._copies = tensor.new_empty((comm.size, *tensor.shape))
        self.whole = torch.empty_like(self._copies)
        self.packed = tensor.numel() > 0
        shape = comm.size, tensor.nbytes
        self._blocks = flat(self._copies).view(torch.uint8).view(shape)
        self._filled = flat(self.whole).view(torch.uint8).view(shape)
        self._spread: tuple[Tensors, Tensors] = list(self._blocks), list(self._filled)
        self._count(self._spread)

    def run(self) -> None:
        """Start it and wait, which is quicker in one: no other thread need wake this one."""
        comm = self._comm
        if comm.size == 1 or self._tensor.is_cuda or not self.packed:
            self.start().wait()
            return
        began, phase = time.perf_counter(), comm._recorder.phase
        if comm._recorder.watch is not None:
            comm._recorder.watch.begins(self.operation, phase[0])
        self._first()
        self._filled.copy_(comm._transport.headers(self._blocks, comm._deadline()))
        end = time.perf_counter()
        comm._record(self.operation, phase, began, end, dict(self._sent), self._received)

    def _first(self) -> tuple[Tensors, Tensors]:
        self._copies.copy_(self._tensor)
        self.whole[self._comm.rank] = self._tensor  # what is not packed leaves it out
        return self._spread


class StandingSwap:
    """Tensors of one size between pairs of ranks: not collective, but for its making.

    Both ranks of a pair start it, as often as each other; who is in no pair does nothing. What
    travels in front of the tensor, and is no part of its bytes, says when the sender was ready.

    Parameters
    ----------
    comm : Communicator
    tensor : torch.Tensor
        Its size and dtype are those of all that will be swapped; compared here, once.

    Attributes
    ----------
    idle : float
        Of the last swap: seconds from when this rank was ready until its last peer was, as exact
        as the ranks' clocks agree.

    Raises
    ------
    ValueError
        The tensor is not contiguous.
    MessageMismatch
        Ranks have tensors of another size or dtype.
    """

    def __init__(self, comm: Communicator, tensor: torch.Tensor) -> None:
        _check(comm, tensor)
        self._comm = comm
        first, count = _SWAP_TAGS
        self._tag = first + comm._sequence % count  # other than those of other swaps
        self._dtype, self._nbytes = tensor.dtype, tensor.nbytes
        self._out = self._room()
        self._rooms: dict[int, torch.Tensor] = {}
        self.idle = 0.0

    def run(self, tensor: torch.Tensor, peers: Sequence[int]) -> dict[int, torch.Tensor]:
        """Send a tensor to each of some ranks, and receive one from each.

        Returns
        -------
        dict
            Rank to its tensor, flat, in host memory that the next swap fills again.
        """
        comm = self._comm
        began, phase = time.perf_counter(), comm._recorder.phase
        watch = comm._recorder.watch
        if watch is not None:
            watch.begins("send", phase[0])
            watch.begins("recv", phase[0])
        ready = began + comm._recorder.offset
        _moment(self._out).fill_(ready)
        self._body(self._out).copy_(tensor.detach().reshape(-1))
        rooms = {peer: self._rooms.setdefault(peer, self._room()) for peer in peers}
        outgoing = dict.fromkeys(rooms, self._out)
        calls = between_pairs(comm._transport, outgoing, rooms, self._tag)
        for call in calls:
            call.wait()
        end = max((call.ended for call in calls), default=began)
        for peer in peers:
            comm._record("send", phase, began, end, {peer: self._nbytes}, 0)
            comm._record("recv", phase, began, end, {}, self._nbytes)
        last = max((float(_moment(room)) for room in rooms.values()), default=ready)
        self.idle = min(max(last - ready, 0.0), end - began)
        return {peer: self._body(room) for peer, room in rooms.items()}

    def _room(self) -> torch.Tensor:
        return torch.empty(_HEAD + self._nbytes, dtype=torch.uint8)

    def _body(self, message: torch.Tensor) -> torch.Tensor:
        return message[_HEAD:].view(self._dtype)


def _moment(message: torch.Tensor) -> torch.Tensor:
    return message[:8].view(torch.float64)


def _check(comm: Communicator, tensor: torch.Tensor, *, agreed: bool = False) -> None:
    if not tensor.is_contiguous():
        raise ValueError(
            f"tensor must be contiguous; it has shape {tuple(tensor.shape)} and strides "
            f"{tensor.stride()}"
        )
    if agreed:
        return
    mine = torch.tensor([DTYPES.index(tensor.dtype), tensor.numel()])
    for peer, (dtype, numel) in enumerate(comm.all_gather(mine).tolist()):
        if (dtype, numel) != tuple(mine.tolist()):
            raise MessageMismatch(
                f"rank {comm.ranks[comm.rank]} has {tensor.numel()} elements of {tensor.dtype} and "
                f"rank {comm.ranks[peer]} has {numel} of {DTYPES[dtype]}"
            )


def _size(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel()
