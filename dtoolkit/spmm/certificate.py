"""Verification of a plan: that it serves every nonzero, and that nothing lighter could."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtoolkit.errors import PlanError
from dtoolkit.spmm.assembly import PairLists, assemble_by
from dtoolkit.spmm.blocks import Blocks, Structure, walk
from dtoolkit.spmm.strategies import Assignment

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["check_plan"]


def check_plan(plan: Plan, A: Structure) -> None:
    """Verify a plan against its matrix; see :meth:`dtoolkit.spmm.planned.Plan.check`.

    Raises
    ------
    PlanError
        Naming the first thing that does not hold.
    """
    if plan.by_row.shape != (A.nnz,) or plan.by_row.dtype != bool:
        raise PlanError(
            f"by_row is {plan.by_row.dtype} of shape {plan.by_row.shape}; wanted bool, ({A.nnz},)"
        )

    def replay(positions: NDArray[np.int64], blocks: Blocks) -> Assignment:
        return Assignment(plan.by_row[positions])

    again = assemble_by(replay, A, plan.rows, plan.columns, plan.strategy, plan.weights)
    if np.count_nonzero(plan.by_row) != np.count_nonzero(again.by_row):
        raise PlanError("a nonzero whose row and column live on one rank is marked to travel")
    _check_lists("B", plan.b, again.b, PairLists.shards(plan.columns.sizes))
    whole_c = PairLists.shards(plan.rows.sizes).transposed()
    _check_lists("C", plan.c, again.c, whole_c)
    if plan.matched is not None and plan.matching is not None:
        _check_matching(plan, A, plan.matched, plan.matching)


def _check_lists(name: str, stored: PairLists, wanted: PairLists, whole: PairLists) -> None:
    """Hold the stored lists against those that the assignment needs."""
    if stored.index is None:
        if not np.array_equal(stored.ptr, whole.ptr):
            raise PlanError(f"the rows of {name} by pair are not the whole shards")
        return
    if not np.array_equal(stored.counts, wanted.counts):
        s, t = np.argwhere(stored.counts != wanted.counts)[0]
        raise PlanError(
            f"rank {s} sends {stored.counts[s, t]} rows of {name} to rank {t}; the assignment of "
            f"nonzeros needs {wanted.counts[s, t]}"
        )
    differs = stored.index != wanted.index
    if differs.any():
        at = int(np.argmax(differs))
        s, t = divmod(int(np.searchsorted(stored.ptr, at, side="right")) - 1, stored.parts)
        raise PlanError(
            f"rank {s} sends row {stored.index[at]} of {name} to rank {t}, which does not need it"
        )


def _check_matching(
    plan: Plan, A: Structure, matched: NDArray[np.int64], matching: NDArray[np.int64]
) -> None:
    """Check that ``matched`` is a matching, and in every block as heavy as what moves."""
    parts, (b_weight, c_weight) = plan.parts, plan.weights
    units = np.zeros((parts, parts), dtype=np.int64)
    met = 0
    for positions, blocks in walk(A, plan.rows, plan.columns, plan.weights):
        first = np.searchsorted(matched, positions, side="left")
        times = np.searchsorted(matched, positions, side="right") - first
        met += int(times.sum())
        for name, vertex, most in (
            ("column", blocks.column_vertex, b_weight),
            ("row", blocks.row_vertex, c_weight),
        ):
            if np.bincount(vertex, weights=times).max() > most:
                raise PlanError(f"the certificate is no matching: it meets a {name} too often")
        block = blocks.target.astype(np.int64) * parts + blocks.source
        counted = np.bincount(block, weights=times, minlength=parts * parts)
        units += counted.astype(np.int64).reshape(parts, parts)
    if met != len(matched):
        raise PlanError("the certificate names nonzeros that are in no off-diagonal block")
    moves = plan.b.counts.T * b_weight + plan.c.counts.T * c_weight
    for name, counts in (("matching", matching), ("cover", moves)):
        if not np.array_equal(units, counts):
            p, q = np.argwhere(units != counts)[0]
            raise PlanError(
                f"block ({p}, {q}): the certificate has {units[p, q]} units, the {name} "
                f"{counts[p, q]}"
            )
