"""Cutting a matrix into what each rank holds of it, by a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from dtoolkit.arrays.layout import Layout
from dtoolkit.spmm.hops import Hop, Link
from dtoolkit.spmm.kernels import LocalCSR
from dtoolkit.spmm.messages import Messages
from dtoolkit.spmm.operand import Operand, Through

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["build", "labels"]


def build(plan: Plan, A: sparse.csr_array, ranks: Iterable[int] | None = None) -> list[Operand]:
    """Cut a matrix into the operands of a plan.

    Parameters
    ----------
    plan : Plan
    A : csr_array
        The canonical matrix that was planned.
    ranks : iterable of int, optional
        Ranks to build for; all by default.

    Returns
    -------
    list of Operand
        On the CPU, in the order of `ranks`.
    """
    messages = Messages.of(plan)
    row = np.repeat(np.arange(A.shape[0], dtype=np.int64), np.diff(A.indptr))
    home = plan.home(plan.rows.owner(row), plan.columns.owner(A.indices), plan.by_row)
    order = np.argsort(home, kind="stable")
    ends = np.cumsum(np.bincount(home, minlength=plan.parts))
    found = []
    for rank in range(plan.parts) if ranks is None else ranks:
        mine = order[ends[rank - 1] if rank else 0 : ends[rank]]
        triplets = row[mine], A.indices[mine].astype(np.int64), A.data[mine]
        found.append(_operand(plan, messages, rank, *triplets))
    return found


def labels(
    plan: Plan, messages: Messages, rank: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Global numbers of rows and columns of each piece of an operand, in the order of pieces."""
    here, below = plan.rows.indices(rank), plan.columns.indices(rank)
    peers, stages = range(plan.parts), range(len(plan.stages))
    parcels, leaving = [], []
    for stage in stages:
        parcel = [np.empty(0, np.int64)]
        for peer in peers:
            parcel.append(messages.b_rows(stage, peer, rank))
            parcel.append(np.full(len(messages.c_rows(stage, peer, rank)), -1))
        parcels.append(np.concatenate(parcel))
        leaving.append([messages.c_rows(stage, rank, peer) for peer in peers])
    found = [(here, below)]
    for stage in stages:
        found.append((here, parcels[stage]))
        found.extend((rows, below) for rows in leaving[stage])
    for came in stages:
        for leaves in stages[came + 1 :]:
            if messages.passes(came, leaves):
                found.extend((rows, parcels[came]) for rows in leaving[leaves])
    return found


