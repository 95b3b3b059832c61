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


def test_a_twin_serves_another_thread(cluster4: dt.Cluster) -> None:
    """Each rank talks on both at once: sums in its thread, messages in another, phases apart."""

    def work(ctx: Any) -> Any:
        import threading

        twin, got = ctx.comm.twin(), []

        def serve() -> None:
            with twin.phase("serve"):
                for _ in range(30 * (twin.size - 1)):
                    tensor, source = twin.recv()
                    twin.send(tensor + source, source)

        server = threading.Thread(target=serve)
        if twin.rank == 0:
            server.start()
        for n in range(30):
            with ctx.comm.phase("sum"):
                got.append(ctx.comm.all_reduce(torch.ones(500) * n)[-1].item() == 4 * n)
            if twin.rank != 0:
                twin.send(torch.ones(n * n), 0)
                answer, _ = twin.recv(0)
                got.append(torch.equal(answer, torch.ones(n * n) + twin.rank))
        if twin.rank == 0:
            server.join()
        return all(got), twin.name != "", twin.ranks

    cluster4.trace.clear()
    assert cluster4.run(work) == [(True, True, (0, 1, 2, 3))] * 4
    phases = {(e.operation, e.phase) for e in cluster4.trace if e.rank == 0 and e.phase}
    assert phases == {("recv", "serve"), ("send", "serve"), ("all_reduce", "sum")}


def test_what_a_twin_has_not_waited_for_does_not_hold_the_launch(cluster2: dt.Cluster) -> None:
    """And a thread that waits for what never comes ends with the launch."""

    def work(ctx: Any) -> None:
        import threading

        twin = ctx.comm.twin()

        def listen() -> None:
            twin.recv(tag=7, wait=False).wait()

        thread = threading.Thread(target=listen, name="left-behind", daemon=True)
        threading.excepthook = lambda _: None
        thread.start()

    def left(ctx: Any) -> int:
        import threading
        import time

        def there() -> int:
            return sum(t.name == "left-behind" for t in threading.enumerate())

        end = time.monotonic() + 2
        while there() and time.monotonic() < end:
            time.sleep(0.02)
        threading.excepthook = threading.__excepthook__
        return there()

    cluster2.run(work, timeout=20)
    assert cluster2.run(left) == [0, 0]
