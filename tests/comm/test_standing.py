"""Operations that are prepared once: the bits and bytes of the calls that they stand for."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from dtoolkit.comm.standing import StandingGather, StandingSum, StandingSwap

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]


def sums(ctx: Any) -> list[str]:
    comm, wrong = ctx.comm, []
    for dtype in DTYPES:
        for size in (0, 1, 3, 1000):
            generator = torch.Generator().manual_seed(size + 7 * ctx.rank)
            tensor = torch.empty(size, dtype=dtype)
            standing = StandingSum(comm, tensor)
            other = StandingGather(comm, tensor)
            for turn in range(3):
                fresh = torch.randn(size, generator=generator) * 100
                tensor.copy_(fresh)
                mine = tensor.clone()
                want = comm.all_reduce(mine)
                gathered = other.start()
                rows = comm.all_gather(mine)  # other calls may come between
                gathered.wait()
                if not torch.equal(other.whole, rows):
                    wrong.append(f"gather {dtype} {size} turn {turn}: {other.whole} for {rows}")
                other.whole.zero_()
                other.run()
                if not torch.equal(other.whole, rows):
                    wrong.append(f"run {dtype} {size} turn {turn}: {other.whole} for {rows}")
                sent = ctx.recorder.sent
                call = standing.start()
                comm.barrier()
                call.wait()
                sent = ctx.recorder.sent - sent
                comm.all_reduce(mine)
                if not torch.equal(tensor, want):
                    wrong.append(f"{dtype} {size} turn {turn}: {tensor} for {want}")
                own = len(torch.tensor_split(mine, comm.size)[comm.rank])
                bytes_ = (size - own + (comm.size - 1) * own) * tensor.element_size()
                if sent != bytes_:
                    wrong.append(f"{dtype} {size}: {sent} bytes for {bytes_}")
    return wrong


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_bits_and_bytes(cluster_of: Any, ranks: int) -> None:
    assert not [line for lines in cluster_of(ranks).run(sums) for line in lines]


def with_more(ctx: Any) -> list[str]:
    """Of two ranks: what lies behind the tensor travels with its sum."""
    wrong = []
    for dtype in DTYPES:
        message = torch.zeros(7 * 16 + 5, dtype=torch.uint8)
        tensor = message[: 7 * dtype.itemsize].view(dtype)
        standing = StandingSum(ctx.comm, tensor, message=message)
        for turn in range(3):
            tensor.copy_(torch.arange(7) + ctx.rank + turn)
            message[-5:] = 10 * ctx.rank + turn
            want, sent = ctx.comm.all_reduce(tensor), ctx.recorder.sent
            standing.start().wait()
            if not torch.equal(tensor, want):
                wrong.append(f"{dtype}: {tensor} for {want}")
            if standing.came[-5:].tolist() != [10 * (1 - ctx.rank) + turn] * 5:
                wrong.append(f"{dtype}: {standing.came[-5:]} came")
            if ctx.recorder.sent - sent != len(message):
                wrong.append(f"{dtype}: {ctx.recorder.sent - sent} bytes")
    return wrong


def test_of_two_ranks_more_can_travel(cluster2: Any, cluster1: Any) -> None:
    assert cluster2.run(with_more) == [[], []]
    with pytest.raises(Exception, match="sums of 2 ranks"):
        cluster1.run(with_more)


def several(ctx: Any) -> bool:
    tensors = [torch.full((100_000,), float(ctx.rank + n)) for n in range(6)]
    standing = [StandingSum(ctx.comm, tensor) for tensor in tensors]
    calls = [one.start() for one in standing]
    for call in reversed(calls):
        call.wait()
    P = ctx.size
    return all(bool((t == n * P + P * (P - 1) / 2).all()) for n, t in enumerate(tensors))


def test_many_at_a_time(cluster4: Any) -> None:
    assert all(cluster4.run(several))


def unequal(ctx: Any) -> None:
    StandingSum(ctx.comm, torch.zeros(3 + ctx.rank))


def upright(ctx: Any) -> None:
    StandingGather(ctx.comm, torch.zeros(3, 2).T)


def test_refusals(cluster2: Any) -> None:
    with pytest.raises(Exception, match=r"elements of torch\.float32 and rank \d has \d"):
        cluster2.run(unequal)
    with pytest.raises(Exception, match="tensor must be contiguous"):
        cluster2.run(upright)


def swaps(ctx: Any, in_order: bool) -> list[str]:
    """On a ring of which one link after the other is left out; where exchanges take all, too."""
    comm, wrong = ctx.comm, []
    comm._transport.in_order = in_order
    after = [(rank, (rank + 1) % comm.size) for rank in range(comm.size)]
    for dtype in DTYPES:
        for size in (0, 1, 1000):
            swap = StandingSwap(comm, torch.empty(size, dtype=dtype))
            for turn in range(4):
                pairs = [pair for number, pair in enumerate(after) if number != turn]
                peers = sorted({sum(p) - comm.rank for p in pairs if comm.rank in p} - {comm.rank})
                sent = ctx.recorder.sent
                came = swap.run(torch.full((size,), comm.rank + 2 * turn).to(dtype), peers)
                if ctx.recorder.sent - sent != len(peers) * size * dtype.itemsize:
                    wrong.append(f"{dtype} {size}: {ctx.recorder.sent - sent} bytes")
                for peer in peers:
                    if not torch.equal(came[peer], torch.full((size,), peer + 2 * turn).to(dtype)):
                        wrong.append(f"{dtype} {size} turn {turn} from {peer}: {came[peer]}")
    comm._transport.in_order = False
    return wrong


@pytest.mark.parametrize(("ranks", "in_order"), [(1, False), (2, True), (3, False), (4, False)])
def test_swaps(cluster_of: Any, ranks: int, in_order: bool) -> None:
    assert not [line for lines in cluster_of(ranks).run(swaps, in_order) for line in lines]


def waits(ctx: Any) -> float:
    swap = StandingSwap(ctx.comm, torch.zeros(1))
    ctx.comm.barrier()
    if ctx.rank == 1:
        time.sleep(0.2)
    swap.run(torch.zeros(1), [1 - ctx.rank])
    return swap.idle


def test_who_waits_for_a_swap_is_idle(cluster2: Any) -> None:
    early, late = cluster2.run(waits)
    assert early > 0.1
    assert late == 0.0
