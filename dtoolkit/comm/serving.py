"""Chunks of a schedule in the queues of its dimensions: how long stages take, and who is served.

A stage takes its bytes over the dimension's bandwidth, and a latency for each step of the
dimension's algorithm, one after the other.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from dtoolkit.comm.dimension import Dimension
from dtoolkit.comm.exact import rational, whole
from dtoolkit.comm.queueing import Queues, Work
from dtoolkit.comm.schedules import Schedule

__all__ = ["call_order", "serve", "stage_seconds", "steps"]


def steps(dimension: Dimension) -> int:
    """Latencies that a reduce-scatter or an all-gather in a dimension pays, one after the other."""
    if dimension.ranks == 1:
        return 0
    if dimension.kind == "ring":
        return dimension.ranks - 1
    if dimension.kind == "fc":
        return 1
    return (dimension.ranks - 1).bit_length()


def stage_seconds(dimension: Dimension, nbytes: Fraction, *, latency: bool) -> Fraction:
    """Time of a stage in which each rank sends `nbytes` in a dimension, exactly."""
    wire = nbytes / rational(dimension.bandwidth)
    return wire + steps(dimension) * rational(dimension.latency) if latency else wire


def serve(
    plan: Schedule, dimensions: tuple[Dimension, ...], each: Fraction, order: str, latency: bool
) -> tuple[Queues, Fraction]:
    """Run the queues for chunks of `each` bytes; returns them, and the seconds of their unit."""
    stages = [plan.stages(chunk) for chunk in range(plan.chunks)]
    kinds = sorted({(s.dimension, s.moved) for one in stages for s in one})
    lasts = [stage_seconds(dimensions[k], moved * each, latency=latency) for k, moved in kinds]
    durations, unit = whole(lasts)
    amounts, _ = whole([moved for _, moved in kinds])
    work = {
        kind: Work(kind[0], duration, amount)
        for kind, duration, amount in zip(kinds, durations, amounts, strict=True)
    }
    queues = Queues(len(dimensions), order)
    for one in stages:
        queues.submit([work[s.dimension, s.moved] for s in one])
    queues.run()
    return queues, unit


@lru_cache(maxsize=64)
def call_order(plan: Schedule, order: str = "fifo") -> tuple[tuple[int, int], ...]:
    """In what order stages begin in the model without latency: (chunk, number of its stage).

    It does not depend on the size, and keeps a chunk's stages in their order: ranks that all make
    their calls in this order cannot wait for each other in a circle.
    """
    queues, _ = serve(plan, plan.dimensions, Fraction(1), order, latency=False)
    return tuple((s.job, s.stage) for s in queues.served)
