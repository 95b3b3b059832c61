"""What is computed while a cluster is calibrated: products, on one rank and on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dtoolkit.arrays.memory import allocate
from dtoolkit.cluster import Cluster, Context
from dtoolkit.cluster.calibrate import Workload, register
from dtoolkit.spmm.distribute import distribute
from dtoolkit.spmm.kernels import LocalCSR, multiply
from dtoolkit.spmm.plan import plan

__all__ = ["local_product", "small_product"]

ROWS, DEGREE, COLUMNS = 40_000, 16, 64  # B alone is 10 MB: caches do not hold what ranks share
FEW = 16  # rows a rank of a product that moves next to nothing


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
    C = allocate((ROWS, COLUMNS), dtype=of, device=ctx.device)

    def run() -> None:
        multiply(A, B, C, threads=ctx.threads)
        if ctx.device.type == "cuda":
            torch.cuda.synchronize(ctx.device)

    return float(nonzeros * COLUMNS), run


def small_product(cluster: Cluster) -> Callable[[], Any]:
    """A product in which every rank exchanges with every other, of next to nothing.

    Parameters
    ----------
    cluster : Cluster

    Returns
    -------
    callable
        Multiplies once, in a launch of its own.
    """
    parts = len(cluster.workers)
    # Rows of B and partial rows of C both travel: one full row and one full column for each rank.
    full = np.arange(parts) * FEW
    A = sp.lil_array((parts * FEW, parts * FEW), dtype=np.float32)
    A[full, :] = 1
    A[:, full + 1] = 1
    planned = plan(A, parts=parts)
    left = distribute(cluster, A, planned)
    right = distribute(cluster, np.ones((A.shape[1], 1), np.float32), planned)
    return lambda: left @ right


register(Workload(local_product, small_product))
