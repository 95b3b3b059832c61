"""Many collectives in the queues of one network, each over some of its ranks (modelled)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np
import pandas as pd

from dtoolkit.comm.amounts import grid_text
from dtoolkit.comm.exact import floats, rational, whole
from dtoolkit.comm.network import Dimension, Network
from dtoolkit.comm.queueing import Queues, Work
from dtoolkit.comm.schedules import Stage, schedule
from dtoolkit.comm.serving import stage_seconds
from dtoolkit.comm.themis import Policy

__all__ = ["Collective", "Collectives", "Scope", "carve"]

Scope = tuple[tuple[int, int], ...]
"""Ranks of a collective: for each dimension it visits, the dimension and the ranks along it."""


@dataclass(frozen=True)
class Collective:
    """One collective of a training step.

    Attributes
    ----------
    operation : {"all_reduce", "all_to_all"}
    nbytes : Fraction
        Of the tensor on a rank.
    scope : tuple of (int, int)
    """

    operation: str
    nbytes: Fraction
    scope: Scope


class Collectives:
    """Queues of a network that collectives of several kinds share.

    Parameters
    ----------
    dimensions : tuple of Dimension
    policy : str or Policy
    order : {"fifo", "scf"}
    chunks : int
    latency : bool
    kinds : iterable of Collective
        All that will be started.
    times : iterable of Fraction
        Seconds that must be whole numbers of the unit, too.

    Attributes
    ----------
    unit : Fraction
        Seconds of a unit of time.
    """

    def __init__(
        self,
        dimensions: tuple[Dimension, ...],
        policy: str | Policy,
        order: str,
        chunks: int,
        latency: bool,
        kinds: Iterable[Collective],
        times: Iterable[Fraction],
    ) -> None:
        self._dimensions, self._chunks, self._latency = dimensions, chunks, latency
        self._ideal = isinstance(policy, str) and policy == "ideal"
        known = list(dict.fromkeys(kinds))
        scopes = list(dict.fromkeys(kind.scope for kind in known))
        # The bound knows no dimensions: each group of ranks has all of its bandwidth at once.
        self._lanes = {scope: len(dimensions) + i for i, scope in enumerate(scopes)}
        self._orders = {s: self._stages(s, policy) for s in scopes if s and not self._ideal}
        paths = {kind: self._paths(kind) for kind in known}
        works = [work for path in paths.values() for stages in path for work in stages]
        spent, self.unit = whole([*(seconds for _, _, seconds in works), *times])
        moved, _ = whole([nbytes for _, nbytes, _ in works])
        made = iter(
            Work(stage.dimension, duration, amount)
            for (stage, _, _), duration, amount in zip(works, spent, moved, strict=False)
        )
        self._jobs = {
            kind: [([next(made) for _ in stages], stages) for stages in path]
            for kind, path in paths.items()
        }
        self.queues = Queues(len(dimensions) + len(scopes), order)
        self._labels: list[list[tuple[Stage, Fraction, Fraction]]] = []

    def start(self, kind: Collective, now: int) -> list[int]:
        """Start a collective; returns the jobs of its chunks."""
        jobs = []
        for job, labels in self._jobs[kind]:
            jobs.append(self.queues.submit(job, now))
            self._labels.append(labels)
        return jobs

    def wait(self, jobs: Iterable[int], now: int) -> int:
        """Go on until jobs are done; returns the time then."""
        for job in jobs:
            self.queues.run(until=job)
            now = max(now, self.queues.ended[job])
        return now

    def frame(self) -> pd.DataFrame:
        """What was served, as the bars of a simulation; nothing of the ideal."""
        served = [] if self._ideal else self.queues.served
        said = [self._labels[s.job][s.stage] for s in served]
        return pd.DataFrame(
            {
                "chunk": np.array([s.job for s in served], dtype=np.int64),
                "dimension": np.array([stage.dimension for stage, _, _ in said], dtype=np.int64),
                "operation": pd.Series([stage.operation for stage, _, _ in said], dtype="str"),
                "start": floats((s.start for s in served), self.unit),
                "end": floats((s.end for s in served), self.unit),
                "bytes": np.array([float(nbytes) for _, nbytes, _ in said], dtype=np.float64),
            }
        )

    def _stages(self, scope: Scope, policy: str | Policy) -> dict[str, list[tuple[Stage, ...]]]:
        """Stages of each chunk, in the dimensions of the scope, by operation."""
        own = _own(self._dimensions, scope)
        plan = schedule(Network.dims(own), policy, chunks=self._chunks)
        straight = tuple(
            Stage(k, "all_to_all", Fraction(d.ranks - 1, d.ranks)) for k, d in enumerate(own)
        )
        return {
            "all_reduce": [plan.stages(chunk) for chunk in range(self._chunks)],
            "all_to_all": [straight] * self._chunks,
        }

    def _paths(self, kind: Collective) -> list[list[tuple[Stage, Fraction, Fraction]]]:
        """For each chunk its stages, with their bytes and seconds."""
        if not kind.scope:
            return []
        own = _own(self._dimensions, kind.scope)
        if self._ideal:
            share = 1 - Fraction(1, prod(d.ranks for d in own))
            nbytes = kind.nbytes * share * (2 if kind.operation == "all_reduce" else 1)
            seconds = nbytes / sum(rational(d.bandwidth) for d in own)
            return [[(Stage(self._lanes[kind.scope], kind.operation, share), nbytes, seconds)]]
        each = kind.nbytes / self._chunks
        return [
            [
                (
                    Stage(kind.scope[s.dimension][0], s.operation, s.moved),
                    s.moved * each,
                    stage_seconds(own[s.dimension], s.moved * each, latency=self._latency),
                )
                for s in stages
            ]
            for stages in self._orders[kind.scope][kind.operation]
        ]


def carve(dimensions: tuple[Dimension, ...], ranks: int) -> tuple[Scope, Scope]:
    """Divide a grid into the first `ranks` ranks, and those that stand at the same place in others.

    Raises
    ------
    ValueError
        If `ranks` fill no whole part of the grid.
    """
    inner, outer, left = [], [], ranks
    for k, dimension in enumerate(dimensions):
        here = dimension.ranks if left % dimension.ranks == 0 else left
        if dimension.ranks % here:
            break
        left //= here
        inner.append((k, here))
        outer.append((k, dimension.ranks // here))
    else:
        if left == 1:
            return tuple(_moving(inner)), tuple(_moving(outer))
    grid = grid_text([d.ranks for d in dimensions])
    raise ValueError(f"model_ranks={ranks} fill no whole part of a grid of {grid}")


def _moving(scope: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(k, ranks) for k, ranks in scope if ranks > 1]


def _own(dimensions: tuple[Dimension, ...], scope: Scope) -> tuple[Dimension, ...]:
    return tuple(
        Dimension(dimensions[k].kind, ranks, dimensions[k].bandwidth, dimensions[k].latency)
        for k, ranks in scope
    )
