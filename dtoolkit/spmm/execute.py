"""The product on the ranks: pack, exchange stage by stage, multiply while it runs, and add up.

Runs inside a launch, once on each rank. The order of additions is fixed (own nonzeros, then stage
by stage those of received rows and the partial sums by rank of their source), so that a run repeats
bit for bit.
"""

from __future__ import annotations

import torch

from dtoolkit.cluster import Context
from dtoolkit.spmm import kernels_candidates
from dtoolkit.spmm.kernels import LocalCSR, multiply
from dtoolkit.spmm.kernels_candidates import with_rows_in_place
from dtoolkit.spmm.operand import Operand
from dtoolkit.spmm.parcels import Parcel

__all__ = ["product"]


def product(
    ctx: Context,
    A: Operand,
    B: torch.Tensor,
    *,
    transpose: bool = False,
    kernel: str | None = None,
    out: torch.Tensor | None = None,
    agreed: bool = False,
) -> torch.Tensor:
    """Compute this rank's rows of ``A @ B``, or of ``A.T @ B``.

    Parameters
    ----------
    ctx : Context
    A : Operand
    B : torch.Tensor, shape (rows here, k) or (rows here,)
        On the plan's layout of columns (of rows, with `transpose`).
    transpose : bool
    kernel : str, optional
        Local kernel; by default the one chosen for the device.
    out : torch.Tensor, optional
        Where the result goes.
    agreed : bool
        All ranks are known to pass operands of one product, with the same k and dtype: what they
        exchange is not compared first. True where a distributed array calls.

    Returns
    -------
    torch.Tensor, shape (rows here, k) or (rows here,)

    Raises
    ------
    ValueError
        B does not have the rows of its layout that are here.
    MessageMismatch
        Ranks differ in k or in the width of B's dtype.
    """
    if B.dim() == 1:
        flat = None if out is None else out[:, None]
        column = product(
            ctx, A, B[:, None], transpose=transpose, kernel=kernel, out=flat, agreed=agreed
        )
        return column[:, 0]
    side = A.transposed if transpose else A
    _check(side, B)
    whole = any(hop.whole for hop in side.hops)
    flight = _Flight(ctx, side, B.contiguous() if whole else with_rows_in_place(B), kernel)
    stages = range(len(side.hops))
    for stage in stages:
        if stage == 0:
            flight.pack(0)
        with ctx.comm.phase(side.hops[stage].phase):
            pending = flight.parcels[stage].leave(ctx.comm, agreed=agreed)
        if stage == 0:
            for later in stages[1:]:
                flight.pack(later)
        if stage == side.busy:
            out = multiply(side.own, flight.B, out, kernel=kernel, threads=ctx.threads)
            for earlier in stages[:stage]:
                flight.add(earlier, out)
        elif stage > side.busy:
            assert out is not None
            flight.add(stage - 1, out)
        pending.wait()
        flight.pass_on(stage)
    if not stages:
        return multiply(side.own, flight.B, out, kernel=kernel, threads=ctx.threads)
    assert out is not None
    flight.add(stages[-1], out)
    for stage, parcel in enumerate(flight.parcels):
        parcel.give_back(side, stage)
    return out


def _check(side: Operand, B: torch.Tensor) -> None:
    """Refuse another shard than the plan's before its rows are picked and sent."""
    rows = side.own.shape[1]
    if B.dim() != 2 or B.shape[0] != rows:
        raise ValueError(
            f"B has shape {tuple(B.shape)} on rank {side.rank}; the plan has {rows} rows of B "
            f"there, so its shard must be a vector of {rows} or a matrix with {rows} rows"
        )


class _Flight:
    """One product under way on one rank."""

    def __init__(self, ctx: Context, side: Operand, B: torch.Tensor, kernel: str | None) -> None:
        self.side, self.B = side, B
        self.kernel, self.threads = kernel, ctx.threads
        c_dtype = torch.promote_types(side.dtype, B.dtype)
        self.parcels = [
            Parcel.take(side, stage, B.shape[1], B.dtype, c_dtype)
            for stage in range(len(side.hops))
        ]

    def pack(self, stage: int) -> None:
        """Put what comes from this rank's own rows of B into the messages of a stage."""
        hop, parcel = self.side.hops[stage], self.parcels[stage]
        if hop.whole:
            parcel.send_whole(self.B)
            return
        for peer, index in enumerate(hop.gather):
            if parcel.outgoing[peer].numel():
                rows, sums = parcel.sent(peer)
                kernels_candidates.gather_rows(self.B, index, rows[: index.numel()])
                piece = self.side.partial[stage][peer]
                multiply(piece, self.B, sums, kernel=self.kernel, threads=self.threads)

    def pass_on(self, stage: int) -> None:
        """Put what came in a stage into the messages of later ones."""
        came, later = self.parcels[stage], self.side.hops[stage + 1 :]
        for number, hop in enumerate(later, stage + 1):
            for peer, links in enumerate(hop.forward):
                place = hop.gather[peer].numel()
                for link in links:
                    count = link.index.numel()
                    if link.stage == stage:
                        rows = self.parcels[number].sent(peer)[0][place : place + count]
                        kernels_candidates.gather_rows(came.rows(link.peer), link.index, rows)
                    place += count
        for group in self.side.through:
            if group.came == stage:
                self._multiply_through(came.all_rows(), group.leaves, group.pieces)
        for peer, links in enumerate(self.side.hops[stage].relay):
            place = self.side.hops[stage].scatter[peer].numel()
            for link in links:
                sums = came.sums(peer)[place : place + link.index.numel()]
                target = self.parcels[link.stage].sent(link.peer)[1]
                kernels_candidates.add_rows(target, link.index, sums)
                place += link.index.numel()

    def add(self, stage: int, C: torch.Tensor) -> None:
        """Add to C what follows from what came in a stage."""
        hop, parcel, remote = self.side.hops[stage], self.parcels[stage], self.side.remote[stage]
        if remote.nnz:
            self._multiply(remote, parcel.all_rows(), C)
        for peer, index in enumerate(hop.scatter):
            if index.numel():
                kernels_candidates.add_rows(C, index, parcel.sums(peer)[: index.numel()])

    def _multiply_through(
        self, rows: torch.Tensor, stage: int, pieces: tuple[LocalCSR, ...]
    ) -> None:
        for peer, piece in enumerate(pieces):
            if piece.nnz:
                self._multiply(piece, rows, self.parcels[stage].sent(peer)[1])

    def _multiply(self, piece: LocalCSR, rows: torch.Tensor, target: torch.Tensor) -> None:
        multiply(piece, rows, target, accumulate=True, kernel=self.kernel, threads=self.threads)
