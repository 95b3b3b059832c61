"""The communicator: what a rank calls to exchange tensors with the others.

All operations are built on two primitives of the transport and give the same bits whatever the
timing: sums are taken in rank order, so that a run repeats bit for bit. Each call is checked
against the peers' before anything is sent (:mod:`dtoolkit.comm.messages`) and leaves one event in
the trace.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dtoolkit.comm.exchange import USER_TAGS, Engine, bytes_of
from dtoolkit.comm.messages import ANY, INLINE, Header, pack, unpack
from dtoolkit.comm.reduction import REDUCTIONS, reduce_in_order
from dtoolkit.comm.transport import HEADER

__all__ = ["Communicator"]


class Communicator(Engine):
    """Exchange of tensors between the ranks of a group.

    Tensors may lie on the host or on the rank's GPU, have any layout and any of the dtypes uint8,
    int8 to int64, float16, bfloat16, float32, float64, complex64, complex128 and bool; results are
    new contiguous tensors on the device of the input. Every operation takes ``wait=False`` and
    then returns a :class:`~dtoolkit.comm.transport.Pending` whose ``wait()`` gives the result;
    inputs must not change before that.

    Parameters
    ----------
    transport : Transport
    recorder : Recorder
    ranks : sequence of int, optional
        Rank in the cluster of each rank of this group; all of them by default.
    name : str
        Name of a subgroup; empty for the group of all ranks.
    deadline : callable, optional
        Seconds that are left to the launch.

    Attributes
    ----------
    rank, size : int
        Number of this rank in the group, and how many there are.
    ranks : tuple of int
        Rank in the cluster of each member.
    name : str

    Raises
    ------
    MessageMismatch
        By every operation: ranks do not agree on the call, the dtype or a size.
    CommunicationError
        By every operation: a connection broke.
    """

    # ------------------------------------------------------------------ collective operations

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum", *, wait: bool = True) -> Any:
        """Combine a tensor over all ranks; every rank gets the whole result.

        A reduce-scatter by all-to-all, summed in rank order, and an all-gather: 2 (P-1)/P of the
        tensor's bytes leave each rank, and all ranks hold the same bits.

        Parameters
        ----------
        tensor : torch.Tensor
            Same shape and dtype on all ranks.
        op : {"sum", "mean", "prod", "min", "max"}
            bfloat16 and float16 are combined in float32 and rounded once.

        Returns
        -------
        torch.Tensor
        """
        detail = _reduction(op, tensor)
        flat = tensor.detach().reshape(-1)
        pieces = list(torch.tensor_split(flat, self.size))
        own = pieces[self.rank]
        total = flat.new_empty(flat.numel())
        targets = list(torch.tensor_split(total, self.size))

        def combine(received: list[torch.Tensor]) -> torch.Tensor:
            targets[self.rank].copy_(reduce_in_order(received, op))
            again = self._exchange(
                "all_reduce",
                [targets[self.rank]] * self.size,
                expected=[t.numel() for t in targets],
                outputs=targets,
                detail=detail,
            )
            again.wait()
            return total.reshape(tensor.shape)

        first = self._exchange(
            "all_reduce", pieces, expected=[own.numel()] * self.size, detail=detail, finish=combine
        )
        return first.wait() if wait else first

    def all_gather(self, tensor: torch.Tensor, *, wait: bool = True) -> Any:
        """Give every rank the tensors of all ranks, which have the same shape.

        Returns
        -------
        torch.Tensor
            Shape ``(size, *tensor.shape)``, in rank order.
        """
        whole = tensor.new_empty((self.size, *tensor.shape))
        pending = self._exchange(
            "all_gather",
            [tensor] * self.size,
            expected=[tensor.numel()] * self.size,
            outputs=[row.reshape(-1) for row in whole],
            finish=lambda _: whole,
        )
        return pending.wait() if wait else pending

    def all_gather_v(self, tensor: torch.Tensor, *, wait: bool = True) -> Any:
        """Give every rank the tensors of all ranks, which may differ in shape.

        Returns
        -------
        list of torch.Tensor
            In rank order.
        """
        pending = self._exchange("all_gather_v", [tensor] * self.size)
        return pending.wait() if wait else pending

    def reduce_scatter(self, tensor: torch.Tensor, op: str = "sum", *, wait: bool = True) -> Any:
        """Combine a tensor over all ranks; each rank gets its share of the rows.

        Parameters
        ----------
        tensor : torch.Tensor
            At least one dimension, same shape and dtype on all ranks. Its rows are shared out as
            ``torch.tensor_split`` does: the first ranks get one more where they do not divide.
        op : {"sum", "mean", "prod", "min", "max"}

        Returns
        -------
        torch.Tensor
            This rank's rows, combined in rank order. (P-1)/P of the bytes leave each rank.
        """
        if tensor.dim() == 0:
            raise ValueError("reduce_scatter: tensor has no rows to share out (0 dimensions)")
        detail = _reduction(op, tensor)
        pieces = list(torch.tensor_split(tensor.detach(), self.size))
        pending = self._exchange(
            "reduce_scatter",
            pieces,
            expected=[pieces[self.rank].numel()] * self.size,
            detail=detail,
            finish=lambda received: reduce_in_order(received, op),
        )
        return pending.wait() if wait else pending

    def all_to_all(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        out: Sequence[torch.Tensor] | None = None,
        wait: bool = True,
    ) -> Any:
        """Send one tensor to each rank and receive one from each.

        Parameters
        ----------
        tensors : sequence of torch.Tensor
            One for each rank, of any shapes and one dtype.
        out : sequence of torch.Tensor, optional
            One contiguous tensor for each rank, where to put what comes: its number of elements is
            checked against what the rank sends.

        Returns
        -------
        list of torch.Tensor
            What each rank sent to this one.
        """
        if len(tensors) != self.size:
            raise ValueError(f"all_to_all: got {len(tensors)} tensors for {self.size} ranks")
        if out is not None and len(out) != self.size:
            raise ValueError(f"all_to_all: got {len(out)} out tensors for {self.size} ranks")
        pending = self._exchange(
            "all_to_all",
            list(tensors),
            expected=None if out is None else [t.numel() for t in out],
            outputs=None if out is None else [t.view(-1) for t in out],
        )
        return pending.wait() if wait else pending

    def all_to_all_v(
        self,
        rows: torch.Tensor,
        send_counts: Sequence[int],
        receive_counts: Sequence[int] | None = None,
        *,
        out: torch.Tensor | None = None,
        wait: bool = True,
    ) -> Any:
        """Send consecutive rows to each rank and receive rows from each, in rank order.

        Parameters
        ----------
        rows : torch.Tensor
            Shape (sum of `send_counts`, ...).
        send_counts : sequence of int
            Rows for each rank.
        receive_counts : sequence of int, optional
            Rows from each rank, where they are known: checked against what comes.
        out : torch.Tensor, optional
            Contiguous, shape (sum of `receive_counts`, ...): where to put the rows.

        Returns
        -------
        torch.Tensor
            The received rows.
        """
        self._check_counts(rows, send_counts, receive_counts, out)
        pieces = list(torch.split(rows.detach(), [int(n) for n in send_counts]))
        if receive_counts is None:
            pending = self._exchange("all_to_all_v", pieces, finish=torch.cat)
            return pending.wait() if wait else pending
        width = rows.shape[1:]
        counts = [int(n) for n in receive_counts]
        whole = rows.new_empty((sum(counts), *width)) if out is None else out
        pending = self._exchange(
            "all_to_all_v",
            pieces,
            expected=[n * math.prod(width) for n in counts],
            outputs=[piece.reshape(-1) for piece in torch.split(whole, counts)],
            finish=lambda _: whole,
        )
        return pending.wait() if wait else pending

    def broadcast(
        self, tensor: torch.Tensor | None = None, root: int = 0, *, wait: bool = True
    ) -> Any:
        """Give every rank the root's tensor; the other ranks need not pass one.

        Returns
        -------
        torch.Tensor
            On the device of this rank's own tensor, or the host where it passed none.
        """
        sends = self._from_root("broadcast", [tensor] * self.size, root)
        pending = self._exchange(
            "broadcast", sends, detail=root, finish=lambda received: received[root]
        )
        return pending.wait() if wait else pending

    def gather(self, tensor: torch.Tensor, root: int = 0, *, wait: bool = True) -> Any:
        """Give the root the tensors of all ranks, which may differ in shape.

        Returns
        -------
        list of torch.Tensor, or None on the other ranks
        """
        self._check_rank("gather", "root", root)
        sends = [tensor if peer == root else None for peer in range(self.size)]
        pending = self._exchange(
            "gather",
            sends,
            detail=root,
            finish=lambda received: received if self.rank == root else None,
        )
        return pending.wait() if wait else pending

    def scatter(
        self, tensors: Sequence[torch.Tensor] | None = None, root: int = 0, *, wait: bool = True
    ) -> Any:
        """Give each rank one of the root's tensors, which may differ in shape.

        Returns
        -------
        torch.Tensor
        """
        if self.rank == root and (tensors is None or len(tensors) != self.size):
            got = "none" if tensors is None else len(tensors)
            raise ValueError(f"scatter: the root needs {self.size} tensors, got {got}")
        sends = self._from_root("scatter", list(tensors or [None] * self.size), root)
        pending = self._exchange(
            "scatter", sends, detail=root, finish=lambda received: received[root]
        )
        return pending.wait() if wait else pending

    def barrier(self, *, wait: bool = True) -> Any:
        """Wait until every rank of the group has come here."""
        pending = self._exchange("barrier", [None] * self.size, finish=lambda _: None)
        return pending.wait() if wait else pending

    # ------------------------------------------------------------------------ tagged messages

    def send(self, tensor: torch.Tensor, target: int, tag: int = 0, *, wait: bool = True) -> Any:
        """Send a tensor to one rank. Returns when the target has taken it.

        Parameters
        ----------
        tensor : torch.Tensor
        target : int
            Another rank of the group.
        tag : int
            0 to 2**20 - 1; messages of one tag arrive in the order in which they were sent.
        """
        self._check_rank("send", "target", target)
        if target == self.rank:
            raise ValueError(f"send: target {target} is this rank itself")
        wire = _tag(tag)
        start = time.perf_counter()
        data = bytes_of(tensor)
        header = Header(0, "send", tensor.dtype, tag, tuple(tensor.shape), ANY)
        block = pack([header], [data])[0]
        first = self._transport.send(block, target, wire)
        second = (
            self._transport.send(data.cpu(), target, wire + 1) if data.numel() > INLINE else None
        )

        def finish() -> None:
            for message in (first, second):
                if message is not None:
                    message.wait()
            self._record("send", {target: data.numel()}, 0, start, time.perf_counter())

        return self._start(finish, wait)

    def recv(self, source: int | None = None, tag: int = 0, *, wait: bool = True) -> Any:
        """Receive the next tensor that a rank sends to this one with this tag.

        Parameters
        ----------
        source : int, optional
            Another rank of the group; any rank by default.
        tag : int

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
        wire = _tag(tag)
        start = time.perf_counter()
        block = torch.empty(HEADER, dtype=torch.uint8)
        first, who = self._transport.receive(block, source, wire)

        def finish() -> tuple[torch.Tensor, int]:
            first.wait()
            sender = int(who())
            (header,), (inline,) = unpack(block[None])
            if header.nbytes <= INLINE:
                data = inline[: header.nbytes].clone()
            else:
                data = torch.empty(header.nbytes, dtype=torch.uint8)
                self._transport.receive(data, sender, wire + 1)[0].wait()
            self._record("recv", {}, header.nbytes, start, time.perf_counter())
            return data.view(header.dtype).reshape(header.shape), sender

        return self._start(finish, wait)

    # ------------------------------------------------------------------------------ subgroups

    def split(self, color: int | None, key: int | None = None) -> Communicator | None:
        """Divide the group: ranks of one color form a new communicator.

        Parameters
        ----------
        color : int or None
            Which part this rank belongs to; None for no part.
        key : int, optional
            Order within the part; by default the order of the ranks here.

        Returns
        -------
        Communicator or None
        """
        ask = torch.tensor([-1 if color is None else int(color), self.rank if key is None else key])
        if color is not None and color < 0:
            raise ValueError(f"split: color must be 0 or more, or None; got {color}")
        said = self._exchange("split", [ask] * self.size, expected=[2] * self.size).wait()
        if color is None:
            return None
        mine = sorted((int(k), r) for r, (c, k) in enumerate(said) if int(c) == color)
        members = [r for _, r in mine]
        ranks = [self.ranks[r] for r in members]
        name = f"{self.name}/{self._sequence}.{color}".lstrip("/")
        transport = self._transport.subgroup(members, name)
        return Communicator(
            transport, self._recorder, ranks=ranks, name=name, deadline=self._deadline
        )

    def grid(self, shape: Sequence[int]) -> tuple[Communicator, ...]:
        """Arrange the ranks in a grid (last axis fastest): one communicator along each axis.

        Parameters
        ----------
        shape : sequence of int
            Its product is the size of the group.

        Returns
        -------
        tuple of Communicator
            Along axis ``d``: the ranks whose other coordinates equal this rank's.
        """
        if math.prod(shape) != self.size or any(n < 1 for n in shape):
            raise ValueError(f"grid: shape {tuple(shape)} does not hold {self.size} ranks")
        axes = []
        for axis in range(len(shape)):
            stride = math.prod(shape[axis + 1 :])
            place = self.rank // stride % shape[axis]
            axes.append(self.split(self.rank - place * stride, place))
        return tuple(axes)  # type: ignore[arg-type]  # every rank has a color

    @contextmanager
    def phase(self, name: str, *, source: str = "", target: str = "") -> Iterator[None]:
        """Mark the events inside: ``with comm.phase("halo"):``.

        Parameters
        ----------
        name : str
        source, target : str
            Logical ends, where there are more of them than ranks: clients, stages, shards.
        """
        before = self._recorder.phase
        self._recorder.phase = (name, source, target)
        try:
            yield
        finally:
            self._recorder.phase = before

    def finish(self) -> None:
        """Wait for every operation that is still under way; called at the end of a launch."""
        while self._open:
            self._open.pop(0).wait()

    # ------------------------------------------------------------------------------- helpers

    def _from_root(
        self, operation: str, tensors: Sequence[torch.Tensor | None], root: int
    ) -> list[torch.Tensor | None]:
        self._check_rank(operation, "root", root)
        if self.rank != root:
            return [None] * self.size
        if any(tensor is None for tensor in tensors):
            raise ValueError(f"{operation}: the root (rank {root}) passed no tensor")
        return list(tensors)

    def _check_rank(self, operation: str, argument: str, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise ValueError(f"{operation}: {argument} is {rank}, ranks are 0 to {self.size - 1}")

    def _check_counts(
        self,
        rows: torch.Tensor,
        send: Sequence[int],
        receive: Sequence[int] | None,
        out: torch.Tensor | None,
    ) -> None:
        if len(send) != self.size or any(n < 0 for n in send) or sum(send) != rows.shape[0]:
            raise ValueError(
                f"all_to_all_v: send_counts {list(send)} do not share out {rows.shape[0]} rows "
                f"over {self.size} ranks"
            )
        if receive is not None and (len(receive) != self.size or any(n < 0 for n in receive)):
            raise ValueError(
                f"all_to_all_v: receive_counts {list(receive)} are not {self.size} counts"
            )
        if out is None:
            return
        want = (sum(receive or ()), *rows.shape[1:])
        if receive is None or tuple(out.shape) != want or out.dtype != rows.dtype:
            raise ValueError(
                f"all_to_all_v: out is {tuple(out.shape)} {out.dtype}; with receive_counts="
                f"{receive} it must be {want} {rows.dtype}"
            )
        if not out.is_contiguous():
            raise ValueError("all_to_all_v: out must be contiguous")


def _reduction(op: str, tensor: torch.Tensor) -> int:
    if op not in REDUCTIONS:
        raise ValueError(f"op must be one of {', '.join(REDUCTIONS)}; got {op!r}")
    if op == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op='mean' needs a floating-point tensor, got {tensor.dtype}")
    if tensor.is_complex() and op in ("min", "max"):
        raise ValueError(f"op={op!r} has no meaning for complex numbers")
    return REDUCTIONS.index(op)


def _tag(tag: int) -> int:
    if not 0 <= tag < 1 << 20:
        raise ValueError(f"tag must be 0 to {(1 << 20) - 1}, got {tag}")
    return USER_TAGS + 2 * tag
