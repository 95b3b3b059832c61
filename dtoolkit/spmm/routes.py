"""Routes: in which stages rows of B reach who needs them, and partial rows of C their owners.

A flat route is one stage: every row goes straight to where it is wanted. Over *nodes* (groups of
ranks with fast links between them) a row of B that several ranks of a node want crosses the slow
link once, to one of them, and is spread from there; partial rows of C for one target are added up
at one rank of the node where they were computed, and cross once (SHIRO, arXiv 2512.20178;
reconstructed: the paper's own details could not be seen). On a *grid* of ranks whole shards of B
are expanded along one dimension and whole shards of C folded along the other, whatever the matrix
(CAGNET, arXiv 2005.03300).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.assembly import Needs, RowLists
from dtoolkit.spmm.pairlists import PairLists, Stage

__all__ = ["flat", "over_grid", "over_nodes", "transposed", "whole_shards"]


def flat(b: Needs, c: Needs) -> tuple[Stage, ...]:
    """One stage: all rows straight to where they are wanted."""
    partial, remote = c.counts.sum(axis=1), b.counts.sum(axis=0)
    return (Stage("exchange", b.lists, c.lists, partial, remote, np.zeros_like(remote)),)


def whole_shards(columns: Layout, b: Needs) -> tuple[Stage, ...]:
    """One stage: every rank's whole shard of B to every other, whatever is needed of it."""
    none = np.zeros(columns.parts, dtype=np.int64)
    lists = PairLists.shards(columns.sizes)
    remote = b.counts.sum(axis=0)
    return (Stage("exchange", lists, PairLists.empty(columns.parts), none, remote, none),)


def over_nodes(
    b: Needs, c: Needs, nodes: NDArray[np.int32], rows: Layout, columns: Layout
) -> tuple[Stage, ...]:
    """Up to three stages: inside the nodes, between them, and inside them again.

    Which rank of a node receives a row for the others, or adds up for them, is one of those that
    want it or contribute to it, taken in turn over the rows, so that it is the same everywhere and
    no rank has much more to do than others.
    """
    parts = len(nodes)
    together = nodes[:, None] == nodes[None, :]
    near_b, near_c = b.select(together), c.select(together)
    crossing, spread = _delivered(b, nodes, columns)
    # Partial rows go the way of rows of B from the opposite direction.
    crossing_c, spread_c = (need.transposed() for need in _delivered(c.transposed(), nodes, rows))
    none, nothing = np.zeros(parts, dtype=np.int64), PairLists.empty(parts)
    inside = PairLists.merged([near_c.lists, spread_c.lists], rows, "target")
    stages = (
        Stage(
            "inside",
            near_b.lists,
            inside,
            near_c.counts.sum(axis=1) + spread_c.counts.sum(axis=1),
            near_b.counts.sum(axis=0),
            none,
        ),
        Stage(
            "between",
            crossing.lists,
            crossing_c.lists,
            crossing_c.counts.sum(axis=1),
            crossing.counts.sum(axis=0),
            none,
        ),
        Stage("spread", spread.lists, nothing, none, spread.counts.sum(axis=0), none),
    )
    return tuple(stage for stage in stages if stage.volume)


def over_grid(
    rows: Layout, columns: Layout, replication: int, nonzeros: NDArray[np.int64]
) -> tuple[Stage, ...]:
    """Up to two stages: whole shards of B between groups, whole shards of C inside them.

    Parameters
    ----------
    rows, columns : Layout
    replication : int
        Ranks of a group; rank r is member ``r % replication`` of group ``r // replication``.
    nonzeros : int64 array of shape (parts, parts)
        By block, [target, source].
    """
    parts = rows.parts
    group, member = np.divmod(np.arange(parts), replication)
    same_group, same_member = group[:, None] == group, member[:, None] == member
    target, source = np.indices((parts, parts))
    at = target // replication * replication + source % replication

    def work(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        counted = np.bincount(at[mask], weights=nonzeros[mask], minlength=parts)
        return counted.astype(np.int64)

    none, nothing = np.zeros(parts, dtype=np.int64), PairLists.empty(parts)
    expanded = PairLists.shards(columns.sizes, same_member)
    folded = PairLists.shards(rows.sizes, same_group).transposed()
    stages = (
        Stage(
            "expand",
            expanded,
            nothing,
            none,
            work(~same_group & same_member),
            work(~same_group & ~same_member),
        ),
        Stage("fold", nothing, folded, work(same_group & ~same_member), none, none),
    )
    return tuple(stage for stage in stages if stage.volume)


def transposed(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The route of A.T B with every nonzero where it is: stages, lists and roles reversed."""
    turned = [
        Stage(
            stage.name,
            b=stage.c.transposed(),
            c=stage.b.transposed(),
            partial=stage.remote,
            remote=stage.partial,
            through=before.through,
        )
        for stage, before in zip(reversed(stages), stages, strict=True)
    ]
    return tuple(turned)


def _delivered(needs: Needs, nodes: NDArray[np.int32], owners: Layout) -> tuple[Needs, Needs]:
    """What crosses to one rank of each node that wants it, and what that rank spreads there."""
    parts, index, uses = len(nodes), needs.lists.index, needs.uses
    assert index is not None
    crossing, spread = RowLists(parts, owners.n), RowLists(parts, owners.n)
    for node in range(int(nodes.max(initial=-1)) + 1):
        members, others = np.flatnonzero(nodes == node), np.flatnonzero(nodes != node)
        pairs = (others[:, None] * parts + members).ravel()
        at, counts = needs.entries(pairs)
        if not len(at):
            continue
        wanting = np.repeat(np.tile(np.arange(len(members)), len(others)), counts)
        key = index[at] * len(members) + wanting
        order = np.argsort(key)
        row, wanting, wanted = index[at][order], members[wanting[order]], uses[at][order]
        first = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        size = np.diff(np.append(first, len(row)))
        chosen = first + np.arange(len(first)) % size
        crosses = np.zeros(len(row), dtype=bool)
        crosses[chosen] = True
        via = np.repeat(wanting[chosen], size)
        source = owners.owner(row[chosen]).astype(np.int64)
        crossing.add(source * parts + wanting[chosen], row[chosen], wanted[chosen])
        rest = ~crosses
        if rest.any():
            spread.add(via[rest] * parts + wanting[rest], row[rest], wanted[rest])
    return crossing.needs(), spread.needs()
