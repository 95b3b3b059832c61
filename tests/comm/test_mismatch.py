"""Ranks that do not agree: an error on the ranks that see it, never a hang or a dead process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import MessageMismatch, RankError

ones = torch.ones

CASES = {
    "another operation": (
        lambda comm: comm.all_reduce(ones(4)),
        lambda comm: comm.all_gather(ones(4)),
    ),
    "another dtype": (
        lambda comm: comm.all_reduce(ones(4)),
        lambda comm: comm.all_reduce(ones(4).double()),
    ),
    "same bytes, another dtype": (
        lambda comm: comm.all_to_all([ones(4)] * comm.size),
        lambda comm: comm.all_to_all([ones(4).int()] * comm.size),
    ),
    "fewer elements": (
        lambda comm: comm.all_reduce(ones(400)),
        lambda comm: comm.all_reduce(ones(390)),
    ),
    "large, fewer elements": (
        lambda comm: comm.all_gather(ones(400_000)),
        lambda comm: comm.all_gather(ones(200_000)),
    ),
    "another shape": (
        lambda comm: comm.all_reduce(ones(2, 3)),
        lambda comm: comm.all_reduce(ones(3, 2)),
    ),
    "another shape of the rows": (
        lambda comm: comm.all_gather(ones(2, 6)),
        lambda comm: comm.all_gather(ones(2, 3, 2)),
    ),
    "another root": (
        lambda comm: comm.broadcast(ones(4), 0),
        lambda comm: comm.broadcast(ones(4), 2),
    ),
    "another reduction": (
        lambda comm: comm.all_reduce(ones(4), "sum"),
        lambda comm: comm.all_reduce(ones(4), "max"),
    ),
    "more than expected": (
        lambda comm: comm.all_to_all_v(ones(8, 2), [2] * 4, [2] * 4),
        lambda comm: comm.all_to_all_v(ones(12, 2), [3] * 4, [2] * 4),
    ),
    "less than expected": (
        lambda comm: comm.all_to_all_v(ones(8, 2), [2] * 4, [2] * 4),
        lambda comm: comm.all_to_all_v(ones(4, 2), [1] * 4, [2] * 4),
    ),
    "rows of another width": (
        lambda comm: comm.all_to_all_v(ones(8, 6), [2] * 4),
        lambda comm: comm.all_to_all_v(ones(8, 3, 2), [2] * 4),
    ),
    "another size than out": (
        lambda comm: comm.all_to_all([ones(5)] * 4, out=[ones(5) for _ in range(4)]),
        lambda comm: comm.all_to_all([ones(6)] * 4, out=[ones(5) for _ in range(4)]),
    ),
    "one call more": (
        lambda comm: comm.all_reduce(ones(4)),
        lambda comm: (comm.barrier(), comm.all_reduce(ones(4))),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_are_named(cluster4: dt.Cluster, case: str) -> None:
    most, odd = CASES[case]
    pids = cluster4.pids

    def work(ctx: Any, most: Any, odd: Any) -> None:
        ctx.comm.barrier()
        (odd if ctx.rank == 2 else most)(ctx.comm)
        ctx.comm.barrier()

    with pytest.raises(RankError) as caught:
        cluster4.run(work, most, odd, timeout=20)
    error = caught.value
    assert isinstance(error.__cause__, MessageMismatch)
    assert "rank 2" in error.cause
    others = {f"rank {r}" for r in (0, 1, 3)}
    assert any(other in error.cause for other in others), error.cause
    # The same processes go on, and nothing of the failed call is left in their connections.
    assert cluster4.pids == pids
    assert cluster4.run(lambda ctx: ctx.comm.all_reduce(torch.ones(3))[0].item()) == [4.0] * 4


def test_in_a_subgroup_the_ranks_of_the_cluster_are_named(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        part = ctx.comm.split(ctx.rank // 2)
        part.all_reduce(torch.ones(4 if ctx.rank != 3 else 5))

    with pytest.raises(RankError, match=r"rank 2.*rank 3|rank 3.*rank 2"):
        cluster4.run(work, timeout=20)


def test_a_rank_may_catch_the_mismatch(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> str:
        try:
            ctx.comm.all_reduce(torch.ones(3 + ctx.rank))
        except MessageMismatch as error:
            return str(error)
        return ""

    from dtoolkit.errors import MessageMismatch

    assert all("rank 0" in text and "rank 1" in text for text in cluster2.run(work))
