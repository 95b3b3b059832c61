"""Calls with wait=False: in any order, overlapping, left to the end of the launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.comm.pending import Interrupt, Pending, Staged


def test_waits_in_another_order_on_every_rank(cluster4: dt.Cluster) -> None:
    def work(ctx: Any, size: int) -> list[bool]:
        import random

        comm, P = ctx.comm, ctx.size
        own = [torch.full((size,), float(ctx.rank + 10 * n)) for n in range(8)]
        calls = [
            comm.all_reduce(own[0], wait=False),
            comm.all_gather(own[1], wait=False),
            comm.all_reduce(own[2], "max", wait=False),
            comm.all_to_all([own[3]] * P, wait=False),
            comm.reduce_scatter(own[4], wait=False),
            comm.broadcast(own[5] if ctx.rank == 1 else None, 1, wait=False),
            comm.barrier(wait=False),
            comm.all_reduce(own[7], wait=False),
        ]
        order = list(range(8))
        random.Random(ctx.rank).shuffle(order)
        result = {n: calls[n].wait() for n in order}
        again = {n: calls[n].wait() for n in order}
        total = float(sum(range(P)))
        return [
            bool((result[0] == total).all()),
            torch.equal(
                result[1][:, :1].flatten(), torch.arange(float(P)) + 10 if size else torch.empty(0)
            )
            or size == 0,
            bool((result[2] == P - 1 + 20).all()),
            all(bool((t == p + 30).all()) for p, t in enumerate(result[3])),
            bool((result[4] == total + 40 * P).all()),
            bool((result[5] == 51).all()),
            result[6] is None,
            bool((result[7] == total + 70 * P).all()),
            all(again[n] is result[n] for n in order),
            all(call.done() for call in calls),
        ]

    for size in (0, 1, 5, 40, 10_000):
        assert all(all(answers) for answers in cluster4.run(work, size)), size


def test_all_reduces_that_two_ranks_await_crosswise(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> list[float]:
        a = ctx.comm.all_reduce(torch.ones(1000), wait=False)
        b = ctx.comm.all_reduce(torch.ones(1000) * 2, wait=False)
        first, second = (a, b) if ctx.rank == 0 else (b, a)
        first.wait()
        second.wait()
        return [a.wait()[0].item(), b.wait()[-1].item()]

    assert cluster2.run(work, timeout=20) == [[2.0, 4.0]] * 2


def test_a_call_goes_on_while_its_rank_computes(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> bool:
        import time

        call = ctx.comm.all_reduce(torch.ones(10_000), wait=False)
        if ctx.rank == 0:
            return bool((call.wait() == 2).all())
        ctx_waits = time.perf_counter() + 0.5
        while not call.done() and time.perf_counter() < ctx_waits:
            time.sleep(0.005)
        return call.done()

    assert cluster2.run(work) == [True, True]


def test_what_nobody_waited_for_is_finished_at_the_end(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        ctx.comm.all_reduce(torch.ones(100_000), wait=False)
        half = ctx.comm.split(0)
        half.all_gather(torch.ones(50_000), wait=False)

    cluster2.trace.clear()
    cluster2.run(work)
    done = [event.operation for event in cluster2.trace]
    assert done.count("all_reduce") == 2
    assert done.count("all_gather") == 2


def test_results_are_let_go(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> int:
        import gc
        import weakref

        gc.collect()
        gc.disable()  # nothing may wait for the collector of cycles
        try:
            kept = []
            for wait in (True, False):
                call = ctx.comm.all_reduce(torch.ones(100_000), wait=wait)
                result = call if wait else call.wait()
                kept.append(weakref.ref(result.untyped_storage()))
                kept.append(weakref.ref(result))
                del call, result
            ctx.comm.barrier()
            ctx.comm.barrier(wait=False).wait()
            return sum(ref() is not None for ref in kept[1::2])
        finally:
            gc.enable()

    assert cluster2.run(work) == [0, 0]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("stages", [1, 2])
def test_what_comes_by_way_of_the_host_is_put_where_it_belongs_first(
    stages: int, background: bool
) -> None:
    """Tensors of a GPU are received in host memory: copied once, before anybody looks at them."""
    order: list[str] = []

    def message(name: str) -> Pending:
        pending = Pending(Interrupt(), lambda: order.append(f"{name} lands"))
        pending.complete()
        return pending

    def following() -> Pending:
        order.append("second starts")
        return message("second")

    call = Staged(
        message("first"),
        following if stages == 2 else None,
        lambda: order.append("result"),
        background=background,
    )
    call.wait()
    call.wait()
    rest = ["second starts", "second lands"] if stages == 2 else []
    assert order == ["first lands", *rest, "result"]


def test_what_fails_while_it_lands_is_raised_by_whoever_waits() -> None:
    def lands() -> None:
        raise RuntimeError("no room on the device")

    first = Pending(Interrupt(), lands)
    call = Staged(first, lambda: Pending(Interrupt()), lambda: None, background=True)
    first.complete()
    with pytest.raises(dt.errors.CommunicationError, match="no room"):
        call.wait()


def test_the_end_of_all_messages_is_told_whatever_the_order() -> None:
    """Asked before, between and after the stages, and where the first one failed."""
    for asked in range(3):
        first, second, told = Pending(Interrupt()), Pending(Interrupt()), []
        call = Staged(first, lambda second=second: second, lambda: "result", background=True)
        for moment, one in enumerate([first, second, None]):
            assert told == ([True] if moment == 2 and asked < 2 else [])
            if moment == asked:
                call.on_done(lambda told=told, call=call: told.append(call.done()))
            if one is not None:
                one.complete()
        assert told == [True]
        assert call.wait() == "result"
    first, told = Pending(Interrupt()), []
    call = Staged(first, lambda: first, lambda: None, background=True)
    call.on_done(lambda: told.append(True))
    first.complete(RuntimeError("cut"))
    assert told == [True]
