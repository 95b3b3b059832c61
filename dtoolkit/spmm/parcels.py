"""What a rank sends and receives in one stage of a product, as bytes in buffers that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from dtoolkit.arrays.memory import allocate
from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.pending import Pending
from dtoolkit.spmm.operand import Operand

__all__ = ["Parcel"]

_ALIGN = 64


class Parcel:
    """The messages of one stage to and from all peers.

    Fresh pages cost more than the copy into them: buffers stay with the operand, and a product with
    the same k uses them again. While it runs they are the product's alone: one that was stopped may
    still write into its own.

    Parameters
    ----------
    side : Operand
    stage : int
    k : int
        Dense columns.
    b_dtype, c_dtype : torch.dtype
        Of rows of B and of partial rows of C.

    Attributes
    ----------
    outgoing, incoming : list of uint8 tensors
        By peer.
    """

    def __init__(
        self, side: Operand, stage: int, k: int, b_dtype: torch.dtype, c_dtype: torch.dtype
    ) -> None:
        self._side, self._hop, self._stage = side, side.hops[stage], stage
        self._k, self._b_dtype, self._c_dtype = k, b_dtype, c_dtype
        self._alike = b_dtype.itemsize == c_dtype.itemsize
        self._buffers: dict[str, torch.Tensor] = {}
        hop = self._hop
        self.incoming = self._messages("receive", hop.b_in, hop.c_in)
        self.outgoing = [] if hop.whole else self._messages("send", hop.b_out, hop.c_out)

    def send_whole(self, B: torch.Tensor) -> None:
        """Let the messages be the shard of B as it lies, or nothing."""
        shard = B.reshape(-1).view(torch.uint8)
        self.outgoing = [shard if count else shard[:0] for count in self._hop.b_out]

    def leave(self, comm: Communicator, *, agreed: bool) -> Pending:
        """Start the messages, in one piece where that is how they lie on all ranks."""
        if self._hop.whole or not self._alike:
            messages = comm.all_to_all(self.outgoing, out=self.incoming, agreed=agreed, wait=False)
        else:
            messages = comm.all_to_all_v(
                self._buffers["send"],
                [message.numel() for message in self.outgoing],
                [message.numel() for message in self.incoming],
                out=self._buffers["receive"],
                agreed=agreed,
                wait=False,
            )
        return cast(Pending, messages)

    def sent(self, peer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of B and partial rows of C of the message to a peer."""
        return self._open(self.outgoing[peer], self._hop.b_out[peer], self._hop.c_out[peer])

    def rows(self, peer: int) -> torch.Tensor:
        """Rows of B that a peer sent."""
        return self._open(self.incoming[peer], self._hop.b_in[peer], self._hop.c_in[peer])[0]

    def sums(self, peer: int) -> torch.Tensor:
        """Partial rows of C that a peer sent."""
        return self._open(self.incoming[peer], self._hop.b_in[peer], self._hop.c_in[peer])[1]

    def all_rows(self) -> torch.Tensor:
        """The received parcel as rows of B's dtype; partial rows in it are not to be looked at."""
        hop = self._hop
        if self._alike or not any(hop.c_in):  # then there is no gap between messages
            shape = (hop.starts[-1], self._k)
            return _as_rows(self._buffers["receive"], self._b_dtype, shape)
        parts = []
        for peer, count in enumerate(hop.c_in):
            rows = self.rows(peer)
            parts += [rows, rows.new_zeros(count, self._k)]
        return torch.cat(parts)

    def give_back(self) -> None:
        """Let the next product have the buffers."""
        self._side.workspace.update(
            {self._key(name): buffer for name, buffer in self._buffers.items()}
        )

    def _key(self, name: str) -> str:
        return f"{name} {self._stage}"

    def _open(self, message: torch.Tensor, b: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
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

    def _messages(self, name: str, b: Sequence[int], c: Sequence[int]) -> list[torch.Tensor]:
        """A message for each peer, end to end in one buffer (apart where widths differ)."""
        sizes = [
            self._k * (x * self._b_dtype.itemsize + y * self._c_dtype.itemsize)
            for x, y in zip(b, c, strict=True)
        ]
        together = self._alike or not any(c)
        room = sizes if together else [-(-size // _ALIGN) * _ALIGN for size in sizes]
        buffer = self._side.workspace.pop(self._key(name), None)
        if buffer is None or buffer.numel() != sum(room):
            device = self._side.own.device
            buffer = allocate((sum(room),), dtype=torch.uint8, device=device)
        self._buffers[name] = buffer
        places = torch.split(buffer, room)
        return [place[:size] for place, size in zip(places, sizes, strict=True)]


def _as_rows(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, int]) -> torch.Tensor:
    if data.numel() == 0:  # stands anywhere, aligned or not
        return torch.empty(shape, dtype=dtype, device=data.device)
    return data.view(dtype).view(shape)
