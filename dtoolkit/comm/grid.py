"""How messages load the links of a network of D dimensions (modelled).

A message goes dimension by dimension, the first one first: in dimension k it leaves by the port of
the rank that already has the target's coordinates below k, and still the source's from k on. On a
switch and in a fully connected group it takes one hop; the bandwidth of a rank's port is there that
of all its links together, so a message may be cut into pieces that go by way of others. On a ring
it takes the short way, and each rank on that way forwards it; where both ways are equally long,
half goes either way (the odd byte by ascending coordinates).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dtoolkit.comm.dimension import Dimension

__all__ = ["dimension_loads", "pair_latency"]

Port = tuple[str, NDArray[np.int64], NDArray[np.float64]]


def dimension_loads(
    dimensions: tuple[Dimension, ...], sent: NDArray[np.int64]
) -> Iterator[tuple[Port, Port]]:
    """Load the ports of all ranks, dimension by dimension.

    Parameters
    ----------
    dimensions : tuple of Dimension
    sent : int64 array, shape (ranks, ranks)
        Bytes, [source, target].

    Yields
    ------
    (port out, port in)
        Each with its direction, the bytes by rank (int64), and the latency of the slowest message
        that goes through it (seconds).
    """
    shape = [d.ranks for d in dimensions]
    late = None
    if any(d.latency for d in dimensions):
        late = np.where(sent > 0, pair_latency(dimensions), 0.0)
    for k, dimension in enumerate(dimensions):
        low, high = math.prod(shape[:k]), math.prod(shape[k + 1 :])
        grid = (high, dimension.ranks, low, high, dimension.ranks, low)
        moved = sent.reshape(grid).sum(axis=(2, 3))  # [above, from, to, below]
        out, into = _ports(dimension, moved, np.add)
        slow_out = slow_in = np.zeros(len(sent))
        if late is not None:
            slow_out, slow_in = _ports(dimension, late.reshape(grid).max(axis=(2, 3)), np.maximum)
        yield ("out", out, slow_out), ("in", into, slow_in)


def pair_latency(dimensions: tuple[Dimension, ...]) -> NDArray[np.float64]:
    """Seconds of a message without bytes, by pair: float64 array of shape (ranks, ranks)."""
    shape = [d.ranks for d in dimensions]
    total = np.zeros((math.prod(shape),) * 2)
    for k, dimension in enumerate(dimensions):
        low, high = math.prod(shape[:k]), math.prod(shape[k + 1 :])
        c = np.arange(dimension.ranks)
        late = dimension.hops(c[:, None], c[None, :]) * dimension.latency
        grid = (high, dimension.ranks, low, high, dimension.ranks, low)
        total.reshape(grid)[...] += late[None, :, None, None, :, None]
    return total


def _ports(dimension: Dimension, moved: NDArray, gather: np.ufunc) -> tuple[NDArray, NDArray]:
    """Gather what goes [above, from, to, below] at the ports out and in of each rank."""
    n = dimension.ranks
    moved[:, np.arange(n), np.arange(n), :] = 0
    if dimension.kind != "ring" or n == 1:  # a ring of one rank has no way at all
        return gather.reduce(moved, axis=2).ravel(), gather.reduce(moved, axis=1).ravel()
    c = np.arange(n)
    away = moved[:, c[:, None], (c[:, None] + c[None, :]) % n, :]  # [above, from, steps up, below]
    up, down = away[:, :, : n // 2 + 1].copy(), away[:, :, : (n - 1) // 2 : -1].copy()
    down = np.concatenate([np.zeros_like(up[:, :, :1]), down], axis=2)  # steps down, from 0
    if n % 2 == 0 and gather is np.add:
        up[:, :, -1], down[:, :, -1] = up[:, :, -1] - up[:, :, -1] // 2, down[:, :, -1] // 2
    rising, falling = _along(up, 1, gather), _along(down, -1, gather)
    out = gather(rising, falling)
    into = gather(np.roll(rising, 1, axis=1), np.roll(falling, -1, axis=1))
    return out.ravel(), into.ravel()


def _along(steps: NDArray, way: int, gather: np.ufunc) -> NDArray:
    """Gather what departs from each rank of a ring: what has more steps to go than it has gone."""
    n, longest = steps.shape[1], steps.shape[2] - 1
    passing = gather.accumulate(steps[:, :, :0:-1], axis=2)[
        :, :, ::-1
    ]  # [above, from, gone, below]
    gone = np.arange(longest)
    begin = (np.arange(n)[:, None] - way * gone[None, :]) % n
    return gather.reduce(passing[:, begin, gone[None, :], :], axis=2)
