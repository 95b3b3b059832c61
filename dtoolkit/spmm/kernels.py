"""The product on one rank: a local CSR matrix times local dense rows, and moving rows about.

:func:`multiply` is the whole interface to the arithmetic of a distributed product; what a rank
sends and receives is packed by :func:`gather_rows` and added by :func:`add_rows`. Which of the
candidates computes is data (:func:`choose`), which :func:`calibrate` measures again.

All of them follow the same rules:

* An entry that is stored is multiplied, be it 0: ``0 * inf`` is NaN, as in SciPy. Where nothing is
  stored, nothing happens: NaN in a row of B reaches only those rows of C that store its column.
* A run repeats bit for bit. The Numba kernel adds in the order of storage, as SciPy does, on any
  number of threads; the others have an order of their own.
* dtypes mix as in :func:`torch.promote_types`; an operand of another dtype than the result is
  copied. On a CPU float16 and bfloat16 are summed in float32 and rounded once, at the end.
* Dense operands are read and written in place when the elements of a row are neighbours, whatever
  lies between rows (column slices, expanded rows); others are copied.
* Nothing here is recorded by autograd.
"""

from __future__ import annotations

import torch

from dtoolkit.arrays.memory import allocate
from dtoolkit.spmm import kernels_candidates as candidates
from dtoolkit.spmm.kernels_choice import available, calibrate, choose
from dtoolkit.spmm.kernels_csr import LocalCSR

__all__ = [
    "LocalCSR",
    "add_rows",
    "available",
    "calibrate",
    "choose",
    "gather_rows",
    "multiply",
]


def multiply(
    A: LocalCSR,
    B: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    accumulate: bool = False,
    kernel: str | None = None,
    threads: int = 1,
) -> torch.Tensor:
    """Compute ``A @ B``, or add it to what is there.

    Parameters
    ----------
    A : LocalCSR, shape (m, n)
        The sparse operand.
    B : torch.Tensor, shape (n, k)
        The dense operand, on A's device, with any strides.
    out : torch.Tensor, shape (m, k), optional
        Where the result goes, of the dtype that A and B promote to. What it held before does not
        matter unless `accumulate`. It may share memory with B. None makes a new tensor.
    accumulate : bool
        Add to `out` instead of overwriting it. The Numba kernel adds the products one after
        another to what `out` holds; the others add their sum.
    kernel : str, optional
        One of :func:`available`; None takes :func:`choose`'s.
    threads : int
        Threads that share the rows in Numba's kernel and in MKL; Numba's result does not depend
        on it. Torch goes by its own setting, SciPy has one.

    Returns
    -------
    torch.Tensor, shape (m, k)
        `out`, or the new tensor.

    Raises
    ------
    TypeError
        If B or out is no tensor, or of a dtype that does not fit.
    ValueError
        If shapes or devices do not fit, or the kernel is not available.
    """
    dtype = _check_operands(A, B, out)
    name = choose(A.device, dtype) if kernel is None else kernel
    if name not in available(A.device, dtype):
        raise ValueError(
            f"kernel={name!r} cannot multiply {dtype} on {A.device}: available are "
            f"{', '.join(available(A.device, dtype))}"
        )
    if accumulate and out is None:
        raise ValueError("accumulate=True adds to out, but out is None: pass the tensor to add to")
    m, k = A.shape[0], B.shape[1]
    if out is None:
        out = allocate((m, k), dtype=dtype, device=A.device)
    if m == 0 or k == 0:
        return out
    half = dtype in (torch.float16, torch.bfloat16) and A.device.type == "cpu"
    compute = torch.float32 if half else dtype
    source = candidates.with_rows_in_place(B.detach().to(compute))
    target = out.detach()
    direct = target.dtype == compute and candidates.can_be_written(target, source)
    if not direct:
        target = out.detach().to(compute, copy=True, memory_format=torch.contiguous_format)
    candidates.KERNELS[name](A.to(dtype=compute), source, target, accumulate, threads)
    if not direct:
        out.detach().copy_(target)
    return out


