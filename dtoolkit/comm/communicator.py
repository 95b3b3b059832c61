"""The communicator: what a rank calls to exchange tensors with the others.

All operations are built on two primitives of the transport and give the same bits whatever the
timing: sums are taken in rank order, so that a run repeats bit for bit. Each call is checked
against the peers' before anything is sent (:mod:`dtoolkit.comm.messages`) and leaves one event in
the trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dtoolkit.comm.counts import check_counts
from dtoolkit.comm.exchange import bytes_of, flat, plain
from dtoolkit.comm.groups import Groups
from dtoolkit.comm.reduction import check_reduction, reduce_in_order
from dtoolkit.comm.tagged import Tagged
from dtoolkit.errors import MessageMismatch

__all__ = ["Communicator"]


class Communicator(Tagged, Groups):
    """Exchange of tensors between the ranks of a group.

    Tensors may lie on the host or on the rank's GPU, have any layout and any of the dtypes uint8,
    int8 to int64, float16, bfloat16, float32, float64, complex64, complex128 and bool; results are
    new contiguous tensors on the device of the input. Every operation takes ``wait=False`` and
    then returns a :class:`~dtoolkit.comm.pending.Pending` whose ``wait()`` gives the result;
    inputs must not change before that.

    Parameters
    ----------
    transport : Transport
    recorder : Recorder
    ranks : sequence of int, optional
        Rank in the cluster of each rank of this group; all of them by default.
    name : str
        Name of a subgroup; empty for the group of all ranks.
    device : torch.device or str
        Where results lie on a rank that passes no tensor of its own.
    deadline : callable, optional
        Seconds that are left to the launch.
    under_way : dict, optional
        Operations that nobody has waited for, shared with the group that this one is a part of.

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
        detail = check_reduction(op, tensor)
        flat = plain(tensor).reshape(-1)
        pieces = list(torch.tensor_split(flat, self.size))
        total = torch.empty_like(flat, memory_format=torch.contiguous_format)
        shares = list(torch.tensor_split(total, self.size))
        own = shares[self.rank]

        def spread(received: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
            own.copy_(reduce_in_order(received, op))
            return [own] * self.size, shares

        return self._exchange(
            "all_reduce",
            pieces,
            lambda _: total.reshape(tensor.shape),
            wait=wait,
            expected=[own.numel()] * self.size,
            detail=detail,
            whole=tensor.shape,
            second=spread,
        )

    def all_gather(self, tensor: torch.Tensor, *, wait: bool = True) -> Any:
        """Give every rank the tensors of all ranks, which have the same shape.

        Returns
        -------
        torch.Tensor
            Shape ``(size, *tensor.shape)``, in rank order.
        """
        whole = torch.empty((self.size, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        return self._exchange(
            "all_gather",
            [tensor] * self.size,
            lambda _: whole,
            wait=wait,
            expected=[tensor.numel()] * self.size,
            outputs=list(whole),
            whole=tensor.shape,
        )

    def all_gather_v(self, tensor: torch.Tensor, *, wait: bool = True) -> Any:
        """Give every rank the tensors of all ranks, which may differ in shape.

        Returns
        -------
        list of torch.Tensor
            In rank order.
        """
        return self._exchange("all_gather_v", [tensor] * self.size, wait=wait)

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
        detail = check_reduction(op, tensor)
        pieces = list(torch.tensor_split(plain(tensor), self.size))
        return self._exchange(
            "reduce_scatter",
            pieces,
            lambda received: reduce_in_order(received, op),
            wait=wait,
            expected=[pieces[self.rank].numel()] * self.size,
            detail=detail,
            whole=tensor.shape,
        )

    def all_to_all(
        self,
        tensors: Sequence[torch.Tensor],
        *,
        out: Sequence[torch.Tensor] | None = None,
        agreed: bool = False,
        wait: bool = True,
    ) -> Any:
        """Send one tensor to each rank and receive one from each.

        Parameters
        ----------
        tensors : sequence of torch.Tensor
            One for each rank, of any shapes and one dtype.
        out : sequence of torch.Tensor, optional
            One contiguous tensor for each rank, where to put what comes: its dtype and number of
            elements are checked against what the rank sends.
        agreed : bool
            All ranks follow one plan, so that `out` is known to fit: nothing is compared, which
            saves the round of headers. Sizes that do not fit end a process.

        Returns
        -------
        list of torch.Tensor
            What each rank sent to this one.
        """
        if agreed and out is None:
            raise ValueError("all_to_all: agreed=True needs out=, the tensors that were agreed on")
        if len(tensors) != self.size:
            raise ValueError(f"all_to_all: got {len(tensors)} tensors for {self.size} ranks")
        if out is not None and len(out) != self.size:
            raise ValueError(f"all_to_all: got {len(out)} out tensors for {self.size} ranks")
        for peer, tensor in enumerate(out or ()):
            if tensor.dtype != tensors[0].dtype or not tensor.is_contiguous():
                raise ValueError(
                    f"all_to_all: out[{peer}] must be contiguous and {tensors[0].dtype}, as what "
                    f"is sent; it is {'' if tensor.is_contiguous() else 'not contiguous and '}"
                    f"{tensor.dtype}"
                )
        return self._exchange(
            "all_to_all",
            list(tensors),
            wait=wait,
            expected=None if out is None else [t.numel() for t in out],
            outputs=None if out is None else [t.detach() for t in out],
            agreed=agreed,
        )

    def all_to_all_v(
        self,
        rows: torch.Tensor,
        send_counts: Sequence[int],
        receive_counts: Sequence[int] | None = None,
        *,
        out: torch.Tensor | None = None,
        agreed: bool = False,
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
        agreed : bool
            As for :meth:`all_to_all`: with `out` only.

        Returns
        -------
        torch.Tensor
            The received rows.
        """
        if agreed and out is None:
            raise ValueError("all_to_all_v: agreed=True needs out=, the rows that were agreed on")
        check_counts(rows, send_counts, receive_counts, out, self.size)
        width = rows.shape[1:]
        if agreed and out is not None and receive_counts is not None:
            self._dtype("all_to_all_v", rows)
            row = math.prod(width) * rows.itemsize
            fill = flat(out.detach()).view(torch.uint8)
            return self._exchange_packed(
                "all_to_all_v",
                torch.split(bytes_of(rows), [int(n) * row for n in send_counts]),
                torch.split(fill, [int(n) * row for n in receive_counts]),
                out,
                wait=wait,
            )
        pieces = list(torch.split(plain(rows), [int(n) for n in send_counts]))

        def checked(received: list[torch.Tensor]) -> list[torch.Tensor]:
            for peer, piece in enumerate(received):
                if piece.shape[1:] != width:
                    raise MessageMismatch(
                        f"all_to_all_v: rank {self.ranks[self.rank]} has rows of shape "
                        f"{tuple(width)} and rank {self.ranks[peer]} of {tuple(piece.shape[1:])}"
                    )
            return received

        if receive_counts is None:
            return self._exchange(
                "all_to_all_v", pieces, lambda received: torch.cat(checked(received)), wait=wait
            )
        counts = [int(n) for n in receive_counts]
        if out is None:
            whole = torch.empty((sum(counts), *width), dtype=rows.dtype, device=rows.device)
        else:
            whole = out.detach()

        def filled(received: list[torch.Tensor]) -> torch.Tensor:
            checked(received)
            return whole if out is None else out

        return self._exchange(
            "all_to_all_v",
            pieces,
            filled,
            wait=wait,
            expected=[n * math.prod(width) for n in counts],
            outputs=list(torch.split(whole, counts)),
        )

    def broadcast(
        self, tensor: torch.Tensor | None = None, root: int = 0, *, wait: bool = True
    ) -> Any:
        """Give every rank the root's tensor; the other ranks need not pass one.

        Returns
        -------
        torch.Tensor
            On the device of this rank's own tensor, or the rank's device where it passed none.
        """
        sends = self._from_root("broadcast", [tensor] * self.size, root)
        return self._exchange(
            "broadcast",
            sends,
            lambda received: received[root],
            wait=wait,
            detail=root,
            device=self.device if tensor is None else tensor.device,
        )

    def gather(self, tensor: torch.Tensor, root: int = 0, *, wait: bool = True) -> Any:
        """Give the root the tensors of all ranks, which may differ in shape.

        Returns
        -------
        list of torch.Tensor, or None on the other ranks
        """
        self._check_rank("gather", "root", root)
        sends = [tensor if peer == root else None for peer in range(self.size)]
        return self._exchange(
            "gather",
            sends,
            lambda received: received if self.rank == root else None,
            wait=wait,
            detail=root,
        )

    def scatter(
        self, tensors: Sequence[torch.Tensor] | None = None, root: int = 0, *, wait: bool = True
    ) -> Any:
        """Give each rank one of the root's tensors, which may differ in shape.

        Returns
        -------
        torch.Tensor
            On the root's device there, else on the rank's.
        """
        if self.rank == root and (tensors is None or len(tensors) != self.size):
            got = "none" if tensors is None else len(tensors)
            raise ValueError(f"scatter: the root needs {self.size} tensors, got {got}")
        sends = self._from_root("scatter", tensors or [None] * self.size, root)
        return self._exchange(
            "scatter", sends, lambda received: received[root], wait=wait, detail=root
        )

    def barrier(self, *, wait: bool = True) -> Any:
        """Wait until every rank of the group has come here."""
        nothing: list[torch.Tensor | None] = [None] * self.size
        return self._exchange("barrier", nothing, lambda _: None, wait=wait)

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
        while self._under_way:
            self._under_way.pop(next(iter(self._under_way))).wait()

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
