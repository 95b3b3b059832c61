"""The product of two dense operands taken where a planned matrix has its nonzeros.

It is the gradient of the values of A: for C = A B and a loss with gradient dC, the derivative by
a_ij is the sum over k of dC_ik B_jk. Both operands travel as in the product: rows of B along the
plan, rows of C along it backwards, to where the nonzeros are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from dtoolkit.cluster import Context
from dtoolkit.spmm.ends import column_ends, row_ends
from dtoolkit.spmm.kernels import LocalCSR
from dtoolkit.spmm.operand import Operand

__all__ = ["sampled"]

# Elements of the two gathered operands at once, where no compiled loop serves: 64 MB in float32.
_GATHERED = 2**24
_COMPILED = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def sampled(
    ctx: Context, A: Operand, C: torch.Tensor, B: torch.Tensor, *, agreed: bool = False
) -> torch.Tensor:
    """Sum over k of C[i, k] B[j, k] for every nonzero a_ij that this rank multiplies.

    Every rank must call. Rows move in phases "sampled" ("sampled/" and the stage where a plan has
    several): as many rows of each operand as in a product.

    Parameters
    ----------
    ctx : Context
    A : Operand
        Its values do not matter.
    C : torch.Tensor, shape (rows here, k)
        On the plan's layout of rows.
    B : torch.Tensor, shape (columns here, k)
        On the plan's layout of columns; nothing is conjugated.
    agreed : bool
        All ranks are known to pass the same k and dtypes: nothing is compared first.

    Returns
    -------
    torch.Tensor, shape (A.nnz,)
        In the order of ``A.values``, in the dtype that C and B promote to.

    Raises
    ------
    ValueError
        C or B does not have the rows of its layout that are here, or they differ in k.
    MessageMismatch
        Ranks differ in k or in a dtype.
    """
    _check(A, C, B)
    dtype = torch.promote_types(C.dtype, B.dtype)
    # Each travels in its own dtype, which may be the narrower one.
    right = column_ends(ctx, A, B.detach(), "sampled", agreed=agreed)
    left = row_ends(ctx, A, C.detach(), "sampled", agreed=agreed)
    out = torch.empty(A.nnz, dtype=dtype, device=A.own.device)
    parts = torch.split(out, [piece.nnz for piece in A.pieces])
    for piece, one, other, part in zip(A.pieces, left, right, parts, strict=True):
        if piece.nnz:
            _dots(piece, one.to(dtype), other.to(dtype), part)
    return out


def _check(A: Operand, C: torch.Tensor, B: torch.Tensor) -> None:
    for name, x, rows in (("C", C, A.own.shape[0]), ("B", B, A.own.shape[1])):
        if x.dim() != 2 or x.shape[0] != rows:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)} on rank {A.rank}; the plan has {rows} rows of "
                f"it there: wanted ({rows}, k)"
            )
    if C.shape[1] != B.shape[1]:
        raise ValueError(f"C has {C.shape[1]} columns and B has {B.shape[1]}: wanted the same")


def _dots(piece: LocalCSR, C: torch.Tensor, B: torch.Tensor, out: torch.Tensor) -> None:
    """Fill `out` with the dot products of the rows of C and B that each nonzero names."""
    if out.device.type == "cpu" and out.dtype in _COMPILED:
        indptr, indices = piece.indptr.numpy(), piece.indices.numpy()
        _compiled()(indptr, indices, _in_place(C).numpy(), _in_place(B).numpy(), out.numpy())
        return
    wide = torch.float32 if out.dtype in (torch.float16, torch.bfloat16) else out.dtype
    counts = piece.indptr.diff()
    row = torch.repeat_interleave(torch.arange(len(counts), device=out.device), counts)
    step = max(1, _GATHERED // max(C.shape[1], 1))
    for first in range(0, piece.nnz, step):
        some = slice(first, first + step)
        rows, columns = C[row[some]].to(wide), B[piece.indices[some].long()].to(wide)
        out[some] = (rows * columns).sum(dim=1).to(out.dtype)


def _in_place(x: torch.Tensor) -> torch.Tensor:
    return x.resolve_conj().resolve_neg().contiguous()


@cache
def _compiled() -> Any:
    import numba

    # A sum in lanes, in an order that the processor's width decides: the same on every run.
    options: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract"}}
    try:
        return numba.njit(cache=True, **options)(_loop)
    except RuntimeError:  # no folder that the cache could be written to
        return numba.njit(**options)(_loop)


def _loop(indptr, indices, C, B, out):  # type: ignore[no-untyped-def]
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            column = indices[entry]
            total = out.dtype.type(0)
            for k in range(C.shape[1]):
                total += C[row, k] * B[column, k]
            out[entry] = total
