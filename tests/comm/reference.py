"""What ranks put in, made from their number, and what NumPy says must come out."""

from __future__ import annotations

import numpy as np
import torch

EXACT = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
ROUNDED = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
DTYPES = EXACT + ROUNDED

# Elements; 128 bytes is the most that travels inside a header.
SIZES = [0, 1, 3, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1000]


def tensor(rank: int, size: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """Small whole numbers: exact in every dtype, also their sums and products over 4 ranks."""
    values = (np.arange(size) * 7 + rank * 3 + salt) % 5
    if dtype == torch.bool:
        return torch.from_numpy(values > 2)
    if dtype.is_complex:
        return torch.from_numpy(values + 1j * ((values + rank) % 3)).to(dtype)
    sign = 1 if dtype == torch.uint8 else -1
    return torch.from_numpy(np.where(values % 2, values, sign * values)).to(dtype)


def reduced(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    """The reduction by NumPy in double precision (or exactly, for integers)."""
    dtype = tensors[0].dtype
    if dtype.is_complex:
        wide = [t.to(torch.complex128).numpy() for t in tensors]
    elif dtype.is_floating_point:
        wide = [t.double().numpy() for t in tensors]
    else:
        wide = [t.numpy() for t in tensors]
    stack = np.stack(wide)
    kind = stack.dtype
    if dtype == torch.bool:
        result = stack.any(0) if op in ("sum", "max") else stack.all(0)
    elif op == "mean" and dtype.is_complex:
        # By parts: NumPy multiplies by the reciprocal in a complex mean, which rounds twice.
        result = stack.real.mean(0) + 1j * stack.imag.mean(0)
    elif op == "mean":
        result = stack.mean(0)
    else:
        result = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[op](
            stack, axis=0, **({"dtype": kind} if op in ("sum", "prod") else {})
        )
    return torch.from_numpy(np.ascontiguousarray(result)).to(dtype)


def ops_of(dtype: torch.dtype) -> list[str]:
    """Reductions that make sense for a dtype."""
    if dtype.is_complex:
        return ["sum", "mean", "prod"]
    if dtype.is_floating_point:
        return ["sum", "mean", "prod", "min", "max"]
    return ["sum", "prod", "min", "max"]
