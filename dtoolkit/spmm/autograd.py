"""The product inside a model: gradients of the dense operand and of the values of A.

What moves forward moves backward: the gradient of B is the transposed product on the same plan, the
gradient of the values is a product of the two dense operands, taken where A has a nonzero
(:func:`dtoolkit.spmm.sampled.sampled`). Both are collective, as the product is.
"""

from __future__ import annotations

from typing import Any

import torch

from dtoolkit.cluster import Context
from dtoolkit.comm.messages import DTYPES
from dtoolkit.errors import MessageMismatch
from dtoolkit.spmm.execute import product
from dtoolkit.spmm.operand import Operand
from dtoolkit.spmm.sampled import sampled

__all__ = ["spmm"]


def spmm(
    ctx: Context,
    A: Operand,
    B: torch.Tensor,
    values: torch.Tensor | None = None,
    *,
    transpose: bool = False,
    kernel: str | None = None,
) -> torch.Tensor:
    """Compute this rank's rows of ``A @ B``, recorded by autograd.

    Every rank must call, and every rank must run the backward pass, which exchanges rows as well: a
    rank that has nothing to learn from (no sample, no row) takes part with a loss of zero that is
    computed from the result. Where no gradient is needed nothing is sent for it. The ranks agree on
    that before the product; it costs no message, since they would compare k and dtypes anyway.

    Parameters
    ----------
    ctx : Context
    A : Operand
    B : torch.Tensor, shape (rows here, k) or (rows here,)
        On the plan's layout of columns (of rows, with `transpose`).
    values : torch.Tensor, shape (A.nnz,), optional
        In place of ``A.values`` and in their order: values that are learned, say.
    transpose : bool
        Multiply by ``A.T`` (whose values are those of A, as they are).
    kernel : str, optional
        Local kernel, as in :func:`dtoolkit.spmm.product`.

    Returns
    -------
    torch.Tensor, shape (rows here, k) or (rows here,)
        In the dtype that the values and B promote to. Gradients have the dtypes of what they
        belong to; for complex numbers they follow torch's convention (conjugate Wirtinger).

    Raises
    ------
    TypeError, ValueError
        B or `values` is no tensor, or not of the shape that belongs here.
    MessageMismatch
        Ranks differ in k, in a dtype, or in what needs a gradient.
    RuntimeError
        In the backward pass of a backward pass: second derivatives are not supported.
    """
    _check(A, B, values, transpose)
    _agree(ctx, A, B, values, transpose)
    return _Product.apply(B, values, ctx, A, transpose, kernel)


