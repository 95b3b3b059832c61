"""Operations that are prepared once: the bits and bytes of the calls that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtoolkit.comm.standing import StandingGather, StandingSum

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
