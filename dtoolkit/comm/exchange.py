"""The engine under every operation: headers, comparison, messages, result, event."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtoolkit.comm.event import Event
from dtoolkit.comm.messages import (
    ANY,
    DTYPES,
    INLINE,
    MAX_DIMS,
    Header,
    check_pair,
    pack,
    unpack,
)
from dtoolkit.comm.transport import Pending, Transport

__all__ = ["USER_TAGS", "Engine", "Recorder", "bytes_of", "common_dtype"]

USER_TAGS = 1 << 24  # tags below belong to collective operations


class Recorder:
    """The events of one rank in one launch.

    Parameters
    ----------
    launch, rank, ranks : int
        Number of the launch, this rank, ranks of the cluster.
    enabled : bool
        False: nothing is recorded.
    offset : float
        Seconds from this process's ``time.perf_counter`` to the clock of the trace.
    """

    def __init__(
        self,
        launch: int = 0,
        rank: int = 0,
        ranks: int = 1,
        *,
        enabled: bool = True,
        offset: float = 0.0,
    ) -> None:
        self.launch, self.rank, self.ranks = launch, rank, ranks
        self.enabled = enabled
        self.offset = offset
        self.phase: tuple[str, str, str] = ("", "", "")
        self.events: list[Event] = []


class Engine:
    """A member of a group, able to exchange one tensor with each of the others.

    :class:`~dtoolkit.comm.communicator.Communicator` states the parameters and attributes.
    """

    def __init__(
        self,
        transport: Transport,
        recorder: Recorder,
        *,
        ranks: Sequence[int] | None = None,
        name: str = "",
        deadline: Callable[[], float] = lambda: 3600.0,
    ) -> None:
        self._transport = transport
        self._recorder = recorder
        self._deadline = deadline
        self._sequence = 0
        self._open: list[Pending] = []
        self.rank = transport.rank
        self.size = transport.size
        self.ranks = tuple(range(self.size)) if ranks is None else tuple(ranks)
        self.name = name

    def __repr__(self) -> str:
        group = f" {self.name!r} of ranks {list(self.ranks)}" if self.name else ""
        return f"<Communicator{group}: rank {self.rank} of {self.size}>"

    def _exchange(
        self,
        operation: str,
        sends: Sequence[torch.Tensor | None],
        *,
        expected: list[int] | None = None,
        outputs: list[torch.Tensor] | None = None,
        detail: int = 0,
        finish: Callable[[list[torch.Tensor]], Any] = lambda received: received,
    ) -> Pending:
        """Every collective operation: headers, comparison, messages, result, event.

        `expected` are the elements from each rank where they are known, `outputs` the flat
        tensors to fill; without them the headers tell what comes.
        """
        start = time.perf_counter()
        self._sequence += 1
        sample = next((t for t in sends if t is not None), None)
        device = torch.device("cpu") if sample is None else sample.device
        dtype = common_dtype(operation, sends)
        payloads = [None if t is None else bytes_of(t) for t in sends]
        headers = [
            Header(
                self._sequence,
                operation,
                dtype,
                detail,
                () if t is None else tuple(t.shape),
                ANY if expected is None else expected[peer],
            )
            if t is not None
            else Header(self._sequence, operation, dtype, detail, (0,), ANY)
            for peer, t in enumerate(sends)
        ]
        for header in headers:
            if len(header.shape) > MAX_DIMS:
                raise ValueError(
                    f"{operation}: at most {MAX_DIMS} dimensions travel, got {header.shape}"
                )
        said = headers
        inline: list[torch.Tensor] = []
        if self.size > 1:
            blocks = self._transport.headers(pack(headers, payloads), self._deadline())
            said, inline = unpack(blocks)
            for peer in range(self.size):
                check_pair(headers[peer], said[peer], self.ranks[self.rank], self.ranks[peer])
        receives = self._receives(said, outputs, device, payloads)
        pending = self._messages(payloads, receives)
        sent = {
            peer: data.numel()
            for peer, data in enumerate(payloads)
            if data is not None and peer != self.rank
        }
        came = sum(h.nbytes for peer, h in enumerate(said) if peer != self.rank)

        def complete() -> Any:
            pending.wait()
            for peer, header in enumerate(said):
                if peer != self.rank and 0 < header.nbytes <= INLINE:
                    receives[peer].copy_(inline[peer][: header.nbytes])
            result = [
                data.view(h.dtype).reshape(h.shape) for data, h in zip(receives, said, strict=True)
            ]
            self._record(operation, sent, came, start, pending.ended)
            return finish(result)

        whole = Pending(self._transport.interrupt, complete)
        whole.complete()  # its own wait() awaits the messages
        whole.done = pending.done  # type: ignore[method-assign]
        self._open = [p for p in self._open if not p.finished]
        self._open.append(whole)
        return whole

    def _receives(
        self,
        said: list[Header],
        outputs: list[torch.Tensor] | None,
        device: torch.device,
        payloads: Sequence[torch.Tensor | None],
    ) -> list[torch.Tensor]:
        receives = []
        for peer, header in enumerate(said):
            own = payloads[self.rank]
            if outputs is not None:
                data = outputs[peer].view(torch.uint8)
                if peer == self.rank and own is not None and data.data_ptr() != own.data_ptr():
                    data.copy_(own)
            elif peer == self.rank:
                data = (
                    torch.empty(0, dtype=torch.uint8, device=device) if own is None else own.clone()
                )
            else:
                data = torch.empty(header.nbytes, dtype=torch.uint8, device=device)
            receives.append(data)
        return receives

    def _messages(
        self, payloads: Sequence[torch.Tensor | None], receives: list[torch.Tensor]
    ) -> Pending:
        big = [
            None if data is None or data.numel() <= INLINE or peer == self.rank else data
            for peer, data in enumerate(payloads)
        ]
        want = [
            None if data.numel() <= INLINE or peer == self.rank else data
            for peer, data in enumerate(receives)
        ]
        return self._transport.exchange(big, want, self._sequence % USER_TAGS)

    def _start(self, finish: Callable[[], Any], wait: bool) -> Any:
        pending = Pending(self._transport.interrupt, finish)
        pending.complete()
        if wait:
            return pending.wait()
        self._open.append(pending)
        return pending

    def _record(
        self, operation: str, sent: dict[int, int], received: int, start: float, end: float
    ) -> None:
        log = self._recorder
        if not log.enabled:
            return
        to = [0] * log.ranks
        for peer, count in sent.items():
            to[self.ranks[peer]] = count
        phase, source, target = log.phase
        log.events.append(
            Event(
                launch=log.launch,
                rank=log.rank,
                operation=operation,
                phase=phase,
                start=start + log.offset,
                end=end + log.offset,
                sent=tuple(to),
                received=received,
                group=self.name,
                source=source,
                target=target,
            )
        )


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Flat uint8 view of a tensor's elements (a copy where they are not contiguous)."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def common_dtype(operation: str, tensors: Sequence[torch.Tensor | None]) -> torch.dtype:
    dtypes = {t.dtype for t in tensors if t is not None}
    if len(dtypes) > 1:
        raise ValueError(f"{operation}: one dtype a call, got {sorted(map(str, dtypes))}")
    dtype = next(iter(dtypes), torch.uint8)
    if dtype not in DTYPES:
        raise ValueError(f"{operation}: {dtype} does not travel; convert it first")
    return dtype