class _Product(torch.autograd.Function):
    """The product as autograd sees it."""

    @staticmethod
    def forward(
        state: Any,
        B: torch.Tensor,
        values: torch.Tensor | None,
        ctx: Context,
        A: Operand,
        transpose: bool,
        kernel: str | None,
    ) -> torch.Tensor:
        state.call = (ctx, A, transpose, kernel)
        state.b_dtype = B.dtype
        # B is kept for the gradient of the values alone: hidden layers would double their memory.
        state.save_for_backward(B if state.needs_input_grad[1] else None, values)
        return _multiply(ctx, A, values, B, transpose, kernel=kernel, agreed=True)

    @staticmethod
    def backward(state: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (dC,) = grads
        B, values = state.saved_tensors
        ctx, A, transpose, kernel = state.call
        dB = dvalues = None
        with torch.no_grad():
            if state.needs_input_grad[0]:
                # Nothing is taken for agreed: a rank may be in another backward pass by mistake.
                turned = _multiply(ctx, A, values, _conj(dC), not transpose, kernel=kernel)
                dB = _like(_conj(turned), state.b_dtype)
            if state.needs_input_grad[1]:
                dvalues = _like(_sampled(ctx, A, dC, B, transpose), values.dtype)
        if torch.is_grad_enabled():  # create_graph=True
            if dB is not None:
                dB = _OnlyOnce.apply(dB, dC, values)
            if dvalues is not None:
                dvalues = _OnlyOnce.apply(dvalues, dC, B)
        return dB, dvalues, None, None, None, None


class _OnlyOnce(torch.autograd.Function):
    """A gradient that depends on tensors which it cannot be differentiated by."""

    @staticmethod
    def forward(state: Any, grad: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(state: Any, *_: torch.Tensor) -> Any:
        raise RuntimeError(
            "spmm: second derivatives are not supported. A gradient of a distributed product was "
            "differentiated once more (create_graph=True, a gradient penalty, a Hessian); detach "
            "it first, or compute it from dense tensors on one rank"
        )


def _multiply(
    ctx: Context,
    A: Operand,
    values: torch.Tensor | None,
    B: torch.Tensor,
    transpose: bool,
    *,
    kernel: str | None,
    agreed: bool = False,
) -> torch.Tensor:
    """A or its transpose, with its own or other values, times B."""
    side = A.transposed if transpose else A
    if values is not None:
        side = side.with_values(values.detach()[_turned(A)] if transpose else values.detach())
    return product(ctx, side, B.detach(), kernel=kernel, agreed=agreed)


def _turned(A: Operand) -> torch.Tensor:
    """Where each value of the transposed operand stands among the values of A; found once."""
    order = A.workspace.get(_ORDER)
    if order is None:
        device = A.values.device
        numbers = torch.arange(A.nnz, dtype=torch.int64, device=device)
        order = A.workspace[_ORDER] = A.with_values(numbers).transposed.values
    return order


_ORDER = "order of the transposed values"


def _sampled(
    ctx: Context, A: Operand, dC: torch.Tensor, B: torch.Tensor, transpose: bool
) -> torch.Tensor:
    """The gradient of the values: for a_ij the sum over k of dC_ik times the conjugate of B_jk."""
    if dC.dim() == 1:
        dC, B = dC[:, None], B[:, None]
    dtype = torch.promote_types(dC.dtype, B.dtype)
    left, right = dC.to(dtype), _conj(B).to(dtype)
    return sampled(ctx, A, right, left) if transpose else sampled(ctx, A, left, right)


def _conj(x: torch.Tensor) -> torch.Tensor:
    return x.conj().resolve_conj() if x.is_complex() else x


def _like(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The gradient of something real is real."""
    return (x.real if x.is_complex() and not dtype.is_complex else x).to(dtype)


def _check(A: Operand, B: Any, values: Any, transpose: bool) -> None:
    """Refuse what is wrong on this rank alone, before anything is sent."""
    for name, x in (("B", B), ("values", values)):
        if name == "values" and x is None:
            continue
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            what = x.layout if isinstance(x, torch.Tensor) else type(x).__name__
            raise TypeError(f"spmm: {name} must be a dense torch tensor, not {what}")
        if x.device != A.own.device:
            raise ValueError(f"spmm: {name} is on {x.device}, A on {A.own.device}: move one")
    rows = A.own.shape[0 if transpose else 1]
    if B.dim() not in (1, 2) or B.shape[0] != rows:
        raise ValueError(
            f"spmm: B has shape {tuple(B.shape)} on rank {A.rank}; the plan has {rows} rows of B "
            f"there, so its shard must be a vector of {rows} or a matrix with {rows} rows"
        )
    if values is not None and values.shape != (A.nnz,):
        raise ValueError(
            f"spmm: values has shape {tuple(values.shape)} on rank {A.rank}; A has {A.nnz} "
            "nonzeros there, whose values stand in the order of A.values"
        )


def _agree(
    ctx: Context, A: Operand, B: torch.Tensor, values: torch.Tensor | None, transpose: bool
) -> None:
    """Hold this rank's call against those of the others, gradients included.

    A backward pass that only some ranks run would leave them waiting for the others.
    """
    dtype = A.dtype if values is None else values.dtype
    record = torch.is_grad_enabled()
    mine = [
        B.shape[1] if B.dim() == 2 else -1,
        DTYPES.index(B.dtype) if B.dtype in DTYPES else -1,
        DTYPES.index(dtype) if dtype in DTYPES else -1,
        int(transpose),
        int(values is not None),
        int(record and B.requires_grad),
        int(record and values is not None and values.requires_grad),
    ]
    with ctx.comm.phase("agree"):
        said = ctx.comm.all_gather(torch.tensor(mine, dtype=torch.int32)).tolist()
    for place, what in enumerate(_AGREED):
        others = [rank for rank, theirs in enumerate(said) if theirs[place] != mine[place]]
        if others:
            raise MessageMismatch(
                f"spmm: rank {ctx.rank} has {what} {_say(place, mine[place])}, rank {others[0]} "
                f"has {_say(place, said[others[0]][place])}: all ranks must make the same call, "
                "also in what needs a gradient, since they exchange rows in the backward pass"
            )


_AGREED = (
    "columns of B (-1: a vector):",
    "a B of",
    "values of",
    "transpose:",
    "values= given:",
    "a gradient of B wanted:",
    "a gradient of values wanted:",
)


def _say(place: int, number: int) -> str:
    if place == 0:
        return str(number)
    if place in (1, 2):
        return str(DTYPES[number]).removeprefix("torch.") if number >= 0 else "another dtype"
    return "yes" if number else "no"
