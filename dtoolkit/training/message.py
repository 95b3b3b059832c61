"""A message to or from a service: what it is about, some numbers, some tensors; sent as one.

On the wire it is a flat uint8 tensor: int64 words that say what follows, the numbers as float64,
and each tensor's bytes, which begin where any dtype may.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dtoolkit.comm.messages import DTYPES

__all__ = ["Message", "pack", "unpack"]

_ALIGN = 16  # bytes: the widest dtype's


@dataclass(frozen=True)
class Message:
    """What travels between a rank and a service.

    Attributes
    ----------
    kind : int
        What it is about, 0 or more.
    numbers : tuple of float
        Integers are exact up to 2**53.
    tensors : tuple of torch.Tensor
    """

    kind: int
    numbers: tuple[float, ...] = ()
    tensors: tuple[torch.Tensor, ...] = ()


def pack(message: Message) -> torch.Tensor:
    """Lay a message out as one flat uint8 tensor in host memory."""
    tensors = [tensor.detach().cpu().contiguous() for tensor in message.tensors]
    words = [message.kind, len(message.numbers), len(tensors)]
    for tensor in tensors:
        words += [DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
    parts = [
        torch.tensor([len(words), *words], dtype=torch.int64).view(torch.uint8),
        torch.tensor(message.numbers, dtype=torch.float64).view(torch.uint8),
    ]
    for tensor in tensors:
        parts += [_gap(sum(map(len, parts))), tensor.reshape(-1).view(torch.uint8)]
    return torch.cat(parts)


def unpack(data: torch.Tensor) -> Message:
    """Read what :func:`pack` laid out; tensors are views of it."""
    words = data[: 8 * (1 + int(data[:8].view(torch.int64)))].view(torch.int64).tolist()
    length, kind, numbers, tensors = words[:4]
    place = 8 * (1 + length)
    values = data[place : place + 8 * numbers].view(torch.float64).tolist()
    place += 8 * numbers
    shapes, found = words[4:], []
    for _ in range(tensors):
        dtype, dim = DTYPES[shapes[0]], shapes[1]
        shape, shapes = shapes[2 : 2 + dim], shapes[2 + dim :]
        tensor, place = _cut(data, place, dtype, shape)
        found.append(tensor)
    return Message(kind, tuple(values), tuple(found))


def _cut(
    data: torch.Tensor, place: int, dtype: torch.dtype, shape: Sequence[int]
) -> tuple[torch.Tensor, int]:
    start = place + len(_gap(place))
    end = start + math.prod(shape) * dtype.itemsize
    return data[start:end].view(dtype).reshape(tuple(shape)), end


def _gap(place: int) -> torch.Tensor:
    return torch.zeros(-place % _ALIGN, dtype=torch.uint8)
