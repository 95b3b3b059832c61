"""Combining the tensors of several ranks in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

__all__ = ["REDUCTIONS", "check_reduction", "reduce_in_order", "reduce_into"]

REDUCTIONS = ("sum", "mean", "prod", "min", "max")

_WIDE = {torch.bfloat16: torch.float32, torch.float16: torch.float32}

_INTO: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": lambda total, other: total.add_(other),
    "mean": lambda total, other: total.add_(other),
    "prod": lambda total, other: total.mul_(other),
    "min": lambda total, other: torch.minimum(total, other, out=total),
    "max": lambda total, other: torch.maximum(total, other, out=total),
}


def check_reduction(op: str, tensor: torch.Tensor) -> int:
    """Number of a reduction, once it is known to make sense for the tensor's dtype.

    Raises
    ------
    ValueError
    """
    if op not in REDUCTIONS:
        raise ValueError(f"op must be one of {', '.join(REDUCTIONS)}; got {op!r}")
    if op == "mean" and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op='mean' needs a floating-point tensor, got {tensor.dtype}")
    if tensor.is_complex() and op in ("min", "max"):
        raise ValueError(f"op={op!r} has no meaning for complex numbers")
    return REDUCTIONS.index(op)


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
        # By parts: a complex quotient would be rounded more than once.
        (torch.view_as_real(total) if total.is_complex() else total).div_(len(tensors))
    return total.to(dtype)


def reduce_into(tensors: Sequence[torch.Tensor], place: int, op: str) -> None:
    """Do what :func:`reduce_in_order` does, to the bit, and put the result into one of the tensors.

    Parameters
    ----------
    tensors : sequence of torch.Tensor
        Overwritten.
    place : int
        Which one gets the result.
    op : {"sum", "mean", "prod", "min", "max"}
    """
    own = tensors[place]
    if op != "sum" or own.dtype in _WIDE:
        own.copy_(reduce_in_order(tensors, op))
        return
    if place:
        for other in tensors[1:place]:
            tensors[0].add_(other)
        own.add_(tensors[0])  # of two terms a sum has no order
    for other in tensors[place + 1 :]:
        own.add_(other)
