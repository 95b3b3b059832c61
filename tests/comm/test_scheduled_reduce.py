"""Schedules executed on real workers: the plain sum, in any order, and the bytes that were said."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.comm import Network, Schedule, all_reduce_scheduled, grid_groups, schedule
from dtoolkit.errors import MessageMismatch, RankError
from tests.comm.reference import DTYPES, tensor

GRIDS = [
    ("ring", 2, 200e9, 0.0),
    ("switch", 2, 100e9, 0.0),
    ("fc", 2, 50e9, 0.0),
]
SIZES = (0, 1, 7, 1001)


def network_of(workers: int) -> Network:
    return Network.dims(GRIDS[: {4: 2, 8: 3}[workers]])


def random_orders(chunks: int, dimensions: int, seed: int) -> list[tuple[int, ...]]:
    draw = random.Random(seed)
    return [tuple(draw.sample(range(dimensions), dimensions)) for _ in range(chunks)]


@pytest.fixture(params=[4, 8], ids=["2 x 2", "2 x 2 x 2"])
def cluster(request: pytest.FixtureRequest, cluster_of: Callable[[int], dt.Cluster]) -> dt.Cluster:
    return cluster_of(request.param)


def test_equals_the_plain_sum(cluster: dt.Cluster) -> None:
    """Tiny sizes and ones that do not divide; integers in every order, the dtypes by turns."""
    workers = len(cluster.nodes)
    network = network_of(workers)
    dimensions = len(network.dimensions)
    plans: list[Any] = [schedule(network, p, chunks=5) for p in ("baseline", "themis")]
    plans += [random_orders(chunks, dimensions, chunks) for chunks in (1, 3, 7)]

    def work(ctx: Any, plans: Any, dtypes: Any, sizes: Any) -> list[str]:
        groups = grid_groups(ctx, network)
        wrong = []
        for dtype in dtypes:
            for size in sizes:
                terms = [make(r, size, dtype) for r in range(ctx.size)]
                own, kept = terms[ctx.rank], terms[ctx.rank].clone()
                turn = dtypes.index(dtype) + sizes.index(size)
                for plan in plans if dtype == torch.int64 else [plans[turn % len(plans)]]:
                    got = all_reduce_scheduled(ctx, own, network, plan, groups=groups)
                    want = ctx.comm.all_reduce(own)  # small whole numbers: exact in every dtype
                    same = torch.equal(got, want)
                    if not same or got.dtype != dtype or got.shape != own.shape:
                        wrong.append(f"{dtype} {size} {plan}: {got} for {want}")
                    if not torch.equal(own, kept):
                        wrong.append(f"{dtype} {size} {plan}: the input was changed")
        return wrong

    make = tensor
    for wrong in cluster.run(work, plans, DTYPES, SIZES):
        assert not wrong, wrong[:3]


def summed(terms: Sequence[Any], plan: Schedule) -> Any:
    """The stated order of summation: dimension by dimension, by coordinate within each."""
    strides = np.cumprod([1, *plan.shape])
    out = []
    for chunk, order in enumerate(plan.orders):
        partial = [np.array_split(t, plan.chunks)[chunk] for t in terms]
        for k in order:
            together = []
            for rank in range(len(terms)):
                place = rank // strides[k] % plan.shape[k]
                line = [rank + (i - place) * strides[k] for i in range(plan.shape[k])]
                total = partial[line[0]].copy()
                for other in line[1:]:
                    total += partial[other]
                together.append(total)
            partial = together
        assert all(np.array_equal(p, partial[0]) for p in partial)
        out.append(partial[0])
    return np.concatenate(out)


def test_terms_are_added_in_the_stated_order(cluster: dt.Cluster) -> None:
    workers = len(cluster.nodes)
    network = network_of(workers)
    plan = Schedule(
        network.dimensions, tuple(random_orders(4, len(network.dimensions), seed=workers))
    )
    terms = [
        np.random.default_rng(r).standard_normal(1003).astype(np.float32) for r in range(workers)
    ]

    def work(ctx: Any) -> Any:
        own = torch.from_numpy(terms[ctx.rank])
        return [
            all_reduce_scheduled(ctx, own, network, plan, order=order).numpy()
            for order in ("fifo", "scf", "fifo")
        ]

    want = summed(terms, plan)
    for results in cluster.run(work):
        for got in results:
            np.testing.assert_array_equal(got, want)


def test_bytes_traced_are_those_that_the_schedule_says(cluster: dt.Cluster) -> None:
    workers = len(cluster.nodes)
    network = network_of(workers)
    for seed, elements in enumerate((1 << 16, 4099, 3)):
        plan = Schedule(network.dimensions, tuple(random_orders(6, len(network.dimensions), seed)))

        def work(ctx: Any, elements: int, plan: Schedule) -> None:
            all_reduce_scheduled(ctx, torch.ones(elements, dtype=torch.float64), network, plan)

        cluster.run(work, elements, plan)
        launch = max(event.launch for event in cluster.trace)
        said = plan.bytes_sent(elements, 8)
        for k in range(len(network.dimensions)):
            phases = [f"scheduled/reduce_scatter {k}", f"scheduled/all_gather {k}"]
            matrix = cluster.trace.matrix(phase=phases, launch=launch)
            np.testing.assert_array_equal(matrix.sum(axis=1), said[:, k])
            # Nothing leaves the dimension: peers differ in this coordinate alone.
            source, target = np.nonzero(matrix)
            assert set((source ^ target).tolist()) <= {1 << k}
        assert said.sum() == 2 * 8 * elements * (workers - 1)


def test_uneven_grids_and_dimensions_of_one_rank(cluster_of: Callable[[int], dt.Cluster]) -> None:
    def work(ctx: Any, shape: Any, orders: Any) -> bool:
        own = torch.arange(29, dtype=torch.int64).reshape(29, 1) * (ctx.rank + 1)
        got = all_reduce_scheduled(ctx, own, shape, orders)
        return torch.equal(got, ctx.comm.all_reduce(own))

    for workers, shape in ((3, (3,)), (3, (1, 3, 1)), (4, (4, 1)), (1, (1, 1)), (2, (1, 2))):
        orders = random_orders(3, len(shape), seed=workers)
        assert all(cluster_of(workers).run(work, shape, orders)), shape
        assert all(cluster_of(workers).run(work, shape, "themis")), shape


def test_reductions(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> list[bool]:
        own = torch.tensor([1.5, -2.0, 3.0, 0.5, 9.0]) * (ctx.rank + 1)
        return [
            torch.equal(
                all_reduce_scheduled(ctx, own, (2, 2), "themis", chunks=2, op=op),
                ctx.comm.all_reduce(own, op),
            )
            for op in ("sum", "mean", "prod", "min", "max")
        ]

    assert all(all(lines) for lines in cluster4.run(work))


def test_on_a_subgroup_views_and_gradients(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> bool:
        half = ctx.comm.split(ctx.rank % 2)
        own = (torch.arange(24.0).reshape(4, 6).t() * (ctx.rank + 1)).requires_grad_()
        got = all_reduce_scheduled(half, own, (2,), "baseline", chunks=3)
        want = half.all_reduce(own)
        scalar = all_reduce_scheduled(half, torch.tensor(ctx.rank), (2,), chunks=3)
        return torch.equal(got, want) and not got.requires_grad and scalar.shape == ()

    assert all(cluster4.run(work))


@dataclass(frozen=True)
class ByRank:
    """A policy that does what it must not: it gives every rank another schedule."""

    rank: int
    name: str = "by rank"

    def orders(self, dimensions: Any, chunks: int, operation: str) -> Any:
        turn = [(0, 1), (1, 0)]
        return [turn[self.rank % 2]] * chunks


def test_ranks_that_differ_are_told_before_anything_is_sent(cluster4: dt.Cluster) -> None:
    def schedules(ctx: Any) -> None:
        all_reduce_scheduled(ctx, torch.ones(8), (2, 2), ByRank(ctx.rank))

    def shapes(ctx: Any) -> None:
        all_reduce_scheduled(ctx, torch.ones(8 + ctx.rank), (2, 2))

    def order(ctx: Any) -> None:
        all_reduce_scheduled(ctx, torch.ones(8), (2, 2), order="scf" if ctx.rank else "fifo")

    for work in (schedules, shapes, order):
        with pytest.raises(RankError, match="differ in the tensor's shape or dtype, the schedule"):
            cluster4.run(work)
    assert issubclass(MessageMismatch, ValueError)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (((2, 3),), {}, r"network has 6 ranks \(\(2, 3\)\), ctx has 4"),
        (("2x2",), {}, "network must be a Network or the ranks in each dimension"),
        ((4,), {}, "network must be a Network or the ranks in each dimension"),
        (((2, 2), [(0, 0)]), {}, "order of chunk 0"),
        (((2, 2), "ideal"), {}, "policy must be one of"),
        (((2, 2),), {"order": "lifo"}, "order must be 'fifo'"),
        (((2, 2),), {"op": "xor"}, "op must be one of sum"),
        (((2, 2),), {"chunks": 0}, "chunks must be"),
        (((2, 2),), {"groups": (None, None)}, "groups are of ranks"),
    ],
)
def test_errors_in_words(cluster4: dt.Cluster, arguments: Any, options: Any, words: str) -> None:
    def work(ctx: Any) -> str:
        try:
            all_reduce_scheduled(ctx, torch.ones(8), *arguments, **options)
        except ValueError as error:
            return str(error)
        return "nothing was raised"

    for said in cluster4.run(work):
        assert re.search(words, said), said


def test_groups_of_another_grid_are_refused(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> str:
        across, down = grid_groups(ctx, (2, 2))
        try:
            all_reduce_scheduled(ctx, torch.ones(8), (2, 2), groups=(down, across))
        except ValueError as error:
            return str(error)
        return "nothing was raised"

    for said in cluster4.run(work):
        assert "make them with grid_groups" in said


def test_a_schedule_for_another_operation_or_grid_is_refused() -> None:
    plan = schedule(Network.dims(GRIDS[:2]), operation="reduce_scatter")
    whole = schedule(Network.dims(GRIDS))
    from dtoolkit.comm.grid_reduce import _plan

    with pytest.raises(ValueError, match="schedule is for reduce_scatter, wanted one for all"):
        _plan((2, 2), plan, 64)
    with pytest.raises(
        ValueError, match=r"schedule is for \(2, 2, 2\) ranks, network has \(2, 2\)"
    ):
        _plan((2, 2), whole, 64)
    with pytest.raises(ValueError, match="ctx must be a Context or a Communicator, got int"):
        all_reduce_scheduled(3, torch.ones(1), (1,))
