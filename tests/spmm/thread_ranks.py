"""Ranks as threads of one process: the real communicator over queues in place of sockets.

So a product runs over any number of ranks in a few milliseconds, without workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dtoolkit.comm.communicator import Communicator
from dtoolkit.comm.pending import Interrupt, Pending
from dtoolkit.comm.recorder import Recorder
from dtoolkit.comm.transport import HEADER
from dtoolkit.spmm import product
from dtoolkit.spmm.operand import Operand

_DEADLINE = 30.0  # seconds until a rank whose peers have failed gives up


class Board:
    """Where ranks leave what others take: by sender, receiver and tag."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._guard = threading.Lock()
        self._queues: dict[tuple[int, int, int], SimpleQueue[torch.Tensor]] = {}

    def queue(self, source: int, target: int, tag: int) -> SimpleQueue[torch.Tensor]:
        with self._guard:
            return self._queues.setdefault((source, target, tag), SimpleQueue())


class ThreadTransport:
    """What a communicator needs of a process group, for one thread."""

    in_order = False

    def __init__(self, board: Board, rank: int) -> None:
        self.board, self.rank, self.size = board, rank, board.size
        self.interrupt = Interrupt()

    def headers(self, blocks: torch.Tensor, timeout: float) -> torch.Tensor:
        for peer in range(self.size):
            self.board.queue(self.rank, peer, -1).put(blocks[peer].clone())
        received = torch.empty((self.size, HEADER), dtype=torch.uint8)
        for peer in range(self.size):
            received[peer] = self.board.queue(peer, self.rank, -1).get(timeout=_DEADLINE)
        return received

    def exchange(
        self,
        sends: Sequence[torch.Tensor | None],
        receives: Sequence[torch.Tensor | None],
        tag: int,
        *,
        packed: bool = False,
    ) -> Pending:
        for peer, data in enumerate(sends):
            if data is not None and data.numel():
                self.board.queue(self.rank, peer, tag).put(data.clone())

        def land() -> None:
            for peer, data in enumerate(receives):
                if data is not None and data.numel():
                    data.copy_(self.board.queue(peer, self.rank, tag).get(timeout=_DEADLINE))

        pending = Pending(self.interrupt, land)
        pending.complete()
        return pending


def run(size: int, function: Callable[..., Any], per_rank: Sequence[tuple[Any, ...]]) -> list[Any]:
    """``function(ctx, *per_rank[rank])`` on every rank at the same time, results by rank.

    ``ctx.recorder.events`` tells what each sent, as on a worker.
    """
    board = Board(size)

    def rank_of(rank: int) -> Any:
        recorder = Recorder(rank=rank, ranks=size)
        comm = Communicator(ThreadTransport(board, rank), recorder)
        ctx = SimpleNamespace(
            rank=rank, size=size, comm=comm, recorder=recorder, threads=1, device="cpu"
        )
        return function(ctx, *per_rank[rank])

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank_of, range(size)))


def multiplied(
    plan: Any, operands: Sequence[Operand], B: torch.Tensor, *, transpose: bool = False
) -> tuple[torch.Tensor, np.ndarray]:
    """The product put together, and the bytes that moved, [source, target]."""
    before, after = (plan.rows, plan.columns) if transpose else (plan.columns, plan.rows)
    shards = [B[torch.tensor(before.indices(rank))] for rank in range(plan.parts)]

    def one(ctx: Any, A: Operand, shard: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        C = product(ctx, A, shard, transpose=transpose)
        phases = tuple(event.phase for event in ctx.recorder.events)
        assert phases == (plan.phases[::-1] if transpose else plan.phases)
        sent = [event.sent for event in ctx.recorder.events]
        return C, np.array(sent, np.int64).reshape(-1, plan.parts).sum(axis=0)

    found = run(plan.parts, one, list(zip(operands, shards, strict=True)))
    whole = torch.empty((after.n, *B.shape[1:]), dtype=found[0][0].dtype)
    for rank, (C, _) in enumerate(found):
        whole[torch.tensor(after.indices(rank))] = C
    return whole, np.array([sent for _, sent in found], np.int64)
