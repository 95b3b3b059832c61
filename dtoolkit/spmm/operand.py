"""What each rank holds of a planned sparse matrix: local pieces, and lists of what to exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from scipy import sparse

from dtoolkit.spmm.hops import Hop, reverse
from dtoolkit.spmm.kernels import LocalCSR

if TYPE_CHECKING:
    from dtoolkit.cluster import Context

__all__ = ["Operand", "Through", "transpose"]


@dataclass(frozen=True)
class Through:
    """Nonzeros whose row of B comes in one stage and whose partial row of C leaves in a later one.

    Attributes
    ----------
    came, leaves : int
        The stages.
    pieces : tuple of LocalCSR, each of shape (partial rows for a peer, rows of the parcel)
        By peer that the partial rows go to.
    """

    came: int
    leaves: int
    pieces: tuple[LocalCSR, ...]


@dataclass(frozen=True)
class Operand:
    """A rank's part of C = A B.

    Rows that travel between two ranks in a stage lie in one message: rows of B, then partial rows
    of C. The messages of all peers, laid end to end by rank, are the *parcel* that a rank sends or
    receives.

    Attributes
    ----------
    rank : int
    own : LocalCSR of shape (rows here, columns here)
        Nonzeros whose row of C and row of B are both here.
    hops : tuple of Hop
        What goes and comes, by stage.
    remote : tuple of LocalCSR, each of shape (rows here, rows of the received parcel)
        Nonzeros whose row of B is received, by stage; columns are rows of the parcel.
    partial : tuple of tuples of LocalCSR, each of shape (partial rows for a peer, columns here)
        Nonzeros that are multiplied with rows of B that are here, by stage and peer that their
        partial rows go to.
    through : tuple of Through
        Nonzeros of which neither row is here.
    busy : int
        Stage during which `own` is multiplied.
    workspace : dict
        What products leave for the next one, with its bytes as ``nbytes``.
    """

    rank: int
    own: LocalCSR
    hops: tuple[Hop, ...]
    remote: tuple[LocalCSR, ...]
    partial: tuple[tuple[LocalCSR, ...], ...]
    through: tuple[Through, ...]
    busy: int
    workspace: dict[int | str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def nnz(self) -> int:
        """Nonzeros multiplied here."""
        return sum(piece.nnz for piece in self.pieces)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.own.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the pieces, the lists and the buffers that are kept between products.

        The transposed operand counts too, once it was made.
        """
        tensors = [t for piece in self.pieces for t in (piece.indptr, piece.indices, piece.data)]
        lists = [index for hop in self.hops for index in hop.tensors]
        turned: Operand | None = self.__dict__.get("transposed")
        kept = (*tensors, *lists, *self.workspace.values())
        return sum(t.nbytes for t in kept) + (0 if turned is None else turned.nbytes)

    @cached_property
    def transposed(self) -> Operand:
        """The part of C = A^T B that is computed here: the same nonzeros, the exchange reversed."""
        return transpose(self)

    @property
    def pieces(self) -> tuple[LocalCSR, ...]:
        """All nonzeros: own, then by stage remote and partial by peer, then what goes through."""
        stages = zip(self.remote, self.partial, strict=True)
        return (
            self.own,
            *(piece for remote, partial in stages for piece in (remote, *partial)),
            *(piece for group in self.through for piece in group.pieces),
        )

    @property
    def values(self) -> torch.Tensor:
        """Values of all pieces, end to end, in the order of :attr:`pieces`."""
        return torch.cat([piece.data for piece in self.pieces])

    def with_values(self, values: torch.Tensor) -> Operand:
        """The same pattern with other values, in the order of :attr:`values`."""
        parts = iter(torch.split(values, [piece.nnz for piece in self.pieces]))
        return self._each(lambda piece: piece.with_data(next(parts)))

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
        moved = self._each(lambda piece: piece.to(device))
        return replace(moved, hops=tuple(hop.to(device) for hop in self.hops))

    def _each(self, function: Any) -> Operand:
        """The same with every piece replaced, in the order of :attr:`pieces`."""
        own = function(self.own)
        remote, partial = [], []
        for one, many in zip(self.remote, self.partial, strict=True):
            remote.append(function(one))
            partial.append(tuple(function(piece) for piece in many))
        return replace(
            self,
            own=own,
            remote=tuple(remote),
            partial=tuple(partial),
            through=tuple(
                replace(group, pieces=tuple(function(piece) for piece in group.pieces))
                for group in self.through
            ),
            workspace={},
        )

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is made again on demand."""
        state = {k: v for k, v in self.__dict__.items() if k != "transposed"}
        return {**state, "workspace": {}}


def transpose(A: Operand) -> Operand:
    """Swap the roles: what was received is sent, what was added is gathered."""
    last = len(A.hops) - 1

    def again(matrix: sparse.csr_array) -> LocalCSR:
        return LocalCSR.from_scipy(matrix, dtype=A.dtype, device=A.own.device)

    def cut(matrix: sparse.csr_array, hop: Hop) -> tuple[LocalCSR, ...]:
        """Rows of a received parcel, by peer that a reversed exchange sends them to."""
        spans = zip(hop.starts, hop.b_in, strict=False)
        return tuple(again(matrix[start : start + count]) for start, count in spans)

    return Operand(
        rank=A.rank,
        own=again(A.own.to_scipy().T.tocsr()),
        hops=reverse(A.hops),
        remote=tuple(
            again(_side_by_side(pieces, hop, A.own.shape[1]))
            for pieces, hop in zip(reversed(A.partial), reversed(A.hops), strict=True)
        ),
        partial=tuple(
            cut(piece.to_scipy().T.tocsr(), hop)
            for piece, hop in zip(reversed(A.remote), reversed(A.hops), strict=True)
        ),
        through=tuple(
            Through(
                last - group.leaves,
                last - group.came,
                cut(
                    _side_by_side(
                        group.pieces, A.hops[group.leaves], A.hops[group.came].starts[-1]
                    ),
                    A.hops[group.came],
                ),
            )
            for group in A.through
        ),
        busy=last - A.busy if A.hops else 0,
    )


def _side_by_side(pieces: Sequence[LocalCSR], hop: Hop, height: int) -> sparse.csr_array:
    """Transposed pieces, in the places where a reversed exchange puts their rows."""
    blocks = []
    for piece, gap in zip(pieces, hop.b_out, strict=True):
        blocks.append(piece.to_scipy().T.tocsr())
        blocks.append(sparse.csr_array((height, gap), dtype=blocks[0].dtype))
    return sparse.hstack(blocks, format="csr")
