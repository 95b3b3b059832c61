"""What TrafficPanel records and reads: products, trainings and collectives on workers, files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dtoolkit import data
from dtoolkit.cluster import Cluster, Context
from dtoolkit.comm import Trace, all_reduce_scheduled
from dtoolkit.spmm import distribute, plan
from dtoolkit.training import tasks, train

__all__ = ["RECORDS", "record", "record_code", "trace_file"]

RECORDS = {
    "product": "A sparse product, by columns and rows",
    "oblivious": "The same product, everything sent",
    "training": "Eight steps of training",
    "scheduled": "An all-reduce scheduled by Themis",
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
    before = len(cluster.trace)
    _MAKERS[what](cluster)
    launches = {event.launch for event in cluster.trace.events[before:]}
    return cluster.trace.filter(launch=launches)


def record_code(what: str) -> str:
    """Python that does what is recorded, on a cluster of that name."""
    return _CODE[what]


def _product(cluster: Cluster, strategy: str = "joint") -> None:
    A = data.power_law(2000, 8, seed=0)
    made = plan(A, parts=cluster.size, strategy=strategy)
    dA, dB = distribute(cluster, A, made), distribute(cluster, np.ones((2000, 64)), made)
    dA @ dB


def _training(cluster: Cluster) -> None:
    train(cluster, tasks.digits(), steps=8)


def _scheduled(cluster: Cluster) -> None:
    size = cluster.size
    shape = (2, size // 2) if size % 2 == 0 and size > 2 else (size,)
    cluster.run(_all_reduce, shape)


def _all_reduce(ctx: Context, shape: tuple[int, ...]) -> float:
    return float(all_reduce_scheduled(ctx, torch.ones(250_000), shape, chunks=8).sum())


_MAKERS: dict[str, Callable[[Cluster], None]] = {
    "product": _product,
    "oblivious": partial(_product, strategy="oblivious"),
    "training": _training,
    "scheduled": _scheduled,
}

_PRODUCT = """\
import numpy as np

import dtoolkit as dt

A = dt.data.power_law(2000, 8, seed=0)
plan = dt.plan(A, parts=cluster.size, strategy={strategy!r})
dA = dt.distribute(cluster, A, plan)
dB = dt.distribute(cluster, np.ones((2000, 64)), plan)
C = dA @ dB
"""

_CODE = {
    "product": _PRODUCT.format(strategy="joint"),
    "oblivious": _PRODUCT.format(strategy="oblivious"),
    "training": """\
import dtoolkit as dt

run = dt.train(cluster, dt.training.tasks.digits(), steps=8)
""",
    "scheduled": """\
import torch

from dtoolkit.comm import all_reduce_scheduled

size = cluster.size
shape = (2, size // 2) if size % 2 == 0 and size > 2 else (size,)
cluster.run(lambda ctx: all_reduce_scheduled(ctx, torch.ones(250_000), shape, chunks=8).sum())
""",
}


def trace_file(name: str, content: bytes) -> Trace:
    """Read what :meth:`Trace.save` wrote.

    Raises
    ------
    ValueError
        It is none, naming the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (Path(name).name or "trace")
        path.write_bytes(content)
        try:
            return Trace.load(path)
        except (ValueError, OSError) as error:
            said = str(error).replace(str(path), name)
            raise ValueError(f"{name} is no trace: {said}") from error
