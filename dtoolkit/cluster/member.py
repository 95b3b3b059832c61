"""A worker as the client knows it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Member", "clock_of"]


@dataclass(frozen=True, slots=True)
class Member:
    """A worker process.

    Attributes
    ----------
    address : str
        Dask address; a worker that is started again has another one.
    pid : int
    host : str
    device : str
        ``"cpu"`` or ``"cuda:0"``.
    gpu : str
        What tells GPUs of a host apart; empty for the CPU.
    threads : int
    memory : int or None
        Limit in bytes.
    offset, clock_error : float
        Seconds to add to the worker's ``perf_counter`` to get the client's, and the bound of the
        error.
    rank : int
        -1 for a worker without a rank.
    """

    address: str
    pid: int
    host: str
    device: str
    gpu: str
    threads: int
    memory: int | None
    offset: float
    clock_error: float
    boot: str = field(repr=False, default="")
    rank: int = -1


def clock_of(pings: list[tuple[float, dict[str, Any], float]], boot: str) -> tuple[float, float]:
    """Offset and error of a worker's clock from (sent, answer, received) triples.

    Processes of one running system share the monotonic clock: the offset is exactly 0 there.
    Elsewhere the quickest exchange is taken, with half its round trip as the bound of the error.
    """
    sent, answer, received = min(pings, key=lambda ping: ping[2] - ping[0])
    if boot and answer["boot"] == boot:
        return 0.0, time.get_clock_info("perf_counter").resolution
    return (sent + received) / 2 - answer["clock"], (received - sent) / 2
