"""What each rank holds of a planned sparse matrix: local pieces, and lists of what to exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.kernels import LocalCSR

if TYPE_CHECKING:
    from dtoolkit.cluster import Context
    from dtoolkit.spmm.planned import Plan

__all__ = ["Operand", "build", "transpose"]


@dataclass(frozen=True)
class Operand:
    """A rank's part of C = A B.

    Rows that travel between two ranks lie in one message: rows of B, then partial rows of C. The
    messages of all peers, laid end to end by rank, are the *parcel* that a rank sends or receives.

    Attributes
    ----------
    rank : int
    own : LocalCSR of shape (rows here, columns here)
        Nonzeros whose row of C and row of B are both here.
    remote : LocalCSR of shape (rows here, rows of the received parcel)
        Nonzeros whose row of B is received; columns are rows of the parcel.
    partial : tuple of LocalCSR, each of shape (partial rows for a peer, columns here)
        Nonzeros that are computed here for each peer.
    gather : tuple of int64 tensors
        Local rows of B to send to each peer.
    scatter : tuple of int64 tensors
        Local rows of C that the partial sums of each peer are added to, ascending.
    b_in : tuple of int
        Rows of B received from each peer.
    whole : bool
        All peers get the whole shard of B as it lies; `gather` is empty.
    """

    rank: int
    own: LocalCSR
    remote: LocalCSR
    partial: tuple[LocalCSR, ...]
    gather: tuple[torch.Tensor, ...]
    scatter: tuple[torch.Tensor, ...]
    b_in: tuple[int, ...]
    whole: bool
    workspace: dict[str, torch.Tensor] = field(default_factory=dict, compare=False, repr=False)

    @property
    def b_out(self) -> tuple[int, ...]:
        """Rows of B sent to each peer."""
        n = self.own.shape[1]
        if self.whole:
            return tuple(0 if q == self.rank else n for q in range(len(self.gather)))
        return tuple(index.numel() for index in self.gather)

    @property
    def c_out(self) -> tuple[int, ...]:
        """Partial rows sent to each peer."""
        return tuple(piece.shape[0] for piece in self.partial)

    @property
    def c_in(self) -> tuple[int, ...]:
        """Partial rows received from each peer."""
        return tuple(index.numel() for index in self.scatter)

    @property
    def nnz(self) -> int:
        """Nonzeros multiplied here."""
        return sum(piece.nnz for piece in self._pieces)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.own.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the pieces, the lists and the buffers that are kept between products.

        The transposed operand counts too, once it was made.
        """
        tensors = [t for piece in self._pieces for t in (piece.indptr, piece.indices, piece.data)]
        kept = (*tensors, *self.gather, *self.scatter, *self.workspace.values())
        turned: Operand | None = self.__dict__.get("transposed")
        return sum(t.nbytes for t in kept) + (0 if turned is None else turned.nbytes)

    @cached_property
    def transposed(self) -> Operand:
        """The part of C = A^T B that is computed here: the same nonzeros, the exchange reversed."""
        return transpose(self)

    @property
    def values(self) -> torch.Tensor:
        """Values of all pieces, end to end: own, remote, then partial by peer."""
        return torch.cat([piece.data for piece in self._pieces])

    def with_values(self, values: torch.Tensor) -> Operand:
        """The same pattern with other values, in the order of :attr:`values`."""
        parts = torch.split(values, [piece.nnz for piece in self._pieces])
        own, remote, *partial = (
            piece.with_data(part) for piece, part in zip(self._pieces, parts, strict=True)
        )
        return replace(self, own=own, remote=remote, partial=tuple(partial), workspace={})

    def scaled(
        self,
        ctx: Context,
        *,
        rows: torch.Tensor | None = None,
        columns: torch.Tensor | None = None,
        divide: bool = False,
    ) -> Operand:
        """Values times (or over) one factor a row or column, given where that row or column is."""
        from dtoolkit.spmm.values import factors

        found = factors(ctx, self, rows=rows, columns=columns)
        dtype = torch.promote_types(self.dtype, found.dtype)
        values = self.values.to(dtype)
        return self.with_values(values / found if divide else values * found)

    def to(self, device: torch.device) -> Operand:
        """The same on another device."""
        return replace(
            self,
            own=self.own.to(device),
            remote=self.remote.to(device),
            partial=tuple(piece.to(device) for piece in self.partial),
            gather=tuple(index.to(device) for index in self.gather),
            scatter=tuple(index.to(device) for index in self.scatter),
            workspace={},
        )

    @property
    def _pieces(self) -> tuple[LocalCSR, ...]:
        return (self.own, self.remote, *self.partial)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is made again on demand."""
        state = {k: v for k, v in self.__dict__.items() if k != "transposed"}
        return {**state, "workspace": {}}


def transpose(A: Operand) -> Operand:
    """Swap the roles: what was received is sent, what was added is gathered."""
    peers = range(len(A.partial))
    flipped = A.remote.to_scipy().T.tocsr()  # a row for each row of the received parcel
    starts = _starts(A.b_in, A.c_in)
    partial = [flipped[starts[q] : starts[q] + A.b_in[q]] for q in peers]
    return Operand(
        rank=A.rank,
        own=_again(A.own.to_scipy().T.tocsr(), A),
        remote=_again(_side_by_side(A), A),
        partial=tuple(_again(piece, A) for piece in partial),
        gather=A.scatter,
        scatter=_whole(A) if A.whole else A.gather,
        b_in=A.c_out,
        whole=False,
    )


def build(plan: Plan, A: sparse.csr_array, ranks: Iterable[int] | None = None) -> list[Operand]:
    """Cut a matrix into the operands of a plan.

    Parameters
    ----------
    plan : Plan
    A : csr_array
        The canonical matrix that was planned.
    ranks : iterable of int, optional
        Ranks to build for; all by default.

    Returns
    -------
    list of Operand
        On the CPU, in the order of `ranks`.
    """
    row = np.repeat(np.arange(A.shape[0], dtype=np.int64), np.diff(A.indptr))
    target = plan.rows.owner(row)
    source = plan.columns.owner(A.indices)
    here = np.where(plan.by_row, source, target)
    return [
        _operand(plan, A, row, target, source, here == rank, rank)
        for rank in (range(plan.parts) if ranks is None else ranks)
    ]


def _operand(
    plan: Plan,
    A: sparse.csr_array,
    row: NDArray[np.int64],
    target: NDArray[np.int32],
    source: NDArray[np.int32],
    mine: NDArray[np.bool_],
    rank: int,
) -> Operand:
    chosen = np.flatnonzero(mine)
    i, j, value = row[chosen], A.indices[chosen].astype(np.int64), A.data[chosen]
    t, s = target[chosen], source[chosen]
    whole = plan.b.index is None
    peers = range(plan.parts)
    b_in = [plan.b_rows(peer, rank) for peer in peers]
    c_out = [plan.c_rows(rank, peer) for peer in peers]
    b_out = [plan.b_rows(rank, peer) for peer in peers]
    c_in = [plan.c_rows(peer, rank) for peer in peers]
    m, n = int(plan.rows.sizes[rank]), int(plan.columns.sizes[rank])
    own, remote = t == s, (t == rank) & (s != rank)
    # Where the rows of B from each peer begin in the received parcel.
    starts = _starts(list(map(len, b_in)), list(map(len, c_in)))
    position = _positions(b_in, starts, s[remote], j[remote])
    partial = []
    for peer in peers:
        chosen = (t == peer) & (t != rank)
        place = np.searchsorted(c_out[peer], i[chosen])
        column = plan.columns.local(j[chosen])
        partial.append(_csr(place, column, value[chosen], (len(c_out[peer]), n)))
    return Operand(
        rank=rank,
        own=_csr(plan.rows.local(i[own]), plan.columns.local(j[own]), value[own], (m, n)),
        remote=_csr(plan.rows.local(i[remote]), position, value[remote], (m, starts[-1])),
        partial=tuple(partial),
        gather=tuple(_local(plan.columns, [] if whole else rows) for rows in b_out),
        scatter=tuple(_local(plan.rows, rows) for rows in c_in),
        b_in=tuple(map(len, b_in)),
        whole=whole,
    )


def _csr(
    i: NDArray[np.int64], j: NDArray[np.int64], value: NDArray, shape: tuple[int, int]
) -> LocalCSR:
    # Rows and columns keep their global order, except where pieces are numbered by peer; a stable
    # sort keeps the order of additions the same on every run.
    order = np.lexsort((j, i))
    indptr = np.zeros(shape[0] + 1, np.int64)
    np.cumsum(np.bincount(i, minlength=shape[0]), out=indptr[1:])
    narrow = np.int32 if shape[1] < 2**31 else np.int64
    return LocalCSR(
        torch.from_numpy(indptr),
        torch.from_numpy(j[order].astype(narrow)),
        torch.from_numpy(np.ascontiguousarray(value[order])),
        shape,
    )


def _starts(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Where each peer's message begins in a parcel, and its length at the end."""
    return [0, *accumulate(map(add, first, second))]


