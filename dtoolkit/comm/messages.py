"""What two ranks tell each other before anything is sent: the header of every operation.

Gloo does not compare what two ranks ask for: sizes that differ end a process or leave garbage. So
each operation begins with one small block to every peer, which states the operation, its dtype,
its size and shape, and what is expected in return. Both ends compare, and both raise. Payloads of
up to :data:`INLINE` bytes travel inside the block.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dtoolkit.comm.transport import HEADER
from dtoolkit.errors import MessageMismatch

__all__ = [
    "ANY",
    "BEGUN",
    "DTYPES",
    "INLINE",
    "MAX_DIMS",
    "OPERATIONS",
    "Header",
    "check_pair",
    "pack",
    "shape_digest",
    "unpack",
]

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "all_gather_v",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_v",
    "broadcast",
    "gather",
    "scatter",
    "barrier",
    "split",
    "send",
)

BEGUN = (*OPERATIONS, "recv")
"""Names under which a rank begins an operation, as in a trace: what waits for a message sends no
header of its own."""

DTYPES = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.bool,
)

MAX_DIMS = 8
_FIELDS = 16  # int64 words before the inline payload
INLINE = HEADER - 8 * _FIELDS
"""Bytes of payload that fit in the header block."""

ANY = -1  # "I take whatever you send"


@dataclass(frozen=True, slots=True)
class Header:
    """What one rank tells one peer.

    Attributes
    ----------
    sequence : int
        Number of the operation on this communicator.
    operation : str
    dtype : torch.dtype
    detail : int
        What all ranks must agree on beside the name: the reduction, the root.
    shape : tuple of int
        Shape of what this rank sends to the peer.
    expected : int
        Elements this rank expects from the peer, or -1 for any number.
    whole : int
        Digest of the shape that all ranks must agree on (:func:`shape_digest`); 0 where they need
        not.
    """

    sequence: int
    operation: str
    dtype: torch.dtype
    detail: int
    shape: tuple[int, ...]
    expected: int
    whole: int = 0

    @property
    def elements(self) -> int:
        """Elements that the sender of this header sends."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the sender of this header sends."""
        return self.elements * self.dtype.itemsize


def pack(headers: Sequence[Header], payloads: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Lay out one block for each peer.

    Parameters
    ----------
    headers : sequence of Header
    payloads : sequence of flat uint8 tensors or None
        Those of at most :data:`INLINE` bytes are copied into their block.

    Returns
    -------
    torch.Tensor
        uint8, shape (peers, HEADER).
    """
    blocks = np.zeros((len(headers), HEADER), np.uint8)
    words = blocks.view(np.int64)
    for peer, (header, payload) in enumerate(zip(headers, payloads, strict=True)):
        words[peer, 0] = header.sequence
        words[peer, 1] = OPERATIONS.index(header.operation)
        words[peer, 2] = DTYPES.index(header.dtype)
        words[peer, 3] = header.detail
        words[peer, 4] = header.expected
        words[peer, 5] = len(header.shape)
        words[peer, 6] = header.whole
        words[peer, 7 : 7 + len(header.shape)] = header.shape
        if payload is not None and 0 < payload.numel() <= INLINE:
            start = 8 * _FIELDS
            blocks[peer, start : start + payload.numel()] = payload.cpu().numpy()
    return torch.from_numpy(blocks)


def unpack(blocks: torch.Tensor) -> tuple[list[Header], list[torch.Tensor]]:
    """Read the blocks that came; the inverse of :func:`pack`.

    Returns
    -------
    headers : list of Header
    inline : list of torch.Tensor
        The part of each block that holds a small payload, uint8.
    """
    words = blocks.numpy().view(np.int64)
    headers = []
    for row in words:
        dims = int(row[5])
        headers.append(
            Header(
                sequence=int(row[0]),
                operation=OPERATIONS[row[1]],
                dtype=DTYPES[row[2]],
                detail=int(row[3]),
                shape=tuple(int(n) for n in row[7 : 7 + dims]),
                expected=int(row[4]),
                whole=int(row[6]),
            )
        )
    return headers, list(blocks[:, 8 * _FIELDS :])


def check_pair(mine: Header, theirs: Header, me: int, peer: int) -> None:
    """Compare what two ranks told each other.

    Raises
    ------
    MessageMismatch
        They differ in operation, order, dtype, detail, shape, or a size that was stated beforehand.
    """
    same = (
        mine.operation == theirs.operation
        and mine.detail == theirs.detail
        and mine.sequence == theirs.sequence
    )
    if not same:
        raise MessageMismatch(
            f"rank {me} calls {_call(mine)} while rank {peer} calls {_call(theirs)}: all ranks of "
            "a communicator must make the same calls in the same order with the same root and "
            "reduction"
        )
    if mine.dtype != theirs.dtype and _speaks(mine) and _speaks(theirs):
        raise MessageMismatch(
            f"{mine.operation}: rank {me} has {_name(mine.dtype)} and rank {peer} has "
            f"{_name(theirs.dtype)}; convert one of them first"
        )
    for sender, receiver, here, there in ((mine, theirs, me, peer), (theirs, mine, peer, me)):
        if receiver.expected not in (ANY, sender.elements):
            raise MessageMismatch(
                f"{mine.operation}: rank {here} sends {sender.elements} elements of shape "
                f"{sender.shape} to rank {there}, which expects {receiver.expected}"
            )
    if mine.whole and theirs.whole and mine.whole != theirs.whole:
        raise MessageMismatch(
            f"{mine.operation}: the tensors of rank {me} and rank {peer} have as many elements, "
            f"but another shape (rank {me} sends pieces of shape {mine.shape})"
        )


def shape_digest(shape: Sequence[int]) -> int:
    """A number, not 0, that differs for shapes that differ (but for one in 2^32)."""
    return 1 + zlib.crc32(repr(tuple(shape)).encode())


def _speaks(header: Header) -> bool:
    return header.elements > 0 or header.expected > 0


def _call(header: Header) -> str:
    return f"{header.operation} (call {header.sequence}, root or reduction {header.detail})"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
