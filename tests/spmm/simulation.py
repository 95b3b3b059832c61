"""A product by a plan, stage by stage in one process: what is not sent is not there."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def simulate(plan: Any, A: sparse.sparray, B: np.ndarray) -> np.ndarray:
    """C = A B by moving exactly what the plan lists; NaN where something is missing."""
    entries = sparse.csr_array(A).tocoo()
    row, column, value = entries.row, entries.col, entries.data
    target, source = plan.rows.owner(row), plan.columns.owner(column)
    home = plan.home(target, source, plan.by_row)
    assert len(home) == plan.nnz
    known = [np.full(B.shape, np.nan) for _ in range(plan.parts)]
    got = [np.zeros((A.shape[0], B.shape[1])) for _ in range(plan.parts)]
    left: set[tuple[int, int]] = set()
    for rank in range(plan.parts):
        mine = plan.columns.indices(rank)
        known[rank][mine] = B[mine]

    def total(rank: int) -> np.ndarray:
        here = home == rank
        sums = got[rank].copy()
        np.add.at(sums, row[here], value[here, None] * known[rank][column[here]])
        return sums

    for stage in range(len(plan.stages)):
        messages = []
        for s in range(plan.parts):
            sums = total(s)
            for t in range(plan.parts):
                b, c = plan.b_rows(s, t, stage), plan.c_rows(s, t, stage)
                assert (np.diff(b) > 0).all()
                assert (np.diff(c) > 0).all()
                assert s != t or not (len(b) or len(c))
                sent = {(s, int(i)) for i in c}
                assert not sent & left, "a partial row leaves a rank twice"
                left |= sent
                assert (plan.rows.owner(c) != s).all()
                messages.append((t, b, known[s][b], c, sums[c]))
        for t, b, rows, c, sums in messages:
            known[t][b] = rows
            got[t][c] += sums
    C = np.zeros((A.shape[0], B.shape[1]))
    for rank in range(plan.parts):
        mine = plan.rows.indices(rank)
        C[mine] = total(rank)[mine]
        stays = np.unique(row[(home == rank) & (target != rank)])
        assert all((rank, int(i)) in left for i in stays), "a sum stays where it was computed"
    return C
