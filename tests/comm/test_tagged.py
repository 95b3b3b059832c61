"""Messages from one rank to another: any source, tags, out of order."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import RankError


def test_any_source_takes_everyone_once(cluster4: dt.Cluster) -> None:
    def work(ctx: Any, size: int) -> list[tuple[int, bool]]:
        if ctx.rank:
            ctx.comm.send(torch.full((size,), ctx.rank), 0, tag=7)
            return []
        got = [ctx.comm.recv(tag=7) for _ in range(ctx.size - 1)]
        return sorted((source, bool((t == source).all())) for t, source in got)

    for size in (1, 16, 17, 100_000):
        assert cluster4.run(work, size)[0] == [(1, True), (2, True), (3, True)]


def test_tags_out_of_order(cluster2: dt.Cluster) -> None:
    def work(ctx: Any, size: int) -> list[int]:
        if ctx.rank == 0:
            sending = [
                ctx.comm.send(torch.full((size,), tag), 1, tag=tag, wait=False) for tag in range(4)
            ]
            for one in sending:
                one.wait()
            return []
        return [int(ctx.comm.recv(0, tag=tag)[0][0]) for tag in (2, 0, 3, 1)]

    for size in (1, 50_000):
        assert cluster2.run(work, size)[1] == [2, 0, 3, 1]


def test_messages_of_one_tag_stay_in_order_whoever_is_awaited_first(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> list[int]:
        sizes = [1, 50_000, 2, 40_000, 30_000, 3]
        if ctx.rank == 0:
            for n, size in enumerate(sizes):
                ctx.comm.send(torch.full((size,), n), 1)
            return []
        coming = [ctx.comm.recv(0, wait=False) for _ in sizes]
        for one in reversed(coming):
            one.wait()
        return [int(one.wait()[0][-1]) for one in coming]

    assert cluster2.run(work, timeout=20)[1] == list(range(6))


def test_shape_dtype_and_largest_tag_travel(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        other, tag = 1 - ctx.rank, 2**20 - 1
        value = torch.arange(24).reshape(2, 3, 4).to(torch.bfloat16)[:, 1:]
        sending = ctx.comm.send(value, other, tag, wait=False)
        got, source = ctx.comm.recv(other, tag)
        sending.wait()
        return torch.equal(got, value), got.dtype == value.dtype, source == other

    assert cluster2.run(work) == [(True, True, True)] * 2


def test_in_a_subgroup_ranks_are_its_own(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> int:
        part = ctx.comm.split(ctx.rank % 2)
        if part.rank == 0:
            part.send(torch.tensor([ctx.rank]), 1)
            return -1
        tensor, source = part.recv()
        assert source == 0
        return int(tensor)

    assert cluster4.run(work) == [-1, -1, 0, 1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda comm: comm.send(torch.ones(1), 0), "target 0 is this rank itself"),
        (lambda comm: comm.send(torch.ones(1), 5), "target is 5, ranks are 0 to 1"),
        (lambda comm: comm.send(torch.ones(1), 1, tag=-1), "tag must be 0 to"),
        (lambda comm: comm.send(torch.ones(1), 1, tag=2**20), "tag must be 0 to"),
        (lambda comm: comm.send(torch.ones([1] * 9), 1), "at most 8 dimensions"),
        (lambda comm: comm.recv(0), "source 0 is this rank itself"),
        (lambda comm: comm.recv(-1), "source is -1"),
        (lambda comm: comm.all_reduce(torch.ones(1), "median"), "op must be one of"),
        (lambda comm: comm.all_reduce(torch.ones(1, dtype=int), "mean"), "floating-point"),
        (lambda comm: comm.all_reduce(torch.ones(1) * 1j, "max"), "no meaning for complex"),
        (lambda comm: comm.all_gather(torch.ones(1).to(torch.float8_e4m3fn)), "does not travel"),
        (lambda comm: comm.all_gather(torch.ones([1] * 9)), "at most 8 dimensions"),
        (lambda comm: comm.reduce_scatter(torch.ones(())), "no rows to share out"),
        (lambda comm: comm.all_to_all([torch.ones(1)]), "got 1 tensors for 2 ranks"),
        (lambda comm: comm.all_to_all([torch.ones(1), torch.ones(1).int()]), "one dtype a call"),
        (
            lambda comm: comm.all_to_all([torch.ones(2)] * 2, out=[torch.ones(2).double()] * 2),
            "out\\[0\\] must be contiguous and torch.float32",
        ),
        (
            lambda comm: comm.all_to_all([torch.ones(2)] * 2, out=[torch.ones(4)[::2]] * 2),
            "not contiguous",
        ),
        (lambda comm: comm.all_to_all_v(torch.ones(3, 2), [1, 1]), "do not share out 3 rows"),
        (lambda comm: comm.all_to_all_v(torch.ones(()), [1, 1]), "no rows"),
        (lambda comm: comm.all_to_all_v(torch.ones(2), [1, 1], [2]), "are not 2 counts"),
        (
            lambda comm: comm.all_to_all_v(torch.ones(2), [1, 1], [1, 1], out=torch.ones(3)),
            "it must be \\(2,\\)",
        ),
        (
            lambda comm: comm.all_to_all_v(torch.ones(2), [1, 1], [1, 1], agreed=True),
            "agreed=True needs out=",
        ),
        (lambda comm: comm.broadcast(None, 0), "the root \\(rank 0\\) passed no tensor"),
        (lambda comm: comm.broadcast(torch.ones(1), 2), "root is 2"),
        (lambda comm: comm.scatter([torch.ones(1)], 0), "needs 2 tensors, got 1"),
        (lambda comm: comm.split(-3), "color must be 0 or more"),
        (lambda comm: comm.grid((3, 1)), "does not hold 2 ranks"),
    ],
)
def test_wrong_arguments_are_named(cluster2: dt.Cluster, call: Any, words: str) -> None:
    def work(ctx: Any, call: Any) -> None:
        if ctx.rank == 0:
            call(ctx.comm)
        else:
            ctx.comm.barrier()

    with pytest.raises(RankError, match=words) as caught:
        cluster2.run(work, call, timeout=20)
    assert caught.value.rank == 0
    assert isinstance(caught.value.__cause__, ValueError)


def test_alone_there_is_nobody_to_receive_from(cluster1: dt.Cluster) -> None:
    with pytest.raises(RankError, match="no other rank"):
        cluster1.run(lambda ctx: ctx.comm.recv())
