"""Messages from one rank to another, with tags."""

from __future__ import annotations

import time
from typing import Any

import torch

from dtoolkit.comm.exchange import USER_TAGS, Engine, bytes_of
from dtoolkit.comm.messages import ANY, INLINE, MAX_DIMS, Header, pack, unpack
from dtoolkit.comm.pending import Pending, Staged
from dtoolkit.comm.transport import HEADER

__all__ = ["Tagged"]

_TAGS = 1 << 20
_DATA_TAGS = 1 << 25  # from here on: one for each message, so that messages cannot be mixed up


class Tagged(Engine):
    """The part of a communicator that sends to one rank."""

    _sent = 0

    def send(self, tensor: torch.Tensor, target: int, tag: int = 0, *, wait: bool = True) -> Any:
        """Send a tensor to one rank. Returns when the target has taken it.

        Parameters
        ----------
        tensor : torch.Tensor
        target : int
            Another rank of the group.
        tag : int
            0 to 2**20 - 1; messages of one tag arrive in the order in which they were sent.
        wait : bool
            False: return a :class:`~dtoolkit.comm.pending.Pending` at once.
        """
        self._check_rank("send", "target", target)
        if target == self.rank:
            raise ValueError(f"send: target {target} is this rank itself")
        wire = _wire("send", tag)
        if tensor.dim() > MAX_DIMS:
            raise ValueError(f"send: at most {MAX_DIMS} dimensions travel, got {tensor.dim()}")
        start, phase = time.perf_counter(), self._recorder.phase
        if self._recorder.watch is not None:
            self._recorder.watch.begins("send", phase[0])
        data = bytes_of(tensor)
        self._sent += 1
        number = self._sent % _DATA_TAGS
        header = Header(number, "send", self._dtype("send", tensor), tag, tuple(tensor.shape), ANY)
        first = self._transport.send(pack([header], [data])[0], target, wire)
        second = (
            self._transport.send(data, target, _DATA_TAGS + number)
            if data.numel() > INLINE
            else first
        )

        def finish() -> None:
            end = max(first.ended, second.ended)
            self._record("send", phase, start, end, {target: data.numel()}, 0)

        return self._awaited(Staged(first, lambda: second, finish, background=False), wait)

    def recv(self, source: int | None = None, tag: int = 0, *, wait: bool = True) -> Any:
        """Receive the next tensor that a rank sends to this one with this tag.

        Parameters
        ----------
        source : int, optional
            Another rank of the group; any rank by default.
        tag : int
        wait : bool
            False: return a :class:`~dtoolkit.comm.pending.Pending` at once.

        Returns
        -------
        tensor : torch.Tensor
            In host memory.
        source : int
            Who sent it.
        """
        if source is not None:
            self._check_rank("recv", "source", source)
            if source == self.rank:
                raise ValueError(f"recv: source {source} is this rank itself")
        if self.size == 1:
            raise ValueError("recv: there is no other rank to receive from")
        wire = _wire("recv", tag)
        start, phase = time.perf_counter(), self._recorder.phase
        if self._recorder.watch is not None:
            self._recorder.watch.begins("recv", phase[0])
        block = torch.empty(HEADER, dtype=torch.uint8)
        first, who = self._transport.receive(block, source, wire)
        message: list[Any] = []

        def body() -> Pending:
            (header,), (inline,) = unpack(block[None])
            sender = int(who())
            if header.nbytes <= INLINE:
                data, arrival = inline[: header.nbytes].clone(), first
            else:
                data = torch.empty(header.nbytes, dtype=torch.uint8)
                arrival = self._transport.receive(data, sender, _DATA_TAGS + header.sequence)[0]
            message.extend((data.view(header.dtype).reshape(header.shape), sender))
            return arrival

        def finish() -> tuple[torch.Tensor, int]:
            tensor, sender = message
            self._record("recv", phase, start, call.ended, {}, tensor.nbytes)
            return tensor, sender

        call = Staged(first, body, finish, background=not wait)
        return self._awaited(call, wait)


def _wire(operation: str, tag: int) -> int:
    if not 0 <= tag < _TAGS:
        raise ValueError(f"{operation}: tag must be 0 to {_TAGS - 1}, got {tag}")
    return USER_TAGS + tag
