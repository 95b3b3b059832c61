"""What a rank computes while a cluster is calibrated: its part of a product, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dtoolkit.cluster import Context
from dtoolkit.cluster.calibrate import workload
from dtoolkit.spmm.kernels import LocalCSR, multiply
from dtoolkit.spmm.kernels_candidates import empty_rows

__all__ = ["local_product"]

ROWS, DEGREE, COLUMNS = 20_000, 16, 64


@workload
def local_product(ctx: Context, dtype: str, seed: int) -> tuple[float, Callable[[], Any]]:
    """A product of a scattered matrix with the kernel chosen for this device and dtype.

    Parameters
    ----------
    ctx : Context
    dtype : str
        Of both operands.
    seed : int

    Returns
    -------
    amount : float
        Nonzeros times columns.
    run : callable
        Multiplies once.
    """
    of, nonzeros = getattr(torch, dtype), ROWS * DEGREE
    random = np.random.default_rng((seed, ctx.rank))
    columns, values = random.integers(0, ROWS, nonzeros), random.standard_normal(nonzeros)
    ptr = np.arange(0, nonzeros + 1, DEGREE)
    A = LocalCSR.from_scipy(
        sp.csr_array((values, columns, ptr), shape=(ROWS, ROWS)), dtype=of, device=ctx.device
    )
    B = torch.ones((ROWS, COLUMNS), dtype=of, device=ctx.device)
    C = empty_rows(ROWS, COLUMNS, dtype=of, device=ctx.device)

    def run() -> None:
        multiply(A, B, C, threads=ctx.threads)
        if ctx.device.type == "cuda":
            torch.cuda.synchronize(ctx.device)

    return float(nonzeros * COLUMNS), run