def add_rows(out: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Add rows to some of the rows of a tensor, in place: ``out[index] += rows``.

    Parameters
    ----------
    out : torch.Tensor, shape (m, k)
        What is added to.
    index : torch.Tensor, shape (r,)
        Rows of `out`, int32 or int64, ascending and each at most once.
    rows : torch.Tensor, shape (r, k)
        What is added, of the same dtype.

    Returns
    -------
    torch.Tensor
        `out`.

    Raises
    ------
    TypeError, ValueError
        If dtypes, shapes or devices do not fit, or `index` does not ascend within `out`.
    """
    _check_rows("rows", rows, index, out)
    if rows.numel() == 0:
        return out
    low, high = int(index[0]), int(index[-1])
    if low < 0 or high >= out.shape[0] or bool((index[1:] <= index[:-1]).any()):
        raise ValueError(
            f"index must ascend within 0 .. {out.shape[0] - 1}, each row at most once; it runs "
            f"from {low} to {high}"
        )
    candidates.add_rows(out.detach(), index, rows.detach())
    return out


def gather_rows(
    B: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Copy rows of a tensor side by side: ``out[:] = B[index]``.

    Parameters
    ----------
    B : torch.Tensor, shape (n, k)
        Where rows come from.
    index : torch.Tensor, shape (r,)
        Rows of B, int32 or int64, in any order.
    out : torch.Tensor, shape (r, k), optional
        Where they go; of B's dtype, not overlapping B.

    Returns
    -------
    torch.Tensor, shape (r, k)
        `out`, or a new tensor.

    Raises
    ------
    TypeError, ValueError
        If dtypes, shapes or devices do not fit, or `index` leaves B.
    """
    if out is None:
        out = torch.empty((index.numel(), *B.shape[1:]), dtype=B.dtype, device=B.device)
    _check_rows("out", out, index, B)
    if out.numel() == 0:
        return out
    low, high = (int(bound) for bound in torch.aminmax(index))
    if low < 0 or high >= B.shape[0]:
        raise ValueError(
            f"index must lie within 0 .. {B.shape[0] - 1}; it runs from {low} to {high}"
        )
    candidates.gather_rows(B.detach(), index, out.detach())
    return out


def _check_operands(A: LocalCSR, B: torch.Tensor, out: torch.Tensor | None) -> torch.dtype:
    """Check what fits what; give the dtype of the result."""
    for name, tensor in (("B", B), ("out", out)):
        if tensor is None and name == "out":
            continue
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            what = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise TypeError(f"{name} must be a dense torch tensor, not {what}")
        if tensor.device != A.device:
            raise ValueError(f"{name} is on {tensor.device}, A on {A.device}: move one of them")
    if B.ndim != 2 or B.shape[0] != A.shape[1]:
        raise ValueError(
            f"B must have shape ({A.shape[1]}, k) for A of shape {A.shape}, not {(*B.shape,)}; a "
            "vector is passed as (n, 1)"
        )
    dtype = torch.promote_types(A.dtype, B.dtype)
    if dtype not in candidates.DTYPES:
        raise TypeError(
            f"A of {A.dtype} and B of {B.dtype} give {dtype}, which no kernel multiplies: convert "
            f"one to a floating point or complex dtype"
        )
    if out is not None and (out.shape != (A.shape[0], B.shape[1]) or out.dtype != dtype):
        raise (ValueError if out.dtype == dtype else TypeError)(
            f"out must be {dtype} of shape {(A.shape[0], B.shape[1])}, not {out.dtype} of shape "
            f"{(*out.shape,)}"
        )
    return dtype


def _check_rows(name: str, rows: torch.Tensor, index: torch.Tensor, whole: torch.Tensor) -> None:
    """Check that `rows` can be the rows `index` of `whole`."""
    if index.ndim != 1 or index.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"index must be a vector of int32 or int64, not {index.dtype} of shape "
            f"{(*index.shape,)}"
        )
    wanted = (len(index), *whole.shape[1:])
    if whole.ndim != 2 or rows.shape != wanted:
        raise ValueError(
            f"{name} must have shape {wanted} for {len(index)} rows of a matrix of shape "
            f"{(*whole.shape,)}, not {(*rows.shape,)}"
        )
    if rows.dtype != whole.dtype:
        raise TypeError(f"{name} must be {whole.dtype}, not {rows.dtype}")
    if not rows.device == index.device == whole.device:
        raise ValueError(
            f"all must be on one device: {name} is on {rows.device}, index on {index.device}, the "
            f"matrix on {whole.device}"
        )
