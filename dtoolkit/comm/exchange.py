"""The engine under every operation: headers, comparison, messages, result, event."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from dtoolkit.comm.messages import (
    ANY,
    DTYPES,
    INLINE,
    MAX_DIMS,
    Header,
    check_pair,
    pack,
    shape_digest,
    unpack,
)
from dtoolkit.comm.pending import Pending, Staged
from dtoolkit.comm.recorder import Recorder
from dtoolkit.comm.transport import Transport

__all__ = ["USER_TAGS", "Engine", "bytes_of", "flat", "plain"]

USER_TAGS = 1 << 24  # tags below belong to collective operations

Tensors = Sequence[torch.Tensor | None]
Second = Callable[[list[torch.Tensor]], tuple[list[torch.Tensor], list[torch.Tensor]]]


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
        device: torch.device | str = "cpu",
        deadline: Callable[[], float] = lambda: 3600.0,
        under_way: dict[int, Pending] | None = None,
    ) -> None:
        self._transport = transport
        self._recorder = recorder
        self._deadline = deadline
        self._sequence = 0
        # Operations that nobody has waited for yet, in order; shared with all subgroups.
        self._under_way: dict[int, Pending] = {} if under_way is None else under_way
        self.rank = transport.rank
        self.size = transport.size
        self.ranks = tuple(range(self.size)) if ranks is None else tuple(ranks)
        self.name = name
        self.device = torch.device(device)

    def __repr__(self) -> str:
        group = f" {self.name!r} of ranks {list(self.ranks)}" if self.name else ""
        return f"<Communicator{group}: rank {self.rank} of {self.size}>"

    def check(self) -> None:
        """Raise if this rank has been told to stop: for loops that wait for something else."""
        self._transport.interrupt.check()

    def _exchange(
        self,
        operation: str,
        sends: Tensors,
        finish: Callable[[list[torch.Tensor]], Any] = lambda received: received,
        *,
        wait: bool,
        expected: Sequence[int] | None = None,
        outputs: Sequence[torch.Tensor] | None = None,
        detail: int = 0,
        whole: Sequence[int] | None = None,
        device: torch.device | None = None,
        second: Second | None = None,
        agreed: bool = False,
    ) -> Any:
        """Every collective operation: headers, comparison, messages, result, event.

        Parameters
        ----------
        operation : str
        sends : sequence of tensors or None
            What each rank gets.
        finish : callable
            Makes the result of what each rank sent.
        wait : bool
            Wait for the result, or return a `Pending`.
        expected : sequence of int, optional
            Elements from each rank, where they are known.
        outputs : sequence of contiguous tensors, optional
            What to fill; without them the headers tell what comes.
        detail : int
            What all ranks must agree on: the reduction, the root.
        whole : sequence of int, optional
            Shape that all ranks must agree on.
        device : torch.device, optional
            Where the results lie; by default where what is sent lies.
        second : callable, optional
            Makes of the results what is exchanged after them: what each rank gets, and the tensors
            to fill. The sizes are known to all, so that no headers are needed.
        agreed : bool
            The same holds for the first messages: `expected` is what comes, on all ranks.
        """
        start = time.perf_counter()
        phase = self._recorder.phase
        if self._recorder.watch is not None:
            self._recorder.watch.begins(operation, phase[0])
        self._sequence += 1
        tag = 2 * (self._sequence % (USER_TAGS // 2))
        device = device or next((t.device for t in sends if t is not None), self.device)
        payloads = [None if t is None else bytes_of(t) for t in sends]
        mine = self._headers(operation, sends, expected, detail, whole)
        if agreed:
            said = [replace(h, shape=(h.expected,)) for h in mine]
            inline: list[torch.Tensor] = []
        else:
            said, inline = self._compare(mine, payloads)
        receives = self._receives(said, outputs, device, payloads)
        sent = {p: data.numel() for p, data in enumerate(payloads) if data is not None}
        came = {p: header.nbytes for p, header in enumerate(said)}

        def results() -> list[torch.Tensor]:
            for peer, header in enumerate(said):
                if inline and peer != self.rank and 0 < header.nbytes <= INLINE:
                    receives[peer].copy_(inline[peer][: header.nbytes])
            return [data.view(h.dtype).reshape(h.shape) for data, h in zip(receives, said)]  # noqa: B905

        def following() -> Pending:
            assert second is not None
            targets, fill = second(results())
            again = [bytes_of(t) for t in targets]
            for peer in range(self.size):
                sent[peer] += again[peer].numel()
                came[peer] += fill[peer].nbytes
            return self._messages(
                again, [flat(t).view(torch.uint8) for t in fill], tag + 1, least=0
            )

        def complete() -> Any:
            result = finish([] if second is not None else results())
            sent.pop(self.rank, None)
            received = sum(count for peer, count in came.items() if peer != self.rank)
            self._record(operation, phase, start, call.ended, sent, received)
            return result

        in_order = self._transport.in_order
        call = Staged(
            self._messages(payloads, receives, tag, least=0 if agreed else INLINE),
            following if second is not None else None,
            complete,
            background=not wait and not in_order,
        )
        if second is not None and in_order:
            call.wait()
        return self._awaited(call, wait)

    def _exchange_packed(
        self,
        operation: str,
        sends: Sequence[torch.Tensor],
        receives: Sequence[torch.Tensor],
        result: Any,
        *,
        wait: bool,
    ) -> Any:
        """An exchange that all ranks have agreed on, of bytes that lie end to end on all of them.

        Parameters
        ----------
        operation : str
        sends, receives : sequence of flat uint8 tensors
            For each rank, and from each; neighbours in memory.
        result
            What the operation gives once `receives` are filled.
        wait : bool
        """
        start = time.perf_counter()
        phase = self._recorder.phase
        if self._recorder.watch is not None:
            self._recorder.watch.begins(operation, phase[0])
        self._sequence += 1
        tag = 2 * (self._sequence % (USER_TAGS // 2))
        if sends[self.rank].numel():
            receives[self.rank].copy_(sends[self.rank])

        def complete() -> Any:
            sent = {p: data.numel() for p, data in enumerate(sends) if p != self.rank}
            received = sum(t.numel() for p, t in enumerate(receives) if p != self.rank)
            self._record(operation, phase, start, call.ended, sent, received)
            return result

        messages = (
            self._transport.exchange(sends, receives, tag, packed=True)
            if self.size > 1
            else self._nothing()
        )
        call = Staged(messages, None, complete, background=False)
        return self._awaited(call, wait)

    def _headers(
        self,
        operation: str,
        sends: Tensors,
        expected: Sequence[int] | None,
        detail: int,
        whole: Sequence[int] | None,
    ) -> list[Header]:
        dtype = self._dtype(operation, *sends)
        digest = 0 if whole is None else shape_digest(whole)
        headers = []
        for peer, tensor in enumerate(sends):
            shape = (0,) if tensor is None else tuple(tensor.shape)
            if len(shape) > MAX_DIMS:
                raise ValueError(f"{operation}: at most {MAX_DIMS} dimensions travel, got {shape}")
            want = ANY if expected is None else expected[peer]
            headers.append(Header(self._sequence, operation, dtype, detail, shape, want, digest))
        return headers

    def _compare(
        self, mine: list[Header], payloads: Tensors
    ) -> tuple[list[Header], list[torch.Tensor]]:
        """Tell every peer what this rank is about to do, and hear the same from them."""
        if self.size == 1:
            return mine, []
        blocks = self._transport.headers(pack(mine, payloads), self._deadline())
        said, inline = unpack(blocks)
        for peer in range(self.size):
            check_pair(mine[peer], said[peer], self.ranks[self.rank], self.ranks[peer])
        return said, inline

    def _receives(
        self,
        said: list[Header],
        outputs: Sequence[torch.Tensor] | None,
        device: torch.device,
        payloads: Tensors,
    ) -> list[torch.Tensor]:
        """Flat uint8 tensors to receive into; this rank's own is filled already."""
        receives = []
        own = payloads[self.rank]
        for peer, header in enumerate(said):
            if outputs is not None:
                data = flat(outputs[peer]).view(torch.uint8)
                if peer == self.rank and own is not None and data.data_ptr() != own.data_ptr():
                    data.copy_(own)
            elif peer == self.rank and own is not None:
                data = own.to(device, copy=True)
            else:
                data = torch.empty(header.nbytes, dtype=torch.uint8, device=device)
            receives.append(data)
        return receives

    def _messages(
        self,
        sends: Tensors,
        receives: Sequence[torch.Tensor],
        tag: int,
        *,
        least: int,
    ) -> Pending:
        """Start the messages of more than `least` bytes."""
        if self.size == 1:
            return self._nothing()

        def chosen(tensors: Tensors) -> list[torch.Tensor | None]:
            return [
                None if t is None or t.numel() <= least or peer == self.rank else t
                for peer, t in enumerate(tensors)
            ]

        return self._transport.exchange(chosen(sends), chosen(receives), tag)

    def _nothing(self) -> Pending:
        pending = Pending(self._transport.interrupt)
        pending.complete()
        return pending

    def _awaited(self, call: Pending, wait: bool) -> Any:
        """The result, or the operation itself, which the end of the launch waits for."""
        if wait:
            return call.wait()
        finished = [key for key, open_call in self._under_way.items() if open_call.finished]
        for key in finished:
            del self._under_way[key]
        self._under_way[id(call)] = call
        return call

    def _check_rank(self, operation: str, argument: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise ValueError(f"{operation}: {argument} is {rank}, ranks are 0 to {self.size - 1}")

    def _dtype(self, operation: str, *tensors: torch.Tensor | None) -> torch.dtype:
        dtypes = {t.dtype for t in tensors if t is not None}
        if len(dtypes) > 1:
            raise ValueError(f"{operation}: one dtype a call, got {sorted(map(str, dtypes))}")
        dtype = next(iter(dtypes), torch.uint8)
        if dtype not in DTYPES:
            raise ValueError(f"{operation}: {dtype} does not travel; convert it first")
        return dtype

    def _record(
        self,
        operation: str,
        phase: tuple[str, str, str],
        start: float,
        end: float,
        sent: dict[int, int],
        received: int,
    ) -> None:
        self._recorder.record(
            operation,
            phase,
            start=start,
            end=end,
            sent=sent,
            received=received,
            ranks=self.ranks,
            group=self.name,
        )


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without a graph, and without conjugation or negation still to be done."""
    return tensor.detach().resolve_conj().resolve_neg()


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Flat uint8 view of a tensor's elements (a copy where they are not contiguous)."""
    return flat(plain(tensor).contiguous()).view(torch.uint8)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """One-dimensional view of a contiguous tensor.

    One element, or none, is contiguous with any strides, and then no view of its bytes is allowed.
    """
    return tensor.as_strided((tensor.numel(),), (1,))
