"""A slower network on one machine: real messages, held back by the model (emulated).

The transport below is wrapped. Its messages are real and are sent at once; beside each travels a
stamp, the moment at which the emulated network would have delivered it, and whoever waits for the
message waits for that moment too. Nothing is faster than it really is: where the machine takes
longer than the model says, the machine's time counts. Waits look at the launch's interrupt as
before, so that kills, deadlines and cancels end them in the middle of a delay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from dtoolkit.comm.occupancy import Occupancy
from dtoolkit.comm.pending import Interrupt, Pending
from dtoolkit.comm.transport import HEADER, Transport
from dtoolkit.comm.waiter import await_works
from dtoolkit.errors import CommunicationError

__all__ = ["Delay", "EmulatedTransport", "sleep_until"]

_STAMP = 8  # bytes: a float64 on time.perf_counter
_SHORT = 4 * HEADER  # up to here the stamp leads the message; longer ones get it sent ahead
_NAP = 3600.0


class EmulatedTransport:
    """Holds the messages of another transport back until a network would have delivered them.

    Parameters
    ----------
    transport : Transport
        What carries the messages.
    occupancy : Occupancy
        When each link is free, shared with the other ranks.
    ranks : sequence of int
        Rank in the network of each rank of the transport.
    """

    def __init__(self, transport: Transport, occupancy: Occupancy, ranks: Sequence[int]) -> None:
        self.inner = transport
        self.rank, self.size = transport.rank, transport.size
        self.in_order = transport.in_order
        self._occupancy = occupancy
        self._ranks = tuple(ranks)

    @property
    def interrupt(self) -> Interrupt:
        """The interrupt of the transport below."""
        return self.inner.interrupt

    @interrupt.setter
    def interrupt(self, interrupt: Interrupt) -> None:
        self.inner.interrupt = interrupt

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        """See :meth:`Transport.headers`."""
        peers = [peer for peer in range(self.size) if peer != self.rank]
        wide = torch.zeros((self.size, _STAMP + blocks.shape[1]), dtype=torch.uint8)
        wide[:, _STAMP:] = blocks
        times = self._set_out([(peer, HEADER) for peer in peers])
        for peer, (_, arrival) in zip(peers, times, strict=True):
            wide[peer, :_STAMP] = _stamp(arrival)
        received = self.inner.headers(wide, timeout)
        arrivals = received[:, :_STAMP].contiguous().view(torch.float64)
        if sleep_until(float(arrivals.max()), self.interrupt):
            self.interrupt.check()
        return received[:, _STAMP:].contiguous()

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
        *,
        packed: bool = False,
    ) -> Pending:
        """See :meth:`Transport.exchange`."""
        # As single messages travel, for the peer may take what comes as one of those.
        ahead: list[torch.Tensor | None] = [None] * self.size
        through = 0.0
        # In the order in which the messages are sent: each rank begins with another target.
        order = [(self.rank - step) % self.size for step in range(1, self.size)]
        full = [(peer, data) for peer in order if (data := sends[peer]) is not None and len(data)]
        times = self._set_out([(peer, data.numel()) for peer, data in full])
        for (peer, data), (left, arrival) in zip(full, times, strict=True):
            stamp = _stamp(arrival)
            ahead[peer] = torch.cat([stamp, data.cpu()]) if _is_short(data) else stamp
            through = max(through, left)
        coming = [_room(data) for data in receives]
        # One tag: what is sent first comes first.
        first = self.inner.exchange(ahead, coming, tag)
        rest = self.inner.exchange(_long(sends), _long(receives), tag)

        def finish() -> None:
            rest.wait()
            for peer in order:
                data = receives[peer]
                if data is not None and _is_short(data):
                    data.copy_(coming[peer][_STAMP:])

        return self._delayed(
            [first, rest],
            lambda: max([through, *(_moment(t) for t in coming if t.numel())]),
            finish,
        )

    def send(self, data: torch.Tensor, target: int, tag: int) -> Pending:
        """See :meth:`Transport.send`."""
        ((through, arrival),) = self._set_out([(target, data.numel())])
        stamp = _stamp(arrival)
        parts = [torch.cat([stamp, data.cpu()])] if _is_short(data) else [stamp, data]
        messages = [self.inner.send(part, target, tag) for part in parts]
        return self._delayed(messages, lambda: through)

    def receive(
        self, data: torch.Tensor, source: int | None, tag: int
    ) -> tuple[Pending, Callable[[], int]]:
        """See :meth:`Transport.receive`; from any rank, a short message only."""
        if _is_short(data):
            whole = torch.zeros(_STAMP + data.numel(), dtype=torch.uint8)
            message, who = self.inner.receive(whole, source, tag)
            pending = self._delayed(
                [message], lambda: _moment(whole), lambda: data.copy_(whole[_STAMP:])
            )
            return pending, who
        if source is None:
            raise ValueError(f"from any rank at most {_SHORT} bytes travel, got {data.numel()}")
        stamp = torch.zeros(_STAMP, dtype=torch.uint8)
        ahead, _ = self.inner.receive(stamp, source, tag)
        message, who = self.inner.receive(data, source, tag)
        return self._delayed([ahead, message], lambda: _moment(stamp), message.wait), who

    def subgroup(self, members: Sequence[int], name: str) -> Transport:
        """See :meth:`Transport.subgroup`."""
        inner = self.inner.subgroup(members, name)
        return EmulatedTransport(inner, self._occupancy, [self._ranks[m] for m in members])

    def _set_out(self, messages: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
        """Put messages, each a peer and bytes, on the links."""
        there = [(self._ranks[peer], nbytes) for peer, nbytes in messages]
        return self._occupancy.send(self._ranks[self.rank], there)

    def _delayed(
        self,
        messages: list[Pending],
        moment: Callable[[], float],
        finish: Callable[[], object] | None = None,
    ) -> Pending:
        """What is done once the messages are, and not before the moment that they then tell."""
        pending = Pending(self.interrupt, finish)
        await_works([Delay(messages, moment, self.interrupt)], pending, None)
        return pending


class Delay:
    """Messages and a moment, to be awaited on a waiter's thread."""

    def __init__(
        self, messages: list[Pending], moment: Callable[[], float], interrupt: Interrupt
    ) -> None:
        self._messages, self._moment, self._interrupt = messages, moment, interrupt

    def wait(self) -> None:
        """Block until both have come; raises what a message ended in."""
        for message in self._messages:
            message.join()
        if sleep_until(self._moment(), self._interrupt):
            raise CommunicationError("the rank was told to stop while a message was on its way")


def sleep_until(moment: float, interrupt: Interrupt) -> bool:
    """Sleep; True, and at once, if the interrupt is set meanwhile."""
    while (rest := moment - time.perf_counter()) > 0:
        if interrupt.sleep(min(rest, _NAP)):
            return True
    return False


def _stamp(moment: float) -> torch.Tensor:
    return torch.tensor([moment], dtype=torch.float64).view(torch.uint8)


def _moment(message: torch.Tensor) -> float:
    return float(message[:_STAMP].view(torch.float64))


def _is_short(data: torch.Tensor) -> bool:
    """Whether a message travels in one piece with its stamp."""
    return data.numel() <= _SHORT


def _long(messages: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Those whose stamps are sent ahead."""
    return [None if data is None or _is_short(data) else data for data in messages]


def _room(data: torch.Tensor | None) -> torch.Tensor:
    """Room for what comes of a message before the rest: its stamp, and all of a short one."""
    if data is None or not len(data):
        return torch.zeros(0, dtype=torch.uint8)
    return torch.zeros(_STAMP + (len(data) if _is_short(data) else 0), dtype=torch.uint8)
