"""Functions on ranks: arguments, results, data that stays, what cannot travel."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import pytest
import torch

import dtoolkit as dt
from dtoolkit.errors import ClusterClosed, LayoutError, RankError, ShardLost


def settle(cluster: dt.Cluster, want: list[int]) -> None:
    """Data is freed some time soon after its handle is dropped."""
    end = time.monotonic() + 5
    while cluster.held != want and time.monotonic() < end:
        time.sleep(0.01)
    assert cluster.held == want


def test_results_come_by_rank(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[int, int, str]:
        time.sleep(0.02 * (3 - ctx.rank))
        return ctx.rank, ctx.size, str(ctx.device)

    assert cluster4.run(work) == [(r, 4, "cpu") for r in range(4)]
    assert cluster4.size == 4


def test_one_worker(cluster1: dt.Cluster) -> None:
    assert cluster1.run(lambda ctx: (ctx.rank, ctx.size)) == [(0, 1)]
    assert cluster1.run(lambda ctx: ctx.comm.all_reduce(torch.ones(2)).tolist()) == [[1.0, 1.0]]


def test_lambdas_closures_classes_and_keywords(cluster2: dt.Cluster) -> None:
    factor = 3

    class Model:
        def __init__(self, weight: int) -> None:
            self.weight = weight

        def __call__(self, ctx: Any, x: int, *, shift: int) -> Model:
            return Model(self.weight * x * factor + shift + ctx.rank)

    answers = cluster2.run(Model(2), 5, shift=7)
    assert [type(a).__name__ for a in answers] == ["Model", "Model"]
    assert [a.weight for a in answers] == [37, 38]
    assert (
        cluster2.run(lambda ctx, *args, **more: (args, more), 1, [2], three=3)
        == [((1, [2]), {"three": 3})] * 2
    )


def test_generators_of_a_launch_see_no_state_of_the_one_before(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[str, int]:
        return threading.current_thread().name, threading.get_ident()

    first, second = cluster2.run(work), cluster2.run(work)
    assert first == second, "a rank has one thread, kept between launches"
    assert first[0][0] == "dtoolkit-rank"


def test_threads_are_limited_where_the_function_runs(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> tuple[int, int, int]:
        import numba

        return ctx.threads, torch.get_num_threads(), numba.get_num_threads()

    assert cluster2.run(work) == [(1, 1, 1)] * 2


@pytest.mark.slow
def test_large_arguments_and_results(cluster2: dt.Cluster) -> None:
    big = torch.arange(25_000_000, dtype=torch.float32)  # 100 MB
    back = cluster2.run(lambda ctx, x: x + ctx.rank, big)
    assert torch.equal(back[0], big)
    assert torch.equal(back[1], big + 1)


def test_what_cannot_be_pickled_is_said(cluster2: dt.Cluster) -> None:
    lock = threading.Lock()

    def work(ctx: Any) -> bool:
        return lock.locked()

    with pytest.raises(TypeError, match=r"work.* cannot be pickled"):
        cluster2.run(work)
    with pytest.raises(TypeError, match="and its arguments must be sent"):
        cluster2.run(lambda ctx, x: x, lock)
    with pytest.raises(RankError, match="its result") as caught:
        cluster2.run(lambda ctx: threading.Lock())
    assert "cannot pickle" in caught.value.cause
    assert cluster2.run(lambda ctx: 1) == [1, 1]


def test_a_handle_cannot_be_pickled_by_others(cluster2: dt.Cluster) -> None:
    import pickle

    remote = cluster2.keep(lambda ctx: 1)
    with pytest.raises(TypeError, match="cannot be pickled; pass it to"):
        pickle.dumps(remote)


def test_kept_objects_stay_are_passed_and_freed(cluster2: dt.Cluster) -> None:
    settle(cluster2, [0, 0])
    remote = cluster2.keep(lambda ctx: torch.full((1000,), float(ctx.rank)))
    assert remote.nbytes == [4000, 4000] == cluster2.held
    nested = cluster2.run(lambda ctx, box: box["x"][0].sum().item(), {"x": [remote]})
    assert nested == [0.0, 1000.0]
    cluster2.run(lambda ctx, x: x.add_(1).sum().item(), remote)
    assert cluster2.fetch(remote, 1)[0] == 2.0
    del remote
    gc.collect()
    settle(cluster2, [0, 0])


def test_keep_takes_arguments_for_each_rank(cluster2: dt.Cluster) -> None:
    remote = cluster2.keep(lambda ctx, a, b: (ctx.rank, a, b), 5, per_rank=[("x",), ("y",)])
    assert [cluster2.fetch(remote, r) for r in range(2)] == [(0, 5, "x"), (1, 5, "y")]
    with pytest.raises(ValueError, match="per_rank has 3 tuples for 2 ranks"):
        cluster2.keep(lambda ctx, a: a, per_rank=[(1,), (2,), (3,)])


def test_keep_into_replaces(cluster2: dt.Cluster) -> None:
    remote = cluster2.keep(lambda ctx: torch.ones(10))
    again = cluster2.keep(lambda ctx: torch.ones(30), into=remote)
    assert again is remote
    assert remote.nbytes == [120, 120] == cluster2.held
    cluster2.put(remote, {1: torch.zeros(5)})
    assert remote.nbytes == [120, 20]
    assert cluster2.fetch(remote, 1).shape == (5,)
    remote.free()
    settle(cluster2, [0, 0])
    with pytest.raises(ShardLost, match="holds no object"):
        cluster2.fetch(remote, 0)


def test_a_failed_keep_leaves_nothing(cluster2: dt.Cluster) -> None:
    def work(ctx: Any) -> torch.Tensor:
        if ctx.rank:
            time.sleep(0.1)
            raise ValueError("no")
        return torch.ones(1000)

    with pytest.raises(RankError):
        cluster2.keep(work)
    settle(cluster2, [0, 0])


def test_a_handle_of_another_number_of_ranks_is_refused(
    cluster2: dt.Cluster, cluster4: dt.Cluster
) -> None:
    remote = cluster2.keep(lambda ctx: 1)
    with pytest.raises(LayoutError, match="laid over 2 ranks"):
        cluster4.run(lambda ctx, x: x, remote)


def test_memory_of_a_launch_is_let_go(cluster2: dt.Cluster) -> None:
    def alive(ctx: Any) -> int:
        import gc

        gc.collect()
        big = [o for o in gc.get_objects() if type(o) is torch.Tensor and o.numel() == 1_234_567]
        return len(big)

    def work(ctx: Any) -> torch.Tensor:
        big = torch.ones(1_234_567)
        ctx.comm.all_reduce(big)
        ctx.comm.all_gather(big, wait=False)
        if ctx.rank:
            raise ValueError("with the tensors in its traceback")
        return ctx.comm.all_reduce(big)

    with pytest.raises(RankError):
        cluster2.run(work)
    end = time.monotonic() + 5
    while sum(cluster2.run(alive)) and time.monotonic() < end:
        time.sleep(0.05)
    assert cluster2.run(alive) == [0, 0]


def test_workers_and_card(cluster2: dt.Cluster) -> None:
    workers = cluster2.workers
    assert [w.rank for w in workers] == [0, 1]
    assert (
        [w.pid for w in workers]
        == cluster2.pids
        == cluster2.run(lambda ctx: __import__("os").getpid())
    )
    assert all(w.threads == 1 and w.memory and w.device == "cpu" and w.host for w in workers)
    assert "2 ranks on cpu; idle" in repr(cluster2)
    assert "<" in cluster2._repr_html_()
    assert cluster2.dashboard.startswith("http")


def test_two_at_once_and_one_after_the_other() -> None:
    with dt.Cluster(workers=1, device="cpu") as first, dt.Cluster(workers=2, device="cpu") as other:
        a, b = first.submit(lambda ctx: ctx.size), other.submit(lambda ctx: ctx.size)
        assert (a.result(30), b.result(30)) == ([1], [2, 2])
    assert first.status == other.status == "closed"
    assert repr(first) == "<Cluster: closed>"
    for call in (
        lambda: first.run(print),
        lambda: first.submit(print),
        lambda: first.keep(print),
        lambda: first.workers,
        lambda: first.held,
        lambda: first.socket_bytes(),
    ):
        with pytest.raises(ClusterClosed, match="make a new one"):
            call()
    first.close()  # a second time does no harm
    with dt.Cluster(workers=1, device="cpu") as third:
        assert third.run(lambda ctx: ctx.rank) == [0]


def test_a_dropped_cluster_ends_its_workers() -> None:
    import psutil

    cluster = dt.Cluster(workers=1, device="cpu")
    (pid,) = cluster.pids
    del cluster
    gc.collect()
    psutil.Process(pid).wait(timeout=15) if psutil.pid_exists(pid) else None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1, got 0"),
        ({"workers": 2.5}, "workers must be"),
        ({"workers": 1, "threads": 0}, "threads must be"),
        ({"workers": 1, "device": "tpu"}, "device must be 'cpu' or 'cuda'"),
        ({"workers": 1, "timeout": -3}, "timeout must be"),
        ({"client": "tcp://1.2.3.4:5"}, "client must be a distributed.Client, got str"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        dt.Cluster(**arguments)


def test_wrong_timeout_of_a_launch(cluster1: dt.Cluster) -> None:
    with pytest.raises(ValueError, match="timeout must be a positive number"):
        cluster1.run(lambda ctx: 1, timeout=0)


def test_objects_put_under_a_key_outlive_what_was_freed_under_it(cluster2: dt.Cluster) -> None:
    """Workers are told to forget a moment later: that word must not hit what came since."""
    handle = cluster2.keep(lambda ctx: torch.zeros(3))
    cluster2._gang.free(handle.key)
    cluster2.put(handle, {rank: torch.full((3,), rank + 1.0) for rank in range(2)})
    time.sleep(0.2)  # longer than freed objects wait to be forgotten
    assert [cluster2.fetch(handle, rank).sum().item() for rank in range(2)] == [3.0, 6.0]


def profiled(ctx: Any) -> int:
    """Profile a few calls."""
    import cProfile

    with cProfile.Profile() as profile:
        total = sum(len(str(number)) for number in range(100))
    assert profile.getstats()
    return total


def test_a_function_may_be_profiled_in_every_launch(cluster1: dt.Cluster) -> None:
    for _ in range(3):
        assert cluster1.run(profiled, timeout=20) == [190]
    with pytest.raises(dt.errors.LaunchTimeout):
        cluster1.run(lambda ctx: [None for _ in iter(int, 1)], timeout=0.3)  # never ends
    for _ in range(2):
        assert cluster1.run(profiled, timeout=20) == [190]
