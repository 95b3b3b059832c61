"""Questions to one rank and its answers: short ones travel in one piece, without headers.

A message is a flat uint8 tensor. It travels as a block that begins with its length; what does not
fit follows as a second message, whose length is known then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from dtoolkit.comm.pairs import between_pairs
from dtoolkit.comm.pending import Pending, Staged

if TYPE_CHECKING:
    from dtoolkit.comm.communicator import Communicator

__all__ = ["Mailbox"]

_BLOCK, _LENGTH = 512, 8  # bytes of a block, and of the length in it
_FITS = _BLOCK - _LENGTH
_BLOCKS, _RESTS = 0, 1  # tags


class Mailbox:
    """One rank's end.

    Who asks waits for the answer before it asks again, so that of each rank at most one message is
    under way in each direction.

    Parameters
    ----------
    comm : Communicator
        Used by nothing else.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._transport = comm._transport

    def ask(self, data: torch.Tensor, host: int) -> torch.Tensor:
        """Send a message to a rank and wait for its answer."""
        began, answer = self._begins("send"), _room()
        calls = between_pairs(self._transport, {host: _block(data)}, {host: answer}, _BLOCKS)
        calls += self._rest(data, host)
        for call in calls:
            call.wait()
        self._comm._record("send", self._phase, began, calls[-1].ended, {host: data.numel()}, 0)
        here, rest = _opened(answer)
        if rest.numel():
            call = self._transport.receive(rest, host, _RESTS)[0]
            call.wait()
            here = torch.cat([here, rest])
        self._comm._record("recv", self._phase, began, call.ended, {}, here.numel())
        return here

    def tell(self, data: torch.Tensor, host: int) -> list[Pending]:
        """Send a message that has no answer; what is returned must have ended before the next."""
        began = self._begins("send")
        calls = between_pairs(self._transport, {host: _block(data)}, {}, _BLOCKS)
        calls += self._rest(data, host)
        end = time.perf_counter()
        self._comm._record("send", self._phase, began, end, {host: data.numel()}, 0)
        return calls

    def take(self) -> Pending:
        """Take the next message of any rank; ``wait()`` gives it, and who sent it."""
        began, block = self._begins("recv"), _room()
        first, who = self._transport.receive(block, None, _BLOCKS)
        parts: list[torch.Tensor] = []

        def following() -> Pending:
            parts.extend(_opened(block))
            return self._transport.receive(parts[1], who(), _RESTS)[0] if len(parts[1]) else first

        def finish() -> tuple[torch.Tensor, int]:
            data = torch.cat(parts)
            self._comm._record("recv", self._phase, began, call.ended, {}, data.numel())
            return data, int(who())

        call = Staged(first, following, finish, background=True)
        return call

    def answer(self, messages: Mapping[int, torch.Tensor]) -> dict[int, Pending]:
        """Send messages to ranks that have asked.

        Returns
        -------
        dict
            Rank to what is under way to it and must be waited for: messages that are not short.
        """
        began = self._begins("send")
        blocks = {target: _block(data) for target, data in messages.items()}
        first = between_pairs(self._transport, blocks, {}, _BLOCKS) if blocks else []
        long: dict[int, Pending] = {}
        for target, data in messages.items():
            for call in self._rest(data, target):
                long[target] = self._counted(call, began, target, data.numel())
            if target not in long:  # a few bytes, which are on their way already
                end = time.perf_counter()
                self._comm._record("send", self._phase, began, end, {target: data.numel()}, 0)
        del first  # whoever waits for an answer has taken it before it asks again
        return long

    @property
    def _phase(self) -> tuple[str, str, str]:
        return self._comm._recorder.phase

    def _begins(self, operation: str) -> float:
        watch = self._comm._recorder.watch
        if watch is not None:
            watch.begins(operation, self._phase[0])
        return time.perf_counter()

    def _rest(self, data: torch.Tensor, target: int) -> list[Pending]:
        rest = data[_FITS:]
        return [self._transport.send(rest, target, _RESTS)] if rest.numel() else []

    def _counted(self, call: Pending, began: float, target: int, nbytes: int) -> Pending:
        def finish() -> None:
            self._comm._record("send", self._phase, began, call.ended, {target: nbytes}, 0)

        return Staged(call, None, finish, background=False)


def _room() -> torch.Tensor:
    return torch.empty(_BLOCK, dtype=torch.uint8)


def _block(data: torch.Tensor) -> torch.Tensor:
    block, here = torch.zeros(_BLOCK, dtype=torch.uint8), data[:_FITS]
    block[:_LENGTH].view(torch.int64).fill_(data.numel())
    block[_LENGTH : _LENGTH + here.numel()] = here
    return block


def _opened(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The part of a message that is in its block, and room for the rest."""
    length = int(block[:_LENGTH].view(torch.int64))
    here = block[_LENGTH : _LENGTH + min(length, _FITS)]
    return here, torch.empty(max(0, length - _FITS), dtype=torch.uint8)
