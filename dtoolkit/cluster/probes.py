"""What calibration lets the ranks do: short pieces of work, timed on the ranks themselves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dtoolkit.cluster.context import Context

__all__ = ["Work", "compute", "copying", "nothing", "overlap", "pings", "talk", "touch"]

Work = Callable[[Context, str, int], tuple[float, Callable[[], object]]]
"""``work(ctx, dtype, seed)``: an amount, in nonzeros times columns, and what computes it."""

_WIDTH = 64  # float32 numbers of a row that is sent


def nothing(ctx: Context) -> None:
    """What is left is the launch."""


def touch(ctx: Context) -> None:
    """Exchange next to nothing; what is left is the launch."""
    none = [torch.zeros(0 if peer == ctx.rank else 1) for peer in range(ctx.size)]
    ctx.comm.all_to_all(none, out=[torch.empty_like(t) for t in none], agreed=True)


def pings(
    ctx: Context, pairs: Sequence[tuple[int, int]], sizes: Sequence[int], rounds: int
) -> dict[tuple[int, int], list[list[float]]]:
    """Pairs of ranks, one after the other, send a message to and fro while all others wait.

    Returns
    -------
    dict
        Of the pairs that this rank is the first of: half of each round trip in seconds, by size.
    """
    found: dict[tuple[int, int], list[list[float]]] = {}
    for pair in pairs:
        ctx.comm.barrier()
        if ctx.rank in pair:
            peer = pair[1 - pair.index(ctx.rank)]
            times = [_ping(ctx, peer, ctx.rank == pair[0], size, rounds) for size in sizes]
            if ctx.rank == pair[0]:
                found[pair] = times
    ctx.comm.barrier()
    return found


def talk(ctx: Context, nbytes: int, rounds: int, seed: int) -> list[float]:
    """All ranks send to all at once: rows picked from where they lie, as a product's are.

    Returns
    -------
    list of float
        Seconds of this rank, by round.
    """
    exchange = _exchange(ctx, nbytes, seed)
    return [_timed(ctx, lambda: exchange().wait()) for _ in range(rounds + 1)][1:]


def copying(ctx: Context, nbytes: int, rounds: int) -> float:
    """Bytes a second that a rank copies in its own memory, where it has nobody to send to."""
    data = torch.zeros(max(1, nbytes), dtype=torch.uint8, device=ctx.device)
    times = [_timed(ctx, data.clone) for _ in range(rounds + 1)][1:]
    return data.numel() / statistics.median(times)


def compute(
    ctx: Context, work: Work, dtypes: Sequence[str], rounds: int, seed: int
) -> dict[str, tuple[float, list[float]]]:
    """All ranks compute at once; by dtype the amount, and seconds of this rank by round."""
    made = {dtype: work(ctx, dtype, seed) for dtype in dtypes}
    for _, run in made.values():
        run()  # compiles
    times = [{dtype: _timed(ctx, run) for dtype, (_, run) in made.items()} for _ in range(rounds)]
    return {dtype: (made[dtype][0], [one[dtype] for one in times]) for dtype in dtypes}


def overlap(
    ctx: Context, work: Work, dtype: str, nbytes: int, repeats: int, rounds: int, seed: int
) -> list[list[float]]:
    """All ranks send, then compute, then do both at once, round by round.

    Returns
    -------
    list of list of float
        Seconds of this rank for sending, computing, and both, by round.
    """
    exchange = _exchange(ctx, nbytes, seed)
    _, run = work(ctx, dtype, seed)

    def compute_all() -> None:
        for _ in range(repeats):
            run()

    def both() -> None:
        pending = exchange()
        compute_all()
        pending.wait()

    times = [
        [_timed(ctx, what) for what in (lambda: exchange().wait(), compute_all, both)]
        for _ in range(rounds + 1)
    ]
    return [list(column) for column in zip(*times[1:], strict=True)]


def _timed(ctx: Context, work: Callable[[], object]) -> float:
    ctx.comm.barrier()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _ping(ctx: Context, peer: int, first: bool, size: int, rounds: int) -> list[float]:
    data = torch.zeros(size, dtype=torch.uint8)
    halves = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        if first:
            ctx.comm.send(data, peer)
        ctx.comm.recv(peer)
        if not first:
            ctx.comm.send(data, peer)
        halves.append((time.perf_counter() - start) / 2)
    return halves[1:]


def _exchange(ctx: Context, nbytes: int, seed: int) -> Callable[[], Any]:
    """What picks rows for every peer and starts the exchange, in buffers that are used again."""
    rows = max(1, nbytes // (4 * _WIDTH))
    counts = [0 if peer == ctx.rank else rows for peer in range(ctx.size)]
    source = torch.ones((rows, _WIDTH), device=ctx.device)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).to(ctx.device)
    there, here = (
        [torch.zeros((n, _WIDTH), device=ctx.device) for n in counts] for _ in ("there", "here")
    )

    def start() -> Any:
        for message in there:
            if len(message):
                torch.index_select(source, 0, order, out=message)
        return ctx.comm.all_to_all(there, out=here, agreed=True, wait=False)

    return start
