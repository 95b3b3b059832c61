"""A plan for A, read as a plan for its transpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dtoolkit.spmm.blocks import Structure
from dtoolkit.spmm.load import TURNED
from dtoolkit.spmm.routes import transposed

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["transposed_parts"]


def transposed_parts(plan: Plan, A: Structure) -> dict[str, Any]:
    """Fields of the plan for A.T in which every nonzero stays on the rank that multiplies it.

    A nonzero computed where its row lives has the row of B sent to it; transposed, it gives a
    partial sum of that row's place, sent the other way. So the lists swap roles and directions,
    stages their order, and ``by_row`` tells whether it was multiplied away from its row of B.
    """
    order, structure = _transpose(A)
    nonzero_row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    source = plan.columns.owner(A.indices)
    home = plan.home(plan.rows.owner(nonzero_row), source, plan.by_row)
    matched = plan.matched
    if matched is not None:
        place = np.empty(len(order), dtype=matched.dtype)
        place[order] = np.arange(len(order))
        matched = np.sort(place[matched])
    return {
        "shape": structure.shape,
        "strategy": TURNED.get(plan.strategy, plan.strategy),
        "rows": plan.columns,
        "columns": plan.rows,
        "by_row": (home != source)[order],
        "stages": transposed(plan.stages),
        "matched": matched,
        "matching": None if plan.matching is None else plan.matching.T.copy(),
        "weights": (plan.weights[1], plan.weights[0]),
        "loads": tuple(load.transposed() for load in plan.loads),
        "digest": structure.digest(),
        "structure": structure,
        "turned": not plan.turned,
    }


def _transpose(A: Structure) -> tuple[Any, Structure]:
    """Position in A of each nonzero of A.T, and the pattern of A.T."""
    positions = np.arange(A.nnz, dtype=np.int64)
    turned = sparse.csr_array((positions, A.indices, A.indptr), shape=A.shape).tocsc()
    shape = (A.shape[1], A.shape[0])
    return turned.data, Structure(shape, turned.indptr, turned.indices)
