"""What ``strategy="auto"`` chooses: by rows that move, or by predicted time on a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtoolkit.comm import Network, predict
from dtoolkit.errors import PlanError
from dtoolkit.spmm.decisions import Decision, Problem, decide, replication_of
from dtoolkit.spmm.load import Load
from dtoolkit.spmm.strategies import NAMES, OVER_GRID, OVER_NODES, resolve

if TYPE_CHECKING:
    from dtoolkit.spmm.planned import Plan

__all__ = ["PACKING_SURCHARGE", "Candidate", "by_time", "by_volume", "check_network"]

PACKING_SURCHARGE = 0.25
"""Extra time of a row that is picked by index, over one that is sent with its whole shard.

An exchange by index gathers rows into a buffer and scatters what comes; an all-gather sends shards
as they lie. Where no network is given, ``strategy="auto"`` holds ``rows * (1 + PACKING_SURCHARGE)``
of the busiest rank against the rows of an all-gather. Measured by ``python -m
tests.benchmarks.spmm`` with 4 ranks on 2 cores: where 494,000 rows go by index and 600,000 by
all-gather, the all-gather takes 0.84 to 1.06 of the time; where 146,000 do, 1.7 times as long.
"""


@dataclass(frozen=True)
class Candidate:
    """A strategy that ``"auto"`` considered on a network.

    Attributes
    ----------
    strategy : str
    seconds : float
        Of one product (modelled).
    bottleneck : str
        What takes most of it, in words.
    """

    strategy: str
    seconds: float
    bottleneck: str


def by_volume(loads: tuple[Load, ...], weights: tuple[int, int]) -> tuple[str, str]:
    """Pick all-gather or exchange by index, by what the busiest rank sends and receives.

    Returns
    -------
    strategy, reason : str
    """
    by_name = {load.strategy: load for load in loads}
    whole = float(by_name["oblivious"].weighed(weights).max())
    picked = float(by_name["joint"].weighed(weights).max())
    name = "oblivious" if whole < picked * (1 + PACKING_SURCHARGE) else "joint"
    unit = "rows" if weights == (1, 1) else f"row weights ({weights[0]}:{weights[1]}, B:C)"
    return name, (
        f"auto chose {'all-gather' if name == 'oblivious' else 'the exchange by index'}: the "
        f"busiest rank moves {whole:,.0f} {unit} by all-gather, {picked:,.0f} by index, each of "
        f"the latter reckoned {PACKING_SURCHARGE:.0%} dearer for packing"
    )


def by_time(
    problem: Problem,
    network: Network,
    replication: int | None,
    plan_of: Callable[[str, Decision], Plan],
    *,
    k: int,
    b_dtype: Any,
    c_dtype: Any,
) -> tuple[Plan, tuple[Candidate, ...], str]:
    """Plan with every strategy that these ranks allow, and keep what is predicted to be fastest.

    Parameters
    ----------
    problem : Problem
    network : Network
    replication : int or None
        Of ``"1.5d"``.
    plan_of : callable
        Makes a plan of a strategy's name and decision.
    k : int
        Dense columns.
    b_dtype, c_dtype : dtype or None
        Of B and C; by default float32.

    Returns
    -------
    plan : Plan
    candidates : tuple of Candidate
        The fastest first; of equally fast ones that which moves less, then the simpler.
    reason : str
    """
    ranked: list[tuple[tuple[float, int, int], Candidate]] = []
    best: Plan | None = None
    for name in _allowed(problem, replication):
        decision = decide(problem, *resolve(name), replication if name == "1.5d" else None)
        made = plan_of(name, decision)
        said = predict(
            made,
            network,
            k=k,
            dtype="float32" if b_dtype is None else b_dtype,
            c_dtype=c_dtype,
        )
        key = (said.seconds, made.volume, NAMES.index(name))
        if not ranked or key < min(found for found, _ in ranked):
            best = made
        ranked.append((key, Candidate(name, said.seconds, said.bottleneck)))
    assert best is not None  # the flat ones are always allowed
    candidates = tuple(candidate for _, candidate in sorted(ranked, key=lambda pair: pair[0]))
    return (
        best,
        candidates,
        (f"auto chose it by predicted time on {network.name} with {k} columns (modelled)"),
    )


def check_network(network: Any, parts: int) -> None:
    """Refuse what is no network of so many ranks.

    Raises
    ------
    PlanError
        Naming what came.
    """
    if not isinstance(network, Network):
        raise PlanError(f"network={network!r}: wanted a dtoolkit.comm.Network")
    if network.ranks != parts:
        raise PlanError(
            f"network= has {network.ranks:,} ranks ({network.name}) and parts={parts:,}: make a "
            f"network of {parts:,} ranks"
        )


def _allowed(problem: Problem, replication: int | None) -> Iterator[str]:
    """Names of the strategies that can serve the problem, each doing something of its own."""
    nodes = problem.nodes
    count = 1 if nodes is None else len(np.unique(nodes))
    tiers = nodes is not None and 1 < count < len(nodes)
    grids: set[int] = set()
    for name in NAMES:
        if name == "auto" or (name in OVER_NODES and not tiers):
            continue
        if name in OVER_GRID:
            try:
                members = replication_of(
                    problem.parts, name, replication if name == "1.5d" else None
                )
            except PlanError:
                if replication is not None and name == "1.5d":
                    raise
                continue
            if members is None or members == 1 or members in grids:
                continue
            grids.add(members)
        yield name
