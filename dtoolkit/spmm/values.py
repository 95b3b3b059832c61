"""Values of a planned matrix on the ranks: scaled, replaced, moved to another plan, fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.array import check_memory
from dtoolkit.arrays.convert import to_host, to_tensor
from dtoolkit.arrays.layout import Layout
from dtoolkit.arrays.lineage import computed, remember
from dtoolkit.arrays.redistribution import move_rows
from dtoolkit.arrays.sparse import DistSparse
from dtoolkit.cluster import Context, Remote
from dtoolkit.errors import PlanError
from dtoolkit.spmm.building import build, labels
from dtoolkit.spmm.ends import column_ends, row_ends
from dtoolkit.spmm.messages import Messages
from dtoolkit.spmm.operand import Operand
from dtoolkit.spmm.plan import plan as make_plan

if TYPE_CHECKING:
    from dtoolkit.spmm.kernels import LocalCSR
    from dtoolkit.spmm.planned import Plan

__all__ = ["collect", "factors", "redistribute", "with_data"]


def factors(
    ctx: Context,
    A: Operand,
    *,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
) -> torch.Tensor:
    """The factor of every value that a rank holds, in the order of ``A.values``.

    Factors of rows that the rank computes for others come from those (phase "scale", or "scale/"
    and the stage), as do those of columns whose rows of B it would receive: one number a row of the
    plan's lists.

    Parameters
    ----------
    ctx : Context
    A : Operand
    rows : torch.Tensor, shape (rows here,), optional
        A factor for each row of C that is here.
    columns : torch.Tensor, shape (columns here,), optional
        A factor for each row of B that is here; this or `rows`.
    """
    if rows is not None:
        ends = zip(row_ends(ctx, A, rows, "scale"), A.pieces, strict=True)
        return torch.cat([end[_row_of(piece)] for end, piece in ends])
    assert columns is not None
    ends = zip(column_ends(ctx, A, columns, "scale"), A.pieces, strict=True)
    return torch.cat([end[piece.indices.long()] for end, piece in ends])


def with_data(A: DistSparse, values: Any) -> DistSparse:
    """A matrix with A's pattern and plan and other values.

    Parameters
    ----------
    A : DistSparse
    values : array of shape (nnz,)
        In the order of the canonical CSR of A.

    Raises
    ------
    ValueError
        There are more or fewer values than nonzeros.
    """
    data = to_host(to_tensor(values, name="values"))
    if data.shape != (A.nnz,):
        raise ValueError(f"values has shape {data.shape}; A has {A.nnz} nonzeros")
    plan = A.plan
    positions = _positions(plan)
    if A.transposed:
        data = data[np.argsort(positions.T.tocsr().data)]
    matrix = sparse.csr_array((data, positions.indices, positions.indptr), shape=plan.shape)

    def again(into: Remote, _: list[int]) -> None:
        A.cluster.keep(_place, per_rank=[(o,) for o in build(plan, matrix)], into=into)

    remote = A.cluster.keep(_place, per_rank=[(o,) for o in build(plan, matrix)])
    return A._like(remember(remote, again), dtype=to_tensor(data[:0]).dtype)


def redistribute(A: DistSparse, plan: Any) -> DistSparse:
    """A on another plan. Values move between workers; patterns come from the client, as at first.

    Parameters
    ----------
    A : DistSparse
    plan : Plan, Layout or str
        With a layout, a joint plan on it.

    Returns
    -------
    DistSparse
        A itself where the plan is the same. Values that change rank are sent once each, in phase
        "redistribute".

    Raises
    ------
    PlanError
        The plan belongs to another matrix or number of ranks, or A's plan came without its matrix
        (was loaded from a file), so that nothing here knows the pattern.
    """
    if A.transposed:
        raise PlanError("A is a transposed view: redistribute A.T and take its transpose")
    positions = _positions(A.plan)
    if not hasattr(plan, "by_row"):
        ones = sparse.csr_array(
            (np.ones(A.nnz, np.float32), positions.indices, positions.indptr), shape=A.shape
        )
        plan = make_plan(ones, parts=A.plan.parts, partition=plan)
    if plan is A.plan:
        return A
    if plan.parts != A.plan.parts:
        raise PlanError(f"plan is for {plan.parts} parts and the cluster has {A.plan.parts} ranks")
    plan.require(positions)
    check_memory(A.cluster, list(2 * plan.memory(1, A.dtype)), f"redistributing {A!r}")
    before = [operand.values.numpy() for operand in build(A.plan, positions)]
    target = build(plan, positions)
    source_layout = _layout_of(before, A.nnz)
    target_layout = _layout_of([operand.values.numpy() for operand in target], A.nnz)
    # Ranks hold values in the order of their pieces; layouts count in the order of positions.
    per_rank = [
        (torch.from_numpy(np.argsort(held)), operand)
        for held, operand in zip(before, target, strict=True)
    ]
    remote = computed(A.cluster, _move, A, source_layout, target_layout, per_rank=per_rank)
    return DistSparse(A.cluster, plan, A.dtype, remote)


def collect(A: DistSparse, rows: NDArray[np.int64] | None = None) -> sparse.csr_array:
    """Bring a distributed matrix, or some of its rows, back from the workers as canonical CSR.

    Parameters
    ----------
    A : DistSparse
    rows : int64 array, optional
        Which rows, in which order; nonzeros of others are not sent.
    """
    plan = A.plan
    messages = Messages.of(plan)
    named = [labels(plan, messages, rank) for rank in range(plan.parts)]
    count = A.shape[0]
    place = np.arange(count)
    if rows is not None:
        chosen, order = np.unique(rows, return_inverse=True)
        place = np.full(count, -1)
        place[chosen] = np.arange(len(chosen))
        count = len(chosen)
    side = 1 if A.transposed else 0
    wanted = [
        [np.flatnonzero(place[pair[side]] >= 0) if rows is not None else None for pair in pairs]
        for pairs in named
    ]
    i, j, values = [], [], []
    for rank, pieces in enumerate(A.cluster.run(_triplets, A, wanted, A.transposed)):
        for pair, kept, (row, column, data) in zip(named[rank], wanted[rank], pieces, strict=True):
            own, other = pair[side], pair[1 - side]
            i.append(place[own if kept is None else own[kept]][row])
            j.append(other[column])
            values.append(data)
    triplets = (np.concatenate(values), (np.concatenate(i), np.concatenate(j)))
    found = sparse.coo_array(triplets, shape=(count, A.shape[1])).tocsr()
    found.sort_indices()
    return found if rows is None else found[order]


def _positions(plan: Plan) -> sparse.csr_array:
    """The pattern that was planned, with positions in its canonical CSR as values."""
    pattern = plan._pattern(None)
    numbers = np.arange(pattern.nnz, dtype=np.int64)
    return sparse.csr_array((numbers, pattern.indices, pattern.indptr), shape=pattern.shape)


def _layout_of(held: list[NDArray[np.int64]], nnz: int) -> Layout:
    owner = np.empty(nnz, np.int32)
    for rank, positions in enumerate(held):
        owner[positions] = rank
    return Layout.from_parts(owner, len(held))


def _triplets(
    ctx: Context, A: Operand, wanted: list[list[Any]], transposed: bool
) -> list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    result = []
    for piece, kept in zip(A.pieces, wanted[ctx.rank], strict=True):
        matrix = piece.to_scipy()
        if transposed:
            matrix = matrix.T.tocsr()
        found = (matrix if kept is None else matrix[kept]).tocoo()
        result.append((found.row, found.col, found.data))
    return result


def _move(
    ctx: Context,
    A: Operand,
    source: Layout,
    target: Layout,
    order: torch.Tensor,
    operand: Operand,
) -> Operand:
    """Values to the rank that needs them; `operand` has their positions for values."""
    operand = operand.to(ctx.device)
    moved = move_rows(ctx, A.values[order.to(ctx.device)], source, target)
    places = torch.argsort(torch.argsort(operand.values))
    return operand.with_values(moved[places])


def _place(ctx: Context, operand: Operand) -> Operand:
    return operand.to(ctx.device)


def _row_of(piece: LocalCSR) -> torch.Tensor:
    """The row of each value."""
    numbers = torch.arange(piece.shape[0], device=piece.device)
    return torch.repeat_interleave(numbers, piece.indptr.diff())
