"""Single links of a group made slow while it runs: real messages, held back where they arrive.

Unlike in :mod:`dtoolkit.comm.emulated` nothing travels beside the messages: a message that has
arrived counts as just begun, and is given out once the slow link would have brought it. Whoever
makes a link slow in both directions does so on both ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from dtoolkit.comm.emulated import Delay, sleep_until
from dtoolkit.comm.pending import Interrupt, Pending
from dtoolkit.comm.transport import HEADER, Transport
from dtoolkit.comm.waiter import await_works

__all__ = ["HeldTransport", "Hold"]


class Hold:
    """A slow link to a peer: a message after the other passes it.

    Parameters
    ----------
    seconds : float
        What each message takes more.
    bandwidth : float or None
        Bytes a second; None: no limit.
    """

    def __init__(self, seconds: float, bandwidth: float | None) -> None:
        self._seconds, self._bandwidth = seconds, bandwidth
        self._free = 0.0
        self._guard = threading.Lock()

    def arrival(self, nbytes: int) -> float:
        """Put a message that has come on the link; returns when, on ``perf_counter``, it is here.

        Parameters
        ----------
        nbytes : int
        """
        now = time.perf_counter()
        with self._guard:
            self._free = max(self._free, now) + nbytes / (self._bandwidth or float("inf"))
            return self._free + self._seconds


class HeldTransport:
    """Holds what another transport brings from some peers back; the rest passes as it is.

    Parameters
    ----------
    transport : Transport
        What carries the messages.
    holds : mapping of str to Hold
        The slow links, by the peer's name; read at every message, and shared with subgroups.
    names : sequence of str
        Name of each rank of the transport.
    """

    def __init__(
        self, transport: Transport, holds: Mapping[str, Hold], names: Sequence[str]
    ) -> None:
        self.inner = transport
        self.rank, self.size = transport.rank, transport.size
        self.in_order = transport.in_order
        self._holds, self._names = holds, tuple(names)

    @property
    def interrupt(self) -> Interrupt:
        """The interrupt of the transport below."""
        return self.inner.interrupt

    @interrupt.setter
    def interrupt(self, interrupt: Interrupt) -> None:
        self.inner.interrupt = interrupt

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        """See :meth:`Transport.headers`."""
        received = self.inner.headers(blocks, timeout)
        slow = self._slow([HEADER] * self.size)
        if slow and sleep_until(_moment(slow), self.interrupt):
            self.interrupt.check()
        return received

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
        *,
        packed: bool = False,
    ) -> Pending:
        """See :meth:`Transport.exchange`."""
        messages = self.inner.exchange(sends, receives, tag, packed=packed)
        slow = self._slow([0 if t is None else t.numel() for t in receives])
        return self._delayed(messages, lambda: _moment(slow)) if slow else messages

    def send(self, data: torch.Tensor, target: int, tag: int) -> Pending:
        """See :meth:`Transport.send`."""
        return self.inner.send(data, target, tag)

    def receive(
        self, data: torch.Tensor, source: int | None, tag: int
    ) -> tuple[Pending, Callable[[], int]]:
        """See :meth:`Transport.receive`."""
        message, who = self.inner.receive(data, source, tag)
        if not self._holds:
            return message, who

        def moment() -> float:
            hold = self._holds.get(self._names[who()])
            return 0.0 if hold is None else hold.arrival(data.numel())

        return self._delayed(message, moment), who

    def subgroup(self, members: Sequence[int], name: str) -> Transport:
        """See :meth:`Transport.subgroup`."""
        inner = self.inner.subgroup(members, name)
        return HeldTransport(inner, self._holds, [self._names[m] for m in members])

    def _slow(self, nbytes: Sequence[int]) -> list[tuple[Hold, int]]:
        """The slow links by which messages of so many bytes from each rank come, and the bytes."""
        if not self._holds:
            return []
        return [
            (hold, count)
            for peer, (name, count) in enumerate(zip(self._names, nbytes, strict=True))
            if count and peer != self.rank and (hold := self._holds.get(name)) is not None
        ]

    def _delayed(self, message: Pending, moment: Callable[[], float]) -> Pending:
        pending = Pending(self.interrupt, message.wait)
        await_works([Delay([message], moment, self.interrupt)], pending, None)
        return pending


def _moment(slow: Sequence[tuple[Hold, int]]) -> float:
    return max(hold.arrival(nbytes) for hold, nbytes in slow)