@dataclass
class _Places:
    """Where rows are in the messages of one rank: stage, peer and place by global row."""

    rows: NDArray[np.int64]
    stage: NDArray[np.int64]
    peer: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def of(cls, lists: Sequence[Sequence[NDArray[np.int64]]]) -> _Places:
        """From the rows of each message, by stage and peer."""
        flat = [(k, x, rows) for k, peers in enumerate(lists) for x, rows in enumerate(peers)]
        sizes = [len(rows) for *_, rows in flat]
        rows = np.concatenate([np.empty(0, np.int64), *(rows for *_, rows in flat)])
        stage = np.repeat(np.array([k for k, *_ in flat], np.int64), sizes)
        peer = np.repeat(np.array([x for _, x, _ in flat], np.int64), sizes)
        place = np.concatenate([np.empty(0, np.int64), *(np.arange(n) for n in sizes)])
        order = np.argsort(rows, kind="stable")
        return cls(rows[order], stage[order], peer[order], place[order])

    def find(self, wanted: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        at = np.searchsorted(self.rows, wanted)
        return self.stage[at], self.peer[at], self.place[at]


def _operand(
    plan: Plan,
    messages: Messages,
    rank: int,
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    value: NDArray[Any],
) -> Operand:
    peers, stages = range(plan.parts), range(len(plan.stages))
    b_in = [[messages.b_rows(k, x, rank) for x in peers] for k in stages]
    c_out = [[messages.c_rows(k, rank, y) for y in peers] for k in stages]
    came, left = _Places.of(b_in), _Places.of(c_out)
    hops = tuple(_hop(plan, messages, rank, k, came, left) for k in stages)
    m, n = int(plan.rows.sizes[rank]), int(plan.columns.sizes[rank])
    # Row and column of each nonzero: here, or which stage (and peer), and the place there.
    row, to = np.full(len(i), -1), np.full(len(i), rank)
    column, p = np.full(len(i), -1), np.empty(len(i), np.int64)
    q = np.empty(len(i), np.int64)
    away = plan.rows.owner(i) != rank
    p[~away] = plan.rows.local(i[~away])
    row[away], to[away], p[away] = left.find(i[away])
    away = plan.columns.owner(j) != rank
    q[~away] = plan.columns.local(j[~away])
    column[away], source, place = came.find(j[away])
    starts = np.array([hop.starts for hop in hops]).reshape(-1, plan.parts + 1)
    q[away] = starts[column[away], source] + place

    def piece(chosen: NDArray[np.bool_], shape: tuple[int, int]) -> LocalCSR:
        return _csr(p[chosen], q[chosen], value[chosen], shape)

    def by_peer(stage: int, chosen: NDArray[np.bool_], width: int) -> tuple[LocalCSR, ...]:
        here = chosen & (row == stage)
        return tuple(piece(here & (to == y), (len(c_out[stage][y]), width)) for y in peers)

    return Operand(
        rank=rank,
        own=piece((row < 0) & (column < 0), (m, n)),
        hops=hops,
        remote=tuple(piece((row < 0) & (column == k), (m, int(starts[k, -1]))) for k in stages),
        partial=tuple(by_peer(k, column < 0, n) for k in stages),
        through=tuple(
            Through(k, later, by_peer(later, column == k, int(starts[k, -1])))
            for k in stages
            for later in stages[k + 1 :]
            if messages.passes(k, later)
        ),
        busy=plan.busy_stage,
    )


def _hop(
    plan: Plan, messages: Messages, rank: int, stage: int, came: _Places, left: _Places
) -> Hop:
    peers = range(plan.parts)
    whole = plan.stages[stage].b.index is None
    b_out = [messages.b_rows(stage, rank, y) for y in peers]
    c_in = [messages.c_rows(stage, x, rank) for x in peers]
    outgoing = [_split(rows, plan.columns, rank, came, whole) for rows in b_out]
    incoming = [_split(rows, plan.rows, rank, left, False) for rows in c_in]
    return Hop(
        phase=plan.phases[stage],
        whole=whole,
        gather=tuple(first for first, _ in outgoing),
        forward=tuple(links for _, links in outgoing),
        scatter=tuple(first for first, _ in incoming),
        relay=tuple(links for _, links in incoming),
        b_out=tuple(map(len, b_out)),
        b_in=tuple(len(messages.b_rows(stage, x, rank)) for x in peers),
        c_out=tuple(len(messages.c_rows(stage, rank, y)) for y in peers),
        c_in=tuple(map(len, c_in)),
    )


def _split(
    rows: NDArray[np.int64], layout: Layout, rank: int, places: _Places, whole: bool
) -> tuple[torch.Tensor, tuple[Link, ...]]:
    """Rows of a message: those that are here as local rows, the others by message."""
    if whole:
        return torch.empty(0, dtype=torch.int64), ()
    owned = int(np.count_nonzero(layout.owner(rows) == rank))
    first = torch.from_numpy(layout.local(rows[:owned]))
    if owned == len(rows):
        return first, ()
    stage, peer, place = places.find(rows[owned:])
    cuts = np.flatnonzero((stage[1:] != stage[:-1]) | (peer[1:] != peer[:-1])) + 1
    links = [
        Link(int(stage[at[0]]), int(peer[at[0]]), torch.from_numpy(place[at]))
        for at in np.split(np.arange(len(place)), cuts)
    ]
    return first, tuple(links)


def _csr(
    i: NDArray[np.int64], j: NDArray[np.int64], value: NDArray[Any], shape: tuple[int, int]
) -> LocalCSR:
    # Rows and columns keep their global order, except where pieces are numbered by peer; a stable
    # sort keeps the order of additions the same on every run.
    order = np.lexsort((j, i))
    indptr = np.zeros(shape[0] + 1, np.int64)
    np.cumsum(np.bincount(i, minlength=shape[0]), out=indptr[1:])
    narrow = np.int32 if shape[1] < 2**31 else np.int64
    return LocalCSR(
        torch.from_numpy(indptr),
        torch.from_numpy(j[order].astype(narrow)),
        torch.from_numpy(np.ascontiguousarray(value[order])),
        shape,
    )
