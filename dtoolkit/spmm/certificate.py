"""Verification of a plan: that it serves every nonzero, and that nothing lighter could.

Nothing is planned again. The stages are followed row by row: who needs a row, who has it, who sends
it to whom. Partial rows of C are followed backwards in time, from their owners, where the same must
hold as for rows of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.errors import PlanError
from dtoolkit.spmm.blocks import Structure, walk
from dtoolkit.spmm.nodes import node_layout
from dtoolkit.spmm.pairlists import PairLists
from dtoolkit.spmm.strategies import OVER_NODES

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
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    target, source = plan.rows.owner(row), plan.columns.owner(A.indices)
    home = plan.home(target, source, plan.by_row).astype(np.int64)
    if (plan.by_row & (home == target)).any():
        raise PlanError("a nonzero whose row and column live on one rank is marked to travel")
    needs_b = _distinct((home * A.shape[1] + A.indices)[home != source])
    needs_c = _distinct((home * A.shape[0] + row)[home != target])
    came = _Rows("B", plan.columns, needs_b).follow([stage.b for stage in plan.stages])
    back = [stage.c.transposed() for stage in reversed(plan.stages)]
    left = _Rows("C", plan.rows, needs_c).follow(back)
    _check_order(
        plan, A, row, home, np.flatnonzero((home != source) & (home != target)), came, left
    )
    if plan.strategy in OVER_NODES and plan.nodes is not None:
        crossing = sum(map(len, _crossing(plan, plan.nodes, needs_b, needs_c)))
        if plan.volume_between_nodes != crossing:
            raise PlanError(
                f"{plan.volume_between_nodes} rows cross between nodes; {crossing} are needed "
                "there, and each needs to cross once"
            )
    if plan.matched is not None and plan.matching is not None:
        _check_proof(plan, A, plan.matched, plan.matching, needs_b, needs_c)


@dataclass
class _Came:
    """In which stage each rank got each row: for listed rows by key, for whole shards by pair."""

    keys: NDArray[np.int64]
    stages: NDArray[np.int64]
    shards: NDArray[np.int64]  # [owner, rank], -1 where none came

    def at(self, rank: NDArray[np.int64], row: NDArray[np.int64], rows: Layout) -> NDArray[Any]:
        found = self.shards[rows.owner(row), rank]
        if len(self.keys):
            key = rank * max(rows.n, 1) + row
            place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
            listed = self.keys[place] == key
            found = np.where(listed, self.stages[place], found)
        return found


class _Rows:
    """Follows rows (of B forwards, of C backwards) from their owners to who needs them."""

    def __init__(self, name: str, owners: Layout, needs: NDArray[np.int64]) -> None:
        self.name, self.owners, self.needs = name, owners, needs
        self.n = max(owners.n, 1)

    def follow(self, lists: Sequence[PairLists]) -> _Came:
        parts = self.owners.parts
        came = _Came(
            np.empty(0, np.int64), np.empty(0, np.int64), np.full((parts, parts), -1, np.int64)
        )
        passed_on = [np.empty(0, np.int64)]
        for number, one in enumerate(lists):
            if one.index is None:
                self._whole(one, came, number)
            else:
                passed_on.append(self._listed(one, came, number))
        missing = self.needs[came.at(*np.divmod(self.needs, self.n), self.owners) < 0]
        if len(missing):
            rank, row = np.divmod(int(missing[0]), self.n)
            raise PlanError(
                f"rank {rank} needs row {row} of {self.name} from its owner and nothing brings it"
                if self.name == "B"
                else f"rank {rank} has a sum that row {row} of C needs, and never sends it"
            )
        useful = _distinct(np.concatenate([self.needs, *passed_on, [-1]]))
        place = np.searchsorted(useful, came.keys)
        vain = came.keys[useful[np.minimum(place, len(useful) - 1)] != came.keys]
        if len(vain):
            rank, row = np.divmod(int(vain[0]), self.n)
            raise PlanError(
                f"rank {rank} is sent row {row} of B, which it does not need"
                if self.name == "B"
                else f"rank {rank} sends a sum for row {row} of C, which does not need it"
            )
        return came

    def _whole(self, one: PairLists, came: _Came, number: int) -> None:
        counts = one.counts
        wanted = np.where(counts > 0, self.owners.sizes[:, None], 0)
        if not np.array_equal(counts, wanted):
            raise PlanError(f"the rows of {self.name} by pair are not the whole shards")
        twice = (counts > 0) & (came.shards >= 0)
        if twice.any() or np.diag(counts).any():
            raise PlanError(f"a shard of {self.name} goes to a rank that has it")
        came.shards[counts > 0] = number

    def _listed(self, one: PairLists, came: _Came, number: int) -> NDArray[np.int64]:
        source, target, row = one.expanded(self.owners, "source")
        if len(row) and (row.min() < 0 or row.max() >= self.owners.n):
            raise PlanError(f"a row of {self.name} is listed that does not exist")
        owner = self.owners.owner(row)
        had = (owner == source) | (came.at(source, row, self.owners) >= 0)
        if not had.all():
            at = int(np.argmin(had))
            s, t = (source[at], target[at]) if self.name == "B" else (target[at], source[at])
            raise PlanError(
                f"rank {s} sends row {row[at]} of {self.name} to rank {t}, which does not need it "
                "or could not have it"
            )
        keys = target * self.n + row
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        again = (owner == target) | (came.at(target, row, self.owners) >= 0)
        if again.any() or (keys[1:] == keys[:-1]).any():
            raise PlanError(f"a row of {self.name} goes to a rank twice, or to one that has it")
        place = np.searchsorted(came.keys, keys)
        came.keys = np.insert(came.keys, place, keys)
        came.stages = np.insert(came.stages, place, number)
        return _distinct(source * self.n + row)


def _check_order(
    plan: Plan,
    A: Structure,
    row: NDArray[np.int64],
    home: NDArray[np.int64],
    chosen: NDArray[np.int64],
    came: _Came,
    left: _Came,
) -> None:
    """What is multiplied where neither its row nor its column lives must come before it leaves."""
    column = A.indices[chosen].astype(np.int64)
    comes = came.at(home[chosen], column, plan.columns)
    leaves = len(plan.stages) - 1 - left.at(home[chosen], row[chosen], plan.rows)
    late = np.flatnonzero(comes >= leaves)
    if len(late):
        at = int(chosen[late[0]])
        raise PlanError(
            f"rank {home[at]} sends its sum for row {row[at]} of C before row {A.indices[at]} of B "
            "has come, which that needs"
        )


def _check_proof(
    plan: Plan,
    A: Structure,
    matched: NDArray[np.int64],
    matching: NDArray[np.int64],
    needs_b: NDArray[np.int64],
    needs_c: NDArray[np.int64],
) -> None:
    """Check that ``matched`` is a matching, and in every block as heavy as its cover."""
    if len(matched) and (matched[0] < 0 or matched[-1] >= A.nnz):
        raise PlanError("the certificate names nonzeros that do not exist")
    row = np.searchsorted(A.indptr, matched, side="right") - 1
    p, q = plan.rows.owner(row), plan.columns.owner(A.indices[matched])
    if plan.strategy == "node-pair" and plan.nodes is not None:
        _check_node_pairs(
            plan, A, matched, plan.nodes, plan.nodes[p] != plan.nodes[q], needs_b, needs_c
        )
    else:
        _check_matching(plan, A, matched, plan.rows, plan.columns, needs_b, needs_c)
    units = np.zeros((plan.parts, plan.parts), dtype=np.int64)
    np.add.at(units, (p, q), 1)
    if not np.array_equal(units, matching):
        p, q = np.argwhere(units != matching)[0]
        raise PlanError(
            f"block ({p}, {q}): the certificate has {units[p, q]} units, the matching "
            f"{matching[p, q]}"
        )


def _check_node_pairs(
    plan: Plan,
    A: Structure,
    matched: NDArray[np.int64],
    nodes: NDArray[np.int32],
    apart: NDArray[np.bool_],
    needs_b: NDArray[np.int64],
    needs_c: NDArray[np.int64],
) -> None:
    """Check the blocks of two nodes, and inside each node those of two ranks."""
    near_b, near_c = (
        needs[nodes[needs // max(own.n, 1)] == nodes[own.owner(needs % max(own.n, 1))]]
        for needs, own in ((needs_b, plan.columns), (needs_c, plan.rows))
    )
    _check_matching(plan, A, matched[~apart], plan.rows, plan.columns, near_b, near_c)
    far_b, far_c = _crossing(plan, nodes, needs_b, needs_c)
    laid = node_layout(plan.rows, nodes), node_layout(plan.columns, nodes)
    _check_matching(plan, A, matched[apart], *laid, far_b, far_c)


def _crossing(
    plan: Plan,
    nodes: NDArray[np.int32],
    needs_b: NDArray[np.int64],
    needs_c: NDArray[np.int64],
) -> tuple[NDArray[np.int64], ...]:
    """What is needed in another node than its owner's, once for each node: node, and row."""
    found = []
    for needs, own in ((needs_b, plan.columns), (needs_c, plan.rows)):
        rank, row = np.divmod(needs, max(own.n, 1))
        far = nodes[rank] != nodes[own.owner(row)]
        found.append(_distinct(nodes[rank[far]] * np.int64(max(own.n, 1)) + row[far]))
    return tuple(found)


def _check_matching(
    plan: Plan,
    A: Structure,
    matched: NDArray[np.int64],
    rows: Layout,
    columns: Layout,
    needs_b: NDArray[np.int64],
    needs_c: NDArray[np.int64],
) -> None:
    """Hold a matching against the blocks of two layouts, and against what their covers weigh."""
    parts, (b_weight, c_weight) = rows.parts, plan.weights
    units = np.zeros((parts, parts), dtype=np.int64)
    met = 0
    for positions, blocks in walk(A, rows, columns, plan.weights):
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
    cover = np.zeros((parts, parts), dtype=np.int64)
    wanting, column = np.divmod(needs_b, max(A.shape[1], 1))
    np.add.at(cover, (wanting, columns.owner(column)), b_weight)
    holding, row = np.divmod(needs_c, max(A.shape[0], 1))
    np.add.at(cover, (rows.owner(row), holding), c_weight)
    if not np.array_equal(units, cover):
        p, q = np.argwhere(units != cover)[0]
        raise PlanError(
            f"block ({p}, {q}): the certificate has {units[p, q]} units, the cover {cover[p, q]}"
        )


def _distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted, each once; :func:`numpy.unique` hashes first, which takes ten times as long."""
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
