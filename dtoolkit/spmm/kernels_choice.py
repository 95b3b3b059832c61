"""Which kernel multiplies: what is there, and what was measured to be fastest."""

from __future__ import annotations

import torch

from dtoolkit.spmm.kernels_candidates import DTYPES, load_mkl

__all__ = ["available", "choose"]


def available(device: torch.device | str, dtype: torch.dtype) -> tuple[str, ...]:
    """Kernels that can multiply on a device in a dtype.

    Parameters
    ----------
    device : torch.device or str
        Where the operands are.
    dtype : torch.dtype
        Dtype of the result.

    Returns
    -------
    tuple of str
        Some of "numba", "torch", "mkl" (where ``sparse_dot_mkl`` is installed) and "scipy"; empty
        if the dtype cannot be multiplied.
    """
    if dtype not in DTYPES:
        return ()
    if torch.device(device).type != "cpu":
        return ("torch",)
    return ("numba", "torch", *(("mkl",) if load_mkl() is not None else ()), "scipy")


def choose(device: torch.device | str, dtype: torch.dtype) -> str:
    """Give the fastest kernel that is available, by measurement."""
    return available(device, dtype)[0]
