"""The product on the ranks: pack, one exchange, local products while it runs, and sums.

Runs inside a launch, once on each rank. The order of additions is fixed (own nonzeros, then those
of received rows, then partial sums by rank of their source), so that a run repeats bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from dtoolkit.cluster import Context
from dtoolkit.spmm import kernels_candidates
from dtoolkit.spmm.kernels import multiply
from dtoolkit.spmm.kernels_candidates import with_rows_in_place
from dtoolkit.spmm.operand import Operand

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
    """
    if B.dim() == 1:
        flat = None if out is None else out[:, None]
        column = product(
            ctx, A, B[:, None], transpose=transpose, kernel=kernel, out=flat, agreed=agreed
        )
        return column[:, 0]
    side = A.transposed if transpose else A
    B = B.contiguous() if side.whole else with_rows_in_place(B)
    c_dtype = torch.promote_types(side.dtype, B.dtype)
    with ctx.comm.phase("spmm"):
        parcel = _Parcel(side, B.shape[1], B.dtype, c_dtype)
        pending = ctx.comm.all_to_all(
            parcel.pack(B, kernel, ctx.threads), out=parcel.messages, agreed=agreed, wait=False
        )
        C = multiply(side.own, B, out, kernel=kernel, threads=ctx.threads)
        pending.wait()
    if side.remote.nnz:
        rows = parcel.rows()
        multiply(side.remote, rows, C, accumulate=True, kernel=kernel, threads=ctx.threads)
    for index, rows in zip(side.scatter, parcel.partial(), strict=True):
        if index.numel():
            kernels_candidates.add_rows(C, index, rows)
    return C


class _Parcel:
    """What a rank sends and receives in one product, in buffers that the operand keeps.

    Fresh pages cost more than the copy into them; a product with the same k uses them again.
    """

    def __init__(self, side: Operand, k: int, b_dtype: torch.dtype, c_dtype: torch.dtype) -> None:
        self.side, self.k, self.b_dtype, self.c_dtype = side, k, b_dtype, c_dtype
        self.alike = b_dtype.itemsize == c_dtype.itemsize
        self.messages = self._messages("receive", side.b_in, side.c_in)

    def pack(self, B: torch.Tensor, kernel: str | None, threads: int) -> list[torch.Tensor]:
        """The message for each peer, as bytes."""
        side = self.side
        if side.whole:
            shard = B.reshape(-1).view(torch.uint8)
            return [shard if n else shard[:0] for n in side.b_out]
        messages = self._messages("send", side.b_out, side.c_out)
        for peer, (message, b) in enumerate(zip(messages, side.b_out, strict=True)):
            if message.numel():
                rows, sums = self._open(message, b)
                kernels_candidates.gather_rows(B, side.gather[peer], rows)
                multiply(side.partial[peer], B, sums, kernel=kernel, threads=threads)
        return messages

    def rows(self) -> torch.Tensor:
        """The received parcel as rows of B's dtype; partial rows in it are not looked at."""
        side = self.side
        if self.alike or not any(side.c_in):  # then there is no gap between messages
            return _as_rows(side.workspace["receive"], self.b_dtype, self.k)
        gaps = [(self._open(message, b)[0], c) for message, b, c in self._received()]
        zeros = [rows.new_zeros(c, self.k) for rows, c in gaps]
        return torch.cat(
            [t for pair in zip([r for r, _ in gaps], zeros, strict=True) for t in pair]
        )

    def partial(self) -> list[torch.Tensor]:
        """The partial sums of each peer."""
        return [self._open(message, b)[1] for message, b, _ in self._received()]

    def _received(self) -> Iterator[tuple[torch.Tensor, int, int]]:
        return zip(self.messages, self.side.b_in, self.side.c_in, strict=True)

    def _open(self, message: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of B and partial rows in a message; the wider come first, to be aligned."""
        size = b * self.k * self.b_dtype.itemsize
        if self.b_dtype.itemsize >= self.c_dtype.itemsize:
            rows, sums = message[:size], message[size:]
        else:
            rows, sums = message[message.numel() - size :], message[: message.numel() - size]
        return _as_rows(rows, self.b_dtype, self.k), _as_rows(sums, self.c_dtype, self.k)

    def _messages(self, name: str, b: Sequence[int], c: Sequence[int]) -> list[torch.Tensor]:
        """A message for each peer, end to end in one buffer (apart where widths differ)."""
        sizes = [
            self.k * (x * self.b_dtype.itemsize + y * self.c_dtype.itemsize)
            for x, y in zip(b, c, strict=True)
        ]
        room = (
            sizes if self.alike or not any(c) else [-(-size // _ALIGN) * _ALIGN for size in sizes]
        )
        buffer = self.side.workspace.get(name)
        if buffer is None or buffer.numel() != sum(room):
            buffer = torch.empty(sum(room), dtype=torch.uint8, device=self.side.own.device)
            self.side.workspace[name] = buffer
        places = torch.split(buffer, room)
        return [place[:size] for place, size in zip(places, sizes, strict=True)]


_ALIGN = 64


def _as_rows(data: torch.Tensor, dtype: torch.dtype, k: int) -> torch.Tensor:
    if data.numel() == 0:  # stands anywhere, aligned or not
        return torch.empty((0, k), dtype=dtype, device=data.device)
    return data.view(dtype).view(-1, k)
