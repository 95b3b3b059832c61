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
    parcel.give_back()
    return C


def _check(side: Operand, B: torch.Tensor) -> None:
    """Refuse another shard than the plan's before its rows are picked and sent."""
    rows = side.own.shape[1]
    if B.dim() != 2 or B.shape[0] != rows:
        raise ValueError(
            f"B has shape {tuple(B.shape)} on rank {side.rank}; the plan has {rows} rows of B "
            f"there, so its shard must be a vector of {rows} or a matrix with {rows} rows"
        )


class _Parcel:
    """What a rank sends and receives in one product, in buffers that the operand keeps.

    Fresh pages cost more than the copy into them; a product with the same k uses them again. While
    it runs they are the product's alone: one that was stopped may still write into its own.
    """

    def __init__(self, side: Operand, k: int, b_dtype: torch.dtype, c_dtype: torch.dtype) -> None:
        self.side, self.k, self.b_dtype, self.c_dtype = side, k, b_dtype, c_dtype
        self.alike = b_dtype.itemsize == c_dtype.itemsize
        self.buffers: dict[str, torch.Tensor] = {}
        self.messages = self._messages("receive", side.b_in, side.c_in)

    def pack(self, B: torch.Tensor, kernel: str | None, threads: int) -> list[torch.Tensor]:
        """The message for each peer, as bytes."""
        side = self.side
        if side.whole:
            shard = B.reshape(-1).view(torch.uint8)
            return [shard if n else shard[:0] for n in side.b_out]
        messages = self._messages("send", side.b_out, side.c_out)
        for peer, (message, b, c) in enumerate(zip(messages, side.b_out, side.c_out, strict=True)):
            if message.numel():
                rows, sums = self._open(message, b, c)
                kernels_candidates.gather_rows(B, side.gather[peer], rows)
                multiply(side.partial[peer], B, sums, kernel=kernel, threads=threads)
        return messages

    def rows(self) -> torch.Tensor:
        """The received parcel as rows of B's dtype; partial rows in it are not looked at."""
        side = self.side
        if self.alike or not any(side.c_in):  # then there is no gap between messages
            n = side.remote.shape[1]
            return _as_rows(self.buffers["receive"], self.b_dtype, (n, self.k))
        gaps = [(self._open(message, b, c)[0], c) for message, b, c in self._received()]
        zeros = [rows.new_zeros(c, self.k) for rows, c in gaps]
        return torch.cat(
            [t for pair in zip([r for r, _ in gaps], zeros, strict=True) for t in pair]
        )

    def partial(self) -> list[torch.Tensor]:
        """The partial sums of each peer."""
        return [self._open(message, b, c)[1] for message, b, c in self._received()]

    def give_back(self) -> None:
        """Let the next product have the buffers."""
        self.side.workspace.update(self.buffers)

    def _received(self) -> Iterator[tuple[torch.Tensor, int, int]]:
        return zip(self.messages, self.side.b_in, self.side.c_in, strict=True)

    def _open(self, message: torch.Tensor, b: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The b rows of B and c partial rows in a message; the wider come first, to be aligned."""
        size = b * self.k * self.b_dtype.itemsize
        if self.b_dtype.itemsize >= self.c_dtype.itemsize:
            rows, sums = message[:size], message[size:]
        else:
            rows, sums = message[message.numel() - size :], message[: message.numel() - size]
        return (
            _as_rows(rows, self.b_dtype, (b, self.k)),
            _as_rows(sums, self.c_dtype, (c, self.k)),
        )

    def _messages(self, name: str, b: Sequence[int], c: Sequence[int]) -> list[torch.Tensor]:
        """A message for each peer, end to end in one buffer (apart where widths differ)."""
        sizes = [
            self.k * (x * self.b_dtype.itemsize + y * self.c_dtype.itemsize)
            for x, y in zip(b, c, strict=True)
        ]
        room = (
            sizes if self.alike or not any(c) else [-(-size // _ALIGN) * _ALIGN for size in sizes]
        )
        buffer = self.side.workspace.pop(name, None)
        if buffer is None or buffer.numel() != sum(room):
            buffer = torch.empty(sum(room), dtype=torch.uint8, device=self.side.own.device)
        self.buffers[name] = buffer
        places = torch.split(buffer, room)
        return [place[:size] for place, size in zip(places, sizes, strict=True)]


_ALIGN = 64


def _as_rows(data: torch.Tensor, dtype: torch.dtype, shape: tuple[int, int]) -> torch.Tensor:
    if data.numel() == 0:  # stands anywhere, aligned or not
        return torch.empty(shape, dtype=dtype, device=data.device)
    return data.view(dtype).view(shape)
