"""Combining the tensors of several ranks in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

__all__ = ["REDUCTIONS", "reduce_in_order"]

REDUCTIONS = ("sum", "mean", "prod", "min", "max")

_WIDE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}

_INTO: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": lambda total, other: total.add_(other),
    "mean": lambda total, other: total.add_(other),
    "prod": lambda total, other: total.mul_(other),
    "min": lambda total, other: torch.minimum(total, other, out=total),
    "max": lambda total, other: torch.maximum(total, other, out=total),
}


def reduce_in_order(tensors: Sequence[torch.Tensor], op: str) -> torch.Tensor:
    """Combine tensors of one shape, the first with the second, the result with the third, ...

    Parameters
    ----------
    tensors : sequence of torch.Tensor
        Left unchanged.
    op : {"sum", "mean", "prod", "min", "max"}

    Returns
    -------
    torch.Tensor
        In the dtype of the input; bfloat16 and float16 are combined in float32 and rounded once.
        Booleans are combined as "any" by sum and max, as "all" by prod and min.
    """
    dtype = tensors[0].dtype
    total = tensors[0].to(_WIDE.get(dtype, dtype), copy=True)
    for tensor in tensors[1:]:
        _INTO[op](total, tensor)
    if op == "mean":
        total.div_(len(tensors))
    return total.to(dtype)
