"""In which order rows lie in the messages of a plan.

A sender has some of its rows of B from itself and others from earlier messages; a receiver adds
some partial rows to its own rows of C and others to later messages. Rows that are treated alike lie
side by side, so that each message is a few copies of blocks. Both ends know the order from the
plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.pairlists import PairLists

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["Messages"]


@dataclass(frozen=True, eq=False)
class Messages:
    """Lists of rows by stage and pair, in the order in which they lie.

    Attributes
    ----------
    b, c : tuple of PairLists
        By stage; not ascending where a message is made of several blocks.
    rows, columns : Layout
    replicated : bool
        Some nonzeros are multiplied where neither their row nor their column lives.
    """

    b: tuple[PairLists, ...]
    c: tuple[PairLists, ...]
    rows: Layout
    columns: Layout
    replicated: bool

    @classmethod
    def of(cls, plan: Plan) -> Messages:
        """The messages of a plan."""
        back = [stage.c.transposed() for stage in reversed(plan.stages)]
        return cls(
            b=_ordered([stage.b for stage in plan.stages], plan.columns),
            c=tuple(one.transposed() for one in reversed(_ordered(back, plan.rows))),
            rows=plan.rows,
            columns=plan.columns,
            replicated=plan.replication is not None,
        )

    def b_rows(self, stage: int, source: int, target: int) -> NDArray[np.int64]:
        """Global rows of B in a message."""
        return self.b[stage].rows(source, target, self.columns, "source")

    def c_rows(self, stage: int, source: int, target: int) -> NDArray[np.int64]:
        """Global rows of C of the partial sums in a message."""
        return self.c[stage].rows(source, target, self.rows, "target")

    def passes(self, came: int, leaves: int) -> bool:
        """Whether nonzeros may want rows of B from one stage for partial rows of a later one."""
        return self.replicated and self.b[came].total > 0 and self.c[leaves].total > 0


def _ordered(lists: Sequence[PairLists], owners: Layout) -> tuple[PairLists, ...]:
    """Within each pair: first what the source owns, then what it got, by stage and by whom."""
    if len(lists) < 2:
        return tuple(lists)
    parts, n = owners.parts, max(owners.n, 1)
    keys, origin = np.empty(0, np.int64), np.empty(0, np.int64)
    found = []
    for number, one in enumerate(lists):
        if one.index is None or not one.total:  # the sender's own
            found.append(one)
            continue
        source, target, row = one.expanded(owners, "source")
        far = np.flatnonzero(owners.owner(row) != source)
        index = row
        if len(far):
            code = np.full(len(row), -1)
            code[far] = origin[np.searchsorted(keys, source[far] * n + row[far])]
            index = row[np.lexsort((row, code, source * parts + target))]
        found.append(PairLists(parts, one.ptr, index))
        keys = np.concatenate([keys, target * n + row])
        origin = np.concatenate([origin, number * parts + source])
        order = np.argsort(keys, kind="stable")
        keys, origin = keys[order], origin[order]
    return tuple(found)
