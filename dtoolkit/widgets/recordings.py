"""What TrafficPanel records, reads and writes: products, trainings, collectives, trace files."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dtoolkit import data
from dtoolkit.cluster import Cluster, Context
from dtoolkit.comm import Trace, all_reduce_scheduled
from dtoolkit.spmm import distribute, plan
from dtoolkit.training import tasks, train

__all__ = ["MOST_RANKS", "RECORDS", "perfetto", "record", "record_code", "trace_file"]

MOST_RANKS = 4096
"""Ranks of a file that is taken: the matrices of more would fill the memory."""

RECORDS = {
    "product": "Product, joint",
    "oblivious": "Product, oblivious",
    "training": "Training, 8 steps",
    "scheduled": "All-reduce, Themis",
}
"""What can be recorded: value to words."""


def record(cluster: Cluster, what: str) -> Trace:
    """Run something on workers, and return the trace of it alone.

    Parameters
    ----------
    cluster : Cluster
        Idle.
    what : str
        A key of ``RECORDS``.
    """
    if what == "training":
        return _recorded(cluster, lambda: train(cluster, tasks.digits(), steps=8))
    if what == "scheduled":
        size = cluster.size
        shape = (2, size // 2) if size % 2 == 0 and size > 2 else (size,)
        cluster.run(_all_reduce, shape)
        return _recorded(cluster, lambda: cluster.run(_all_reduce, shape))
    A = data.power_law(2000, 8, seed=0)
    made = plan(A, parts=cluster.size, strategy="joint" if what == "product" else what)
    dA, dB = distribute(cluster, A, made), distribute(cluster, np.ones((2000, 64)), made)
    dA @ dB
    return _recorded(cluster, lambda: [dA @ dB for _ in range(3)])


def _recorded(cluster: Cluster, run: Callable[[], object]) -> Trace:
    """Return the trace of one call; what has to be made ready is done before it."""
    before = len(cluster.trace)
    run()
    return cluster.trace.filter(launch={event.launch for event in cluster.trace.events[before:]})


def record_code(what: str) -> str:
    """Python that does what is recorded, on a cluster of that name; its launches are `made`."""
    code = _CODE.get(what) or _PRODUCT.format(strategy="joint" if what == "product" else what)
    return code + "made = {event.launch for event in cluster.trace.events[before:]}\n"


def _all_reduce(ctx: Context, shape: tuple[int, ...]) -> float:
    return float(all_reduce_scheduled(ctx, torch.ones(250_000), shape, chunks=8).sum())


_PRODUCT = """\
A = dt.data.power_law(2000, 8, seed=0)
plan = dt.plan(A, parts=cluster.size, strategy={strategy!r})
dA = dt.distribute(cluster, A, plan)
dB = dt.distribute(cluster, np.ones((2000, 64)), plan)
C = dA @ dB  # the first one compiles
before = len(cluster.trace)
for _ in range(3):
    C = dA @ dB
"""

_CODE = {
    "training": """\
before = len(cluster.trace)
run = dt.train(cluster, dt.training.tasks.digits(), steps=8)
""",
    "scheduled": """\
size = cluster.size
shape = (2, size // 2) if size % 2 == 0 and size > 2 else (size,)

def all_reduce(ctx, shape):
    made = dt.comm.all_reduce_scheduled(ctx, torch.ones(250_000), shape, chunks=8)
    return float(made.sum())

cluster.run(all_reduce, shape)  # the first one makes ready
before = len(cluster.trace)
cluster.run(all_reduce, shape)
""",
}


def trace_file(name: str, content: bytes) -> Trace:
    """Read what :meth:`Trace.save` wrote, by its name's ending.

    Raises
    ------
    ValueError
        In words, naming the file as the person knows it.
    """
    name = Path(name.replace("\\", "/")).name or "file"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        try:
            trace = Trace.load(path)
        except (ValueError, OSError, RecursionError) as error:
            raise ValueError(str(error).replace(str(path), name)) from error
    most = max([trace.ranks, *(max(e.rank + 1, len(e.sent)) for e in trace.events)])
    if most > MOST_RANKS:
        raise ValueError(f"{name} is of {most:,} ranks: {MOST_RANKS:,} is the most shown here")
    if sum(sum(event.sent) + event.received for event in trace) >= 2**62:
        raise ValueError(f"{name} has more bytes than 64 bits can count")
    for line, event in enumerate(trace.events, 2):
        if not math.isfinite(event.start) or not event.start <= event.end < math.inf:
            raise ValueError(
                f"{name}, line {line}: an event from {event.start} to {event.end} seconds"
            )
    return trace


def perfetto(traces: Mapping[str, Trace]) -> bytes:
    """Write traces in the Chrome trace event format; several are processes of one file."""
    files = [trace.chrome() for trace in traces.values()]
    if len(files) == 1:
        return json.dumps(files[0]).encode()
    events: list[dict[str, Any]] = []
    for number, (name, file) in enumerate(zip(traces, files, strict=True)):
        for event in file["traceEvents"]:
            event["pid"] = number
            if event["name"] == "process_name":
                event["args"] = {"name": name}
            events.append(event)
    return json.dumps({**files[0], "traceEvents": events}).encode()
