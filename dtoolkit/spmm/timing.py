"""A product timed on its ranks, round by round."""

from __future__ import annotations

import time

import torch

from dtoolkit.cluster import Context
from dtoolkit.spmm.execute import product
from dtoolkit.spmm.operand import Operand

__all__ = ["timed_product"]


def timed_product(ctx: Context, A: Operand, B: torch.Tensor, rounds: int) -> list[float]:
    """Multiply several times, all ranks starting together; for ``cluster.submit``.

    Parameters
    ----------
    ctx : Context
        Told of each round as a step.
    A : Operand
    B : torch.Tensor, shape (rows here, k)
    rounds : int
        After a first product that is not counted: it compiles, and finds its buffers.

    Returns
    -------
    list of float
        Seconds of each round on this rank; the slowest rank's is the product's.
    """
    seconds = []
    for number in range(rounds + 1):
        ctx.comm.barrier()
        start = time.perf_counter()
        product(ctx, A, B, agreed=True)
        if ctx.device.type == "cuda":
            torch.cuda.synchronize(ctx.device)
        seconds.append(time.perf_counter() - start)
        ctx.step(number)
    return seconds[1:]
