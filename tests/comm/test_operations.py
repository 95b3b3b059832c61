"""Every operation against NumPy, over dtypes, sizes around the inline limit, and group sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dtoolkit as dt
from tests.comm.reference import DTYPES, SIZES, ops_of, reduced, tensor

GROUPS = [1, 2, 3, 4]


@pytest.fixture(params=GROUPS, ids=[f"{n} ranks" for n in GROUPS])
def cluster(request: pytest.FixtureRequest, cluster_of: Callable[[int], dt.Cluster]) -> dt.Cluster:
    return cluster_of(request.param)


def everywhere(cluster: dt.Cluster, work: Callable[..., Any], *args: Any) -> None:
    """Run on every rank; `work` returns the words of what is wrong."""
    wrong = [line for lines in cluster.run(work, *args) for line in lines]
    assert not wrong, wrong[:5]


def check_all(ctx: Any, make: Any, sizes: Any, dtypes: Any, ops: Any, reference: Any) -> list[str]:
    comm, P, me = ctx.comm, ctx.size, ctx.rank
    wrong: list[str] = []

    def same(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
        if got.dtype != want.dtype or got.shape != want.shape or not torch.equal(got, want):
            wrong.append(f"rank {me} {what}: {got.dtype}{tuple(got.shape)} {got} for {want}")
        if not got.is_contiguous():
            wrong.append(f"rank {me} {what}: not contiguous")

    for dtype in dtypes:
        for size in sizes:
            what = f"{dtype} {size}"
            all_of = [make(r, size, dtype) for r in range(P)]
            own = all_of[me]
            keep = own.clone()
            same(f"all_gather {what}", comm.all_gather(own), torch.stack(all_of))
            uneven = [make(r, size + r, dtype) for r in range(P)]
            for got, want in zip(comm.all_gather_v(uneven[me]), uneven, strict=True):
                same(f"all_gather_v {what}", got, want)
            for op in ops(dtype):
                want = reference(all_of, op)
                same(f"all_reduce {op} {what}", comm.all_reduce(own, op), want)
                share = torch.tensor_split(want, P)[me]
                same(f"reduce_scatter {op} {what}", comm.reduce_scatter(own, op), share)
            sends = [make(me, size + p, dtype, salt=p) for p in range(P)]
            for source, got in enumerate(comm.all_to_all(sends)):
                same(f"all_to_all {what}", got, make(source, size + me, dtype, salt=me))
            counts = [(me + p) % 3 * size for p in range(P)]
            back = [(p + me) % 3 * size for p in range(P)]
            rows = torch.cat([make(me, n, dtype, salt=p) for p, n in enumerate(counts)])
            rows = torch.stack([rows, rows], dim=1)
            want = torch.cat([make(p, n, dtype, salt=me) for p, n in enumerate(back)])
            want = torch.stack([want, want], dim=1)
            same(f"all_to_all_v {what}", comm.all_to_all_v(rows, counts), want)
            same(f"all_to_all_v known {what}", comm.all_to_all_v(rows, counts, back), want)
            out = torch.full_like(want, 1)
            comm.all_to_all_v(rows, counts, back, out=out)
            same(f"all_to_all_v out {what}", out, want)
            out = torch.full_like(want, 1)
            upright = rows.T.contiguous().T  # what leaves in one piece may lie in any order here
            call = comm.all_to_all_v(upright, counts, back, out=out, agreed=True, wait=False)
            comm.barrier()
            same(f"all_to_all_v agreed {what}", call.wait(), want)
            for root in range(P):
                value = all_of[root]
                got = comm.broadcast(value if me == root else None, root)
                same(f"broadcast {what}", got, value)
                parts = [make(root, size + p, dtype, salt=p) for p in range(P)]
                got = comm.scatter(parts if me == root else None, root)
                same(f"scatter {what}", got, parts[me])
                gathered = comm.gather(uneven[me], root)
                if me != root and gathered is not None:
                    wrong.append("gather gave something to another rank")
                for got, want in zip(gathered or [], uneven, strict=False):
                    same(f"gather {what}", got, want)
            if P > 1:
                right, left = (me + 1) % P, (me - 1) % P
                sending = comm.send(own, right, tag=size, wait=False)
                got, source = comm.recv(left, tag=size)
                sending.wait()
                same(f"send/recv {what}", got, all_of[left])
                if source != left:
                    wrong.append(f"recv from {source}, not {left}")
            comm.barrier()
            same("the input", own, keep)
    return wrong


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_operation_equals_numpy(cluster: dt.Cluster, dtype: torch.dtype) -> None:
    everywhere(cluster, check_all, tensor, SIZES, [dtype], ops_of, reduced)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex128], ids=str)
def test_large_tensors(cluster4: dt.Cluster, dtype: torch.dtype) -> None:
    everywhere(cluster4, check_all, tensor, [100_003], [dtype], lambda _: ["sum"], reduced)


def test_inputs_of_every_layout(cluster: dt.Cluster) -> None:
    def work(ctx: Any) -> list[str]:
        wrong = []
        base = torch.arange(60, dtype=torch.float32).reshape(5, 12) + 100 * ctx.rank
        complex_base = torch.complex(base, base + 1)
        cases = {
            "transposed": base.T,
            "strided": base[::2, ::3],
            "expanded": base[:, :1].expand(5, 7),
            "expanded scalar": base[0, 0].expand(4),
            "conjugate view": complex_base.conj(),
            "negative view": complex_base.conj().imag,
            "imaginary view": complex_base.imag,
            "needs a gradient": base.clone().requires_grad_(),
            "0-dimensional": base[2, 3],
            "no rows": base[:0],
            "no columns": base[:, :0],
            "five dimensions": base.reshape(1, 5, 2, 3, 2).permute(4, 0, 2, 1, 3),
            "channels last": base.reshape(1, 5, 3, 4).to(memory_format=torch.channels_last),
        }
        for name, value in cases.items():
            plain = value.detach().resolve_conj().resolve_neg().contiguous()
            gathered = ctx.comm.all_gather(value)
            if gathered.shape != (ctx.size, *value.shape):
                wrong.append(f"{name}: shape {gathered.shape}")
            if not torch.equal(gathered[ctx.rank], plain):
                wrong.append(f"{name}: own part of all_gather")
            total = ctx.comm.all_reduce(value)
            want = torch.stack(list(gathered)).sum(0)
            if not torch.equal(total, want) or total.shape != value.shape:
                wrong.append(f"{name}: all_reduce")
            if total.requires_grad or total.is_conj() or total.is_neg():
                wrong.append(f"{name}: the result is a lazy view or has a graph")
            received = ctx.comm.all_to_all([value] * ctx.size)
            if not all(torch.equal(r, g) for r, g in zip(received, gathered, strict=True)):
                wrong.append(f"{name}: all_to_all")
            if value.dim():
                part = ctx.comm.reduce_scatter(value)
                if not torch.equal(part, torch.tensor_split(want, ctx.size)[ctx.rank]):
                    wrong.append(f"{name}: reduce_scatter")
                own = ctx.comm.all_to_all_v(value, [value.shape[0]] + [0] * (ctx.size - 1))
                if ctx.rank == 0 and not torch.equal(own, torch.cat(list(gathered))):
                    wrong.append(f"{name}: all_to_all_v")
        return wrong

    everywhere(cluster, work)


def test_results_are_new_tensors(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> list[str]:
        own = torch.arange(10.0) + ctx.rank
        results = {
            "all_reduce": ctx.comm.all_reduce(own),
            "all_gather": ctx.comm.all_gather(own),
            "all_gather_v": ctx.comm.all_gather_v(own)[ctx.rank],
            "all_to_all": ctx.comm.all_to_all([own, own])[ctx.rank],
            "broadcast": ctx.comm.broadcast(own, 0),
            "reduce_scatter": ctx.comm.reduce_scatter(own),
        }
        for value in results.values():
            value.fill_(-1)
        return [] if torch.equal(own, torch.arange(10.0) + ctx.rank) else ["the input changed"]

    everywhere(cluster2, work)


def test_out_is_filled_in_place(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> list[str]:
        sends = [torch.full((p + 1, 50), float(ctx.rank)) for p in range(ctx.size)]
        out = [torch.full((ctx.rank + 1, 50), torch.nan) for _ in range(ctx.size)]
        got = ctx.comm.all_to_all(sends, out=out)
        right = all(torch.equal(t, torch.full_like(t, p)) for p, t in enumerate(out))
        shared = all(a.data_ptr() == b.data_ptr() for a, b in zip(got, out, strict=True))
        return [] if right and shared else [f"{out}"]

    everywhere(cluster4, work)


def test_sums_repeat_bit_for_bit_and_follow_the_order_of_ranks(cluster4: dt.Cluster) -> None:
    def work(ctx: Any, dtype: torch.dtype) -> Any:
        import time

        own = torch.randn(5_000, generator=torch.Generator().manual_seed(ctx.rank)).to(dtype)
        results = []
        for turn in range(5):
            time.sleep(0.004 * ((ctx.rank + turn) % 4))
            results.append(ctx.comm.all_reduce(own))
            results.append(ctx.comm.reduce_scatter(own))
        return own, results

    for dtype in (torch.float32, torch.float64):
        answers = cluster4.run(work, dtype)
        ordered = answers[0][0].clone()
        for own, _ in answers[1:]:
            ordered += own
        for rank, (_, results) in enumerate(answers):
            for total in results[::2]:
                assert torch.equal(total, ordered)
            for share in results[1::2]:
                assert torch.equal(share, torch.tensor_split(ordered, 4)[rank])


def test_half_precision_is_summed_in_float32_and_rounded_once(cluster4: dt.Cluster) -> None:
    def work(ctx: Any, dtype: torch.dtype) -> torch.Tensor:
        return ctx.comm.all_reduce(torch.tensor([[256.0, 1.0, 1.0, 1.0][ctx.rank]], dtype=dtype))

    # One after the other, 256 + 1 in bfloat16 is 256 each time; summed first, it is 259 -> 260.
    assert cluster4.run(work, torch.bfloat16)[0].item() == 260.0


def test_not_a_number_goes_through(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> list[torch.Tensor]:
        own = torch.tensor([torch.nan, 1.0, torch.inf]) if ctx.rank else torch.ones(3)
        return [ctx.comm.all_reduce(own, op) for op in ("sum", "min", "max", "prod")]

    for result in cluster2.run(work):
        for value in result:
            assert torch.isnan(value[0])
    assert result[0][2] == torch.inf


def test_more_than_one_message_slice(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> bool:
        from dtoolkit.comm import transport

        whole, transport._SLICE = transport._SLICE, 1000
        try:
            own = torch.arange(12_345, dtype=torch.int16) + ctx.rank
            got = ctx.comm.all_gather(own)
            other = 1 - ctx.rank
            sending = ctx.comm.send(own, other, wait=False)
            tensor, _ = ctx.comm.recv(other)
            sending.wait()
            return torch.equal(got[other], tensor) and torch.equal(
                got, torch.stack([own - ctx.rank, own - ctx.rank + 1])
            )
        finally:
            transport._SLICE = whole

    assert cluster2.run(work) == [True, True]