def _positions(
    lists: list[NDArray[np.int64]],
    starts: list[int],
    peer: NDArray[np.int32],
    index: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Row of the parcel for each (peer, global row)."""
    out = np.empty(len(index), np.int64)
    for number, known in enumerate(lists):
        chosen = peer == number
        out[chosen] = starts[number] + np.searchsorted(known, index[chosen])
    return out


def _local(layout: Layout, rows: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
    return torch.from_numpy(layout.local(np.asarray(rows, np.int64)))


def _whole(A: Operand) -> tuple[torch.Tensor, ...]:
    """Positions of the whole shard for each peer that gets it."""
    return tuple(torch.arange(n, device=A.own.device) for n in A.b_out)


def _side_by_side(A: Operand) -> sparse.csr_array:
    """Transposed partial pieces, in the places where a reversed exchange puts their rows."""
    n = A.own.shape[1]
    blocks = []
    for piece, gap in zip(A.partial, A.b_out, strict=True):
        blocks.append(piece.to_scipy().T.tocsr())
        blocks.append(sparse.csr_array((n, gap), dtype=blocks[0].dtype))
    return sparse.hstack(blocks, format="csr")


def _again(A: sparse.csr_array, like: Operand) -> LocalCSR:
    return LocalCSR.from_scipy(A, dtype=like.dtype, device=like.own.device)
