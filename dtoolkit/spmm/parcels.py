"""What a rank sends and receives in one stage of a product, as bytes in buffers that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import torch

from dtoolkit.arrays.memory import allocate
from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.pending import Pending
from dtoolkit.spmm.hops import Hop
from dtoolkit.spmm.operand import Operand

__all__ = ["Parcel"]

_ALIGN = 64

Rows = tuple[torch.Tensor, torch.Tensor]


class Parcel:
    """The messages of one stage to and from all peers.

    Fresh pages cost more than the copy into them: parcels stay with the operand, and a product with
    the same k uses them again. While it runs they are the product's alone: one that was stopped may
    still write into its own.

    Parameters
    ----------
    hop : Hop
    k : int
        Dense columns.
    b_dtype, c_dtype : torch.dtype
        Of rows of B and of partial rows of C.
    device : torch.device

    Attributes
    ----------
    outgoing, incoming : list of uint8 tensors
        By peer.
    """

    def __init__(
        self,
        hop: Hop,
        k: int,
        b_dtype: torch.dtype,
        c_dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._hop, self._device = hop, device
        self._k, self._b_dtype, self._c_dtype = k, b_dtype, c_dtype
        self._alike = b_dtype.itemsize == c_dtype.itemsize
        self._receive, self.incoming = self._messages(hop.b_in, hop.c_in)
        nothing = [0] * len(hop.b_out)
        self._send, self.outgoing = (
            self._messages(nothing, nothing) if hop.whole else self._messages(hop.b_out, hop.c_out)
        )
        self._opened: dict[int, Rows] = {}
        self._came: dict[int, Rows] = {}

    @classmethod
    def take(
        cls, side: Operand, stage: int, k: int, b_dtype: torch.dtype, c_dtype: torch.dtype
    ) -> Parcel:
        """The parcel that a product has given back, if it fits; else a new one."""
        kept = side.workspace.pop(stage, None)
        if kept is not None and (kept._k, kept._b_dtype, kept._c_dtype) == (k, b_dtype, c_dtype):
            return cast(Parcel, kept)
        return cls(side.hops[stage], k, b_dtype, c_dtype, side.own.device)

    def give_back(self, side: Operand, stage: int) -> None:
        """Let the next product have it."""
        if self._hop.whole:
            self.outgoing = []  # B itself, which is not ours to keep
        side.workspace[stage] = self

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self._send.nbytes + self._receive.nbytes

    def send_whole(self, B: torch.Tensor) -> None:
        """Let the messages be the shard of B as it lies, or nothing."""
        shard = B.reshape(-1).view(torch.uint8)
        self.outgoing = [shard if count else shard[:0] for count in self._hop.b_out]

    def leave(self, comm: Communicator, *, agreed: bool) -> Pending:
        """Start the messages, in one piece where that is how they lie on all ranks."""
        if self._hop.whole or not self._alike:
            messages = comm.all_to_all(self.outgoing, out=self.incoming, agreed=agreed, wait=False)
        else:
            outgoing, incoming = self._lengths
            messages = comm.all_to_all_v(
                self._send, outgoing, incoming, out=self._receive, agreed=agreed, wait=False
            )
        return cast(Pending, messages)

    def sent(self, peer: int) -> Rows:
        """Rows of B and partial rows of C of the message to a peer."""
        if peer not in self._opened:
            b, c = self._hop.b_out[peer], self._hop.c_out[peer]
            self._opened[peer] = self._open(self.outgoing[peer], b, c)
        return self._opened[peer]

    def rows(self, peer: int) -> torch.Tensor:
        """Rows of B that a peer sent."""
        return self._received(peer)[0]

    def sums(self, peer: int) -> torch.Tensor:
        """Partial rows of C that a peer sent."""
        return self._received(peer)[1]

    def all_rows(self) -> torch.Tensor:
        """The received parcel as rows of B's dtype; partial rows in it are not to be looked at."""
        hop = self._hop
        if self._alike or not any(hop.c_in):  # then there is no gap between messages
            return self._as_one
        parts = []
        for peer, count in enumerate(hop.c_in):
            rows = self.rows(peer)
            parts += [rows, rows.new_zeros(count, self._k)]
        return torch.cat(parts)

    @cached_property
    def _as_one(self) -> torch.Tensor:
        return _as_rows(self._receive, self._b_dtype, (self._hop.starts[-1], self._k))

    @cached_property
    def _lengths(self) -> tuple[list[int], list[int]]:
        return [t.numel() for t in self.outgoing], [t.numel() for t in self.incoming]

    def _received(self, peer: int) -> Rows:
        if peer not in self._came:
            b, c = self._hop.b_in[peer], self._hop.c_in[peer]
            self._came[peer] = self._open(self.incoming[peer], b, c)
        return self._came[peer]

    def _open(self, message: torch.Tensor, b: int, c: int) -> Rows:
        """The b rows of B and c partial rows in a message; the wider come first, to be aligned."""
        size = b * self._k * self._b_dtype.itemsize
        if self._b_dtype.itemsize >= self._c_dtype.itemsize:
            rows, sums = message[:size], message[size:]
        else:
            rows, sums = message[message.numel() - size :], message[: message.numel() - size]
        return (
            _as_rows(rows, self._b_dtype, (b, self._k)),
            _as_rows(sums, self._c_dtype, (c, self._k)),
        )

    def _messages(
        self, b: Sequence[int], c: Sequence[int]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """A message for each peer, end to end in one buffer (apart where widths differ)."""
        sizes = [
            self._k * (x * self._b_dtype.itemsize + y * self._c_dtype.itemsize)
            for x, y in zip(b, c, strict=True)
        ]
        together = self._alike or not any(c)
        room = sizes if together else [-(-size // _ALIGN) * _ALIGN for size in sizes]
        buffer = allocate((sum(room),), dtype=torch.uint8, device=self._device)
        places = torch.split(buffer, room)
        return buffer, [place[:size] for place, size in zip(places, sizes, strict=True)]


def _as_rows(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, int]) -> torch.Tensor:
    if data.numel() == 0:  # stands anywhere, aligned or not
        return torch.empty(shape, dtype=dtype, device=data.device)
    return data.view(dtype).view(shape)
