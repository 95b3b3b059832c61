"""Single weights on a CPU: a compiled sparse product, some rows of the batch at a time.

The kernel wants what it multiplies turned around, one input after the other with its numbers for
all rows. Each block of rows is turned, multiplied and turned back by one thread within its cache,
so that nothing is set up, and no other thread waited for, where there is one block.
``python -m tests.benchmarks.tiles`` measures it within layers (column "tew").
"""

from __future__ import annotations

import numpy as np
import torch

from dtoolkit.csr_kernel import compiled, csr_times_dense
from dtoolkit.sparsity.spreading import spread

__all__ = ["add_turned"]

_BYTES = 512  # of one input in a block of rows: what the kernel holds in registers at best
_LINE = 16  # numbers that are turned together: a cache line of float32


def add_turned(
    out: torch.Tensor,
    inputs: torch.Tensor,
    starts: torch.Tensor,
    columns: torch.Tensor,
    values: torch.Tensor,
) -> None:
    """Add inputs times a transposed CSR matrix to `out`, in place; on torch's number of threads.

    Parameters
    ----------
    out : tensor, shape (rows, m), contiguous
    inputs : tensor, shape (rows, n)
    starts, columns : int64 tensor, shapes (m + 1,) and (nnz,)
        Of the matrix of m rows and n columns.
    values : tensor, shape (nnz,)
        float32 or float64, as `out` and `inputs`.
    """
    matrix = [tensor.detach().contiguous().numpy() for tensor in (starts, columns, values)]
    target, source = out.detach().numpy(), inputs.detach().contiguous().numpy()
    step = _BYTES // source.itemsize

    def block(number: int) -> None:
        rows = slice(number * step, (number + 1) * step)
        _add_block(*matrix, source[rows], target[rows])

    spread(block, -(-len(source) // step))


@compiled
def _add_block(starts, columns, values, source, target):  # type: ignore[no-untyped-def]
    """``target += source @ A.T`` for a block of rows."""
    rows, item = source.shape[0], source.itemsize
    turned = np.empty((source.shape[1], rows), source.dtype)
    product = np.empty((target.shape[1], rows), source.dtype)
    for first in range(0, source.shape[1], _LINE):
        last = min(first + _LINE, source.shape[1])
        for row in range(rows):
            for place in range(first, last):
                turned[place, row] = source[row, place]
    pitch = rows * item
    csr_times_dense(
        starts,
        columns,
        values,
        turned.ctypes.data,
        pitch,
        product.ctypes.data,
        pitch,
        pitch,
        False,
    )
    for first in range(0, target.shape[1], _LINE):
        last = min(first + _LINE, target.shape[1])
        for row in range(rows):
            for place in range(first, last):
                target[row, place] += product[place, row]
