"""Faults in real processes: in functions and in products; what is said, and what is left."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
import torch

import dtoolkit as dt
from dtoolkit.errors import PeerLost, RankError, WorkerLost
from dtoolkit.faults import (
    Corrupt,
    CutLink,
    Fault,
    Hang,
    Kill,
    OutOfMemory,
    Raise,
    SlowLink,
    inject,
)

STEPS = 6
RIGHT = [[4.0] * STEPS] * 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[dt.Cluster]:
    with dt.Cluster(workers=4, device="cpu", timeout=60) as four:
        yield four


def loop(ctx: Any) -> list[float]:
    """Steps with a gradient and a sum; what each sum was."""
    gradient = torch.ones(10)
    sums = []
    for step in range(STEPS):
        ctx.step(step, report=False)
        ctx.expose("gradients", lambda: {"weight": gradient})
        sums.append(ctx.comm.all_reduce(gradient)[0].item())
        time.sleep(0.02)
    return sums


def limits(ctx: Any) -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_AS)


KILLS = [
    (Kill(2, at_step=3), 3, ""),
    (Kill(0, at_step=2, where="backward"), 2, ""),  # its worker has the store
    (Kill(1, at_step=2, where="exchange"), 2, "all_reduce"),
    (Kill(3, at_operation=("all_reduce", 4)), 4, "all_reduce"),
    (Kill(1, after=0.0), None, ""),
    (OutOfMemory(2, at_step=1, kind="kill"), 1, ""),
]


@pytest.mark.parametrize(("fault", "step", "operation"), KILLS, ids=[str(k[0]) for k in KILLS])
def test_a_killed_rank_is_named_and_killed_once(cluster, fault: Fault, step, operation):
    with inject(cluster, fault) as injection:
        with pytest.raises(WorkerLost) as caught:
            cluster.run(loop)
        assert caught.value.ranks == (fault.rank,)
        (fired,) = injection.fired
        assert (fired.rank, fired.step, fired.operation) == (fault.rank, step, operation)
        assert cluster.run(loop) == RIGHT
    assert len(injection.fired) == 1


RAISES = [
    (Raise(1, at_step=2, error=ValueError), "ValueError: injected: raise ValueError on rank 1"),
    (Raise(3, after=0.05, message="mine"), "RuntimeError: mine"),
    (OutOfMemory(2, at_step=2, where="exchange"), "allocate"),
    (CutLink(0, 3, at_step=2), "a connection between two of them was cut"),
]


@pytest.mark.parametrize(("fault", "words"), RAISES, ids=[str(r[0]) for r in RAISES])
def test_an_error_says_what_happened_and_the_processes_live_on(cluster, fault: Fault, words):
    pids, before = cluster.pids, cluster.run(limits)
    with inject(cluster, fault) as injection:
        with pytest.raises(RankError, match=words) as caught:
            cluster.run(loop)
        assert isinstance(fault, CutLink) or caught.value.rank == fault.rank
        assert cluster.run(loop) == RIGHT
    assert [one.fault for one in injection.fired] == [fault]
    assert (cluster.pids, cluster.run(limits)) == (pids, before)


def test_a_hang_ends_by_itself_and_leaves_no_process(cluster):
    pids = cluster.pids
    with inject(cluster, Hang(1, at_step=2, seconds=0.4), Hang(2, at_step=4, seconds=0)) as faults:
        start = time.perf_counter()
        assert cluster.run(loop) == RIGHT
        assert time.perf_counter() - start >= 0.4
    assert faults.left() == ()
    assert cluster.pids == pids
    assert [psutil.Process(pid).children() for pid in pids] == [[]] * 4


def test_a_hang_for_good_is_found_by_the_deadline(cluster):
    with inject(cluster, Hang(1, at_step=2)) as injection:
        with pytest.raises(WorkerLost, match="no sign") as caught:
            cluster.run(loop, deadline=1.0)
        assert caught.value.ranks == (1,)
        assert cluster.run(loop) == RIGHT
    assert len(injection.fired) == 1


def test_a_gradient_becomes_nan_on_one_rank_in_one_step(cluster):
    with inject(cluster, Corrupt(2, at_step=3, element=0)) as injection:
        sums = cluster.run(loop)
    for mine in sums:
        assert mine[:3] == [4.0] * 3
        assert np.isnan(mine[3:]).all()
    assert injection.fired[0].detail == "weight[0]: 1 became nan"


def test_a_slow_link_is_slow_while_it_should_be_and_traces_say_so(cluster):
    def timed(ctx: Any) -> list[float]:
        spent = []
        for step in range(4):
            ctx.step(step)
            ctx.comm.barrier()
            start = time.perf_counter()
            ctx.comm.broadcast(torch.ones(1) if ctx.rank == 0 else None)
            spent.append(time.perf_counter() - start)
        return spent

    cluster.trace.clear()
    with inject(cluster, SlowLink(0, 1, latency="0.1s", at_step=1, until_step=3)) as injection:
        spent = cluster.run(timed)
        assert min(spent[1][1:3]) >= 0.1
        assert injection.left() == ()
    assert "a slow link between ranks 0 and 1 (0.1s more)" in cluster.trace.emulated
    cluster.run(timed)
    clean = cluster.trace.filter(launch=max(event.launch for event in cluster.trace))
    assert clean.emulated == ""


def test_survivors_and_newcomers_meet_each_fault_once(cluster):
    """Ranks get other numbers, a newcomer takes a free one, and steps are repeated."""

    def elastic(ctx: Any) -> int:
        step, again = 0, ctx.joined
        while True:
            try:
                if again:
                    step, again = int(ctx.comm.all_reduce(torch.tensor([step]), "max")), False
                while step < 12:
                    ctx.step(step, report=False)
                    ctx.comm.all_reduce(torch.ones(10))
                    step += 1
                return ctx.size
            except PeerLost:
                ctx.rebuild(4, timeout=20)
                again = True

    plan = (Kill(0, at_step=3), Kill(3, at_step=3), Kill(0, at_step=7), CutLink(1, 2, at_step=9))
    with inject(cluster, *plan) as injection:
        assert cluster.run(elastic, elastic=True) == [4] * 4
    assert injection.left() == ()
    assert [one.step for one in injection.fired] == [3, 3, 7, 9]


# --------------------------------------------------------------------------------- products

IN_PRODUCTS = [
    (Kill(1, at_operation="all_to_all_v"),),
    (Kill(0, at_operation="all_to_all_v"),),  # its worker has the store
    (Kill(3, after=0.0),),
    (Kill(1, at_operation="all_to_all_v"), Kill(2, at_operation="all_to_all_v")),
    (CutLink(0, 2, at_operation="all_to_all_v"),),
    (Raise(2, at_operation="all_to_all_v"),),
]


@pytest.mark.parametrize("faults", IN_PRODUCTS, ids=lambda some: "; ".join(map(str, some)))
def test_the_product_after_a_fault_is_right(cluster, faults: tuple[Fault, ...]):
    A = sp.random(300, 300, density=0.03, random_state=0, format="csr")
    B = np.random.default_rng(0).standard_normal((300, 8))
    dA, dB = dt.distribute(cluster, A), dt.distribute(cluster, B)
    assert np.allclose((dA @ dB).to_numpy(), A @ B)
    with inject(cluster, *faults) as injection:
        with pytest.raises((WorkerLost, RankError)) as caught:
            (dA @ dB).to_numpy()
        assert injection.fired
        if isinstance(faults[0], Kill):
            assert set(caught.value.ranks) <= {fault.rank for fault in faults}
        while injection.left():  # the launch ended before the second one came to its point
            with pytest.raises(WorkerLost):
                (dA @ dB).to_numpy()
        assert np.allclose((dA @ dB).to_numpy(), A @ B)
    assert len(injection.fired) == len(faults)


def test_refused_before_anything_runs(cluster):
    with (
        pytest.raises(ValueError, match="rank=4 is not one of the 4"),
        inject(cluster, Kill(4, at_step=1)),
    ):
        raise AssertionError
