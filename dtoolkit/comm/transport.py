"""How bytes leave a rank: the narrow layer between the communicator and ``torch.distributed``.

Two primitives carry everything: :meth:`Transport.headers`, one fixed-size block to every peer in
one Gloo all-to-all, and :meth:`Transport.exchange`, point-to-point messages of any size. Nothing
here blocks inside Gloo for longer than :data:`~dtoolkit.comm.pending.POLL` seconds without looking
at the launch's :class:`~dtoolkit.comm.pending.Interrupt`: messages are awaited on threads of their
own, which can be left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch

from dtoolkit.comm.pending import POLL, Interrupt, Pending
from dtoolkit.comm.waiter import await_works
from dtoolkit.errors import CommunicationError

__all__ = ["HEADER", "GlooTransport", "NcclTransport", "Transport"]

HEADER = 256
"""Bytes of a header block, small messages included."""

_SLICE = 1 << 28  # bytes of one message: far below what 32-bit lengths anywhere could break


class Transport(Protocol):
    """What a communicator needs of a process group.

    Attributes
    ----------
    rank, size : int
    interrupt : Interrupt
    in_order : bool
        Exchanges must start in one order on all ranks: nothing may start one in the background.
    """

    rank: int
    size: int
    interrupt: Interrupt
    in_order: bool

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        """Exchange one block of :data:`HEADER` bytes with every rank; uint8, (size, HEADER)."""
        ...

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
        *,
        packed: bool = False,
    ) -> Pending:
        """Send to and receive from each rank: flat uint8 tensors, None or empty for nothing.

        `packed`: the tensors of all ranks, this one included, lie end to end in memory, and all
        ranks start such exchanges in one order.
        """
        ...

    def send(self, data: torch.Tensor, target: int, tag: int) -> Pending:
        """Send one flat uint8 tensor."""
        ...

    def receive(
        self, data: torch.Tensor, source: int | None, tag: int
    ) -> tuple[Pending, Callable[[], int]]:
        """Receive one flat uint8 tensor; the second value tells the source when done."""
        ...

    def subgroup(self, members: Sequence[int], name: str) -> Transport:
        """Form the group of some of the ranks; every one of `members` must call."""
        ...


class GlooTransport:
    """Gloo over TCP, for tensors in host memory.

    Parameters
    ----------
    group : torch.distributed.ProcessGroupGloo
    interrupt : Interrupt
    form : callable
        ``form(members, name)`` makes a transport over some of the ranks.
    """

    in_order = False

    def __init__(
        self,
        group: Any,
        interrupt: Interrupt,
        form: Callable[[Sequence[int], str], Transport],
    ) -> None:
        self.group = group
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.interrupt = interrupt
        self._form = form

    def release(self) -> list[Any]:
        """Give up the process groups, and return them.

        Destroying one joins threads that may wait for a dead peer. So it is never left to whoever
        still holds a communicator, a local of a function that ends for one.
        """
        groups, self.group = [self.group], _Over(self.interrupt)
        self._form = self.group  # what forms subgroups holds sockets of its own
        return groups

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        """See :meth:`Transport.headers`."""
        received = torch.empty_like(blocks)
        options = torch.distributed.AllToAllOptions()
        options.timeout = timedelta(seconds=timeout)
        try:
            work = self.group.alltoall_base(received.view(-1), blocks.view(-1), [], [], options)
            self._await(work)
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
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
        if packed:
            return self._exchange_packed(sends, receives)
        sends = [None if t is None else t.cpu() for t in sends]
        receives, landed = _on_host(receives)
        # All pieces between two ranks share the tag: Gloo keeps the order within a tag.
        works = []
        try:
            for step in range(1, self.size):
                source = (self.rank + step) % self.size
                works += [
                    self.group.recv([piece], source, tag) for piece in _pieces(receives[source])
                ]
            for step in range(1, self.size):
                target = (self.rank - step) % self.size
                works += [self.group.send([piece], target, tag) for piece in _pieces(sends[target])]
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
        return self._awaited(works, (sends, receives), landed)

    def _exchange_packed(
        self, sends: Sequence[torch.Tensor | None], receives: Sequence[torch.Tensor | None]
    ) -> Pending:
        """In one collective, which a thread of Gloo's runs.

        Posting messages one by one fills the sockets' buffers in the thread that posts: the rank
        would spend milliseconds on it that it has other work for.
        """
        (send, outgoing), (receive, incoming) = _joined(sends), _joined(receives)
        send = send.cpu()
        (host,), landed = _on_host([receive])
        try:
            work = self.group.alltoall_base(
                host, send, incoming, outgoing, torch.distributed.AllToAllOptions()
            )
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
        return self._awaited([work], (send, host), landed)

    def send(self, data: torch.Tensor, target: int, tag: int) -> Pending:
        """See :meth:`Transport.send`."""
        data = data.cpu()
        try:
            works = [self.group.send([piece], target, tag) for piece in _pieces(data)]
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
        return self._awaited(works, data)

    def receive(
        self, data: torch.Tensor, source: int | None, tag: int
    ) -> tuple[Pending, Callable[[], int]]:
        """See :meth:`Transport.receive`."""
        try:
            if source is None:
                works = [self.group.recv_anysource([data], tag)]
            else:
                works = [self.group.recv([piece], source, tag) for piece in _pieces(data)]
        except RuntimeError as error:
            raise self.interrupt.broken(error) from error
        return self._awaited(
            works, data
        ), lambda: works[0]._source_rank() if source is None else source

    def subgroup(self, members: Sequence[int], name: str) -> Transport:
        """See :meth:`Transport.subgroup`."""
        return self._form(members, name)

    def _awaited(
        self, works: list[Any], keep: object, landed: Callable[[], None] | None = None
    ) -> Pending:
        pending = Pending(self.interrupt, landed)
        await_works(works, pending, keep)
        return pending

    def _await(self, work: Any) -> None:
        # An all-to-all is run by a thread of Gloo's; a wait that times out leaves it untouched.
        while True:
            try:
                work.wait(timedelta(seconds=POLL))
                return
            except RuntimeError:
                self.interrupt.check()
                if work.is_completed():  # failed, or done a moment after the wait had timed out
                    work.wait()
                    return


class NcclTransport(GlooTransport):
    """NCCL for tensors on one GPU a rank; headers and tagged messages still go over Gloo.

    Parameters
    ----------
    group : torch.distributed.ProcessGroupGloo
    nccl : torch.distributed.ProcessGroupNCCL
    interrupt : Interrupt
    form : callable
    """

    in_order = True

    def __init__(
        self,
        group: Any,
        nccl: Any,
        interrupt: Interrupt,
        form: Callable[[Sequence[int], str], Transport],
    ) -> None:
        super().__init__(group, interrupt, form)
        self.nccl = nccl

    def release(self) -> list[Any]:
        """See :meth:`GlooTransport.release`."""
        groups = [*super().release(), self.nccl]
        self.nccl = self.group
        return groups

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
        *,
        packed: bool = False,
    ) -> Pending:
        """See :meth:`Transport.exchange`."""
        # Both ends of a message must take the same road: tensors of the host go by the GPU too.
        empty = torch.empty(0, dtype=torch.uint8)
        there = [(empty if t is None else t).cuda() for t in sends]
        here = [(empty if t is None else t).cuda() for t in receives]
        work = self.nccl.alltoall(here, there)

        def landed() -> None:
            for want, got in zip(receives, here, strict=True):
                if want is not None and not want.is_cuda:
                    want.copy_(got)

        return self._awaited([work], (there, here), landed)


class _Over:
    """Stands where a process group was."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def __getattr__(self, name: str) -> Any:
        return self()

    def __call__(self, *_: object) -> Any:
        self._interrupt.check()
        raise CommunicationError(
            "this communicator's group is over: go on with what ctx.rebuild() gave, and make "
            "subgroups of that anew"
        )


def _pieces(data: torch.Tensor | None) -> list[torch.Tensor]:
    if data is None or data.numel() == 0:
        return []
    return [data[start : start + _SLICE] for start in range(0, data.numel(), _SLICE)]


def _joined(tensors: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, list[int]]:
    """Tensors that lie end to end as one, and the length of each."""
    first, *_ = (t for t in tensors if t is not None)
    lengths = [0 if t is None else t.numel() for t in tensors]
    return first.as_strided((sum(lengths),), (1,)), lengths


def _on_host(
    tensors: Sequence[torch.Tensor | None],
) -> tuple[list[torch.Tensor | None], Callable[[], None] | None]:
    """Buffers in host memory to receive into, and what copies them where they belong."""
    if not any(t is not None and t.is_cuda for t in tensors):
        return list(tensors), None
    host = [None if t is None else torch.empty_like(t, device="cpu") for t in tensors]

    def landed() -> None:
        for want, got in zip(tensors, host, strict=True):
            if want is not None and got is not None:
                want.copy_(got)

    return host, landed
