"""Subgroups: split, grid, one inside the other, in many launches on one group."""

from __future__ import annotations

from typing import Any

import torch

import dtoolkit as dt


def test_split_by_color_and_key(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        part = ctx.comm.split(ctx.rank % 2, key=-ctx.rank)
        gathered = part.all_gather(torch.tensor([ctx.rank])).flatten().tolist()
        return part.rank, part.size, part.ranks, gathered

    assert cluster4.run(work) == [
        (1, 2, (2, 0), [2, 0]),
        (1, 2, (3, 1), [3, 1]),
        (0, 2, (2, 0), [2, 0]),
        (0, 2, (3, 1), [3, 1]),
    ]


def test_no_color_no_part(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        part = ctx.comm.split(None if ctx.rank == 1 else 5)
        return None if part is None else part.all_reduce(torch.ones(2000))[-1].item()

    assert cluster4.run(work) == [3.0, None, 3.0, 3.0]


def test_grid_of_rows_and_columns(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        down, across = ctx.comm.grid((2, 2))
        return down.ranks, across.ranks, down.all_reduce(torch.tensor(ctx.rank)).item()

    assert cluster4.run(work) == [
        ((0, 2), (0, 1), 2),
        ((1, 3), (0, 1), 4),
        ((0, 2), (2, 3), 2),
        ((1, 3), (2, 3), 4),
    ]


def test_nested_and_repeated_over_launches(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> Any:
        half = ctx.comm.split(ctx.rank // 2)
        single = half.split(half.rank)
        both = half.split(0)
        whole = ctx.comm.split(1)
        return (
            single.all_reduce(torch.ones(1)).item(),
            both.all_reduce(torch.ones(1)).item(),
            whole.all_reduce(torch.ones(1)).item(),
            single.name != both.name,
        )

    for _ in range(4):  # the same names in the same store: none may be used twice
        assert cluster4.run(work) == [(1.0, 2.0, 4.0, True)] * 4


def test_subgroups_are_gone_after_their_launch(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        parts = [ctx.comm.split(ctx.rank % 2) for _ in range(5)]
        for part in parts:
            part.all_reduce(torch.ones(10_000))

    def look(ctx: Any) -> tuple[int, int]:
        import os
        import threading
        import time

        end = time.perf_counter() + 5
        while any(t.name == "dtoolkit-drop" for t in threading.enumerate()):
            if time.perf_counter() > end:
                raise AssertionError("a group is still being dropped")
            time.sleep(0.01)
        ctx.comm.barrier()
        return len(os.listdir("/dev/fd")), threading.active_count()

    cluster4.run(work)
    before = cluster4.run(look)
    for _ in range(5):
        cluster4.run(work)
    after = cluster4.run(look)
    for (fds, threads), (fds_then, threads_then) in zip(before, after, strict=True):
        assert fds_then <= fds + 4
        assert threads_then <= threads + 2


def test_groups_exchange_at_the_same_time(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> bool:
        down, across = ctx.comm.grid((2, 2))
        calls = []
        for n in range(10):
            own = torch.full((5_000,), float(ctx.rank + n))
            calls.append((down.all_reduce(own, wait=False), sum(r + n for r in down.ranks)))
            calls.append((across.all_reduce(own, wait=False), sum(r + n for r in across.ranks)))
        return all(bool((call.wait() == want).all()) for call, want in reversed(calls))

    assert cluster4.run(work) == [True] * 4
