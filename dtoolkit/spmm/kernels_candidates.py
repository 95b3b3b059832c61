"""The candidates for the local product, one function each, and what they need of their operands.

Each is called with operands of one dtype on one device, ``source`` and ``target`` with the
elements of a row side by side, and fills the target or adds to it. Numba's kernel is imported when
it is first used: importing and compiling it takes a second, which a worker with a GPU never needs.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from dtoolkit.spmm.kernels_csr import LocalCSR

__all__ = [
    "DTYPES",
    "KERNELS",
    "add_rows",
    "can_be_written",
    "gather_rows",
    "load_mkl",
    "with_rows_in_place",
]

#: What a product can be in.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.bfloat16,
    torch.float16,
)


def with_rows_in_place(B: torch.Tensor) -> torch.Tensor:
    """Give B itself if the elements of each row are neighbours, else a row-major copy."""
    B = B.resolve_conj().resolve_neg()
    return B if B.shape[1] == 1 or B.stride(1) == 1 else B.contiguous()


def can_be_written(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether rows of the target are in one piece each, apart, and apart from the source's."""
    m, k = target.shape
    if target.is_conj() or target.is_neg():
        return False
    if (k > 1 and target.stride(1) != 1) or (m > 1 and target.stride(0) < k):
        return False
    first, last = _span(target)
    start, end = _span(source)
    return last <= start or end <= first


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses from the first byte to the one after the last."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def numba_kernel(
    A: LocalCSR, source: torch.Tensor, target: torch.Tensor, accumulate: bool, threads: int
) -> None:
    """Multiply by the compiled kernel of this package: same bits on any thread count."""
    from dtoolkit.csr_kernel import csr_times_dense

    indptr, indices, data = A.indptr.numpy(), A.indices.numpy(), A.data.numpy()
    item = target.element_size()
    pitch = target.stride(0) * item

    def rows(first: int, last: int) -> None:
        csr_times_dense(
            indptr[first : last + 1],
            indices,
            data,
            source.data_ptr(),
            source.stride(0) * item,
            target.data_ptr() + first * pitch,
            pitch,
            target.shape[1] * item,
            accumulate,
        )

    if threads <= 1:
        rows(0, A.shape[0])
        return
    shares = np.linspace(0, A.nnz + A.shape[0], threads + 1)[1:-1]  # a row costs, empty or not
    cuts = np.searchsorted(indptr + np.arange(len(indptr)), shares)
    bounds = [0, *cuts.tolist(), A.shape[0]]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(rows, bounds[:-1], bounds[1:]))


def torch_kernel(
    A: LocalCSR, source: torch.Tensor, target: torch.Tensor, accumulate: bool, threads: int
) -> None:
    """Multiply by torch's CSR product: cuSPARSE on a GPU, torch's choice on a CPU."""
    torch.addmm(target, A.as_torch, source, beta=int(accumulate), out=target)


def mkl_kernel(
    A: LocalCSR, source: torch.Tensor, target: torch.Tensor, accumulate: bool, threads: int
) -> None:
    """Multiply by Intel's MKL through ``sparse_dot_mkl``, where that is installed."""
    mkl = load_mkl()
    direct = target.is_contiguous()
    result = target if direct else target.contiguous()
    before = mkl.mkl_set_num_threads_local(threads)
    try:
        mkl.dot_product_mkl(
            A.as_scipy,
            source.contiguous().numpy(),
            out=result.numpy(),
            out_scalar=float(accumulate),
        )
    finally:
        mkl.mkl_set_num_threads_local(before)
    if not direct:
        target.copy_(result)


def scipy_kernel(
    A: LocalCSR, source: torch.Tensor, target: torch.Tensor, accumulate: bool, threads: int
) -> None:
    """Multiply by SciPy: the yardstick."""
    product = torch.from_numpy(A.as_scipy @ source.numpy())
    if accumulate:
        target.add_(product)
    else:
        target.copy_(product)


KERNELS: dict[str, Callable[[LocalCSR, torch.Tensor, torch.Tensor, bool, int], None]] = {
    "numba": numba_kernel,
    "torch": torch_kernel,
    "mkl": mkl_kernel,
    "scipy": scipy_kernel,
}


@cache
def load_mkl() -> Any:
    """Give the module ``sparse_dot_mkl``, or None where it, or the MKL under it, is absent."""
    if find_spec("sparse_dot_mkl") is None:
        return None
    try:
        # pip puts MKL where the loader does not look; once it is loaded, its name is enough
        for library in Path(sys.prefix, "lib").glob("libmkl_rt.*"):
            ctypes.CDLL(str(library))
        return import_module("sparse_dot_mkl")
    except (ImportError, OSError, ValueError):
        return None


def add_rows(out: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
    """Add `rows` to those of `out`; the compiled loop where it can write in place."""
    rows = with_rows_in_place(rows)
    fits = out.dtype in DTYPES[:4] and out.device.type == "cpu" and can_be_written(out, rows)
    if not fits:
        out.index_add_(0, index, rows)
        return
    from dtoolkit import csr_kernel

    item = out.element_size()
    csr_kernel.add_rows(
        index.contiguous().numpy(),
        np.empty(0, dtype=_numpy_dtype(out.dtype)),
        rows.data_ptr(),
        rows.stride(0) * item,
        out.data_ptr(),
        out.stride(0) * item,
        out.shape[1] * item,
    )


def gather_rows(B: torch.Tensor, index: torch.Tensor, out: torch.Tensor) -> None:
    """Copy rows of B; torch copies whole rows at once."""
    if out.is_contiguous():
        torch.index_select(B, 0, index, out=out)
    else:
        out.copy_(torch.index_select(B, 0, index))


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype
