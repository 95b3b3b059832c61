"""What the trace says of each operation: bytes by formula, phases, groups, the sockets' word."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dtoolkit as dt
from dtoolkit.comm.messages import BEGUN
from tests import sockets

P = 4
BEGINNING = {"begins", "_begins", "_exchange", "_exchange_packed"}  # what is told of each


def off_diagonal(value: int) -> np.ndarray:
    return value * (1 - np.eye(P, dtype=np.int64))


def only(rank: int, *, row: bool, value: int) -> np.ndarray:
    """Bytes that only one rank sends (row) or gets."""
    matrix = np.zeros((P, P), np.int64)
    if row:
        matrix[rank] = value
    else:
        matrix[:, rank] = value
    np.fill_diagonal(matrix, 0)
    return matrix


N = 4000  # elements of float32, a multiple of the ranks
BYTES = 4 * N
CASES = {
    # 2 (P-1)/P of the bytes leave each rank: a piece to each peer, then the sum of its own.
    "all_reduce": (lambda c: c.all_reduce(torch.ones(N)), off_diagonal(2 * BYTES // P)),
    "all_gather": (lambda c: c.all_gather(torch.ones(N)), off_diagonal(BYTES)),
    "all_gather_v": (
        lambda c: c.all_gather_v(torch.ones(c.rank + 1)),
        np.array([[0 if s == t else 4 * (s + 1) for t in range(P)] for s in range(P)]),
    ),
    "reduce_scatter": (lambda c: c.reduce_scatter(torch.ones(N)), off_diagonal(BYTES // P)),
    "all_to_all": (
        lambda c: c.all_to_all([torch.ones(10 * t) for t in range(P)]),
        np.array([[0 if s == t else 40 * t for t in range(P)] for s in range(P)]),
    ),
    "all_to_all_v": (
        lambda c: c.all_to_all_v(torch.ones(6, 100), [0, 1, 2, 3]),
        np.array([[0 if s == t else 400 * t for t in range(P)] for s in range(P)]),
    ),
    "broadcast": (
        lambda c: c.broadcast(torch.ones(N) if c.rank == 1 else None, 1),
        only(1, row=True, value=BYTES),
    ),
    "gather": (lambda c: c.gather(torch.ones(N), 3), only(3, row=False, value=BYTES)),
    "scatter": (
        lambda c: c.scatter([torch.ones(N)] * P if c.rank == 2 else None, 2),
        only(2, row=True, value=BYTES),
    ),
    "barrier": (lambda c: c.barrier(), off_diagonal(0)),
    "split": (lambda c: c.split(0), off_diagonal(16)),
}


@pytest.mark.parametrize(
    ("name", "wait"),
    [(name, wait) for name in CASES for wait in (True, False) if wait or name != "split"],
)
def test_one_call_is_one_event_with_exact_bytes(
    cluster4: dt.Cluster, name: str, wait: bool
) -> None:
    call, want = CASES[name]

    def work(ctx: Any, call: Any, wait: bool) -> None:
        class Comm:
            """Passes wait=False on."""

            rank = ctx.rank

            def __getattr__(self, operation: str) -> Any:
                method = getattr(ctx.comm, operation)
                return method if wait else lambda *args: method(*args, wait=False)

        call(Comm())

    cluster4.trace.clear()
    cluster4.run(work, call, wait)
    events = cluster4.trace.events
    assert [e.operation for e in events] == [name] * P
    assert sorted(e.rank for e in events) == list(range(P))
    np.testing.assert_array_equal(cluster4.trace.matrix(), want)
    by_rank = {e.rank: e for e in events}
    assert [by_rank[r].received for r in range(P)] == want.sum(0).tolist()
    for event in events:
        assert event.end >= event.start
        assert event.group == ""


def test_what_is_agreed_on_is_recorded_alike(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        came = torch.empty(4 * ctx.rank, 100)
        ctx.comm.all_to_all_v(
            torch.ones(6, 100), [0, 1, 2, 3], [ctx.rank] * P, out=came, agreed=True
        )

    cluster4.trace.clear()
    cluster4.run(work)
    _, want = CASES["all_to_all_v"]
    assert [e.operation for e in cluster4.trace] == ["all_to_all_v"] * P
    np.testing.assert_array_equal(cluster4.trace.matrix(), want)
    assert {e.rank: e.received for e in cluster4.trace} == dict(enumerate(want.sum(0).tolist()))


def test_send_and_recv(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        if ctx.rank == 3:
            ctx.comm.send(torch.ones(1000), 1)
        elif ctx.rank == 1:
            ctx.comm.recv()

    cluster4.trace.clear()
    cluster4.run(work)
    assert sorted((e.rank, e.operation, sum(e.sent), e.received) for e in cluster4.trace) == [
        (1, "recv", 0, 4000),
        (3, "send", 4000, 0),
    ]
    assert cluster4.trace.matrix()[3, 1] == cluster4.trace.total == 4000


def test_phases_are_those_of_the_call(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> None:
        ctx.comm.barrier()
        with ctx.comm.phase("halo", source="client 7", target="server"):
            ctx.comm.all_reduce(torch.ones(3))
            with ctx.comm.phase("inner"):
                late = ctx.comm.all_gather(torch.ones(500), wait=False)
            part = ctx.comm.split(ctx.rank % 2)
            part.all_reduce(torch.ones(2))
        late.wait()
        try:
            with ctx.comm.phase("broken"):
                raise KeyError
        except KeyError:
            ctx.comm.barrier()

    cluster4.trace.clear()
    cluster4.run(work)
    mine = [e for e in cluster4.trace if e.rank == 1]
    assert [(e.operation, e.phase, e.source, e.target) for e in mine] == [
        ("barrier", "", "", ""),
        ("all_reduce", "halo", "client 7", "server"),
        ("split", "halo", "client 7", "server"),
        ("all_reduce", "halo", "client 7", "server"),
        ("all_gather", "inner", "", ""),
        ("barrier", "", "", ""),
    ]


def test_a_subgroup_counts_for_the_ranks_of_the_cluster(cluster4: dt.Cluster) -> None:
    def work(ctx: Any) -> str:
        part = ctx.comm.split(ctx.rank % 2, key=-ctx.rank)
        part.all_gather(torch.ones(100))
        return part.name

    cluster4.trace.clear()
    names = cluster4.run(work)
    assert names[0] == names[2] != names[1] == names[3]
    events = cluster4.trace.filter(operation="all_gather")
    assert {(e.rank, e.group) for e in events} == {(r, names[r]) for r in range(P)}
    want = np.zeros((P, P), np.int64)
    want[[0, 2, 1, 3], [2, 0, 3, 1]] = 400
    np.testing.assert_array_equal(events.matrix(), want)


def test_recording_can_be_off(cluster4: dt.Cluster) -> None:
    cluster4.trace.clear()
    cluster4.trace.enabled = False
    try:
        cluster4.run(lambda ctx: ctx.comm.barrier())
        assert len(cluster4.trace) == 0
    finally:
        cluster4.trace.enabled = True
    cluster4.run(lambda ctx: ctx.comm.barrier())
    assert len(cluster4.trace) == P


def test_times_are_on_the_clients_clock(cluster4: dt.Cluster) -> None:
    import time

    cluster4.trace.clear()
    before = time.perf_counter()
    cluster4.run(lambda ctx: (ctx.comm.barrier(), ctx.clock())[1])
    after = time.perf_counter()
    error = cluster4.trace.clock_error
    assert 0 <= error < 0.1
    for event in cluster4.trace:
        assert before - error <= event.start <= event.end <= after + error
    latest = max(e.start for e in cluster4.trace)
    assert all(e.end >= latest - 2 * error for e in cluster4.trace), "nobody leaves a barrier early"


@pytest.mark.parametrize("split", [False, True], ids=["all ranks", "in subgroups"])
def test_the_kernel_counted_the_same_bytes(cluster4: dt.Cluster, split: bool) -> None:
    def work(ctx: Any, split: bool) -> None:
        comm = ctx.comm.split(ctx.rank % 2) if split else ctx.comm
        for n in (300_000, 700_001):
            comm.all_reduce(torch.ones(n))
            comm.all_to_all([torch.ones(n + 1000 * t) for t in range(comm.size)])
            comm.all_gather(torch.ones(n // 2))

    cluster4.run(lambda ctx: ctx.comm.barrier())
    moved = sockets.counted(cluster4, lambda: cluster4.run(work, split))
    sockets.hold(moved, cluster4.trace.matrix())


def test_every_operation_that_begins_is_named() -> None:
    begun = set()
    for path in (Path(dt.__file__).parent / "comm").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            said: ast.expr | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                said = node.args[0] if node.func.attr in BEGINNING else None
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "operation":
                said = node.value  # of a standing operation, in its class
            if isinstance(said, ast.Constant):
                begun.add(said.value)
    assert begun == set(BEGUN)
